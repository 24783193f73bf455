"""Which tensor each allocation of a pass is, from what is known for certain; what is not known is called other."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from profiler.memory_trace import ALLOC, OTHER, WORKSPACE, MemoryBlock, MemoryEvent, MemorySegment, MemoryTrace

EITHER = " or "  # between the names of tensors that have one size and are made at one place


@dataclass(frozen=True)
class Known:
    """What is known of a pass's tensors beforehand or from its results.

    before and outputs give names of tensors by their addresses: of those that were there before the pass, and of those
    that it gave back. workspaces are the addresses that the math library gave up when it was told to. sizes are the
    bytes of temporaries by name; writes are the tensors that each launch writes.
    """

    before: Mapping[int, str]
    outputs: Mapping[int, str]
    workspaces: frozenset[int]
    sizes: Mapping[str, int]
    writes: Mapping[str, frozenset[str]]


def named(trace: MemoryTrace, known: Known) -> MemoryTrace:
    """The trace with a name for every event and block; a free has the name of what it frees."""
    told = dict(_told(trace.events, known))
    alive = {block.address: known.before.get(block.address, OTHER) for block in trace.before}
    events = []
    for index, event in enumerate(trace.events):
        if event.action == ALLOC:
            alive[event.address] = told.get(index, OTHER)
        name = "" if event.action.startswith("segment") else alive.get(event.address, OTHER)
        events.append(replace(event, name=name))
    segments = tuple(_with_names(segment, alive) for segment in trace.segments)
    return MemoryTrace(segments, tuple(events))


def _with_names(segment: MemorySegment, alive: Mapping[int, str]) -> MemorySegment:
    def name(block: MemoryBlock) -> str:
        return "" if block.state == "inactive" else alive.get(block.address, OTHER)

    return replace(segment, blocks=tuple(replace(block, name=name(block)) for block in segment.blocks))


def _told(events: Sequence[MemoryEvent], known: Known) -> list[tuple[int, str]]:
    """Index and name of the allocations whose tensor is known."""
    allocations = [index for index, event in enumerate(events) if event.action == ALLOC]
    last = {events[index].address: index for index in allocations}
    found = {last[address]: name for address, name in known.outputs.items() if address in last}
    found |= {last[address]: WORKSPACE for address in known.workspaces if address in last}
    left = {name: size for name, size in known.sizes.items() if name not in known.outputs.values()}
    claims: dict[tuple[str, ...], list[int]] = defaultdict(list)
    for index in allocations:
        if index not in found and (names := _candidates(events[index], left, known.writes)):
            claims[names].append(index)
    for names, indices in claims.items():
        # Where more allocations could be a tensor than there are tensors, none of them is known to be it.
        if len(indices) <= len(names):
            found |= dict.fromkeys(indices, EITHER.join(names))
    return list(found.items())


def _candidates(event: MemoryEvent, sizes: Mapping[str, int], writes: Mapping[str, frozenset[str]]) -> tuple[str, ...]:
    """The tensors of exactly this size that are made here: within a launch only those that it writes."""
    here = writes.get(event.launch)
    return tuple(name for name, size in sizes.items() if size == event.size and (here is None or name in here))
