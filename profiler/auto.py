"""auto: of the kernels and tiles measured on this GPU, the fastest at the problem most like the one asked for.

The tables are made by `python -m benchmarks.auto_table`, a file for each GPU; nothing is tuned when a Run is asked for.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from kernels.base import all_kernels
from kernels.problem import AttentionProblem, Refused, TileConfig
from profiler.codec import NotARun, decode
from profiler.device import cpu_device, detect, limits
from profiler.run import DeviceInfo
from profiler.strict_json import loads
from profiler.workload import CPU, TraceRequest, Workload, require_tile, workloads

KERNEL = "auto"  # what stands for the choice where a kernel is named
FEW_QUERIES = 16  # up to which, beside many keys, it is K and V that are read and shared out
MANY_KEYS = 16  # times as many as queries
FOLDER = Path(__file__).with_name("auto_tables")


# Seed, L2, passes, trace, counters, drain, detail: what workloads() takes between the device and the orders.
How = tuple[int, str, int, TraceRequest | None, str, bool, bool]


@dataclass(frozen=True)
class Choice:
    """The fastest at a problem: `seconds` is the median of a pass, `of` how many kernels and tiles were measured.

    Raises Refused for what no measurement gives.
    """

    problem: AttentionProblem
    kernel: str
    tile: TileConfig | None
    seconds: float
    of: int

    def __post_init__(self) -> None:
        if not (self.seconds > 0 and self.of > 0):
            raise Refused(f"{self.of} kernels and tiles in {self.seconds} seconds is no measurement.")
        kernel = all_kernels().get(self.kernel)
        if kernel is not None:
            require_tile(self.kernel, kernel.is_tiled, self.tile)


@dataclass(frozen=True)
class Table:
    """What was measured on one GPU, by NVML's name of it; `made` says with which versions, when and by what command."""

    gpu: str
    made: str
    choices: tuple[Choice, ...]


def fault() -> str:
    """Why nothing can be chosen anywhere, as a sentence: a table cannot be read. Empty where all can."""
    try:
        tables()
    except NotARun as reason:
        return f"auto cannot read its table: {reason} Make it anew with `python -m benchmarks.auto_table`."
    return ""


def has_table(gpu: str) -> bool:
    """Whether there is a table of a GPU, by NVML's name of it; not where one cannot be read: fault() says so."""
    return not fault() and gpu in tables()


@cache
def tables() -> dict[str, Table]:
    """Every table in FOLDER, by the GPU's name. Raises NotARun for a file that holds none, and for two of one GPU."""
    found: dict[str, Table] = {}
    for path in sorted(FOLDER.glob("*.json")):
        try:
            table = decode(Table, loads(path.read_bytes(), path.name), path.name)
        except OSError as fault:
            raise NotARun(f"{path.name} cannot be read ({fault.strerror}).") from fault
        if table.gpu in found:
            raise NotARun(f"{path.name} is a second table of {table.gpu}.")
        found[table.gpu] = table
    return found


def choose(problem: AttentionProblem, device: DeviceInfo) -> Choice:
    """The choice of the nearest problem in the GPU's table whose kernel runs this one.

    Raises Refused on the CPU, on a GPU without a table that can be read, and where none of them runs it.
    """
    if device.device == CPU:
        raise Refused("auto goes by what was measured on a GPU; on the CPU choose a kernel by its name.")
    if reason := fault():
        raise Refused(reason)
    table = tables().get(device.name)
    if table is None:
        raise Refused(
            f"auto has no measurements of {device.name}; choose a kernel by its name, or measure with "
            "`python -m benchmarks.auto_table`."
        )
    for choice in sorted(table.choices, key=lambda choice: distance(problem, choice.problem)):
        if _runs(choice, problem, device):
            return choice
    raise Refused(f"auto knows no kernel that runs {problem.label} on {device.name}; choose one by its name.")


def require_named(kernels: Iterable[str], what: str) -> None:
    """Raise Refused where KERNEL stands among the kernels of something that chooses none."""
    if KERNEL in kernels:
        raise Refused(f"auto chooses a kernel for one problem and the GPU that measures it; {what} takes their names.")


def facts_of(device: str) -> DeviceInfo:
    """What is known of a device of this machine by its name. Raises Refused where there is none of it."""
    if device == CPU:
        return cpu_device()
    for found in detect():
        if found.device == device:
            return found
    raise Refused(f"There is no GPU {device} here; choose device cpu.")


def asked(
    kernels: tuple[str, ...],
    problem: AttentionProblem,
    tile: TileConfig,
    device: str,
    how: How,
    orders: tuple[str, ...] = (),
    facts: Callable[[str], DeviceInfo] = facts_of,
) -> tuple[tuple[Workload, ...], str]:
    """As profiler.workload.workloads, where KERNEL may stand among the kernels, and what it chose, as a sentence.

    `how` is what workloads takes between the device and the orders; the choice comes last, in the order that its tile
    was measured with. `facts` tells those of a device by its name. Raises Refused.
    """
    if KERNEL not in kernels:
        return workloads(kernels, problem, tile, device, *how, orders), ""
    choice = choose(problem, facts(device))
    named = tuple(name for name in kernels if name != KERNEL)
    cut = tile_for(choice, problem)
    chosen = workloads((choice.kernel,), problem, cut or tile, device, *how)
    others = workloads(named, problem, tile, device, *how, orders) if named else ()
    return tuple(dict.fromkeys((*others, *chosen))), sentence(choice, cut)


def sentence(choice: Choice, tile: TileConfig | None) -> str:
    """What was chosen, with the tile and order that its kernel uses, and by what measurement."""
    cut = "" if tile is None else f" with {tile.BLOCK_M}×{tile.BLOCK_N} tiles, {tile.order}"
    return f"auto chose {choice.kernel}{cut}: the fastest forward pass of {choice.of} at {choice.problem.label}."


def distance(one: AttentionProblem, other: AttentionProblem) -> tuple[float, ...]:
    """How unlike two problems are to a kernel. First come few queries, the mask, an element's bytes and a head's width.

    The rest are ratios, in powers of two: those of lengths, of (batch, head) and of the query heads that share K and V.
    """
    first = (
        _has_few_queries(one) != _has_few_queries(other),
        _is_causal(one) != _is_causal(other),
        (one.window is None) != (other.window is None),
    )
    ratios = (
        (one.seq_len_q, other.seq_len_q),
        (one.seq_len_kv, other.seq_len_kv),
        (one.batch * one.heads, other.batch * other.heads),
        (one.group, other.group),
    )
    width = abs(math.log2(one.padded_head_dim / other.padded_head_dim))
    return (
        *map(float, first),
        float(one.element_bytes != other.element_bytes),
        width,
        sum(abs(math.log2(a / b)) for a, b in ratios),
    )


def _has_few_queries(problem: AttentionProblem) -> bool:
    """Whether K and V are what is read and shared out, as in decoding."""
    return problem.seq_len_q <= FEW_QUERIES and problem.seq_len_kv >= MANY_KEYS * problem.seq_len_q


def _is_causal(problem: AttentionProblem) -> bool:
    """Whether causal hides much; it does not from few queries, which stand at the last keys."""
    return problem.causal and not _has_few_queries(problem)


def tile_for(choice: Choice, problem: AttentionProblem) -> TileConfig | None:
    """The choice's tile as its kernel uses it for this problem; None where it takes none."""
    return None if choice.tile is None else all_kernels()[choice.kernel].cut(problem, choice.tile)


def _runs(choice: Choice, problem: AttentionProblem, device: DeviceInfo) -> bool:
    kernel = all_kernels().get(choice.kernel)
    if kernel is None:
        return False
    gpu = limits(device)
    try:
        kernel.refuse_backward(problem)
        tile = tile_for(choice, problem) or TileConfig()
        if gpu is None:  # what one CTA may use is not known
            kernel.refuse_problem(problem)
        else:
            kernel.refuse(problem, tile, gpu)
    except Refused:
        return False
    return True
