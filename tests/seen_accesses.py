"""What the interpreter saw of a kernel, launch by launch: every access in order, named by its tensor."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np
import torch

from kernels.problem import AttentionProblem, TileConfig
from kernels.run import LaunchHook, Output
from kernels.walk import Walk
from profiler.tile_trace import AccessTrace, traced_accesses
from tests.attention_cases import draw

Bytes = dict[str, tuple[int, int]]  # {tensor: (read, written)}


class Access(NamedTuple):
    """One load or store: of which tensor, from which of its elements on, how many bytes."""

    tensor: str
    direction: str
    element: int
    size: int


def into(seen: dict[str, AccessTrace]) -> LaunchHook:
    """A hook that puts what the interpreter sees of each launch into `seen`, by the launch's name."""

    @contextmanager
    def hook(name: str) -> Iterator[None]:
        with traced_accesses() as trace:
            seen[name] = trace
            yield

    return hook


def seen_accesses(
    kernel: ModuleType, problem: AttentionProblem, tile: TileConfig
) -> dict[str, dict[int, list[Access]]]:
    """{launch: {program: accesses in order}} of a kernel that takes its m, l and acc from `states`."""
    q, k, v = draw(problem)
    tensors = {"q": q, "k": k, "v": v}
    noted: dict[str, list[tuple[int, str, int, int]]] = {}
    states, note = kernel.states, AccessTrace.note

    def named(*arguments: Any) -> tuple[torch.Tensor, ...]:
        made: tuple[torch.Tensor, ...] = states(*arguments)
        tensors.update(zip(("m", "l", "acc"), made, strict=True))
        return made

    @contextmanager
    def launch(name: str) -> Iterator[None]:
        log = noted.setdefault(name, [])

        def noting(self: AccessTrace, program: int, direction: str, ptrs: Any, mask: Any) -> None:
            note(self, program, direction, ptrs, mask)
            active = np.broadcast_to(mask.data, ptrs.data.shape).astype(bool)
            if active.any():
                size = int(active.sum()) * ptrs.get_element_ty().primitive_bitwidth // 8
                log.append((program, direction, int(ptrs.data[active].min()), size))

        with patch.object(AccessTrace, "note", noting), traced_accesses():
            yield

    with patch.object(kernel, "states", named):
        output: Output = kernel.forward(q, k, v, problem, tile, launch=launch)
    assert output.lse is not None
    tensors |= {"o": output.o, "lse": output.lse}
    spans = [(t.data_ptr(), t.untyped_storage().nbytes(), t.element_size(), name) for name, t in tensors.items()]
    found: dict[str, dict[int, list[Access]]] = {}
    for name, log in noted.items():
        programs = found.setdefault(name, {})
        for program, direction, address, size in log:
            start, element, tensor = next((s, e, n) for s, b, e, n in spans if s <= address < s + b)
            programs.setdefault(program, []).append(Access(tensor, direction, (address - start) // element, size))
    return found


def total(accesses: list[Access]) -> Bytes:
    """Bytes by tensor."""
    sums: Counter[tuple[str, str]] = Counter()
    for access in accesses:
        sums[access.tensor, access.direction] += access.size
    return {tensor: (sums[tensor, "read"], sums[tensor, "write"]) for tensor, _ in sums}


def scheduled(walk: Walk, program: int, done: int) -> Bytes:
    """The same by a Walk, of one program after `done` steps."""
    table = walk.bytes_until(program // walk.programs, np.full(walk.programs, done))
    sums = {name: tuple(int(part[program % walk.programs]) for part in parts) for name, parts in table.items()}
    return {name: (read, written) for name, (read, written) in sums.items() if read or written}
