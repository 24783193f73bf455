"""Library kernels: one launch that reads Q, K and V and writes O; what happens inside is not known from here."""

from kernels.problem import AttentionProblem, TileConfig
from kernels.schedule import Launch, Schedule

SDPA, FLEX = "sdpa", "flex"  # the launches' names
FLEX_BLOCK = 128  # rows and columns of a block of FlexAttention's mask


def schedule(kernel: str, launch: str, problem: AttentionProblem, tile: TileConfig, writes_lse: bool) -> Schedule:
    """One launch with its operands' bytes, each operand counted once and whole.

    How often a library reads K and V again is not known from outside; compare L2↔SM bytes. `tile` does not matter.
    """
    size = problem.tensor_bytes
    written = ("o", "lse") if writes_lse else ("o",)
    one = Launch(launch, {name: size[name] for name in "qkv"}, {name: size[name] for name in written})
    return Schedule(kernel, problem, (one,))


def block_list_bytes(problem: AttentionProblem) -> dict[str, int]:
    """Bytes of FlexAttention's lists of blocks; nothing where no score is hidden.

    For each row of blocks, how many it has and which, int32, partial and full ones apart; for each column the same.
    """
    if not problem.is_masked:
        return {}
    rows, columns = (-(-length // FLEX_BLOCK) for length in (problem.seq_len_q, problem.seq_len_kv))
    return {"mask": 2 * 4 * (rows + columns + 2 * rows * columns)}
