"""Work ready to launch, a Workload above all, and the few moves that every source of numbers needs."""

from contextlib import nullcontext
from functools import cached_property, lru_cache
from typing import Any

import torch

from kernels.problem import AttentionProblem, TileConfig
from kernels.run import LaunchHook, Output
from profiler.codec import encode
from profiler.run import DeviceInfo
from profiler.workload import CPU, Workload

HEAD_START_CYCLES = 200_000  # about 0.1 ms
FALLBACK_L2_BYTES = 128 * 2**20  # above the L2 of any GPU of 2026


class Load:
    """Work on one device that can be launched again and again: what sources of numbers measure.

    `spec` is plain JSON from which profiler.loads.build makes the same Load in another process. compulsory_bytes are
    those of one pass, which makes the launches of `launch_names`.
    """

    spec: dict[str, Any]
    l2 = "cold"
    drain = True
    repeats = 20
    compulsory_bytes: int
    launch_names: tuple[str, ...]

    def __init__(self, device: DeviceInfo) -> None:
        self.device = device

    def launch(self, hook: LaunchHook = nullcontext) -> Any:
        """One pass, asynchronous; `hook` is entered around each kernel launch by name."""
        raise NotImplementedError

    def timed_launch(self) -> tuple[torch.cuda.Event, torch.cuda.Event]:
        """One pass between two events, whose distance is its time once they have passed."""
        # Spinning, so that all launches are queued before the first event passes.
        torch.cuda._sleep(HEAD_START_CYCLES)
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        self.launch()
        end.record()
        return start, end

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
    """A Workload ready to launch, with its inputs on the device."""

    def __init__(self, workload: Workload, device: DeviceInfo) -> None:
        super().__init__(device)
        self.workload = workload
        self.spec = {"workload": encode(workload)}
        self.l2, self.drain, self.repeats = workload.l2, workload.drain, workload.repeats
        self.compulsory_bytes = workload.problem.compulsory_bytes
        self.inputs = draw_inputs(workload.problem, workload.seed, workload.device)
        kernel = workload.attention_kernel
        self._forward = kernel.forward
        self._prepared = kernel.prepare(workload.problem, workload.device) if kernel.prepare else None
        self._tile = workload.tile or TileConfig()
        self.schedule = kernel.schedule(workload.problem, self._tile)
        self.launch_names = tuple(launch.name for launch in self.schedule.launches)

    def launch(self, hook: LaunchHook = nullcontext, **extra: object) -> Output:
        """One forward pass, asynchronous; `hook` is entered around each kernel launch by name."""
        problem = self.workload.problem
        options = {"launch": hook, "finite": True, "prepared": self._prepared} | extra
        output: Output = self._forward(*self.inputs, problem, self._tile, **options)
        return output


@lru_cache(maxsize=1)
def draw_inputs(problem: AttentionProblem, seed: int, device: str) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Random normal q, k, v of the problem, drawn on the device; the same seed on the same device gives the same."""
    generator = torch.Generator(device).manual_seed(seed)
    dtype = getattr(torch, problem.dtype)
    q_shape = (problem.batch, problem.heads, problem.seq_len_q, problem.head_dim)
    kv_shape = (problem.batch, problem.kv_heads, problem.seq_len_kv, problem.head_dim)
    q, k, v = (torch.randn(s, generator=generator, device=device, dtype=dtype) for s in (q_shape, kv_shape, kv_shape))
    return q, k, v
