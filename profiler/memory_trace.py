"""What torch's allocator did during one pass, event by event, with a name for each tensor that is known; plain data."""

from dataclasses import dataclass

INPUTS, OUTPUTS = ("q", "k", "v", "do", "mask"), ("o", "lse", "dq", "dk", "dv")
WORKSPACE, OTHER = "workspace", "other"
ALLOC, FREE_REQUESTED, FREE_COMPLETED = "alloc", "free_requested", "free_completed"
SEGMENT_ALLOC, SEGMENT_FREE = "segment_alloc", "segment_free"
ACTIONS = (ALLOC, FREE_REQUESTED, FREE_COMPLETED, SEGMENT_ALLOC, SEGMENT_FREE, "segment_map", "segment_unmap")
ACTIVE = "active_allocated"
STATES = (ACTIVE, "active_pending_free", "active_awaiting_free", "inactive")
MOST_EVENTS, MOST_BLOCKS, MOST_FRAMES = 4_000, 4_000, 12


@dataclass(frozen=True)
class Frame:
    """One line of the Python stack; the file is told from the project or the package on, not by its place on a disk."""

    file: str
    line: int
    function: str


@dataclass(frozen=True)
class MemoryEvent:
    """One act of the allocator, `seconds` after the first one by the host's clock; sizes in bytes.

    Of an allocation and its frees `size` is what was asked for, before it is rounded up. `launch` is the launch that
    the host was making, empty between launches. `name` is the tensor's, see profiler.memory_names. frames begin with
    the innermost.
    """

    action: str
    address: int
    size: int
    seconds: float
    stream: int
    launch: str = ""
    name: str = ""
    frames: tuple[Frame, ...] = ()


@dataclass(frozen=True)
class MemoryBlock:
    """A piece of a segment: `size` bytes of it, of which `requested` were asked for; `state` is one of STATES."""

    address: int
    size: int
    requested: int
    state: str
    name: str = ""


@dataclass(frozen=True)
class MemorySegment:
    """What one cudaMalloc gave, cut into blocks without a gap; pool is small or large."""

    address: int
    size: int
    stream: int
    pool: str
    blocks: tuple[MemoryBlock, ...]


@dataclass(frozen=True)
class MemoryTrace:
    """The events of one pass, and all segments after its last event, with O still held.

    What is active then and was not allocated by an event was there before the pass: the inputs above all.
    """

    segments: tuple[MemorySegment, ...]
    events: tuple[MemoryEvent, ...]

    @property
    def blocks(self) -> tuple[MemoryBlock, ...]:
        """The blocks of all segments."""
        return tuple(block for segment in self.segments for block in segment.blocks)

    @property
    def before(self) -> tuple[MemoryBlock, ...]:
        """The blocks that were allocated before the first event and are still at the end."""
        fresh = {event.address for event in self.events if event.action == ALLOC}
        return tuple(block for block in self.blocks if block.state == ACTIVE and block.address not in fresh)
