"""What was allocated after each allocation and free of a pass, tensor by tensor."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from app.tensor_names import tensor_title
from profiler.memory_names import EITHER
from profiler.memory_trace import ALLOC, FREE_REQUESTED, OTHER, WORKSPACE, MemoryTrace

BEFORE, REST = "before", "all smaller ones"


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


def few(found: Sequence[Step], most_steps: int, most_tensors: int) -> list[Step]:
    """So many steps, of each stretch the one with the most bytes, and so many tensors, the smaller ones as one."""
    stretch = -(-len(found) // most_steps)
    kept = [max(found[i : i + stretch], key=lambda step: step.total) for i in range(0, len(found), stretch)]
    largest: dict[str, int] = {}
    for step in kept:
        for name, size in step.alive.items():
            largest[name] = max(size, largest.get(name, 0))
    if len(largest) <= most_tensors:
        return kept
    named = sorted(largest, key=lambda name: -largest[name])[: most_tensors - 1]
    return [replace(step, alive=_joined(step.alive, named)) for step in kept]


def _joined(alive: Mapping[str, int], named: Sequence[str]) -> dict[str, int]:
    return {name: alive.get(name, 0) for name in named} | {
        REST: sum(size for name, size in alive.items() if name not in named)
    }


def title(name: str) -> str:
    """A tensor's name as people write it; of two that cannot be told apart, both."""
    is_no_tensor = name in (WORKSPACE, OTHER, REST, "")
    return (name or OTHER) if is_no_tensor else EITHER.join(map(tensor_title, name.split(EITHER)))
