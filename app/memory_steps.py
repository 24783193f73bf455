"""What was allocated after each allocation and free of a pass, tensor by tensor."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from app.tensor_names import tensor_title
from profiler.memory_names import EITHER
from profiler.memory_trace import ALLOC, FREE_REQUESTED, MemoryTrace

BEFORE = "before"


@dataclass(frozen=True)
class Step:
    """Bytes that were asked for, by tensor, once `what` had happened in `launch`."""

    what: str
    launch: str
    alive: Mapping[str, int]

    @property
    def total(self) -> int:
        """Bytes of all tensors."""
        return sum(self.alive.values())


@lru_cache(maxsize=32)
def steps(trace: MemoryTrace) -> tuple[Step, ...]:
    """One for what was there before the pass, then one for each allocation and free that the pass asked for."""
    held = {block.address: (block.name, block.requested) for block in trace.before}
    # What is freed without having been allocated here was there before as well.
    seen: set[int] = set()
    for event in trace.events:
        if event.action == FREE_REQUESTED and event.address not in seen and event.address not in held:
            held[event.address] = (event.name, event.size)
        seen.add(event.address)
    alive: dict[str, int] = {}
    for name, size in held.values():
        alive[name] = alive.get(name, 0) + size
    found = [Step(BEFORE, "", dict(alive))]
    for event in trace.events:
        if event.action not in (ALLOC, FREE_REQUESTED):
            continue
        gone = held.pop(event.address, None)
        if gone is not None:
            alive[gone[0]] -= gone[1]
        if event.action == ALLOC:
            held[event.address] = (event.name, event.size)
            alive[event.name] = alive.get(event.name, 0) + event.size
        elif gone is None:
            continue
        sign = "+" if event.action == ALLOC else "−"
        found.append(Step(f"{sign} {title(event.name)}", event.launch, dict(alive)))
    return tuple(found)


def peak(trace: MemoryTrace) -> Step:
    """The first step with the most bytes."""
    return max(steps(trace), key=lambda step: step.total)


def title(name: str) -> str:
    """A tensor's name as people write it; of two that cannot be told apart, both."""
    from_library = name in ("workspace", "other", "")
    return (name or "other") if from_library else EITHER.join(map(tensor_title, name.split(EITHER)))
