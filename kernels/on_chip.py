"""What a program holds on its SM: which tiles, of which shape, in registers or in shared memory, for how long."""

import math
from collections.abc import Iterable
from dataclasses import dataclass

from kernels.problem import ELEMENT_BYTES, AttentionProblem

SHARED, REGISTERS = "shared memory", "registers"
ONE_STEP = "one step"  # how long what belongs to the KV tile at hand stays


@dataclass(frozen=True)
class Held:
    """One tile on chip. `tensor` is the key of its colour, `stays` says for how long it is there, in words.

    `place` is where Triton's compiler puts it on GPUs with tensor cores: operands that are loaded go through shared
    memory, accumulators and what is computed from them stay in registers.
    """

    name: str
    tensor: str
    shape: tuple[int, ...]
    dtype: str
    place: str
    stays: str

    @property
    def size(self) -> int:
        """Bytes."""
        return math.prod(self.shape) * ELEMENT_BYTES[self.dtype]


def bytes_in(place: str, held: Iterable[Held]) -> int:
    """Bytes of the tiles in one place, as if all needed room at once."""
    return sum(tile.size for tile in held if tile.place == place)


def tiled(
    problem: AttentionProblem, block_m: int, block_n: int, q_stays: str, kv_stays: str, state: str
) -> tuple[Held, ...]:
    """The tiles of a kernel that multiplies a Q tile with a KV tile and keeps m, l and acc; `state` is how long."""
    head_dim, dtype = problem.padded_head_dim, problem.dtype
    q, kv, s, row = (block_m, head_dim), (block_n, head_dim), (block_m, block_n), (block_m,)
    return (
        Held("Q", "q", q, dtype, SHARED, q_stays),
        Held("K", "k", kv, dtype, SHARED, kv_stays),
        Held("V", "v", kv, dtype, SHARED, kv_stays),
        Held("S", "s", s, "float32", REGISTERS, ONE_STEP),
        Held("P", "p", s, dtype, REGISTERS, ONE_STEP),
        Held("acc", "acc", q, "float32", REGISTERS, state),
        Held("m", "m", row, "float32", REGISTERS, state),
        Held("l", "l", row, "float32", REGISTERS, state),
    )
