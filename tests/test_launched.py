"""Which kernels a pass launches: the assignment by hand-made times, the ranges by a real profile, names on a GPU."""

import re
from contextlib import contextmanager, nullcontext
from types import SimpleNamespace

import pytest
import torch
from torch.profiler import ProfilerActivity

from kernels.problem import AttentionProblem
from profiler import launched
from profiler.bench import Bench, Load
from profiler.child import describe
from profiler.counter import Unavailable
from profiler.counters import cupti_range
from profiler.cupti.driver import current_chip
from profiler.cupti.host import MetricsHost, traffic_metrics
from profiler.cupti.ranges import RangeProfiler
from profiler.device import cpu_device
from profiler.launched import LABEL, Activity, assign, launched_kernels, profile_pass
from profiler.run import DeviceInfo, LaunchedKernel
from profiler.workload import Workload

CPU_EVENT, GPU_EVENT = launched.DeviceType.CPU, launched.DeviceType.CUDA


def pairs(kernels: tuple[LaunchedKernel, ...]) -> list[tuple[str, str]]:
    return [(kernel.launch, kernel.kernel) for kernel in kernels]


def test_kernels_go_to_the_launch_that_holds_them_by_rising_time() -> None:
    launches = [Activity("softmax", 100, 200), Activity("qk", 0, 90)]
    kernels = [
        Activity("softmax_warp", 120, 190),
        Activity("between", 91, 99),
        Activity("gemm", 10, 60),
        Activity("split_k_reduce", 61, 80),
        Activity("after", 210, 220),
    ]
    assert pairs(assign(kernels, launches)) == [
        ("qk", "gemm"),
        ("qk", "split_k_reduce"),
        ("", "between"),
        ("softmax", "softmax_warp"),
        ("", "after"),
    ]


def test_the_innermost_of_nested_launches_has_the_kernel() -> None:
    launches = [Activity("inner", 20, 40), Activity("outer", 0, 100), Activity("innermost", 20, 30)]
    kernels = [Activity("a", 1, 5), Activity("b", 21, 29), Activity("c", 31, 39), Activity("d", 50, 60)]
    assert [launch for launch, _ in pairs(assign(kernels, launches))] == ["outer", "innermost", "inner", "outer"]


def test_equal_times_keep_their_order_and_borders_belong_to_the_launch() -> None:
    launches = [Activity("first", 0, 10), Activity("second", 10, 20)]
    kernels = [Activity("x", 10, 10), Activity("y", 0, 0), Activity("z", 10, 10), Activity("w", 20, 20)]
    assert pairs(assign(kernels, launches)) == [("first", "y"), ("second", "x"), ("second", "z"), ("second", "w")]


def test_a_kernel_that_seems_to_begin_before_its_launch_is_still_its_own() -> None:
    """The GPU's clock may be a microsecond ahead of the host's."""
    launches = [Activity("qk", 0, 50), Activity("pv", 60, 110)]
    assert pairs(assign([Activity("gemm", 59.4, 80)], launches)) == [("pv", "gemm")]


def test_a_launch_that_comes_twice_and_a_pass_without_launches() -> None:
    launches = [Activity("split", 0, 10), Activity("split", 20, 30)]
    kernels = [Activity("a", 1, 2), Activity("b", 22, 23)]
    assert pairs(assign(kernels, launches)) == [("split", "a"), ("split", "b")]
    assert pairs(assign(kernels, [])) == [("", "a"), ("", "b")]


def test_long_names_are_cut() -> None:
    (found,) = assign([Activity("k" * 2000, 0, 1)], [])
    assert found.kernel == "k" * 300


class TwoSteps(Load):
    """Two named launches, and one operation outside them."""

    launch_names = ("double", "square")

    def __init__(self) -> None:
        super().__init__(cpu_device())
        self.passes = 0

    def launch(self, hook=nullcontext) -> torch.Tensor:
        self.passes += 1
        x = torch.ones(64, 64)
        with hook("double"):
            x = x + x
        x = x.abs()
        with hook("square"):
            return x @ x


def test_torch_profiler_shows_each_launch_once_after_a_pass_that_it_does_not_see() -> None:
    load = TwoSteps()
    launches, kernels = profile_pass(load, [ProfilerActivity.CPU])
    assert [launch.name for launch in launches] == ["double", "square"]
    (double, square), passes = launches, load.passes
    assert 0 <= double.start < double.end <= square.start < square.end
    assert (kernels, passes) == ((), 2)


def test_launches_of_a_workload_come_under_their_names() -> None:
    load = Bench(Workload("naive", AttentionProblem(1, 2, 1, 33, 40, 16, causal=True), None), cpu_device())
    launches, _ = profile_pass(load, [ProfilerActivity.CPU])
    assert tuple(launch.name for launch in launches) == load.launch_names


def event(name: str, device, start: float, end: float, is_user_annotation: bool = False) -> SimpleNamespace:
    time_range = SimpleNamespace(start=start, end=end)
    return SimpleNamespace(name=name, device_type=device, time_range=time_range, is_user_annotation=is_user_annotation)


@pytest.fixture
def gpu_profile(monkeypatch: pytest.MonkeyPatch):
    """torch.profiler as it looks with a GPU: gives the events that it is told."""

    def tell(*events: SimpleNamespace) -> TwoSteps:
        @contextmanager
        def profile(**options):
            assert {*options["activities"]} == {ProfilerActivity.CPU, ProfilerActivity.CUDA}
            yield SimpleNamespace(events=lambda: list(events))

        monkeypatch.setattr(launched, "profile", profile)
        monkeypatch.setattr(launched, "supported_activities", lambda: {ProfilerActivity.CPU, ProfilerActivity.CUDA})
        load = TwoSteps()
        load.device = DeviceInfo("cuda:0", "H200", compute_capability=(9, 0))
        load.synchronize = lambda: None
        return load

    return tell


def test_only_kernels_count_not_copies_fills_annotations_or_what_the_host_does(gpu_profile) -> None:
    load = gpu_profile(
        event(f"{LABEL}double", CPU_EVENT, 0, 100, is_user_annotation=True),
        event(f"{LABEL}double", GPU_EVENT, 20, 60, is_user_annotation=True),
        event("aten::add", CPU_EVENT, 5, 15),
        event("cudaLaunchKernel", CPU_EVENT, 6, 9),
        event("Memset (Device)", GPU_EVENT, 15, 18),
        event("void at::native::elementwise_kernel<128, 4>(int)", GPU_EVENT, 20, 40),
        event("Memcpy DtoD (Device -> Device)", GPU_EVENT, 45, 60),
        event("abs_kernel", GPU_EVENT, 104, 108),
        event(f"{LABEL}square", CPU_EVENT, 110, 200, is_user_annotation=True),
        event("nvjet_tst_128x256_64x4", GPU_EVENT, 120, 190),
    )
    assert pairs(launched_kernels(load)) == [
        ("double", "void at::native::elementwise_kernel<128, 4>(int)"),
        ("", "abs_kernel"),
        ("square", "nvjet_tst_128x256_64x4"),
    ]


def test_why_kernels_have_no_names(gpu_profile, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Unavailable, match="no GPU here"):
        launched_kernels(TwoSteps())
    load = gpu_profile(event(f"{LABEL}double", CPU_EVENT, 0, 100, is_user_annotation=True))
    with pytest.raises(Unavailable, match="saw no kernel of this pass: ncu, nsys"):
        launched_kernels(load)
    monkeypatch.setattr(launched, "supported_activities", lambda: {ProfilerActivity.CPU})
    with pytest.raises(Unavailable, match="built without CUPTI"):
        launched_kernels(load)


def naive() -> Bench:
    device = describe("cuda:0")
    return Bench(Workload("naive", AttentionProblem(1, 16, 16, 4096, 4096, 128, "bfloat16"), None, "cuda:0"), device)


@pytest.mark.gpu
@torch.inference_mode()
def test_names_of_the_kernels_on_this_gpu() -> None:
    found = launched_kernels(naive())
    for launch, pattern in (("qk", "gemm|cutlass|nvjet"), ("softmax", "softmax"), ("pv", "gemm|cutlass|nvjet")):
        names = [kernel.kernel for kernel in found if kernel.launch == launch]
        assert any(re.search(pattern, name, re.IGNORECASE) for name in names), (launch, names)
    assert {kernel.launch for kernel in found} == {"qk", "scale", "softmax", "pv"}


@pytest.mark.gpu
@torch.inference_mode()
def test_automatic_ranges_are_these_kernels_and_together_the_whole() -> None:
    load = naive()
    if reason := cupti_range.COUNTER.unavailable(load.device):
        pytest.skip(reason)
    kernels = launched_kernels(load)
    load.evict_l2()
    with RangeProfiler(_read_metric()) as profiler:
        (read,) = profiler.metrics
        each = profiler.collect_kernels(load.launch, len(kernels), prepare=load.prepare_l2)
        with profiler.collecting() as ranges:
            load.prepare_l2()
            with ranges.range("run"):
                load.launch()
    assert len(each) == len(kernels)
    ((_, whole),) = ranges.values
    assert sum(found[read] for found in each) == pytest.approx(whole[read], rel=0.01)
    # The scores are 16 · 4096² · 2 B = 537 MB; scale, softmax and pv read them.
    assert whole[read] > 3 * 0.9 * 16 * 4096**2 * 2


def _read_metric() -> tuple[str, ...]:
    cupti = cupti_range.load()
    with MetricsHost(cupti, current_chip(cupti)) as host:
        return (traffic_metrics(host.base_metrics).read,)
