"""The detail set: which metrics each chip counts it by, in how many passes, and what the numbers become."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

from kernels.problem import AttentionProblem, TileConfig
from profiler.bench import Bench
from profiler.child import describe
from profiler.counter import Unavailable, all_counters
from profiler.counters import cupti_detail, cupti_range
from profiler.cupti import chip as chip_module
from profiler.cupti import driver, ranges
from profiler.cupti.detail import HITS, MISSES, SINGLE, DetailMetrics, detail_metrics, tensor_metrics
from profiler.device import cpu_device
from profiler.plausible import MAX_TEXT
from profiler.workload import Workload
from tests.test_cupti_ranges import StandIn

ROOT = Path(__file__).parents[1]
TRITON = Path(find_spec("triton").submodule_search_locations[0]) / "backends/nvidia/lib/cupti"
LIBRARIES = {
    "triton": next(iter(sorted(TRITON.glob("libcupti.so.[0-9][0-9]"))), TRITON / "libcupti.so.12"),
    "toolkit-13.0": Path("/usr/local/cuda-13.0/lib64/libcupti.so.13"),
}

FOUR = ("bf16_dst_fp32", "fp16_dst_fp16", "fp16_dst_fp32", "tf32_dst_fp32")
# The sources and accumulators of the tensor-core metrics, and the passes of the whole set.
FACTS = {
    "TU102": (("fp16_bf16_tf32_dst_fp32", "fp16_dst_fp16"), 2),
    "TU116": ((), 2),  # no tensor cores
    "GA100": (FOUR, 4),
    "AD102": (FOUR, 4),
    "GH100": (("bf16_dst_fp32", "fp16", "tf32_dst_fp32"), 4),
    "GB100": (FOUR, 4),
    "GB202": (FOUR, 4),
}


@pytest.mark.parametrize("library", LIBRARIES.values(), ids=LIBRARIES.keys())
def test_what_each_chip_counts_and_in_how_many_passes(library: Path) -> None:
    if not library.is_file():
        pytest.skip(f"no {library}")
    # A process of its own, since one process takes one library.
    code = f"""
import json
from pathlib import Path
from profiler.cupti.detail import detail_metrics
from profiler.cupti.host import MetricsHost
from profiler.cupti.library import load
cupti = load(Path({str(library)!r}))
found = {{}}
for chip in {tuple(FACTS)}:
    with MetricsHost(cupti, chip) as host:
        metrics = detail_metrics(chip, host.base_metrics)
    with MetricsHost(cupti, chip, metrics.names) as host:
        found[chip] = (metrics.parts, host.passes)
print(json.dumps(found))
"""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, timeout=120, capture_output=True, text=True, check=True
    )
    found = json.loads(done.stdout)
    for chip, (tensor, passes) in FACTS.items():
        parts = {quantity: [name] for quantity, name in SINGLE.items()} | {"l2_hit_percent": [HITS, MISSES]}
        parts["tensor_flops"] = [f"sm__ops_path_tensor_src_{each}.sum" for each in tensor]
        assert found[chip] == [parts, passes], chip


def test_tensor_metrics_count_each_operation_once() -> None:
    wanted = {
        "sm__ops_path_tensor_src_bf16_dst_fp32",
        "sm__ops_path_tensor_src_fp16",
        "sm__ops_path_tensor_src_fp16_fp8_dst_fp32",
    }
    parts_of_these = {
        "sm__ops_path_tensor_src_bf16_dst_fp32_sparsity_on",
        "sm__ops_path_tensor_src_bf16_dst_fp32_realtime",
        "sm__ops_path_tensor_op_hgmma_src_bf16_dst_fp32",
        "smsp__ops_path_tensor_src_bf16_dst_fp32",
        "sm__ops_path_tensor_src_fp16_dst_fp16",
        "sm__ops_path_tensor_src_fp16_dst_fp32",
    }
    other_types = {f"sm__ops_path_tensor_src_{each}" for each in ("fp64", "int8", "fp8_dst_fp32")}
    found = tensor_metrics(wanted | parts_of_these | other_types)
    assert found == tuple(sorted(f"{name}.sum" for name in wanted))


def test_values_become_the_sum_of_their_metrics() -> None:
    metrics = DetailMetrics("GX", {"tensor_flops": ("a.sum", "b.sum"), "spill_read_bytes": ("c.sum",), "l2": ()})
    assert metrics.names == ("a.sum", "b.sum", "c.sum")
    assert metrics.detail({"a.sum": 1e12, "b.sum": 5e11, "c.sum": 0.0}) == {
        "tensor_flops": 1.5e12,
        "spill_read_bytes": 0.0,
    }


def test_a_metric_that_the_chip_lacks_is_missing_alone() -> None:
    sectors = "lts__t_sectors_srcunit_tex_lookup"
    metrics = detail_metrics("GX", {f"{sectors}_hit", f"{sectors}_miss", "sm__ops_path_tensor_src_fp64"})
    assert metrics.names == (HITS, MISSES) == (f"{sectors}_hit.sum", f"{sectors}_miss.sum")
    assert metrics.detail({HITS: 30.0, MISSES: 10.0}) == {"l2_hit_percent": 75.0}
    assert metrics.detail({HITS: 0.0, MISSES: 0.0}) == {}
    assert metrics.why_missing("l2_hit_percent") == "the work asked nothing of L2"
    half = detail_metrics("GX", {f"{sectors}_hit"})
    assert half.names == () and f"no metric {HITS} for the chip GX" in half.why_missing("l2_hit_percent")
    reason = "no metric l1tex__t_bytes_pipe_lsu_mem_local_op_ld.sum for the chip GX"
    assert reason in metrics.why_missing("spill_read_bytes")
    assert "no metric sm__ops_path_tensor_src_… for fp16, bf16 or tf32" in metrics.why_missing("tensor_flops")


class Work:
    """A Load of two launches that notes what happens to it."""

    l2 = "cold"
    launch_names = ("qk", "pv")

    def __init__(self) -> None:
        self.events: list[str] = []

    def evict_l2(self) -> None:
        self.events.append("evict")

    def prepare_l2(self) -> None:
        self.events.append("prepare")

    def launch(self, hook=nullcontext) -> None:
        for name in self.launch_names:
            with hook(name):
                self.events.append(name)


@pytest.fixture
def attach(monkeypatch: pytest.MonkeyPatch) -> Iterator:
    """Puts a stand-in for the GPU where the counter looks for CUPTI."""

    def attach(cupti: StandIn) -> StandIn:
        for module in (chip_module, ranges):
            monkeypatch.setattr(module, "load", lambda: cupti)
        return cupti

    for module in (driver, ranges):
        monkeypatch.setattr(module, "current_context", lambda: (0xC0DE, 0))
    monkeypatch.setattr(ranges, "synchronize", lambda: None)
    chip_module.chip_metrics.cache_clear()
    yield attach
    chip_module.chip_metrics.cache_clear()


def test_whole_and_launches_from_a_set_of_four_passes(attach) -> None:
    """Metric i of range n counts 100 · (i + 1) + n; on GH100 the first three are those of the tensor cores."""
    cupti, work = attach(StandIn(passes=4)), Work()
    reading = cupti_detail.measure(work)
    whole = {m.name: (m.value, m.unit, m.spread) for m in reading.measurements if m.launch is None}
    # Ranges 0, 1, 2: the median is that of range 1, the spread reaches from 0.4 to 1.6.
    assert whole == {
        "tensor_flops": (603.0, "FLOP", pytest.approx((601.2, 604.8))),
        "spill_read_bytes": (401.0, "B", pytest.approx((400.4, 401.6))),
        "spill_write_bytes": (501.0, "B", pytest.approx((500.4, 501.6))),
        # The middle of 600 / 1,300, 601 / 1,302 and 602 / 1,304.
        "l2_hit_percent": (pytest.approx(100 * 601 / 1_302), "%", pytest.approx((46.1562, 46.1633), abs=1e-4)),
    }
    launches = {(m.launch, m.name): m.value for m in reading.measurements if m.launch is not None}
    assert len(launches) == 2 * 4
    assert (launches["qk", "tensor_flops"], launches["pv", "tensor_flops"]) == (609.0, 612.0)
    assert (launches["qk", "l2_hit_percent"], launches["pv", "l2_hit_percent"]) == (
        pytest.approx(100 * 603 / 1_306),
        pytest.approx(100 * 604 / 1_308),
    )
    assert {m.source for m in reading.measurements} == {"cupti-range"}
    assert cupti.still_open() == []


def test_every_pass_runs_the_same_work_with_l2_prepared_alike(attach) -> None:
    attach(StandIn(passes=4))
    work = Work()
    cupti_detail.measure(work)
    assert work.events == ["evict", *4 * 4 * ["prepare", "qk", "pv"]]


@pytest.mark.parametrize(("chip", "passes"), [("GA100", 4), ("GB202", 4), ("TU116", 2)])
def test_notes_say_how_it_was_counted_and_fit_into_a_run(attach, chip: str, passes: int) -> None:
    attach(StandIn(chip=chip, passes=passes))
    found = cupti_detail.measure(Work()).measurements
    assert all(len(m.note) <= MAX_TEXT and m.note.isprintable() for m in found)
    counted = [m for m in found if m.value is not None]
    assert all(f"counted in {passes} passes on {chip}, each a run anew; cold L2" in m.note for m in counted)
    flops = found[0]
    if chip == "TU116":
        assert (flops.name, flops.value) == ("tensor_flops", None)
        assert "for the chip TU116" in flops.note
        assert [m.name for m in counted if m.launch is None] == [*SINGLE, "l2_hit_percent"]
        assert {m.name for m in counted} == {*SINGLE, "l2_hit_percent"}
    else:
        assert all(f"sm__ops_path_tensor_src_{each}" in flops.note for each in FOUR)


def test_a_refusal_is_the_reason_for_all(attach) -> None:
    cupti = attach(StandIn(fails={"cuptiRangeProfilerEnable": 35}, passes=4))
    with pytest.raises(Unavailable, match="--cap-add SYS_ADMIN"):
        cupti_detail.measure(Work())
    assert cupti.still_open() == ["cuptiRangeProfilerEnable"]  # refused, so there is nothing to disable


def test_only_workloads_with_detail_ask_for_it() -> None:
    counter = cupti_detail.COUNTER
    assert counter in all_counters()
    plain = Workload("naive", AttentionProblem(1, 1, 1, 16, 16, 16), None)
    assert [counter.is_asked(w) for w in (plain, replace(plain, detail=True))] == [False, True]
    assert "no GPU" in counter.unavailable(cpu_device())


def bench(kernel: str, dtype: str = "bfloat16", seq_len: int = 8192) -> Bench:
    device = describe("cuda:0")
    if reason := cupti_detail.COUNTER.unavailable(device):
        pytest.skip(reason)
    problem = AttentionProblem(1, 16, 16, seq_len, seq_len, 128, dtype)
    tile = TileConfig(128, 64, num_warps=8, num_stages=3) if kernel == "flash" else None
    return Bench(Workload(kernel, problem, tile, "cuda:0", detail=True), device)


@pytest.mark.gpu
@torch.inference_mode()
def test_flash_on_this_gpu() -> None:
    """Two products of 2 · S² · D FLOP each for 16 heads; a tile of 128 × 64 with 8 warps spills nothing."""
    found = {m.name: m for m in cupti_detail.measure(bench("flash")).measurements if m.launch is None}
    assert found["tensor_flops"].value == pytest.approx(4 * 16 * 8192**2 * 128, rel=0.02)
    assert (found["spill_read_bytes"].value, found["spill_write_bytes"].value) == (0, 0)
    # Of 2.3 to 2.6 GB that the SMs ask of L2, 0.1 GB comes from HBM; a line on its way misses once more (94.1 once).
    assert found["l2_hit_percent"].value == pytest.approx(95, abs=3)


@pytest.mark.gpu
@torch.inference_mode()
def test_what_arrives_at_the_sms_is_what_the_programs_ask_for() -> None:
    """Each of 64 Q tiles of 16 heads reads K and V of its head whole, and no tile is asked for twice by one SM."""
    load = bench("flash")
    load.launch()
    found = {m.name: m.value for m in cupti_range.measure(load).measurements if m.launch is None}
    requested = 16 * (8192 * 128 * 2 + 64 * 2 * 8192 * 128 * 2)
    assert found["l2_to_sm_bytes"] == pytest.approx(requested, rel=0.01)
    assert found["l2_sm_read_bytes"] < found["l2_to_sm_bytes"]  # Hopper merges reads of several SMs


@pytest.mark.gpu
@torch.inference_mode()
def test_naive_on_this_gpu_counts_by_launch() -> None:
    """The two matrix products share the operations; scale and softmax have none."""
    found = cupti_detail.measure(bench("naive", seq_len=4096)).measurements
    flops = {m.launch: m.value for m in found if m.name == "tensor_flops"}
    one_product = 2 * 16 * 4096**2 * 128
    assert flops["qk"] == pytest.approx(one_product, rel=0.02)
    assert flops["pv"] == pytest.approx(one_product, rel=0.02)
    assert (flops["scale"], flops["softmax"]) == (0, 0)
    assert flops[None] == pytest.approx(2 * one_product, rel=0.02)


@pytest.mark.gpu
@torch.inference_mode()
def test_float32_runs_on_no_tensor_core() -> None:
    found = {m.name: m for m in cupti_detail.measure(bench("naive", "float32", 1024)).measurements if m.launch is None}
    assert found["tensor_flops"].value == 0
