"""What an audit measures: a copy, a fill and a sum of known size, and attention shapes; light, free of torch."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any

from kernels.base import AttentionKernel, all_kernels
from kernels.problem import AttentionProblem, Refused, TileConfig
from profiler.admission import needs
from profiler.codec import encode
from profiler.workload import CPU, Workload, workloads

OPERATIONS = {"copy": (1, 1), "fill": (0, 1), "sum": (1, 0)}  # how often HBM reads and writes every byte
KNOWN_BYTES = 2**30  # above four times the L2 of any GPU of 2026
LIBRARY = "cudnn"
REPEATS = 5  # timed passes; an audit compares bytes

# Plain in every field, and small enough for the shared memory of any GPU since Turing at 256.
TILES = {64: TileConfig(128, 64), 128: TileConfig(64, 64), 256: TileConfig(64, 32, num_stages=2)}

# heads, kv_heads, seq_len, head_dim, causal; the first two are the quick audit. Naive runs where S × S stays small.
# Causal ends at 64K: beyond, programs fall out of step and each pass reads another number of bytes from HBM.
ALL_KERNELS = (
    (16, 16, 1_024, 64, False),
    (32, 8, 4_096, 128, True),
    (16, 16, 1_024, 128, True),
    (32, 8, 2_048, 64, True),
    (8, 8, 4_096, 256, False),
    (16, 16, 8_192, 128, False),
)
FUSED_ONLY = (
    (32, 8, 8_192, 128, False),
    (8, 8, 8_192, 256, True),
    (4, 4, 16_384, 128, True),
    (4, 4, 32_768, 64, False),
    (2, 2, 32_768, 256, True),
    (2, 2, 65_536, 128, False),
    (4, 1, 65_536, 128, True),
    (1, 1, 131_072, 128, False),
)
QUICK_SHAPES = 2
QUICK_INTERPRETED = 6
MOST_INTERPRETED_STEPS = 500


@dataclass(frozen=True)
class KnownWork:
    """One of OPERATIONS over `size` bytes."""

    operation: str
    size: int = KNOWN_BYTES


@dataclass(frozen=True)
class LibraryWork:
    """Attention by torch with cuDNN forced, on the inputs that a Workload of the same problem and seed draws."""

    problem: AttentionProblem
    seed: int = 0


@dataclass(frozen=True)
class Subject:
    """One row group of an audit: work that every source measures."""

    work: Workload | KnownWork | LibraryWork

    @property
    def label(self) -> str:
        """The shape: bytes of a known operation, or the problem's label."""
        return f"{self.work.size >> 20:,} MiB" if isinstance(self.work, KnownWork) else self.work.problem.label

    @property
    def kernel(self) -> str:
        """The operation, the Workload's kernel, or the library's name."""
        if isinstance(self.work, KnownWork):
            return self.work.operation
        return self.work.kernel if isinstance(self.work, Workload) else LIBRARY

    @property
    def is_interpreted(self) -> bool:
        """Whether the interpreter, and no GPU, runs it."""
        return isinstance(self.work, Workload) and not self.work.on_gpu

    @property
    def spec(self) -> dict[str, Any]:
        """Plain JSON from which profiler.loads.build makes the Load."""
        kinds = {Workload: "workload", KnownWork: "known", LibraryWork: "library"}
        return {kinds[type(self.work)]: encode(self.work)}


def gpu_subjects(device: str, quick: bool = False) -> tuple[Subject, ...]:
    """The known operations, then every shape by naive (the short ones), flash and cuDNN, in bfloat16."""
    shapes = [(shape, ("naive", "flash")) for shape in ALL_KERNELS] + [(shape, ("flash",)) for shape in FUSED_ONLY]
    found = [Subject(KnownWork(operation)) for operation in OPERATIONS]
    for (heads, kv_heads, seq_len, head_dim, causal), kernels in shapes[: QUICK_SHAPES if quick else None]:
        problem = AttentionProblem(1, heads, kv_heads, seq_len, seq_len, head_dim, "bfloat16", causal)
        for kernel in kernels:
            tile = TILES[head_dim] if all_kernels()[kernel].is_tiled else None
            found.append(Subject(Workload(kernel, problem, tile, device, repeats=REPEATS)))
        found.append(Subject(LibraryWork(problem)))
    return tuple(found)


def interpreted_subjects(quick: bool = False) -> tuple[Subject, ...]:
    """Small shapes for Triton's interpreter, by flash: masks, GQA, ragged edges, dtypes and widths.

    Unless `quick`, the other Triton kernels go through some of them, those of at most MOST_INTERPRETED_STEPS.
    """
    shapes = tuple(_small_shapes())
    some = shapes[:: -(-len(shapes) // QUICK_INTERPRETED)]
    found = [workload for shape in (some if quick else shapes) for workload in _interpreted(("flash",), *shape)]
    if not quick:
        others = [kernel for kernel in all_kernels().values() if kernel.is_triton and kernel.name != "flash"]
        for problem, tile in some:
            taking = tuple(kernel.name for kernel in others if _is_interpreted(kernel, problem, tile))
            every = _interpreted(taking, problem, tile) if taking else ()
            found += [workload for workload in every if needs(workload).tile_steps <= MOST_INTERPRETED_STEPS]
    return tuple(map(Subject, found))


def _is_interpreted(kernel: AttentionKernel, problem: AttentionProblem, tile: TileConfig) -> bool:
    """Whether the interpreter runs the kernel on the problem."""
    try:
        kernel.refuse(problem, kernel.cut(problem, tile), None)
    except Refused:
        return False
    return True


def _interpreted(kernels: tuple[str, ...], problem: AttentionProblem, tile: TileConfig) -> tuple[Workload, ...]:
    return workloads(kernels, problem, tile, CPU, trace=None)


def _small_shapes() -> Iterator[tuple[AttentionProblem, TileConfig]]:
    for head_dim, causal, kv_heads, seq_len in product((64, 128, 256), (False, True), (2, 1), (128, 200)):
        yield AttentionProblem(1, 2, kv_heads, seq_len, seq_len, head_dim, "float16", causal), TileConfig(64, 32)
    yield AttentionProblem(2, 2, 2, 33, 100, 63, "float32", True), TileConfig(16, 16)
    yield AttentionProblem(1, 2, 1, 100, 33, 80, "bfloat16", True), TileConfig(32, 16)
    yield AttentionProblem(1, 2, 2, 256, 256, 64, "float16", True, window=50), TileConfig(32, 32)
    yield AttentionProblem(1, 1, 1, 1, 1_024, 128, "float16"), TileConfig(16, 64)
    yield AttentionProblem(1, 1, 1, 1_024, 1_024, 64, "float16", True), TileConfig(128, 64)
