"""A Workload is one thing to measure: kernel, problem, tile, seed, device and how; hashable, so it keys caches."""

import re
from dataclasses import dataclass, field, replace

from kernels.base import AttentionKernel, all_kernels
from kernels.own import is_own, kernel_named
from kernels.problem import ADDED, LINEAR, ORDERS, AttentionProblem, Refused, TileConfig
from kernels.shown import shown

CPU = "cpu"
DEVICE = re.compile(r"cpu|cuda:\d{1,4}", re.ASCII)
# Sources that count bytes moved, the most trusted first; AUTO asks all that are quick, and the rest where those fail.
LADDER = ("cupti-range", "ncu", "cupti-sampling", "nvml-gpm")
AUTO = "auto"
MAX_TILES = 2**20  # along one side of the score matrix
MIN_REPEATS, MAX_REPEATS = 1, 10_000


@dataclass(frozen=True)
class TraceRequest:
    """Whose softmax state to record: rows around `row` of one (batch, head); row None means the last query."""

    batch: int = 0
    head: int = 0
    row: int | None = None


@dataclass(frozen=True)
class Workload:
    """What measure() takes. `l2` is the state of the L2 cache before each pass: cold (evicted) or warm.

    `tile` is None for kernels that are not tiled. `counters` is AUTO or the one source of LADDER to count bytes with.
    With `drain`, writes are counted until L2 holds no dirty line; without, until the pass ends. `detail` adds counters
    that take more than one pass. `like` is what an own kernel says of itself when it runs: whose schedule it has; until
    then it may have a tile or none. Raises Refused where the parts do not fit together; what depends on the GPU at hand
    is checked by profiler.admission.
    """

    kernel: str
    problem: AttentionProblem
    tile: TileConfig | None
    device: str = CPU
    seed: int = 0
    l2: str = "cold"
    repeats: int = 20
    trace: TraceRequest | None = None
    counters: str = field(default=AUTO, metadata=ADDED)
    drain: bool = field(default=True, metadata=ADDED)
    detail: bool = field(default=False, metadata=ADDED)
    like: str = field(default="", metadata=ADDED)

    def __post_init__(self) -> None:
        kernel = kernel_named(self.kernel, self.like)
        require_known(self.device)
        kernel.refuse_backward(self.problem)
        if self.l2 not in ("cold", "warm"):
            raise Refused(f"l2 is {shown(self.l2)}; choose cold or warm.")
        if self.counters not in (AUTO, *LADDER):
            raise Refused(f"counters is {shown(self.counters)}; choose {', '.join((AUTO, *LADDER))}.")
        if not 0 <= self.seed < 2**63:
            raise Refused(f"seed is {shown(self.seed)}; choose 0 to 2^63 - 1.")
        if not MIN_REPEATS <= self.repeats <= MAX_REPEATS:
            raise Refused(f"passes is {shown(self.repeats)}; choose {MIN_REPEATS} to {MAX_REPEATS}.")
        is_open = self.tile is not None and is_own(self.kernel) and not self.like
        if not is_open:
            require_tile(self.kernel, kernel.is_tiled, self.tile)
        if self.tile is not None:
            self._check_tiles(self.tile)
        if self.tile is not None and (used := kernel.cut(self.problem, self.tile)) != self.tile:
            raise Refused(f"Kernel {self.kernel} does not use {self.tile}; for this problem it uses {used}.")
        if self.trace is not None:
            self._check_trace(self.trace)

    def _check_tiles(self, tile: TileConfig) -> None:
        """So many tiles no page can show, and no schedule be worked out at once."""
        sides = ((self.problem.seq_len_q, tile.BLOCK_M), (self.problem.seq_len_kv, tile.BLOCK_N))
        for rows, block in sides:
            if (tiles := -(-rows // block)) > MAX_TILES:
                raise Refused(
                    f"{rows:,} rows in tiles of {block} make {tiles:,} tiles of {self.kernel}, above {MAX_TILES:,}; "
                    "choose larger tiles or a shorter sequence."
                )

    def _check_trace(self, trace: TraceRequest) -> None:
        if not self.attention_kernel.records:
            raise Refused(f"Kernel {self.kernel} records neither softmax state nor times; leave trace out.")
        limits = {"batch": self.problem.batch, "head": self.problem.heads, "row": self.problem.seq_len_q}
        for name, size in limits.items():
            value = getattr(trace, name)
            if value is not None and not 0 <= value < size:
                raise Refused(f"The traced {name} is {shown(value)}; this problem has 0 to {size - 1}.")

    @property
    def attention_kernel(self) -> AttentionKernel:
        """The kernel's light half."""
        return kernel_named(self.kernel, self.like)

    @property
    def on_gpu(self) -> bool:
        """False where the kernel runs through Triton's interpreter or on torch's CPU path."""
        return self.device != CPU


def require_tile(kernel: str, is_tiled: bool, tile: TileConfig | None) -> None:
    """Raise Refused for a tiled kernel without a tile, and for a tile of one that has none."""
    if is_tiled != (tile is not None):
        raise Refused(f"Kernel {kernel} {'needs a tile' if tile is None else 'takes no tile'}.")


def require_known(device: str) -> None:
    """Raise Refused for what is no device's name."""
    if not DEVICE.fullmatch(device):
        raise Refused(f"Device {shown(device)} is not known; choose cpu or cuda:0.")


def workloads(
    kernels: tuple[str, ...],
    problem: AttentionProblem,
    tile: TileConfig,
    device: str,
    seed: int = 0,
    l2: str = "cold",
    repeats: int = 20,
    trace: TraceRequest | None = TraceRequest(),
    counters: str = AUTO,
    drain: bool = True,
    detail: bool = False,
    orders: tuple[str, ...] = (),
) -> tuple[Workload, ...]:
    """One Workload for each kernel, or for each of `orders` that it has; no orders means the tile's.

    Tiled kernels use `tile` as they can, and `trace` goes to those that record. Raises Refused where a kernel cannot.
    """
    if not kernels:
        raise Refused("No kernel is chosen; choose at least one.")
    found = all_kernels() | {name: kernel_named(name) for name in kernels if is_own(name)}
    offered = {LINEAR, *(order for name in kernels if name in found for order in found[name].orders)}
    for order in orders or (tile.order,):
        if order in ORDERS and order not in offered:
            having = ", ".join(name for name, kernel in found.items() if order in kernel.orders)
            raise Refused(f"No chosen kernel has the order {order}; choose {LINEAR}, or a kernel with it: {having}.")
    how = (device, seed, l2, repeats)
    chosen = []
    for name in dict.fromkeys(kernels):
        kernel = found.get(name)
        recorded = trace if kernel is not None and kernel.records else None
        for order in orders or (tile.order,):
            asked = replace(tile, order=order)
            is_cut = kernel is not None and (kernel.is_tiled or is_own(name))
            used = kernel.cut(problem, asked) if kernel is not None and is_cut else None
            chosen.append(Workload(name, problem, used, *how, recorded, counters, drain, detail))
    # A kernel that has one order makes one Workload of all that are asked for.
    return tuple(dict.fromkeys(chosen))
