"""Work ready to launch, a Workload above all, and the few moves that every source of numbers needs."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import Any, TypeVar

import torch

from kernels.own import is_own
from kernels.own_forward import forward_of
from kernels.own_import import OwnCallable, imported
from kernels.problem import AttentionProblem, TileConfig
from kernels.run import Backward, LaunchHook, Output
from profiler.codec import encode
from profiler.run import DeviceInfo
from profiler.workload import CPU, Workload

# For how long the GPU spins while a pass is queued, one after the other until that was long enough: 2, 16 and 128 ms.
HEAD_STARTS_CYCLES = (4_000_000, 32_000_000, 256_000_000)
FALLBACK_L2_BYTES = 128 * 2**20  # above the L2 of any GPU of 2026


Found = TypeVar("Found")
Inputs = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


@dataclass(frozen=True)
class TimedPass:
    """A pass, or one launch, between two events. `waited` tells that the GPU may have waited for the host within it."""

    start: torch.cuda.Event
    end: torch.cuda.Event
    waited: bool

    @property
    def seconds(self) -> float:
        """From one event to the other; both must have passed."""
        return float(self.start.elapsed_time(self.end)) * 1e-3


@dataclass(frozen=True)
class PassTensors:
    """Tensors of a pass by name: those there before it, the bytes of those it makes, and what each launch writes."""

    before: Mapping[str, torch.Tensor] = field(default_factory=dict)
    sizes: Mapping[str, int] = field(default_factory=dict)
    writes: Mapping[str, frozenset[str]] = field(default_factory=dict)


class Load:
    """Work on one device that can be launched again and again: what sources of numbers measure.

    `spec` is plain JSON from which profiler.loads.build makes the same Load in another process. compulsory_bytes are
    those of one pass, which makes the launches of `launch_names`.
    """

    spec: dict[str, Any]
    l2 = "cold"
    drain = True
    repeats = 20
    tensors = PassTensors()  # as far as they are known
    compulsory_bytes: int
    launch_names: tuple[str, ...]

    def __init__(self, device: DeviceInfo) -> None:
        self.device = device

    def launch(self, hook: LaunchHook = nullcontext) -> Any:
        """One pass, asynchronous; `hook` is entered around each kernel launch by name."""
        raise NotImplementedError

    def spin(self, cycles: int = HEAD_STARTS_CYCLES[0]) -> None:
        """Keep the GPU busy for so many clocks, without any traffic, while the host queues what comes next."""
        torch.cuda._sleep(cycles)

    def timed_pass(self) -> TimedPass:
        """One pass between two events, L2 prepared before the first, and queued as a whole before the first passes.

        Where the host was too slow for that it is done anew, with a longer head start.
        """
        return self._timed(self.launch)[0]

    def timed_launches(self) -> tuple[TimedPass, tuple[tuple[str, TimedPass], ...]]:
        """As timed_pass, and each of its launches by name between two events of its own."""
        one, found = self._timed(self._mark_launches)
        return one, tuple((name, TimedPass(start, end, one.waited)) for name, start, end in found)

    def _timed(self, launch: Callable[[], Found]) -> tuple[TimedPass, Found]:
        for cycles in HEAD_STARTS_CYCLES:
            self.prepare_l2()
            self.spin(cycles)
            start = _event()
            found = launch()
            end = _event()
            waited = start.query()
            if not waited:
                break
        return TimedPass(start, end, waited), found

    def _mark_launches(self) -> list[tuple[str, torch.cuda.Event, torch.cuda.Event]]:
        found = []

        @contextmanager
        def marked(name: str) -> Iterator[None]:
            start = _event()
            yield
            found.append((name, start, _event()))

        self.launch(hook=marked)
        return found

    def synchronize(self) -> None:
        """Wait for everything launched so far."""
        if self.device.device != CPU:
            torch.cuda.synchronize(self.device.device)

    def prepare_l2(self) -> None:
        """Bring L2 into the state that is asked for: cold evicts everything, warm runs one pass before."""
        if self.l2 == "cold":
            self.evict_l2()
        else:
            self.launch()

    def evict_l2(self) -> None:
        """Replace what L2 holds by clean lines, by reading a scratch buffer of twice its size.

        What was dirty is written back to HBM, and nothing of the eviction itself is written back later.
        """
        torch.sum(self._scratch, dim=0, out=self._sum)

    @cached_property
    def _scratch(self) -> torch.Tensor:
        size = 2 * (self.device.l2_bytes or FALLBACK_L2_BYTES)
        return torch.ones(size // 4, dtype=torch.float32, device=self.device.device)

    @cached_property
    def _sum(self) -> torch.Tensor:
        return torch.empty((), dtype=torch.float32, device=self.device.device)


class Bench(Load):
    """A Workload ready to launch, with its inputs on the device.

    `given` and `inputs` are an own kernel and tensors that are here and nowhere else: no other process can make the
    same, so the spec is empty then. is_shared tells that other kernels run on the same inputs.
    """

    def __init__(
        self, workload: Workload, device: DeviceInfo, given: OwnCallable | None = None, inputs: Inputs | None = None
    ) -> None:
        super().__init__(device)
        self.workload = workload
        self.spec = {"workload": encode(workload)} if given is None and inputs is None else {}
        self.l2, self.drain, self.repeats = workload.l2, workload.drain, workload.repeats
        self.compulsory_bytes = workload.problem.compulsory_bytes
        self.inputs = inputs or draw_inputs(workload.problem, workload.seed, workload.device)
        self.do = draw_do(workload.problem, workload.seed, workload.device) if workload.problem.backward else None
        kernel = workload.attention_kernel
        self.own = given or (imported(workload.kernel) if is_own(workload.kernel) else None)
        self.is_shared = inputs is None and self.own is None
        if not self.is_shared:
            forget_inputs()  # nobody else is measured on what an own kernel may write into
        self._forward: Callable[..., Output] = kernel.forward if given is None else forward_of(given)
        self._tile = workload.tile or TileConfig()
        self._prepared = kernel.prepare(workload.problem, self._tile, workload.device) if kernel.prepare else None
        self.programs_at_once = kernel.programs_at_once(workload.problem, self._tile) if workload.on_gpu else None
        self.schedule = kernel.schedule(workload.problem, self._tile).with_wave(self.programs_at_once or 1)
        self.launch_names = tuple(launch.name for launch in self.schedule.launches)
        self.tensors = self._pass_tensors()

    def _pass_tensors(self) -> PassTensors:
        before = dict(zip("qkv", self.inputs, strict=True))
        if self.do is not None:
            before["do"] = self.do
        if isinstance(self._prepared, torch.Tensor):
            before["mask"] = self._prepared
        made = self.workload.attention_kernel.temporaries(self.workload.problem, self._tile)
        return PassTensors(
            before,
            {name: size for name, size in made.items() if size and name not in before},
            {launch.name: frozenset(launch.writes) for launch in self.schedule.launches},
        )

    def launch(self, hook: LaunchHook = nullcontext, **extra: object) -> Output:
        """One pass, forward and, where the problem asks for it, backward: asynchronous.

        `hook` is entered around each kernel launch by name; `extra` goes to the forward pass.
        """
        problem = self.workload.problem
        options = {"launch": hook, "finite": True, "prepared": self._prepared} | extra
        output: Output = self._forward(*self.inputs, problem, self._tile, **options)
        if self.do is None:
            return output
        backward: Backward = self.workload.attention_kernel.backward
        return replace(
            output, p=None, gradients=backward(*self.inputs, output, self.do, problem, self._tile, hook, True)
        )


def _event() -> torch.cuda.Event:
    """One that passes when the GPU gets to here."""
    event = torch.cuda.Event(enable_timing=True)
    event.record()
    return event


def draw_inputs(problem: AttentionProblem, seed: int, device: str) -> Inputs:
    """Random normal q, k, v of the problem, drawn on the device; the same seed on the same device gives the same."""
    q, k, v, *_ = _drawn(problem, seed, device)
    return q, k, v


def draw_do(problem: AttentionProblem, seed: int, device: str) -> torch.Tensor:
    """Random normal dO of a problem with a backward pass, drawn after q, k and v."""
    return _drawn(problem, seed, device)[3]


def forget_inputs() -> None:
    """Let go of what was drawn last."""
    _drawn.cache_clear()


@lru_cache(maxsize=1)
def _drawn(problem: AttentionProblem, seed: int, device: str) -> tuple[torch.Tensor, ...]:
    generator = torch.Generator(device).manual_seed(seed)
    dtype = getattr(torch, problem.dtype)
    q_shape = (problem.batch, problem.heads, problem.seq_len_q, problem.head_dim)
    kv_shape = (problem.batch, problem.kv_heads, problem.seq_len_kv, problem.head_dim)
    shapes = (q_shape, kv_shape, kv_shape, *((q_shape,) if problem.backward else ()))
    return tuple(torch.randn(shape, generator=generator, device=device, dtype=dtype) for shape in shapes)
