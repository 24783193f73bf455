"""The backward pass on a real GPU: gradients at the tiles that are meant for it, memory, launches, speed of its own."""

import math
from dataclasses import replace

import pytest
import torch

from kernels.base import all_kernels
from kernels.problem import AttentionProblem, Refused, TileConfig
from profiler.bench import Bench, draw_do
from profiler.child import admit_all, describe
from profiler.counters import cuda_events, torch_memory
from profiler.gradient_accuracy import measure_gradient_errors
from profiler.memory_model import peak_tensors
from profiler.workload import Workload
from tests.attention_cases import draw
from tests.test_backward import (  # noqa: F401 - collected here once more, with this module's device
    exact,
    run,
    test_equals_float64,
    test_hidden_values_never_touch_a_gradient,
    test_strided_views_of_one_fused_tensor,
)

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("poisoned")]

GPU = "cuda:0"
TILE = TileConfig(128, 64, 8, 3)
LONG = AttentionProblem(1, 16, 16, 8192, 8192, 128, "bfloat16", backward=True)
# Ragged at both ends, grouped heads, widths that are no power of two, more queries than keys, a window.
SHAPES = [
    AttentionProblem(1, 4, 4, 1025, 1025, 64, "bfloat16", backward=True),
    AttentionProblem(1, 4, 4, 1025, 1025, 128, "float16", causal=True, backward=True),
    AttentionProblem(1, 8, 2, 300, 1000, 256, "bfloat16", causal=True, backward=True),
    AttentionProblem(2, 6, 3, 77, 513, 80, "float16", backward=True),
    AttentionProblem(1, 4, 2, 400, 300, 64, "bfloat16", causal=True, backward=True),
    AttentionProblem(1, 4, 2, 700, 900, 96, "float16", causal=True, window=130, backward=True),
    AttentionProblem(1, 2, 1, 333, 444, 64, "float32", causal=True, backward=True),
    # One query, one more than a tile of 64, eight heads to one, many heads side by side, queries that see nothing.
    AttentionProblem(1, 4, 4, 1, 513, 128, "float16", causal=True, backward=True),
    AttentionProblem(2, 3, 3, 65, 65, 128, "bfloat16", backward=True),
    AttentionProblem(1, 3, 3, 65, 129, 96, "bfloat16", causal=True, backward=True),
    AttentionProblem(2, 8, 1, 200, 333, 128, "float16", causal=True, backward=True),
    AttentionProblem(1, 8, 1, 128, 4096, 80, "bfloat16", backward=True),
    AttentionProblem(3, 8, 8, 1000, 1000, 128, "bfloat16", causal=True, backward=True),
    AttentionProblem(1, 12, 6, 700, 600, 128, "float16", causal=True, backward=True),
    AttentionProblem(1, 4, 4, 512, 512, 40, "float16", causal=True, backward=True),
    AttentionProblem(1, 4, 2, 129, 200, 64, "float16", causal=True, backward=True),
    AttentionProblem(1, 4, 4, 1, 513, 64, "bfloat16", causal=True, backward=True),
    AttentionProblem(3, 8, 8, 1000, 1000, 64, "bfloat16", causal=True, backward=True),
    AttentionProblem(2, 8, 1, 257, 333, 64, "float16", backward=True),
    AttentionProblem(1, 4, 4, 2048, 2048, 64, "float16", backward=True),
    AttentionProblem(1, 2, 2, 300, 200, 8, "bfloat16", causal=True, backward=True),
    AttentionProblem(1, 4, 4, 2048, 2048, 128, "float16", backward=True),
]
ALLOWED = {"float16": 2e-3, "bfloat16": 1e-2, "float32": 1e-5}
HAVING = [name for name, kernel in all_kernels().items() if kernel.has_backward]


@pytest.fixture
def device() -> str:
    return GPU


def taken(kernel: str, problem: AttentionProblem) -> Workload:
    """The Workload at TILE, or at a smaller one, if this GPU runs it."""
    reason = ""
    for tile in (TILE, replace(TILE, num_stages=2), TileConfig(64, 32, 4, 2), TileConfig(32, 32, 4, 1)):
        offered = all_kernels()[kernel]
        try:
            used = offered.cut(problem, tile) if offered.is_tiled else None
            work = Workload(kernel, problem, used, GPU, repeats=3)
            admit_all((work,))
        except Refused as refusal:
            reason = str(refusal)
            continue
        return work
    pytest.skip(reason)


@pytest.mark.parametrize("problem", SHAPES, ids=str)
@pytest.mark.parametrize("kernel", HAVING)
def test_gradients_equal_float64(kernel: str, problem: AttentionProblem) -> None:
    bench = Bench(taken(kernel, problem), describe(GPU))
    found = bench.launch().gradients
    assert found is not None
    for error in measure_gradient_errors(bench, found):
        assert error.value is not None and error.value < ALLOWED[problem.dtype], error


@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("spoiled", ["q", "k", "v"])
@pytest.mark.parametrize(("dtype", "head_dim"), [("float16", 64), ("bfloat16", 128)])
def test_hidden_values_never_touch_a_gradient_in_16_bits(dtype: str, head_dim: int, spoiled: str, bad: float) -> None:
    """As in tests/test_backward.py, which is of float32, of the warp-specialised kernel: row 200 of 300 is bad."""
    problem, place = AttentionProblem(1, 2, 2, 300, 300, head_dim, dtype, causal=True, backward=True), 200
    inputs, do = draw(problem, GPU), draw_do(problem, 0, GPU)
    clean = exact(problem, inputs, do)
    inputs["qkv".index(spoiled)][:, :, place] = bad
    _, found = run(all_kernels()["flash_ws"], problem, TileConfig(), inputs, do)
    kept = {"dq": slice(0, place)} | (
        {"dk": slice(place + 1, None), "dv": slice(place + 1, None)} if spoiled == "q" else {}
    )
    assert not bool(found.dq[:, :, place].isfinite().all())
    for name, rows in kept.items():
        right = clean[name][:, :, rows]
        assert float((vars(found)[name][:, :, rows].double() - right).norm()) < ALLOWED[dtype] * float(right.norm())


@pytest.mark.parametrize("head_dim", [64, 128])
def test_strided_views_of_16_bits(head_dim: int) -> None:
    """Q, K, V and dO side by side in one tensor [batch, seq, heads · head_dim], of the warp-specialised kernel."""
    problem = AttentionProblem(2, 4, 2, 333, 333, head_dim, "float16", causal=True, backward=True)
    fused = torch.randn(2, 333, 4 + 2 * 2 + 4, head_dim, generator=torch.Generator().manual_seed(1)).half().to(GPU)
    q, k, v, do = (part.transpose(1, 2) for part in fused.split([4, 2, 2, 4], dim=2))
    _, found = run(all_kernels()["flash_ws"], problem, TileConfig(), (q, k, v), do)
    for name, right in exact(problem, (q, k, v), do).items():
        assert float((vars(found)[name].double() - right).norm()) < ALLOWED["float16"] * float(right.norm()), name


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("kernel", ["flash", "flash_tma", "flash_ws"])
def test_a_long_problem_twice(kernel: str, causal: bool) -> None:
    """dK and dV are the same bits each time; dQ, whose shares are added in any order, to float32's rounding."""
    bench = Bench(taken(kernel, replace(LONG, causal=causal)), describe(GPU))
    first, second = bench.launch().gradients, bench.launch().gradients
    assert first is not None and second is not None
    assert first.dk.equal(second.dk) and first.dv.equal(second.dv)
    assert float((first.dq.float() - second.dq.float()).norm()) < 1e-3 * float(first.dq.float().norm())
    for error in measure_gradient_errors(bench, first):
        assert error.value is not None and error.value < ALLOWED["bfloat16"], error


@pytest.mark.parametrize("kernel", HAVING)
def test_memory_is_what_was_predicted(kernel: str) -> None:
    """But for rounding to blocks, and naive's cuBLAS workspace of 32 MiB at most."""
    work = taken(kernel, replace(LONG, seq_len_q=4096, seq_len_kv=4096))
    reading = torch_memory.measure(Bench(work, describe(GPU)))
    found = {m.name: m.value for m in reading.measurements}
    told = sum(peak_tensors(work.attention_kernel, work.problem, work.tile).values())
    peak = found["peak_allocated_bytes"]
    assert peak is not None and told <= peak < 1.01 * told + 64 * 2**20


@pytest.mark.parametrize("kernel", HAVING)
def test_every_launch_is_timed_under_its_name(kernel: str) -> None:
    bench = Bench(taken(kernel, replace(LONG, seq_len_q=2048, seq_len_kv=2048)), describe(GPU))
    reading = cuda_events.measure(bench)
    timed = [m.launch for m in reading.measurements if m.name == "gpu_time_seconds" and m.launch is not None]
    assert timed == [launch.name for launch in bench.schedule.launches]
    torch.cuda.empty_cache()
