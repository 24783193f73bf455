"""Whether a MemoryTrace read from a file can be one: acts and sizes that an allocator has, and not too many of them."""

from kernels.shown import shown
from profiler.codec import NotARun
from profiler.memory_trace import ACTIONS, MOST_BLOCKS, MOST_EVENTS, MOST_FRAMES, STATES, MemorySegment, MemoryTrace

MOST_TEXT = 500
MOST_ADDRESS = 2**63
MOST_SIZE = 10**15  # bytes
MOST_SECONDS = 3_600.0
MOST_LINE = 10**7
MOST_NAMES = 64
MOST_NAME = 64  # letters of a tensor's name, which stands at every step of a picture


def require_possible_memory(trace: MemoryTrace, place: str) -> None:
    """Raise NotARun, naming the place, for a trace that no allocator can have made."""
    if len(trace.events) > MOST_EVENTS or len(trace.segments) > MOST_BLOCKS or len(trace.blocks) > MOST_BLOCKS:
        raise NotARun(f"{place} has more than {MOST_EVENTS:,} events or {MOST_BLOCKS:,} blocks.")
    names = {event.name for event in trace.events} | {block.name for block in trace.blocks}
    if len(names) > MOST_NAMES:
        raise NotARun(f"{place} has {len(names):,} tensors' names; a pass has at most {MOST_NAMES}.")
    if longest := next((name for name in names if len(name) > MOST_NAME), ""):
        raise NotARun(f"{place} has a tensor {longest[:40]!r} of more than {MOST_NAME} letters.")
    for event in trace.events:
        if event.action not in ACTIONS:
            raise NotARun(f"{place} has an event {event.action[:40]!r}; an allocator does {', '.join(ACTIONS)}.")
        if not 0 <= event.seconds <= MOST_SECONDS:
            raise NotARun(f"{place} has an event at {event.seconds} s, which no pass lasts.")
        if len(event.frames) > MOST_FRAMES or not all(0 <= frame.line <= MOST_LINE for frame in event.frames):
            raise NotARun(f"{place} has an event with more than {MOST_FRAMES} frames, or a line that no file has.")
        _require_possible(event.address, event.size, event.stream, place)
        _require_texts(place, event.launch, event.name, *(text for f in event.frames for text in (f.file, f.function)))
    for segment in trace.segments:
        _require_possible_segment(segment, place)


def _require_possible_segment(segment: MemorySegment, place: str) -> None:
    _require_possible(segment.address, segment.size, segment.stream, place)
    _require_texts(place, segment.pool, *(block.name for block in segment.blocks))
    end = segment.address
    for block in segment.blocks:
        _require_possible(block.address, block.size, segment.stream, place)
        if block.state not in STATES or not 0 <= block.requested <= block.size:
            raise NotARun(f"{place} has a block {shown(block.state)} of {block.size} B for {shown(block.requested)} B.")
        if block.address < end:
            raise NotARun(f"{place} has blocks that overlap.")
        end = block.address + block.size
    if end > segment.address + segment.size:
        raise NotARun(f"{place} has a segment of {segment.size:,} B with more blocks than it holds.")


def _require_possible(address: int, size: int, stream: int, place: str) -> None:
    if not (0 <= address < MOST_ADDRESS and 0 <= stream < MOST_ADDRESS and 0 <= size <= MOST_SIZE):
        raise NotARun(f"{place} has {shown(size)} B at {shown(address)}, which no GPU has.")


def _require_texts(place: str, *texts: str) -> None:
    if any(len(text) > MOST_TEXT or not text.isprintable() for text in texts):
        raise NotARun(f"{place} has a text that is longer than {MOST_TEXT} characters or cannot be printed.")
