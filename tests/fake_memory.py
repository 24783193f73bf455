"""A caching allocator made of Python, which tells its history as torch's does, and Runs that have one."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from profiler.memory_names import Known, named
from profiler.memory_recorder import read_snapshot
from profiler.memory_trace import MemoryTrace
from profiler.run import Measurement, Run
from tests import fake_runs

MIB, GIB = 2**20, 2**30
PYTHON = [
    {"filename": "/mnt/somebody/x/lib/python3.12/site-packages/torch/functional.py", "line": 7, "name": "softmax"},
    {"filename": "/mnt/somebody/secret.py", "line": 46, "name": "forward"},
]


@dataclass
class FakeAllocator:
    """One segment for each block; addresses count up from 4096. `entries` is the device's trace."""

    entries: list[dict[str, Any]] = field(default_factory=list)
    alive: dict[int, tuple[int, int]] = field(default_factory=dict)  # size, what was asked for
    free: dict[int, int] = field(default_factory=dict)
    workspaces: list[int] = field(default_factory=list)
    is_recording: bool = False
    next_address: int = 4096

    def alloc(self, asked: int) -> int:
        """An address with at least so many bytes, from the cache where a free block has exactly as many."""
        size = -(-asked // 512) * 512
        address = next((one for one, free in self.free.items() if free == size), None)
        if address is None:
            address, self.next_address = self.next_address, self.next_address + size
            self._note("segment_alloc", address, size)
        else:
            del self.free[address]
        self.alive[address] = (size, asked)
        self._note("alloc", address, asked)
        return address

    def give_back(self, address: int) -> None:
        """Free a block; its segment stays."""
        size, asked = self.alive.pop(address)
        self.free[address] = size
        self._note("free_requested", address, asked)
        self._note("free_completed", address, asked)

    def workspace(self, size: int) -> None:
        """What cuBLAS takes for itself and keeps."""
        self.workspaces.append(self.alloc(size))

    def clear_workspaces(self) -> None:
        """As torch._C._cuda_clearCublasWorkspaces."""
        for address in self.workspaces:
            self.give_back(address)
        self.workspaces = []

    def snapshot(self) -> dict[str, Any]:
        """As torch.cuda.memory._snapshot, of which each leaves an entry of its own."""
        segments = [
            self._segment(address, size, "active_allocated", asked) for address, (size, asked) in self.alive.items()
        ]
        segments += [self._segment(address, size, "inactive", 0) for address, size in self.free.items()]
        if self.is_recording:
            self.entries.append({"action": "snapshot", "addr": 0, "size": 0, "stream": 0, "time_us": 0})
        return {"segments": segments, "device_traces": [list(self.entries)]}

    def record(self, enabled: str | None, **options: object) -> None:
        """As torch.cuda.memory._record_memory_history."""
        self.is_recording = enabled is not None
        if options.get("clear_history"):
            self.entries.clear()

    def patch(self, monkeypatch: Any) -> None:
        """Stand in for torch's allocator."""
        import torch

        monkeypatch.setattr(torch.cuda.memory, "_record_memory_history", self.record)
        monkeypatch.setattr(torch.cuda.memory, "_snapshot", self.snapshot)
        monkeypatch.setattr(torch._C, "_cuda_clearCublasWorkspaces", self.clear_workspaces, raising=False)

    def _note(self, action: str, address: int, size: int) -> None:
        if self.is_recording:
            time = 1_700_000_000_000_000 + 10 * len(self.entries)
            entry = {"action": action, "addr": address, "size": size, "stream": 0, "time_us": time}
            self.entries.append(entry | ({"frames": PYTHON} if action == "alloc" else {}))

    @staticmethod
    def _segment(address: int, size: int, state: str, asked: int) -> dict[str, Any]:
        block = {"address": address, "size": size, "requested_size": asked, "state": state, "frames": []}
        return {
            "device": 0,
            "address": address,
            "total_size": size,
            "stream": 0,
            "segment_type": "small" if size <= MIB else "large",
            "blocks": [block],
        }


def naive_pass(fake: FakeAllocator, launch: Callable[[str], Any], scores: int, o: int) -> int:
    """What naive's forward asks of the allocator; the address of O."""
    with launch("qk"):
        s = fake.alloc(scores)
        fake.workspace(32 * MIB)
    with launch("scale"):
        pass
    with launch("softmax"):
        p = fake.alloc(scores)
    with launch("pv"):
        result = fake.alloc(o)
    fake.give_back(s)
    fake.give_back(p)
    return result


def trace(run: Run) -> MemoryTrace:
    """The trace of naive's or flash's pass, of the Run's sizes."""
    problem, fake, launches = run.workload.problem, FakeAllocator(), []
    size = problem.tensor_bytes
    before = {fake.alloc(size[name]): name for name in "qkv"}
    fake.record("all")

    class Launch:
        def __init__(self, name: str) -> None:
            self.name = name

        def __enter__(self) -> None:
            self.begin = len(fake.entries)

        def __exit__(self, *_: object) -> None:
            launches.append((self.name, self.begin, len(fake.entries)))

    outputs = {}
    if run.workload.kernel == "naive":
        outputs[naive_pass(fake, Launch, problem.score_bytes, size["o"])] = "o"
    else:
        outputs[fake.alloc(size["o"])] = "o"
        outputs[fake.alloc(size["lse"])] = "lse"
    found = read_snapshot(fake.snapshot(), 0, launches)
    workspaces = frozenset(fake.workspaces)
    writes = {"qk": frozenset({"s"}), "softmax": frozenset({"p"}), "pv": frozenset({"o"})}
    sizes = {"s": problem.score_bytes, "p": problem.score_bytes} if run.workload.kernel == "naive" else {}
    return named(found, Known(before, outputs, workspaces, sizes, writes))


def with_memory(run: Run, peak: int, reserved: int) -> Run:
    """The Run with a trace, torch's figures, a context of 500 MiB and 1 GiB of other processes."""
    device = 500 * MIB + GIB
    told = (
        Measurement("baseline_allocated_bytes", 96.0 * MIB, "B", "torch"),
        Measurement("peak_allocated_bytes", float(peak), "B", "torch"),
        Measurement("peak_reserved_bytes", float(reserved), "B", "torch"),
        Measurement("process_memory_bytes", reserved + 500.0 * MIB, "B", "nvml"),
        Measurement("context_bytes", 500.0 * MIB, "B", "nvml"),
        Measurement("other_processes_bytes", 1.0 * GIB, "B", "nvml"),
        Measurement("device_memory_bytes", float(reserved + device), "B", "nvml"),
    )
    kept = tuple(m for m in run.measurements if m.name not in {m.name for m in told})
    return replace(run, measurements=(*kept, *told), memory=trace(run))


def naive_run() -> Run:
    """(1, 16, 8192, 128) bfloat16: Q, K, V, O of 32 MiB, S and P of 2 GiB, a workspace of 32 MiB."""
    return with_memory(fake_runs.naive_run(run_id="fake-memory-naive"), 4256 * MIB, 4256 * MIB)


def flash_run() -> Run:
    """The same problem: Q, K, V, O of 32 MiB and LSE of 512 KiB, in a segment of 2 MiB."""
    return with_memory(fake_runs.flash_run(run_id="fake-memory-flash"), 128 * MIB + 512 * 1024, 130 * MIB)
