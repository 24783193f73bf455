"""Records what torch's caching allocator does while something runs, and makes a MemoryTrace of it."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

from profiler.memory_trace import (
    ACTIONS,
    MOST_BLOCKS,
    MOST_EVENTS,
    MOST_FRAMES,
    STATES,
    Frame,
    MemoryBlock,
    MemoryEvent,
    MemorySegment,
    MemoryTrace,
)
from profiler.plausible import printable

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = "/site-packages/"
COMPILER = "torch._inductor"
MOST_LETTERS = 200  # of a file's or a function's name
MOST_ENTRIES = 2 * MOST_EVENTS  # that torch keeps: its own snapshots are entries too

Snapshot = Mapping[str, Any]


class NotRecorded(RuntimeError):
    """There is no MemoryTrace; the message says why."""


@dataclass
class Recorder:
    """What is recorded of one device. `launches` are name, first and last entry of each launch; see `recording`."""

    index: int
    failure: str = ""
    launches: list[tuple[str, int, int]] = field(default_factory=list)
    _kept: Snapshot | None = None
    _released: frozenset[int] = frozenset()

    @contextmanager
    def launch(self, name: str) -> Iterator[None]:
        """A kernels.run.LaunchHook: what is allocated within belongs to this launch."""
        begin = len(self._entries())
        yield
        self.launches.append((name, begin, len(self._entries())))

    def stop(self) -> None:
        """Keep what was recorded so far; then have the math library give up its workspaces, to know which they were."""
        if self.failure:
            return
        self._kept = _snapshot()
        before = len(self._entries())
        torch._C._cuda_clearCublasWorkspaces()
        self._released = frozenset(
            int(entry["addr"]) for entry in self._entries()[before:] if entry["action"] == "free_requested"
        )

    @property
    def workspaces(self) -> frozenset[int]:
        """Addresses of the math library's workspaces that were alive at the end."""
        return self._released

    def trace(self) -> MemoryTrace:
        """Everything up to `stop`, without names. Raises NotRecorded."""
        if self.failure or self._kept is None:
            raise NotRecorded(self.failure or "the pass did not come to its end")
        return read_snapshot(self._kept, self.index, self.launches)

    def _entries(self) -> Sequence[Mapping[str, Any]]:
        return () if self.failure else trace_of(_snapshot(), self.index)


@contextmanager
def recording(device: str) -> Iterator[Recorder]:
    """Record until the block ends, however it ends. Where torch cannot record, the Recorder's `failure` says why."""
    recorder = Recorder(int(device.removeprefix("cuda:")))
    try:
        # Python's stacks alone: C++'s must be looked up in the debug symbols, which takes seconds.
        torch.cuda.memory._record_memory_history(
            "all", context="alloc", stacks="python", max_entries=MOST_ENTRIES, clear_history=True
        )
    except (RuntimeError, TypeError, ValueError) as error:
        recorder.failure = (
            f"torch {torch.__version__} does not record its allocator here ({printable(str(error), 200)})"
        )
    try:
        yield recorder
    finally:
        if not recorder.failure:
            torch.cuda.memory._record_memory_history(None)


def _snapshot() -> Snapshot:
    with no_inductor():
        found: Snapshot = torch.cuda.memory._snapshot()
    return found


@contextmanager
def no_inductor() -> Iterator[None]:
    """Keep torch from importing its compiler, which takes seconds, to ask whose generated code a frame is.

    Where the compiler has not been imported, no frame is of its code.
    """
    if COMPILER in sys.modules:
        yield
        return
    parent, _, name = COMPILER.rpartition(".")
    module = sys.modules[parent]
    setattr(module, name, SimpleNamespace())
    try:
        yield
    finally:
        delattr(module, name)


def trace_of(snapshot: Snapshot, index: int) -> Sequence[Mapping[str, Any]]:
    """The entries of one device in torch's snapshot."""
    traces: Sequence[Sequence[Mapping[str, Any]]] = snapshot["device_traces"]
    return traces[index] if index < len(traces) else ()


def read_snapshot(snapshot: Snapshot, index: int, launches: Sequence[tuple[str, int, int]]) -> MemoryTrace:
    """torch's snapshot of one device as a MemoryTrace. Raises NotRecorded where it has too much to keep."""
    entries = trace_of(snapshot, index)
    kept = [(place, entry) for place, entry in enumerate(entries) if entry["action"] in ACTIONS]
    found = [segment for segment in snapshot["segments"] if segment["device"] == index]
    blocks = sum(len(segment["blocks"]) for segment in found)
    if len(entries) >= MOST_ENTRIES or len(kept) > MOST_EVENTS or blocks > MOST_BLOCKS:
        raise NotRecorded(
            f"the allocator did more in this pass than a Run keeps ({len(kept):,} events of at most {MOST_EVENTS:,}, "
            f"{blocks:,} blocks of at most {MOST_BLOCKS:,})"
        )
    begun = kept[0][1].get("time_us", 0) if kept else 0
    events = tuple(_event(entry, begun, _launch_at(place, launches)) for place, entry in kept)
    return MemoryTrace(tuple(map(_segment, found)), events)


def _launch_at(place: int, launches: Sequence[tuple[str, int, int]]) -> str:
    return next((name for name, begin, end in launches if begin <= place < end), "")


def _event(entry: Mapping[str, Any], begun: int, launch: str) -> MemoryEvent:
    return MemoryEvent(
        action=entry["action"],
        address=int(entry["addr"]),
        size=int(entry["size"]),
        seconds=max(0, entry.get("time_us", begun) - begun) / 1e6,
        stream=int(entry.get("stream", 0)),
        launch=launch,
        frames=tuple(map(_frame, entry.get("frames", ())[:MOST_FRAMES])),
    )


def _frame(frame: Mapping[str, Any]) -> Frame:
    return Frame(_short(str(frame["filename"])), int(frame["line"]), printable(str(frame["name"]), MOST_LETTERS))


def _short(file: str) -> str:
    """A file from the project or the package on: where these lie on a disk is nobody's business."""
    if PACKAGES in file:
        file = file.rpartition(PACKAGES)[2]
    elif file.startswith(f"{ROOT}/"):
        file = file.removeprefix(f"{ROOT}/")
    elif "/" in file:
        file = file.rpartition("/")[2]
    return printable(file, MOST_LETTERS)


def _segment(segment: Mapping[str, Any]) -> MemorySegment:
    blocks, address = [], int(segment["address"])
    for block in segment["blocks"]:
        size, state = int(block["size"]), str(block["state"])
        requested = 0 if state == "inactive" else int(block.get("requested_size", size))
        blocks.append(MemoryBlock(address, size, requested, state if state in STATES else STATES[1]))
        address += size
    return MemorySegment(
        int(segment["address"]),
        int(segment["total_size"]),
        int(segment["stream"]),
        str(segment["segment_type"]),
        tuple(blocks),
    )
