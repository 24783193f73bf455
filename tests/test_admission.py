"""Everything that cannot run is refused before it starts, in one sentence that says what to change."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernels.base import GpuLimits, all_kernels
from kernels.problem import AttentionProblem, Refused, TileConfig
from kernels.shared_memory import STREAMED_KV
from profiler.admission import MAX_INTERPRETED_STEPS, admit, needs
from profiler.device import GPUS, cpu_device
from profiler.run import DeviceInfo
from profiler.workload import CPU, TraceRequest, Workload, workloads
from tests.fake_runs import H200

H200_LIMITS = GPUS["h200"].limits
LONG = AttentionProblem(1, 16, 16, 8192, 8192, 128, "bfloat16")
GIB = 2**30


def on_h200(
    kernel: str = "flash",
    problem: AttentionProblem = LONG,
    tile: TileConfig | None = None,
    limits: GpuLimits = H200_LIMITS,
    free: int = 139 * GIB,
) -> None:
    found = all_kernels()[kernel]
    tile = found.cut(problem, tile or TileConfig(128, 64)) if found.is_tiled else None
    trace = TraceRequest() if tile else None
    admit(Workload(kernel, problem, tile, "cuda:0", trace=trace), replace(H200, name=limits.name), limits, free)


def refusal_of(kernel: str = "flash", **changes: object) -> str:
    with pytest.raises(Refused) as refusal:
        on_h200(kernel, **changes)  # type: ignore[arg-type]
    sentence = str(refusal.value)
    assert sentence.endswith(".") and "\n" not in sentence
    return sentence


@pytest.mark.parametrize("kernel", all_kernels())
def test_the_usual_shapes_are_admitted(kernel: str) -> None:
    for problem in (LONG, AttentionProblem(8, 16, 16, 4096, 4096, 128, "bfloat16", causal=True)):
        # Whole rows of longer ones do not fit on chip: tests/test_query_tiled.py.
        keys = min(problem.seq_len_kv, 256) if kernel == "query_tiled" else problem.seq_len_kv
        on_h200(kernel, replace(problem, seq_len_kv=keys))


@pytest.mark.parametrize(("tile", "name"), [(TileConfig(8, 64), "BLOCK_M"), (TileConfig(64, 4), "BLOCK_N")])
def test_a_block_below_16_runs_only_interpreted(tile: TileConfig, name: str) -> None:
    sentence = refusal_of(tile=tile)
    assert sentence.startswith(f"{name} is {getattr(tile, name)}, but a GPU's matrix units want at least 16; ")
    assert "device cpu" in sentence
    article = AttentionProblem(1, 1, 1, 16, 16, 64)
    admit(Workload("flash", article, TileConfig(4, 4)), cpu_device(), None, GIB)


def test_shared_memory_names_needed_limit_and_a_tile_that_fits() -> None:
    """D = 256, 128 × 128, two stages of bf16: at least 3 · 128 · 512 B; (128 + 4 · 32) · 512 B + 1 KB fit."""
    problem = replace(LONG, head_dim=256)
    tile = TileConfig(128, 128, num_stages=2)
    on_h200(problem=problem, tile=tile)
    sentence = refusal_of(problem=problem, tile=tile, limits=GPUS["a100"].limits)
    assert "BLOCK_M 128, BLOCK_N 128, num_stages 2 needs at least 192 KB of shared memory" in sentence
    assert "A100 SXM 80 GB gives a CTA 163 KB" in sentence
    assert sentence.endswith(" BLOCK_M 128, BLOCK_N 32, num_stages 2 fits.")
    on_h200(problem=problem, tile=TileConfig(128, 32, num_stages=2), limits=GPUS["a100"].limits)


def test_shared_memory_of_the_compiled_kernel_is_judged_alike() -> None:
    refuse = all_kernels()["flash"].refuse_shared_memory
    assert refuse is not None
    refuse(LONG, TileConfig(), H200_LIMITS, 227 * 1024)
    with pytest.raises(
        Refused, match=r"needs 228 KB of shared memory; H200 SXM gives a CTA 227 KB\. BLOCK_M .* fits\.$"
    ):
        refuse(LONG, TileConfig(), H200_LIMITS, 228 * 1024)


@given(
    st.sampled_from([16, 63, 128, 256]),
    st.sampled_from(["float16", "float32"]),
    st.sampled_from([16, 64, 1024]),
    st.sampled_from([16, 64, 1024]),
    st.integers(1, 8),
    st.sampled_from(list(GPUS)),
)
def test_the_fitting_tile_fits_and_is_no_larger(
    head_dim: int, dtype: str, block_m: int, block_n: int, num_stages: int, gpu: str
) -> None:
    problem = AttentionProblem(head_dim=head_dim, dtype=dtype)
    tile = TileConfig(block_m, block_n, num_stages=num_stages)
    limit = GPUS[gpu].shared_memory_per_block
    assert STREAMED_KV.at_least(problem, tile) < STREAMED_KV.at_most(problem, tile)
    fit = STREAMED_KV.fitting_tile(problem, tile, limit)
    assert fit is not None
    assert STREAMED_KV.at_most(problem, fit) <= limit
    assert fit.BLOCK_M <= tile.BLOCK_M and fit.BLOCK_N <= tile.BLOCK_N and fit.num_stages <= tile.num_stages
    assert fit == tile or STREAMED_KV.at_most(problem, tile) > limit


def test_nothing_fits_is_said() -> None:
    assert STREAMED_KV.fitting_tile(AttentionProblem(head_dim=256, dtype="float32"), TileConfig(16, 16), 30_000) is None


@pytest.mark.parametrize("gpu", ["v100", "t4"])
def test_bfloat16_before_ampere(gpu: str) -> None:
    sentence = refusal_of(limits=GPUS[gpu].limits, tile=TileConfig(16, 16, num_stages=1))
    assert sentence == f"{GPUS[gpu].title} has no bfloat16 (it came with compute capability 8.0); choose float16."


def test_the_grid_limit() -> None:
    problem = AttentionProblem(2**11, 2**11, 1, 2**13, 16, 16)
    sentence = refusal_of(problem=problem, tile=TileConfig(16, 16), free=2**60)
    assert sentence == "The grid has 2,147,483,648 programs, above 2,147,483,647; choose a larger BLOCK_M."
    on_h200(problem=problem, tile=TileConfig(32, 16), free=2**60)


def test_a_naive_run_that_does_not_fit_names_needed_and_free() -> None:
    """S and P of 131,072² in bf16, 32 GiB each and head; Q, K, V and O 32 MiB each and head."""
    problem = AttentionProblem(1, 2, 2, 131_072, 131_072, 128, "bfloat16")
    need = needs(Workload("naive", problem, None, "cuda:0", trace=None))
    assert need.tensors["s"] == need.tensors["p"] == 2 * 32 * GIB
    assert need.total_bytes == 4 * 32 * GIB + 4 * 64 * 2**20
    sentence = refusal_of("naive", problem=problem, free=100 * GIB)
    assert "Naive needs 128.2 GiB (S alone 64.0)" in sentence
    assert "has 100.0 GiB free; choose a shorter sequence, fewer heads or only flash." in sentence
    on_h200("naive", problem, free=need.total_bytes)
    on_h200("flash", problem, free=GIB)


def test_no_such_gpu() -> None:
    workload = Workload("flash", LONG, TileConfig(), "cuda:3")
    with pytest.raises(Refused, match=r"^There is no GPU cuda:3 here; choose device cpu, or open a recorded Run\.$"):
        admit(workload, DeviceInfo("cuda:3", "none"), None, None)


def test_a_gpu_whose_limits_are_not_known_is_a_gpu() -> None:
    """The form knows a new GPU by NVML only; what a CTA may have there is asked in the worker."""
    new = replace(H200, name="GB999", compute_capability=(99, 0), shared_memory_per_block=None)
    admit(Workload("flash", LONG, TileConfig(), "cuda:0"), new, None, None)


def test_too_many_steps_to_interpret() -> None:
    problem = AttentionProblem(1, 2, 2, 4096, 4096, 16)
    workload = Workload("flash", problem, TileConfig(32, 32))
    assert needs(workload).tile_steps == 2 * 128 * 128 > MAX_INTERPRETED_STEPS
    with pytest.raises(Refused, match=r"32,768 steps would take 3 minutes\. Stay below 18,000: choose"):
        admit(workload, cpu_device(), None, None)
    causal = Workload("flash", replace(problem, causal=True), TileConfig(32, 32))
    assert needs(causal).tile_steps == 2 * 128 * 129 // 2
    admit(causal, cpu_device(), None, None)


def test_too_many_flops_for_a_cpu() -> None:
    with pytest.raises(Refused, match=r"this problem's 550 GFLOP would take minutes; choose a shorter sequence"):
        admit(Workload("naive", LONG, None, trace=None), cpu_device(), None, None)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"kernel": "slow"}, f"Kernel 'slow' is not known; choose {', '.join(all_kernels())}."),
        ({"device": "cuda"}, "Device 'cuda' is not known; choose cpu or cuda:0."),
        ({"device": "cuda:-1"}, "Device 'cuda:-1' is not known; choose cpu or cuda:0."),
        ({"l2": "hot"}, "l2 is 'hot'; choose cold or warm."),
        ({"seed": -1}, "seed is -1; choose 0 to 2^63 - 1."),
        ({"seed": 2**63}, "seed is 9223372036854775808; choose 0 to 2^63 - 1."),
        ({"repeats": 0}, "passes is 0; choose 1 to 10000."),
        ({"tile": None}, "Kernel flash needs a tile."),
        ({"kernel": "naive"}, "Kernel naive takes no tile."),
        (
            {"kernel": "naive", "tile": None, "trace": TraceRequest()},
            "Kernel naive records neither softmax state nor times; leave trace out.",
        ),
        ({"trace": TraceRequest(batch=1)}, "The traced batch is 1; this problem has 0 to 0."),
        ({"trace": TraceRequest(head=16)}, "The traced head is 16; this problem has 0 to 15."),
        ({"trace": TraceRequest(row=-1)}, "The traced row is -1; this problem has 0 to 8191."),
    ],
    ids=str,
)
def test_a_workload_whose_parts_do_not_fit_together(changes: dict[str, object], sentence: str) -> None:
    whole: dict[str, object] = {"kernel": "flash", "problem": LONG, "tile": TileConfig()}
    with pytest.raises(Refused) as refusal:
        Workload(**whole | changes)  # type: ignore[arg-type]
    assert str(refusal.value) == sentence


def test_workloads_give_each_kernel_what_it_takes() -> None:
    naive, flash = workloads(("naive", "flash", "naive"), LONG, TileConfig(), CPU)
    assert (naive.kernel, naive.tile, naive.trace) == ("naive", None, None)
    assert (flash.kernel, flash.tile, flash.trace) == ("flash", TileConfig(), TraceRequest())
    with pytest.raises(Refused, match=r"^No kernel is chosen; choose at least one\.$"):
        workloads((), LONG, TileConfig(), CPU)
    with pytest.raises(Refused, match=r"^Kernel 'slow' is not known"):
        workloads(("slow",), LONG, TileConfig(), CPU)
