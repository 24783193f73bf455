"""The numbers that fill the walk-through's sentences, worked out from the problem, the schedules and the GPU table."""

from math import log

from app.lesson_subject import ARTICLE, Shown
from app.style import capacity, flop_rate, ratio, significant, traffic
from kernels.base import all_kernels
from kernels.gpu_limits import REGISTER_FILE_BYTES
from kernels.online_softmax import glued_local_softmax, prefix_states
from kernels.problem import FLOAT32_BYTES, AttentionProblem, TileConfig
from kernels.schedule import Schedule
from profiler.device import GPUS

BLOCK = 64  # the article's queries a program, and keys a step
ROW = (0.0, 0.0, log(2), log(2))  # the article's row of scores, in blocks of two
ROW_BLOCK = 2
SMALL = AttentionProblem(seq_len_q=16, seq_len_kv=16, head_dim=16, dtype="float32")
SMALL_TILES = (TileConfig(4, 16), TileConfig(4, 4))


def count(number: int) -> str:
    """A number of things: 16,384, or 67.1 M from a million on."""
    return f"{significant(number / 1e6)} M" if number >= 1e6 else f"{number:,}"


def slots(shown: Shown) -> dict[str, str]:
    """What the {slots} of the texts take, but for what was measured."""
    problem, tile = shown.problem, shown.tile
    wide = ARTICLE.seq_len_q * ARTICLE.seq_len_kv
    naive = all_kernels()["naive"].schedule(problem, tile)
    streamed, tiled = shown.schedule("row_streaming"), shown.schedule("query_tiled") or shown.schedule("flash")
    a100 = GPUS["a100"]
    return {
        "article_scores": count(wide),
        "article_ratio": ratio(ARTICLE.seq_len_kv / ARTICLE.head_dim),
        "article_ratio_plain": f"{ARTICLE.seq_len_kv // ARTICLE.head_dim}",
        "trips": f"{trips(naive):g}",
        "row_scores": f"{problem.seq_len_kv:,}",
        "row_times": times(passes_over_k(streamed)) if streamed is not None else "–",
        "BLOCK_M": f"{tile.BLOCK_M}",
        "BLOCK_N": f"{tile.BLOCK_N}",
        "tile_times": times(passes_over_k(tiled)) if tiled is not None else "–",
        "kv_tiles": f"{-(-problem.seq_len_kv // tile.BLOCK_N):,}",
        "small_kv": traffic(kv_bytes(small_schedule(SMALL_TILES[1]))),
        "small_extra": f"{rescales(SMALL_TILES[1]) - rescales(SMALL_TILES[0])}",
        "row_block": capacity(BLOCK * ARTICLE.seq_len_kv * FLOAT32_BYTES),
        "tile_scores": capacity(BLOCK * BLOCK * FLOAT32_BYTES),
        "registers": capacity(REGISTER_FILE_BYTES),
        "fill_keys": f"{REGISTER_FILE_BYTES // (BLOCK * FLOAT32_BYTES):,}",
        "a100_sm": capacity(a100.shared_memory_per_sm),
        "a100_block": capacity(a100.shared_memory_per_block),
        "glued_sum": f"{glued_local_softmax(ROW, ROW_BLOCK).sum():g}",
        "flops": flop_rate(problem.flops).removesuffix("/s"),
    }


def trips(naive: Schedule) -> float:
    """How often a whole S or P is read or written."""
    moved = [naive.by_tensor.get(tensor, {"read": 0, "write": 0}) for tensor in ("s", "p")]
    return sum(part["read"] + part["write"] for part in moved) / naive.problem.score_bytes


def passes_over_k(schedule: Schedule) -> float:
    """How often a head asks for the whole of its K."""
    problem = schedule.problem
    return schedule.by_tensor["k"]["read"] / (problem.tensor_bytes["k"] * problem.group)


def times(number: float) -> str:
    """A count that a mask may leave broken: 8,192 or 4,096.5."""
    return f"{number:,.0f}" if number == round(number) else f"{number:,.1f}"


def small_schedule(tile: TileConfig) -> Schedule:
    """Flash on the 16 × 16 example."""
    return all_kernels()["flash"].schedule(SMALL, tile)


def kv_bytes(schedule: Schedule) -> int:
    """Bytes of K and V that a schedule asks to read."""
    return schedule.by_tensor["k"]["read"] + schedule.by_tensor["v"]["read"]


def rescales(tile: TileConfig) -> int:
    """Steps on the 16 × 16 example that may rescale: all but the first of each Q tile."""
    kv_tiles = -(-SMALL.seq_len_kv // tile.BLOCK_N)
    return -(-SMALL.seq_len_q // tile.BLOCK_M) * (kv_tiles - 1)


def as_known(number: float) -> str:
    """ln 2, or the fraction that it is, or three digits."""
    if abs(number - log(2)) < 1e-12:
        return "ln 2"
    for bottom in range(1, 13):
        top = round(number * bottom)
        if abs(number - top / bottom) < 1e-12:
            return f"{top}" if bottom == 1 else f"{top}/{bottom}"
    return significant(number)


def last_state() -> tuple[float, float]:
    """m and l of the article's row after its last block."""
    end = prefix_states(ROW, ROW_BLOCK)[-1]
    return end.m, end.l
