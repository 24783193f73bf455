"""A MemoryTrace as the file that pytorch.org/memory_viz opens: torch's snapshot as a pickle of plain values.

Such a file is written here and never read: unpickling would run what a stranger put in it.
"""

import pickle
from typing import Any

from profiler.memory_trace import Frame, MemoryBlock, MemoryEvent, MemorySegment, MemoryTrace

PROTOCOL = 4  # what torch's own dump has, and memory_viz reads
DEVICE = 0
NAMED = "tensor"  # stands where a file would, before a tensor's name


def pickled(trace: MemoryTrace) -> bytes:
    """The bytes of the file; the tensor's name is each allocation's innermost frame."""
    return pickle.dumps(snapshot(trace), PROTOCOL)


def snapshot(trace: MemoryTrace) -> dict[str, Any]:
    """As torch.cuda.memory._snapshot gives it, of one device; see there for the fields."""
    frames = {event.address: _frames(event.name, event.frames) for event in trace.events if event.action == "alloc"}
    return {
        "segments": [_segment(segment, frames) for segment in trace.segments],
        "device_traces": [[_event(event) for event in trace.events]],
    }


def _event(event: MemoryEvent) -> dict[str, Any]:
    return {
        "action": event.action,
        "addr": event.address,
        "size": event.size,
        "stream": event.stream,
        "time_us": round(event.seconds * 1e6),
        "frames": _frames(event.name, event.frames),
    }


def _segment(segment: MemorySegment, frames: dict[int, list[dict[str, Any]]]) -> dict[str, Any]:
    active = [block for block in segment.blocks if block.state != "inactive"]
    return {
        "device": DEVICE,
        "address": segment.address,
        "total_size": segment.size,
        "allocated_size": sum(block.size for block in active),
        "active_size": sum(block.size for block in active),
        "requested_size": sum(block.requested for block in active),
        "stream": segment.stream,
        "segment_type": segment.pool,
        "segment_pool_id": (0, 0),
        "is_expandable": False,
        "frames": [],
        "blocks": [_block(block, frames.get(block.address)) for block in segment.blocks],
    }


def _block(block: MemoryBlock, frames: list[dict[str, Any]] | None) -> dict[str, Any]:
    return {
        "address": block.address,
        "size": block.size,
        "requested_size": block.requested,
        "state": block.state,
        "frames": (frames if frames is not None else _frames(block.name, ())) if block.state != "inactive" else [],
    }


def _frames(name: str, frames: tuple[Frame, ...]) -> list[dict[str, Any]]:
    first = [{"filename": NAMED, "line": 0, "name": name}] if name else []
    return first + [{"filename": frame.file, "line": frame.line, "name": frame.function} for frame in frames]
