"""PM sampling: CUPTI's real host half, and a simulated GPU whose counters a stand-in for CUPTI samples."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from importlib.util import find_spec
from itertools import count, pairwise
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from kernels.problem import AttentionProblem, TileConfig
from kernels.run import LaunchHook
from profiler import gpu_clock
from profiler.bench import Bench
from profiler.child import describe
from profiler.counter import Unavailable, all_counters
from profiler.counters import cupti_sampling
from profiler.cupti import chip as chip_module
from profiler.cupti import sampling, sampling_structs, structs
from profiler.cupti.host import PM_SAMPLING, traffic_metrics
from profiler.cupti.library import CuptiError, find
from profiler.cupti.sampling import PmSampler, Samples
from profiler.gpu_clock import GpuClock
from profiler.nvml import NoGpu
from profiler.run import DeviceInfo, LaunchSpan, Run
from profiler.run_document import from_json, to_json
from profiler.workload import workloads
from tests.fake_runs import H200, naive_run
from tests.sampled_gpu import (
    BORN,
    END,
    FULL,
    MS,
    OTHER,
    READ,
    SECTORS,
    US,
    WRITE,
    Clock,
    Gpu,
    Sample,
    StandIn,
    TwoLaunches,
)

ROOT = Path(__file__).parents[1]
TRITON = Path(find_spec("triton").submodule_search_locations[0]) / "backends/nvidia"
HEADERS = {"triton": TRITON / "include", "toolkit": Path("/usr/local/cuda/include")}
BLOCKS = [block for block in vars(sampling_structs).values() if isinstance(block, type(structs.Params))]

INTERVAL = 20 * US


# CUPTI's own host half and headers.


@pytest.mark.parametrize("path", find(), ids=str)
def test_every_library_says_by_name_what_it_can_sample(path: Path) -> None:
    """HBM bytes and L2 sectors can be sampled on every chip with HBM or GDDR from CUDA 13 on, before it on none."""
    code = f"""
from pathlib import Path
from profiler.cupti.host import PM_SAMPLING, MetricsHost, traffic_metrics
from profiler.cupti.library import CuptiError, load
cupti = load(Path({str(path)!r}))
print(cupti.version)
for chip in ("GV100", "TU104", "GA100", "GA102", "AD102", "GH100", "GB100", "GB202", "GB10B"):
    try:
        with MetricsHost(cupti, chip, profiler_type=PM_SAMPLING) as host:
            found = traffic_metrics(host.base_metrics)
        with MetricsHost(cupti, chip, (found.read, found.write, found.sectors), PM_SAMPLING) as host:
            print(chip, found.read, found.write, found.sectors, host.passes)
    except CuptiError as error:
        print(chip, error.code)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, timeout=120, capture_output=True, text=True, check=True
    )
    version, *rows = done.stdout.splitlines()
    no_sampling, no_metric = "GV100 27", "GB10B None"
    if int(version) < cupti_sampling.FIRST_VERSION:
        chips = ("TU104", "GA100", "GA102", "AD102", "GH100", "GB100", "GB202")
        assert rows == [no_sampling, *(f"{chip} None" for chip in chips), no_metric]
    else:
        older = ("TU104", "GA100", "GA102", "AD102", "GH100", "GB100")
        newer = f"GB202 dram__bytes_op_read.sum dram__bytes_op_write.sum {SECTORS} 1"
        assert rows == [no_sampling, *(f"{chip} {READ} {WRITE} {SECTORS} 1" for chip in older), newer, no_metric]


@pytest.mark.parametrize("path", find(), ids=str)
def test_every_call_is_in_every_library(path: Path) -> None:
    symbols = path.read_bytes()
    assert [block.function for block in BLOCKS if f"\0{block.function}\0".encode() not in symbols] == []


@pytest.mark.parametrize("path", find(), ids=str)
def test_cuptis_own_clock_is_the_hosts(path: Path) -> None:
    """Within 10 ms, where a boot time, a GPU's or a processor's own would be years away."""
    code = f"""
import ctypes, time
from pathlib import Path
from profiler.cupti.library import load
library, now = load(Path({str(path)!r})).library, ctypes.c_uint64()
for _ in range(2):  # the first one starts CUPTI
    before, code, after = time.time_ns(), library.cuptiGetTimestamp(ctypes.byref(now)), time.time_ns()
print(code, before - 10**7 <= now.value <= after + 10**7)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, timeout=120, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["0", "True"]


@pytest.mark.parametrize("headers", HEADERS.values(), ids=HEADERS.keys())
def test_structs_lie_as_in_the_c_headers(headers: Path, tmp_path: Path) -> None:
    if not (headers / "cupti_pmsampling.h").is_file():
        pytest.skip(f"no cupti_pmsampling.h in {headers}")
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler")
    lines, in_python = [], []
    for block in BLOCKS:
        struct = block.__name__
        lines.append(f'printf("{struct} %zu\\n", {struct}_STRUCT_SIZE);')
        in_python.append(f"{struct} {block().structSize}")
        for name, *_ in structs.Params._fields_ + block._fields_:
            lines.append(f'printf("{struct}.{name} %zu\\n", offsetof({struct}, {name}));')
            in_python.append(f"{struct}.{name} {getattr(block, name).offset}")
    modes = ("TRIGGER_MODE_GPU_SYSCLK_INTERVAL", "TRIGGER_MODE_GPU_TIME_INTERVAL", "DECODE_STOP_REASON_OTHER")
    modes += ("DECODE_STOP_REASON_COUNTER_DATA_FULL", "DECODE_STOP_REASON_END_OF_RECORDS")
    modes += ("HARDWARE_BUFFER_APPEND_MODE_KEEP_OLDEST",)
    lines += [f'printf("%d\\n", CUPTI_PM_SAMPLING_{mode});' for mode in modes]
    numbers = (sampling.SYSCLK_INTERVAL, sampling.TIME_INTERVAL, OTHER, sampling.COUNTER_DATA_FULL)
    in_python += [str(number) for number in (*numbers, sampling.END_OF_RECORDS, sampling.KEEP_OLDEST)]
    lines.append('printf("%d\\n", CUPTI_ERROR_OUT_OF_MEMORY);')
    in_python.append(str(sampling.OVERFLOW))
    source, program = tmp_path / "layout.c", tmp_path / "layout"
    source.write_text(f"#include <stdio.h>\n#include <cupti_pmsampling.h>\nint main(void) {{ {' '.join(lines)} }}")
    subprocess.run([compiler, f"-I{headers}", source, "-o", program], check=True)
    in_c = subprocess.run([program], check=True, capture_output=True, text=True).stdout.splitlines()
    assert in_python == in_c
    assert len(BLOCKS) == 10


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Gpu:
    """Puts the clocks of host and GPU in front of a simulated GPU, number 3 of its machine."""
    gpu = Gpu()
    monkeypatch.setattr(sampling, "current_context", lambda: (0xC0DE, 3))
    monkeypatch.setattr("profiler.cupti.driver.current_context", lambda: (0xC0DE, 3))
    monkeypatch.setattr(sampling, "synchronize", gpu.synchronize)
    monkeypatch.setattr(sampling, "sleep", gpu.sleep)
    monkeypatch.setattr(sampling, "perf_counter_ns", lambda: gpu.now)
    return gpu


@contextmanager
def sampled(cupti: StandIn, interval: int = INTERVAL, max_samples: int = 1000) -> Iterator[PmSampler]:
    with PmSampler((READ, WRITE, SECTORS), cupti) as sampler, sampler.sampling(interval, max_samples):
        yield sampler


# The sampler.


def test_samples_are_what_was_counted_without_the_first_and_the_empty_ones(gpu: Gpu) -> None:
    """Margins of 1 ms are 50 samples each; 60 µs of work are 3; the first of the lead is dropped."""
    cupti = StandIn(gpu)
    with sampled(cupti) as sampler:
        gpu.run(60 * US, read=3e9, write=6e8, sectors=300)
    found = sampler.samples
    assert len(found.start_ns) == 49 + 3 + 50
    assert found.start_ns[0] == BORN + INTERVAL
    assert found.end_ns[-1] == BORN + 2 * MS + 60 * US
    assert (found.end_ns - found.start_ns == INTERVAL).all()
    for metric, each in ((READ, 1e9), (WRITE, 2e8), (SECTORS, 100.0)):
        assert found.values[metric].tolist() == pytest.approx([0] * 49 + [each] * 3 + [0] * 50)
    assert cupti.still_open() == []


def test_the_calls_come_in_cuptis_order(gpu: Gpu) -> None:
    cupti = StandIn(gpu)
    with sampled(cupti):
        cupti.calls.append("work")
    target = [call.removeprefix("cuptiPmSampling") for call in cupti.calls if not call.startswith("cuptiProfilerHost")]
    info = ["CounterDataGetSampleInfo"] * 102
    assert target == [
        "cuptiProfilerInitialize",
        "cuptiDeviceGetChipName",
        "Enable",
        "SetConfig",
        "GetCounterDataSize",
        "CounterDataImageInitialize",
        "Start",
        "work",
        "Stop",
        "DecodeData",
        "GetCounterDataInfo",
        *info,
        "Disable",
    ]


def test_work_begins_and_ends_a_margin_away_from_the_first_and_last_sample(gpu: Gpu) -> None:
    """At 200 µs the margin is 10 samples, 2 ms."""
    with sampled(StandIn(gpu), interval=200 * US) as sampler:
        gpu.run(200 * US, read=1.0)
    assert sampler.samples.values[READ].tolist() == pytest.approx([0] * 9 + [1] + [0] * 10)


@pytest.mark.parametrize(
    ("chip", "mode", "interval"),
    [("GH100", 1, 20_000), ("GA100", 0, 28_200), ("TU104", 0, 28_200), ("GA102", 1, 20_000)],
)
def test_chips_without_the_time_trigger_count_clocks(gpu: Gpu, chip: str, mode: int, interval: int) -> None:
    """20 µs at 1.41 GHz are 28,200 clocks."""
    cupti = StandIn(gpu, chip=chip)
    with sampled(cupti, max_samples=1000):
        pass
    assert (cupti.config.triggerMode, cupti.config.samplingInterval) == (mode, interval)
    assert cupti.config.hardwareBufferSize == 1000 * 16_384
    assert cupti.config.hwBufferAppendMode == 0


def test_samples_decoded_in_two_pieces_are_all_there(gpu: Gpu) -> None:
    cupti = StandIn(gpu, reasons=(OTHER, END))
    with sampled(cupti) as sampler:
        gpu.run(MS, read=1e9)
    assert len(sampler.samples.start_ns) == 149
    assert sampler.samples.values[READ].sum() == pytest.approx(1e9)
    assert cupti.calls.count("cuptiPmSamplingDecodeData") == 2


def test_a_sampler_samples_any_number_of_times(gpu: Gpu) -> None:
    with PmSampler((READ, WRITE, SECTORS), StandIn(gpu)) as sampler:
        for size in (1e9, 2e9):
            with sampler.sampling(INTERVAL, 1000):
                gpu.run(MS, read=size)
            assert sampler.samples.values[READ].sum() == pytest.approx(size)


def gap(samples: list[Sample]) -> list[Sample]:
    return samples[:60] + samples[61:]


def timeless(samples: list[Sample]) -> list[Sample]:
    return [*samples[:60], (0, 0, (0.0, 0.0, 0.0)), *samples[61:]]


def valueless(samples: list[Sample]) -> list[Sample]:
    return [*samples[:60], (*samples[60][:2], (0.0, float("nan"), 0.0)), *samples[61:]]


@pytest.mark.parametrize(
    ("faults", "words"),
    [
        ({"overflow": 1}, "more than the planned 1,000 samples came, and CUPTI lost some"),
        ({"fails": {"cuptiPmSamplingDecodeData": 8}}, "more than the planned 1,000 samples came, and CUPTI lost some"),
        ({"reasons": (FULL,)}, "more than the planned 1,000 samples came, and CUPTI lost some"),
        ({"reasons": (OTHER,), "spoil": lambda samples: []}, "stopped reading its samples before the last one"),
        ({"reasons": (OTHER, OTHER), "spoil": lambda samples: samples[:90]}, r"cover 1\.78 of 3\.00 ms"),
        ({"spoil": gap}, "do not follow one another without a gap"),
        ({"spoil": timeless}, "without a gap"),
        ({"spoil": lambda samples: [*samples[:60], samples[60], *samples[60:]]}, "without a gap"),
        ({"spoil": lambda samples: samples[:90]}, r"cover 1\.78 of 3\.00 ms"),
        ({"spoil": lambda samples: samples[60:]}, r"cover 1\.78 of 3\.00 ms"),
        ({"spoil": lambda samples: samples[:1]}, "took no sample"),
        ({"spoil": lambda samples: samples[-2:]}, "took no sample"),
        ({"spoil": valueless}, "no value for dram__bytes_write.sum"),
    ],
)
def test_what_may_hide_a_gap_is_an_error(gpu: Gpu, faults: dict[str, object], words: str) -> None:
    """The margins and 1 ms of work are 150 samples."""
    cupti = StandIn(gpu, **faults)
    with pytest.raises(CuptiError, match=words), sampled(cupti):
        gpu.run(MS, read=1e9)
    assert cupti.still_open() == []


def test_samples_that_end_without_a_reason_are_whole_if_they_cover_all(gpu: Gpu) -> None:
    with sampled(StandIn(gpu, reasons=(OTHER, OTHER, OTHER))) as sampler:
        gpu.run(MS, read=1e9)
    assert sampler.samples.values[READ].sum() == pytest.approx(1e9)


@pytest.mark.parametrize("ticks", [0.4, 2.1, 1.02])
def test_a_clock_that_does_not_tick_in_ns_is_kept_by_the_trigger(gpu: Gpu, ticks: float) -> None:
    """1 GB in 1 ms at 20 µs a sample; within 5% the clock is believed."""
    with sampled(StandIn(gpu, ticks=ticks)) as sampler:
        gpu.run(MS, read=1e9)
    found = sampler.samples
    steps = found.end_ns - found.start_ns
    assert steps == pytest.approx(20_000 * (ticks if ticks == 1.02 else 1.0), abs=2)
    assert found.start_ns[1:] == pytest.approx(found.end_ns[:-1], abs=2)
    assert found.values[READ].sum() == pytest.approx(1e9)


def test_idle_samples_may_be_missing_at_either_end(gpu: Gpu) -> None:
    """40 of 50 idle samples are lost: the work is still whole."""
    for keep in (slice(40, None), slice(None, 110)):
        with sampled(StandIn(gpu, spoil=lambda samples, keep=keep: samples[keep])) as sampler:
            gpu.run(MS, read=1e9)
        assert sampler.samples.values[READ].sum() == pytest.approx(1e9)


@pytest.mark.parametrize(
    "call", ["Enable", "SetConfig", "GetCounterDataSize", "CounterDataImageInitialize", "Start", "Stop", "DecodeData"]
)
def test_a_failing_call_reaches_the_caller_and_everything_else_is_closed(gpu: Gpu, call: str) -> None:
    cupti = StandIn(gpu, fails={f"cuptiPmSampling{call}": 35})
    with pytest.raises(CuptiError, match="cap-add SYS_ADMIN") as caught, sampled(cupti):
        gpu.run(MS)
    assert caught.value.code == 35
    assert set(cupti.still_open()) <= {f"cuptiPmSampling{call}"}


def test_the_bodys_error_comes_through_even_where_cupti_fails_after_it(gpu: Gpu) -> None:
    cupti = StandIn(gpu, fails={f"cuptiPmSampling{call}": 7 for call in ("Stop", "Disable")})
    with pytest.raises(ZeroDivisionError), sampled(cupti):
        raise ZeroDivisionError
    assert cupti.still_open() == []


def test_work_that_fails_on_the_gpu_is_not_cuptis_error(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    cupti = StandIn(gpu)

    def fail() -> None:
        raise RuntimeError("The GPU work failed: CUDA_ERROR_ILLEGAL_ADDRESS (700).")

    with pytest.raises(RuntimeError, match="700"), sampled(cupti):
        monkeypatch.setattr(sampling, "synchronize", fail)
    assert cupti.still_open() == []


def test_metrics_of_two_passes_are_refused_before_the_gpu_is_touched(gpu: Gpu) -> None:
    cupti = StandIn(gpu, passes=2)
    with pytest.raises(CuptiError, match="need 2 passes on GH100, and samples come from one"), sampled(cupti):
        pass
    assert "cuptiPmSamplingEnable" not in cupti.calls
    assert cupti.still_open() == []


def test_without_a_context_nothing_is_called(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    def none() -> None:
        raise CuptiError("No GPU counters: this thread has no CUDA context yet.")

    cupti = StandIn(gpu)
    monkeypatch.setattr(sampling, "current_context", none)
    with pytest.raises(CuptiError, match="no CUDA context"), sampled(cupti):
        pass
    assert cupti.calls == []


# The counter.


@pytest.fixture
def attach(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., StandIn]]:
    """Gives a function that puts a StandIn in front of the counter and returns it."""

    def attach(host_ahead: int = 0, others: str = "", **faults: object) -> StandIn:
        cupti = StandIn(gpu, **faults)
        monkeypatch.setattr(sampling, "load", lambda: cupti)
        monkeypatch.setattr(chip_module, "load", lambda: cupti)
        monkeypatch.setattr(cupti_sampling, "load_cupti", lambda: cupti)
        monkeypatch.setattr(cupti_sampling, "sleep", gpu.sleep)
        monkeypatch.setattr(cupti_sampling, "perf_counter_ns", lambda: gpu.now)
        monkeypatch.setattr(cupti_sampling, "GpuClock", lambda device, max_spans: Clock(gpu, host_ahead))
        monkeypatch.setattr(cupti_sampling, "open_nvml", nullcontext)
        monkeypatch.setattr(cupti_sampling, "gpu_handle", lambda nvml, device: device)
        monkeypatch.setattr(cupti_sampling, "neighbours", lambda nvml, gpu: others)
        chip_module.chip_metrics.cache_clear()
        return cupti

    yield attach
    chip_module.chip_metrics.cache_clear()


def values(reading) -> dict[str, float]:
    return {m.name: m.value for m in reading.measurements}


TOTALS = {"hbm_read_bytes": 3e9, "hbm_write_bytes": 0.74e9, "l2_sm_bytes": 2.4e9}


def test_totals_of_a_drained_pass_by_hand(gpu: Gpu, attach) -> None:
    """Read: 1 + 2 GB; written: 0.5 + 0.2 GB + the 40 MB of L2, less the 1 MB of a drain alone; 75 M sectors × 32 B."""
    cupti = attach()
    reading = cupti_sampling.measure(TwoLaunches(gpu))
    assert values(reading) == pytest.approx(TOTALS)
    assert {(m.unit, m.source, m.launch) for m in reading.measurements} == {("B", "cupti-sampling", None)}
    notes = [m.note for m in reading.measurements]
    assert notes[0] == "dram read bytes, cold L2, device-wide, samples of 20 µs, median of 3 passes"
    assert "until L2 holds no dirty line" in notes[1] and notes[1].endswith("median of 3 passes")
    assert "× 32 B" in notes[2]
    assert cupti.calls.count("cuptiPmSamplingStart") == 1
    assert cupti.still_open() == []


@pytest.mark.parametrize(("l2", "read", "written"), [("cold", 3e9, 0.7e9), ("warm", 2.7e9, 0.74e9)])
def test_totals_without_the_drain_leave_out_what_l2_still_holds(
    gpu: Gpu, attach, l2: str, read: float, written: float
) -> None:
    """0.5 + 0.2 GB, and where L2 is warm the 40 MB of the pass before; what prepares L2 does not count."""
    attach()
    reading = cupti_sampling.measure(TwoLaunches(gpu, l2=l2, drain=False))
    assert values(reading) == pytest.approx({"hbm_read_bytes": read, "hbm_write_bytes": written, "l2_sm_bytes": 2.4e9})
    assert f"{l2} L2" in reading.measurements[1].note
    assert "without what it wrote and L2 still holds" in reading.measurements[1].note
    assert [span.launch for span in reading.spans] == ["qk", "pv"]


def test_a_warm_drained_pass_pays_for_its_own_lines_only(gpu: Gpu, attach) -> None:
    """It writes 0.7 GB and 40 MB of the pass before, the drain 41 MB; less the 41 MB of a drain after such a pass."""
    attach()
    reading = cupti_sampling.measure(TwoLaunches(gpu, l2="warm"))
    assert values(reading) == pytest.approx(TOTALS | {"hbm_read_bytes": 2.7e9})


def test_each_pass_counts_apart_and_the_median_is_told(gpu: Gpu, attach) -> None:
    """The second and third pass read 0.3 and 0.6 GB more: 3, 3.3 and 3.6 GB. Two more are launched to be timed."""
    attach()
    load, launched = TwoLaunches(gpu), []

    def launch(hook: LaunchHook = nullcontext) -> None:
        launched.append(None)
        load.scale = 1 + 0.1 * max(0, len(launched) - 3)
        TwoLaunches.launch(load, hook)

    load.launch = launch
    read, *_ = cupti_sampling.measure(load).measurements
    assert len(launched) == 5
    assert read.value == pytest.approx(3.3e9)
    # Percentiles 20 and 80 of three values lie 0.4 and 1.6 steps of 0.3 GB above the first.
    assert read.spread == pytest.approx((3.12e9, 3.48e9))


def test_the_series_by_hand(gpu: Gpu, attach) -> None:
    """Samples: 10 idle, 50 of qk at 1 GB/ms, 25 of pv at 4 GB/ms, 37 idle, 5 of the drain at 1.2 GB/ms, 10 idle.

    Before a drain the GPU is idle for 0.5 ms, and spins for 0.24 ms: 37 samples.
    """
    attach()
    reading = cupti_sampling.measure(TwoLaunches(gpu))
    by_name = {series.name: series for series in reading.series}
    read, write, crossed = (by_name[f"{name}_per_second"] for name in cupti_sampling.QUANTITIES)

    def steps(qk: float, pv: float, drain: float) -> list[float]:
        return [0] * 10 + [qk] * 50 + [pv] * 25 + [0] * 37 + [drain] * 5 + [0] * 10

    assert read.values == pytest.approx(steps(1e12, 4e12, 1.2e12))
    assert write.values == pytest.approx(steps(0.5e12, 0.4e12, 0.41e12))
    assert crossed.values == pytest.approx(steps(1.6e12, 1.6e12, 1.2e12))
    for series in (read, write, crossed):
        assert (series.unit, series.source) == ("B/s", "cupti-sampling")
        assert series.interval == pytest.approx(20e-6)
        assert series.seconds == pytest.approx([i * 20e-6 for i in range(137)])
    assert reading.spans == SPANS


SPANS = (
    LaunchSpan("qk", pytest.approx(0.2e-3), pytest.approx(1.2e-3)),
    LaunchSpan("pv", pytest.approx(1.2e-3), pytest.approx(1.7e-3)),
    LaunchSpan("drain", pytest.approx(2.44e-3), pytest.approx(2.54e-3)),
)


def test_without_the_drain_the_series_ends_with_the_pass(gpu: Gpu, attach) -> None:
    """10 idle, 50 of qk, 25 of pv, 10 idle."""
    attach()
    reading = cupti_sampling.measure(TwoLaunches(gpu, drain=False))
    assert reading.series[0].values == pytest.approx([0] * 10 + [1e12] * 50 + [4e12] * 25 + [0] * 10)
    assert reading.spans == SPANS[:2]


@pytest.mark.parametrize("offset", [0, 7 * US, 13 * US])
@pytest.mark.parametrize("ahead", [-3_600 * 10**9, -MS, -200 * US, 200 * US, MS, 3_600 * 10**9])
def test_where_neither_clock_is_the_samples_the_first_work_tells(gpu: Gpu, attach, ahead: int, offset: int) -> None:
    """The spins last `offset` longer, so that work does not begin with a sample: spans are less than one early."""
    attach(ahead=ahead, host_ahead=-ahead)
    load = TwoLaunches(gpu)
    load.spin = lambda cycles=0: gpu.run(2 * MS + offset)
    reading = cupti_sampling.measure(load)
    assert values(reading) == pytest.approx(TOTALS)
    assert sum(reading.series[0].values) * 20e-6 == pytest.approx(3.12e9)
    assert [span.launch for span in reading.spans] == ["qk", "pv", "drain"]
    read = reading.series[0]
    busy = [second for second, value in zip(read.seconds, read.values, strict=True) if value]
    assert reading.spans[0].start == pytest.approx(busy[0], abs=20e-6)
    # It ends within the last busy sample.
    assert reading.spans[-1].end == pytest.approx(busy[-1], abs=20.01e-6)


@pytest.mark.parametrize("ahead", [-3_600 * 10**9, -MS, MS, 3_600 * 10**9])
def test_the_hosts_clock_is_taken_where_the_samples_have_it(gpu: Gpu, attach, ahead: int) -> None:
    """5 µs off, which the spans show: by the first busy sample they would begin at 0.2 ms."""
    attach(ahead=ahead, host_ahead=ahead + 5 * US)
    reading = cupti_sampling.measure(TwoLaunches(gpu))
    assert values(reading) == pytest.approx(TOTALS)
    assert reading.spans[0] == LaunchSpan("qk", pytest.approx(0.205e-3), pytest.approx(1.205e-3))


@pytest.mark.parametrize("ahead", [10 * US, -10 * US])
def test_a_clock_off_by_less_than_a_sample_counts_and_marks(gpu: Gpu, attach, ahead: int) -> None:
    """The series begins with the sample that holds the time 10 samples before the mark, here in its middle."""
    attach(ahead=ahead)
    reading = cupti_sampling.measure(TwoLaunches(gpu))
    assert values(reading) == pytest.approx(TOTALS)
    assert reading.spans[0] == LaunchSpan("qk", pytest.approx(0.21e-3), pytest.approx(1.21e-3))


def between_the_parts(load: TwoLaunches, sectors: float, read: float = 0.0) -> TwoLaunches:
    """Somebody's traffic 0.5 ms long, ending 0.5 ms before each part, and so nearer to it than to the one before."""

    def spin(cycles: int = 0) -> None:
        load.gpu.run(MS)
        load.gpu.run(MS // 2, read, 0.0, sectors)
        load.gpu.run(MS // 2)

    load.spin = spin
    return load


def test_others_traffic_between_the_parts_does_not_count(gpu: Gpu, attach) -> None:
    """37,000 sectors are 0.98% of those and a drain's 3.75 M; HBM has some traffic of its own at any time."""
    attach()
    reading = cupti_sampling.measure(between_the_parts(TwoLaunches(gpu), sectors=37e3, read=60e6))
    assert values(reading) == pytest.approx(TOTALS)
    # It is shown: 60 MB before the drain.
    assert sum(reading.series[0].values) * 20e-6 == pytest.approx(3.18e9)


@pytest.mark.parametrize(("read", "is_told"), [(0.0, False), (120e6, True)])
def test_traffic_of_others_while_idle_is_told(gpu: Gpu, attach, read: float, is_told: bool) -> None:
    """120 MB in each gap of 2.5 ms would be 72 MB in a pass of 1.5 ms: 1.9% of its 3.7 GB."""
    attach()
    notes = [m.note for m in cupti_sampling.measure(between_the_parts(TwoLaunches(gpu), 0.0, read)).measurements]
    assert all(("B/s by others, so about" in note) == is_told for note in notes)


def test_a_drain_that_wrote_more_than_the_passes_gives_no_number(gpu: Gpu, attach) -> None:
    """Every eviction after the passes writes 2 GB that are nobody's."""
    attach()
    load, evictions = TwoLaunches(gpu), count()

    def evict_l2() -> None:
        TwoLaunches.evict_l2(load)
        if next(evictions) >= 2 + 2 * 3:
            gpu.run(MS // 10, 0.0, 2e9, 1e5)

    load.evict_l2 = evict_l2
    found = {m.name: m for m in cupti_sampling.measure(load).measurements}
    assert found["hbm_write_bytes"].value is None
    assert "something else wrote to HBM meanwhile" in found["hbm_write_bytes"].note
    assert found["hbm_read_bytes"].value == pytest.approx(3e9)


def test_counters_that_do_not_count_give_no_number(gpu: Gpu, attach) -> None:
    """3.74 GB of 8 GB that must move with a cold L2; 2.4 GB crossed of as many."""
    attach()
    found = cupti_sampling.measure(TwoLaunches(gpu, compulsory_bytes=8 * 10**9)).measurements
    assert [m.value for m in found] == [None] * 3
    assert all("B that a pass must move with a cold L2" in m.note for m in found)


def test_more_traffic_between_the_parts_than_1_percent_is_an_error(gpu: Gpu, attach) -> None:
    """39,000 sectors are 1.03%."""
    cupti = attach()
    with pytest.raises(Unavailable, match="do not show the work where the GPU's clock says that it ran"):
        cupti_sampling.measure(between_the_parts(TwoLaunches(gpu), sectors=39e3))
    assert cupti.still_open() == []


@pytest.mark.parametrize("drain", [True, False])
@pytest.mark.parametrize("without", [range(5), [2], [4]], ids=["every", "first", "last"])
def test_a_launch_without_its_marks_is_an_error(gpu: Gpu, attach, without: Sequence[int], drain: bool) -> None:
    """Passes 0 and 1 are timed, 2 to 4 are sampled."""
    cupti = attach()
    load, passes = TwoLaunches(gpu, drain=drain), count()

    def launch(hook: LaunchHook = nullcontext) -> None:
        number = next(passes)
        TwoLaunches.launch(load, lambda name: nullcontext() if name == "pv" and number in without else hook(name))

    load.launch = launch
    with pytest.raises(Unavailable, match="did not mark each of its launches"):
        cupti_sampling.measure(load)
    assert cupti.still_open() == []


def test_work_that_moves_nothing_is_an_error(gpu: Gpu, attach) -> None:
    """A pass without traffic cannot be found in the samples, and 0 never stands for unknown."""
    attach()
    load = TwoLaunches(gpu)

    def launch(hook: LaunchHook = nullcontext) -> None:
        for name in load.launch_names:
            with hook(name):
                gpu.run(MS)

    load.launch = launch
    with pytest.raises(Unavailable, match="do not show the work"):
        cupti_sampling.measure(load)


@pytest.mark.parametrize(("begin", "end", "is_held"), [(0, 200, True), (-1, 200, False), (0, 201, False)])
def test_work_beyond_the_samples_is_not_held(begin: int, end: int, is_held: bool) -> None:
    """Ten samples of 20 µs."""
    start = BORN + np.arange(10) * 20 * US
    samples = Samples(start, start + 20 * US, dict.fromkeys(cupti_sampling.QUANTITIES, np.ones(10)))
    window = cupti_sampling.Window("pass", (("qk", BORN + begin * US, BORN + end * US),))
    assert cupti_sampling._hold(samples, (window,)) is is_held


@pytest.mark.parametrize(("stored", "neighbours", "bins"), [(137, 1, 137), (136, 2, 69), (60, 3, 46), (20, 7, 20)])
def test_fewer_samples_are_stored_and_their_sum_stays(
    gpu: Gpu, attach, monkeypatch: pytest.MonkeyPatch, stored: int, neighbours: int, bins: int
) -> None:
    """137 samples in bins of 7 are 19 full ones and one of 4; read and drained: 3.12 GB."""
    monkeypatch.setattr(cupti_sampling, "STORED_SAMPLES", stored)
    attach()
    read = cupti_sampling.measure(TwoLaunches(gpu)).series[0]
    assert len(read.values) == len(read.seconds) == bins
    assert read.interval == pytest.approx(neighbours * 20e-6)
    assert read.seconds[1] == pytest.approx(neighbours * 20e-6)
    assert sum(read.values) * read.interval == pytest.approx(3.12e9)
    first_busy = 10 // neighbours
    idle = 10 % neighbours
    assert read.values[first_busy] == pytest.approx(1e12 * (neighbours - idle) / neighbours)


def test_a_last_bin_that_is_not_full_keeps_the_sum(monkeypatch: pytest.MonkeyPatch) -> None:
    """Samples of 10 µs, three to a bin: 1 + 2 + 3 and 4 + 5 bytes in 30 µs each; 15 bytes in all."""
    monkeypatch.setattr(cupti_sampling, "STORED_SAMPLES", 2)
    start = BORN + np.arange(5) * 10 * US
    (series,) = cupti_sampling._series(Samples(start, start + 10 * US, {"hbm_read_bytes": np.arange(1.0, 6.0)}))
    assert series.values == pytest.approx((6 / 30e-6, 9 / 30e-6))
    assert series.seconds == pytest.approx((0.0, 30e-6))
    assert series.interval == pytest.approx(30e-6)


def test_what_is_above_the_peak_is_not_clamped(gpu: Gpu, attach) -> None:
    """30 GB in 1.5 ms are 20 TB/s on a GPU of 4.8 TB/s: the page says so, the number stays."""
    attach()
    reading = cupti_sampling.measure(TwoLaunches(gpu, scale=10.0))
    assert values(reading)["hbm_read_bytes"] == pytest.approx(30e9)
    assert max(reading.series[0].values) == pytest.approx(40e12)


@pytest.mark.parametrize(
    ("seconds", "passes", "interval", "max_samples"),
    [
        # 2 × (3 × 1.5 ms + 12 × 0.1 ms of evictions) + 60 ms = 71.4 ms: 3,570 samples and 64.
        (1.5e-3, 3, 20_000, 3_634),
        # 2 × (3 × 98.5 + 1.2) + 60 = 653.4 ms, and 32,704 samples are 654.08 ms.
        (98.5e-3, 3, 20_000, 32_734),
        # Three would take 655.2 ms; one takes 2 × (98.8 + 0.8) + 60 = 259.2 ms: 12,960 samples and 64.
        (98.8e-3, 1, 20_000, 13_024),
        # 2 × 0.9707 s + 60 ms = 2.0014 s in 32,704 samples: 61.2 µs, so 62, and 32,281 samples.
        (0.9699, 1, 62_000, 32_345),
    ],
)
def test_long_work_is_one_pass_and_longer_work_at_a_longer_interval(
    gpu: Gpu, attach, seconds: float, passes: int, interval: int, max_samples: int
) -> None:
    attach()
    load = TwoLaunches(gpu)
    load.launch = lambda: gpu.run(round(seconds * 1e9))
    plan = cupti_sampling._plan(load)
    assert plan.parts == ("prepare", "pass", "drain") * passes + ("prepare", "drain") * 3
    assert (plan.interval_ns, plan.max_samples) == (interval, max_samples)


def test_a_warm_pass_without_a_drain_is_prepared_by_another(gpu: Gpu, attach) -> None:
    """2 × 6 × 1.5 ms + 60 ms = 78 ms: 3,900 samples and 64."""
    attach()
    plan = cupti_sampling._plan(TwoLaunches(gpu, l2="warm", drain=False))
    assert plan == cupti_sampling.Plan(("prepare", "pass") * 3, 20_000, 3_964)


def test_a_longer_interval_is_said(gpu: Gpu, attach, monkeypatch: pytest.MonkeyPatch) -> None:
    """One pass, 2 × (1.5 + 0.8) ms + 60 ms = 64.6 ms in 875 − 64 samples: 79.7 µs, so 80."""
    monkeypatch.setattr(cupti_sampling, "MAX_SAMPLES", 875)
    attach()
    reading = cupti_sampling.measure(TwoLaunches(gpu))
    read = reading.measurements[0]
    assert "samples of 80 µs, longer than 20 µs so that 875 suffice" in read.note
    assert read.note.endswith("suffice, one pass")
    assert values(reading) == pytest.approx(TOTALS)
    assert [span.launch for span in reading.spans] == ["qk", "pv", "drain"]


@pytest.mark.parametrize(
    ("faults", "words"),
    [
        ({"overflow": 1}, "CUPTI lost some"),
        ({"fails": {"cuptiPmSamplingEnable": 35}}, "cap-add SYS_ADMIN"),
        ({"fails": {"cuptiPmSamplingEnable": 26}}, "DCGM"),
        ({"passes": 2}, "need 2 passes on GH100"),
        ({"spoil": gap}, "without a gap"),
    ],
)
def test_what_goes_wrong_is_the_reason(gpu: Gpu, attach, faults: dict[str, object], words: str) -> None:
    cupti = attach(**faults)
    with pytest.raises(Unavailable, match=words):
        cupti_sampling.measure(TwoLaunches(gpu))
    assert set(cupti.still_open()) <= set(cupti.fails)


def test_the_note_names_who_else_uses_the_gpu(gpu: Gpu, attach, monkeypatch: pytest.MonkeyPatch) -> None:
    attach(others="NVML lists 1 other process on this GPU: their traffic is included")
    for found in cupti_sampling.measure(TwoLaunches(gpu)).measurements:
        assert "NVML lists 1 other process on this GPU: their traffic is included, median of" in found.note

    def absent() -> None:
        raise NoGpu("NVML does not start: Driver Not Loaded.")

    monkeypatch.setattr(cupti_sampling, "open_nvml", absent)
    found, *_ = cupti_sampling.measure(TwoLaunches(gpu)).measurements
    assert "if there is any, is included: NVML does not start: Driver Not Loaded, median of" in found.note


def test_a_run_with_its_series_and_spans_survives_its_file(gpu: Gpu, attach) -> None:
    attach()
    reading = cupti_sampling.measure(TwoLaunches(gpu))
    run: Run = replace(naive_run(), measurements=reading.measurements, series=reading.series, spans=reading.spans)
    assert from_json(to_json((run,))) == (run,)


def test_reasons(attach, monkeypatch: pytest.MonkeyPatch) -> None:
    cupti = attach()
    monkeypatch.setattr(cupti_sampling, "why_not", lambda: None)
    unavailable = cupti_sampling.COUNTER.unavailable
    assert unavailable(H200) is None
    assert "no GPU here" in unavailable(DeviceInfo("cpu", "CPU"))
    assert "V100 has 7.0" in unavailable(DeviceInfo("cuda:0", "V100", compute_capability=(7, 0)))
    assert unavailable(DeviceInfo("cuda:0", "T4", compute_capability=(7, 5))) is None
    cupti.version = 26
    assert "(API 26) cannot sample HBM bytes, which needs CUPTI 13" in unavailable(H200)
    monkeypatch.setattr(cupti_sampling, "why_not", lambda: "no permission")
    assert unavailable(H200) == "no permission"


def test_the_counter_is_found_and_comes_after_those_of_ranges() -> None:
    counter = next(counter for counter in all_counters() if counter.name == "cupti_sampling")
    assert (counter.order, counter.phase, counter.is_slow) == (45, "sample", False)
    assert {source for *_, source in counter.quantities} == {"cupti-sampling"}


# The GPU's clock.


def test_spans_are_pairs_of_times_and_the_quickest_look_tells_how_far_the_host_is_ahead(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A look takes 4 ticks of the host, the fifth of nine 2, and the kernel runs in the middle, at host time − 1000."""
    now, launches = 5000, 0

    def look() -> int:
        return now

    def launch(times: torch.Tensor, slot: int, num_warps: int) -> None:
        nonlocal now, launches
        launches += 1
        lasting = 2 if launches == 5 else 4
        times[slot] = now + lasting // 2 - (1000 if launches == 5 else 1007)
        now += lasting

    monkeypatch.setattr(gpu_clock, "write_time", {(1,): launch})
    monkeypatch.setattr(gpu_clock, "time_ns", look)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    clock = GpuClock("cpu", max_spans=2)
    assert launches == 9
    assert clock.host_ahead_ns == 1000
    assert now == 5000 + 8 * 4 + 2
    for name in ("qk", "pv"):
        with clock.span(name):
            now += 50
    assert clock.spans() == [("qk", 4029, 4083), ("pv", 4087, 4141)]
    with pytest.raises(ValueError, match="one more than max_spans, 2"), clock.span("qk"):
        pass


def test_the_clock_kernel_compiles_for_hopper() -> None:
    code = """
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from profiler.gpu_clock import write_time
source = ASTSource(write_time, {"times_ptr": "*i64", "slot": "i32"}, {})
print(triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": 1}).asm["ptx"])
"""
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=environment, timeout=120, capture_output=True, text=True, check=True
    )
    assert ".target sm_90" in done.stdout
    assert done.stdout.count("%globaltimer") == 1
    assert done.stdout.count("st.global.b64") == 1


# On a GPU.

GPU, GIB = "cuda:0", 2**30
LONG = AttentionProblem(1, 16, 16, 8192, 8192, 128, "bfloat16")
TILE = TileConfig(128, 64, num_warps=8, num_stages=3)


@pytest.fixture
def device() -> DeviceInfo:
    found = describe(GPU)
    torch.zeros(1, device=GPU)  # makes the context
    if reason := cupti_sampling.COUNTER.unavailable(found):
        pytest.skip(reason)
    return found


def copies(count: int) -> SimpleNamespace:
    """`launch` reads 1 GiB and writes 1 GiB, `count` times; torch.neg, since a plain copy may not be a kernel."""
    source = torch.ones(GIB // 4, device=GPU)
    target = torch.empty_like(source)

    def launch() -> None:
        for _ in range(count):
            torch.neg(source, out=target)

    launch()
    torch.cuda.synchronize()
    return SimpleNamespace(launch=launch)


def traffic_on_this_gpu() -> tuple[str, str, str]:
    found = traffic_metrics(chip_module.chip_metrics(PM_SAMPLING)[1])
    return found.read, found.write, found.sectors


@pytest.mark.gpu
def test_five_copies_of_a_gibibyte(device: DeviceInfo) -> None:
    """5 × 1,073,741,824 B read; as much written, but for what L2 held before or holds after; L2↔SM both ways."""
    work = copies(5)
    metrics = traffic_on_this_gpu()
    with PmSampler(metrics) as sampler, sampler.sampling(INTERVAL, 4096):
        work.launch()
    read, write, sectors = (sampler.samples.values[metric].sum() for metric in metrics)
    assert read == pytest.approx(5_368_709_120, rel=0.01)
    assert write == pytest.approx(5_368_709_120, abs=device.l2_bytes)
    assert sectors * 32 == pytest.approx(2 * 5_368_709_120, rel=0.02)
    assert np.median(sampler.samples.end_ns - sampler.samples.start_ns) == pytest.approx(INTERVAL, rel=0.5)


@pytest.mark.gpu
def test_the_samples_clock_is_the_gpus_or_the_hosts(device: DeviceInfo) -> None:
    """More than 95% of a copy's bytes lie in the samples between its two marks, in one of the two clocks."""
    work = copies(1)
    clock = GpuClock(GPU, 1)
    metrics = traffic_on_this_gpu()
    with PmSampler(metrics) as sampler, sampler.sampling(INTERVAL, 4096), clock.span("copy"):
        work.launch()
    ((_, start, end),) = clock.spans()
    found = sampler.samples
    read = found.values[metrics[0]]
    held = {}
    for whose, shift in (("the GPU's", 0), ("the host's", clock.host_ahead_ns)):
        inside = (found.end_ns > start + shift) & (found.start_ns < end + shift)
        held[whose] = float(read[inside].sum() / read.sum())
    print(
        f"held: {held}; host ahead by {clock.host_ahead_ns:,} ns; samples begin {found.start_ns[0] - start:,} ns later"
    )
    assert read.sum() == pytest.approx(GIB, rel=0.01)
    assert max(held.values()) > 0.95, held
    assert (end - start) * 1e-9 < 3 * (2 * GIB / device.peak_hbm_bytes_per_second) + 50e-6


@pytest.mark.gpu
def test_launches_are_marked_where_their_bytes_are(device: DeviceInfo) -> None:
    """naive: its launches follow one another, then the drain; at the middle of each HBM is busy."""
    (workload,) = workloads(("naive",), LONG, TILE, GPU)
    with torch.inference_mode():
        bench = Bench(workload, device)
        reading = cupti_sampling.measure(bench)
    assert [span.launch for span in reading.spans] == [*bench.launch_names, "drain"]
    read, write, _ = reading.series
    for span in reading.spans:
        middle = np.searchsorted(read.seconds, (span.start + span.end) / 2) - 1
        assert read.values[middle] + write.values[middle] > 0.01 * device.peak_hbm_bytes_per_second, span
    assert all(a.end <= b.start for a, b in pairwise(reading.spans))


@pytest.mark.gpu
@pytest.mark.parametrize("kernel", ["flash", "naive"])
def test_sampled_totals_agree_with_counted_ranges(device: DeviceInfo, kernel: str) -> None:
    """(1, 16, 8192, 128) bfloat16, cold L2, drained: HBM within 2% of cupti-range.

    How many SMs' reads L2 merges changes from pass to pass: L2↔SM of flash by a tenth.
    """
    (workload,) = workloads((kernel,), LONG, TILE, GPU)
    with torch.inference_mode():
        bench = Bench(workload, device)
        bench.launch()
        counters = {counter.name: counter for counter in all_counters()}
        counted = counters["cupti_range"].measure(bench)
        sampled_run = counters["cupti_sampling"].measure(bench)
    expected = {m.name: m.value for m in counted.measurements if m.launch is None}
    for name, value in values(sampled_run).items():
        assert value == pytest.approx(expected[name], rel=0.2 if name == "l2_sm_bytes" else 0.02), name
