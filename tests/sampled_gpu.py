"""A simulated GPU that moves bytes in its own time, a stand-in for CUPTI that samples it, and work to be sampled."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path

from kernels.run import LaunchHook
from profiler.bench import HEAD_STARTS_CYCLES, Load
from profiler.cupti import structs
from profiler.cupti.library import CuptiError, explain
from profiler.run import DeviceInfo
from tests.fake_runs import H200

READ, WRITE, SECTORS = "dram__bytes_read.sum", "dram__bytes_write.sum", "lts__t_sectors_srcunit_tex.sum"
OPENED = {
    "cuptiPmSamplingEnable": "cuptiPmSamplingDisable",
    "cuptiPmSamplingStart": "cuptiPmSamplingStop",
    "cuptiProfilerHostInitialize": "cuptiProfilerHostDeinitialize",
}
US, MS = 1_000, 1_000_000  # ns
BORN = 1_790_000_000 * 10**9  # GPU clocks count from 1970
JUNK = 1e15
OTHER, FULL, END = 0, 1, 2  # stop reasons
Sample = tuple[int, int, tuple[float, ...]]  # start, end, values


@dataclass
class Gpu:
    """Work (start, end, bytes read, bytes written, L2 sectors), one after another; `now` is the host's clock, in ns."""

    now: int = BORN
    free_at: int = BORN
    work: list[tuple[int, int, float, float, float]] = field(default_factory=list)

    def run(self, lasting: int, read: float = 0, write: float = 0, sectors: float = 0) -> None:
        begin = max(self.now, self.free_at)
        self.free_at = begin + lasting
        self.work.append((begin, self.free_at, read, write, sectors))

    def synchronize(self) -> None:
        self.now = max(self.now, self.free_at)

    def sleep(self, seconds: float) -> None:
        self.now += round(seconds * 1e9)

    def moved(self, start: int, end: int) -> tuple[float, float, float]:
        """Bytes read and written and sectors between two times; work moves them evenly."""
        shares = [(max(0, min(e, end) - max(b, start)) / (e - b), amounts) for b, e, *amounts in self.work]
        return tuple(sum(share * amounts[i] for share, amounts in shares) for i in range(3))


@dataclass
class StandIn:
    """CUPTI on a Gpu, as it behaves on an H100: a first sample full of junk, empty ones after Stop.

    `fails` maps the name of a call to the CUptiResult that it answers; `reasons` are the stop reasons, one for each
    piece in which the samples are decoded; `spoil` changes the list of (start, end, values) that Stop leaves.
    """

    gpu: Gpu
    chip: str = "GH100"
    fails: dict[str, int] = field(default_factory=dict)
    passes: int = 1
    reasons: tuple[int, ...] = (END,)
    overflow: int = 0
    ahead: int = 0  # ns by which CUPTI's clock is ahead of %globaltimer
    ticks: float = 1.0  # of CUPTI's clock in a nanosecond
    spoil: Callable[[list[Sample]], list[Sample]] = list
    calls: list[str] = field(default_factory=list)
    config: structs.Params | None = None
    path, version = Path("libcupti.so.13"), 130_001

    def call(self, params: structs.Params) -> structs.Params:
        function = params.function
        self.calls.append(function)
        if function in self.fails:
            raise CuptiError(explain(self.fails[function], function, "A_NAME"), self.fails[function])
        answer = getattr(self, function, None)
        if answer is not None:
            answer(params)
        return params

    def still_open(self) -> list[str]:
        return [begin for begin, end in OPENED.items() if self.calls.count(begin) != self.calls.count(end)]

    def cuptiDeviceGetChipName(self, params: structs.Params) -> None:
        params.pChipName = self.chip.encode()

    def cuptiProfilerHostGetSupportedChips(self, params: structs.Params) -> None:
        params.ppChipNames, params.numChips = structs.c_names((self.chip,)), 1

    def cuptiProfilerHostInitialize(self, params: structs.Params) -> None:
        assert params.profilerType == 1
        params.pHostObject = 0xF00

    def cuptiProfilerHostGetBaseMetrics(self, params: structs.Params) -> None:
        names = tuple(name.removesuffix(".sum") for name in (READ, WRITE, SECTORS, "gpu__time_duration"))
        if params.metricType == 0:
            params.ppMetricNames, params.numMetrics = structs.c_names(names), len(names)

    def cuptiProfilerHostGetConfigImageSize(self, params: structs.Params) -> None:
        params.configImageSize = 8

    def cuptiProfilerHostGetNumOfPasses(self, params: structs.Params) -> None:
        params.numOfPasses = self.passes

    def cuptiPmSamplingEnable(self, params: structs.Params) -> None:
        assert params.deviceIndex == 3
        params.pPmSamplingObject = 0xF00D

    def cuptiPmSamplingSetConfig(self, params: structs.Params) -> None:
        self.config = params

    def cuptiPmSamplingGetCounterDataSize(self, params: structs.Params) -> None:
        assert [name.decode() for name in params.pMetricNames[: params.numMetrics]] == [READ, WRITE, SECTORS]
        params.counterDataSize = params.maxSamples

    def cuptiPmSamplingStart(self, params: structs.Params) -> None:
        assert params.pPmSamplingObject == 0xF00D
        assert self.gpu.free_at <= self.gpu.now, "work of before Start would count"
        self.started = self.gpu.now

    def cuptiPmSamplingStop(self, params: structs.Params) -> None:
        step = self.config.samplingInterval
        starts = range(self.started, self.gpu.now - step + 1, step)
        samples = [
            (start + self.ahead, start + step + self.ahead, self.gpu.moved(start, start + step)) for start in starts
        ]
        samples[0] = (*samples[0][:2], (JUNK, JUNK, JUNK))
        empty = (self.started + self.ahead, self.started + self.ahead, (JUNK, JUNK, JUNK))
        self.left = self.spoil([*samples, empty, empty])
        self.pieces = iter(self.reasons)
        self.image_size = -(-len(self.left) // len(self.reasons))

    def cuptiPmSamplingCounterDataImageInitialize(self, params: structs.Params) -> None:
        self.decoded: list[Sample] = []

    def cuptiPmSamplingDecodeData(self, params: structs.Params) -> None:
        assert self.decoded == [], "samples of before would come twice"
        params.decodeStopReason = next(self.pieces, OTHER)
        params.overflow = self.overflow
        self.decoded, self.left = self.left[: self.image_size], self.left[self.image_size :]

    def cuptiPmSamplingGetCounterDataInfo(self, params: structs.Params) -> None:
        params.numCompletedSamples = len(self.decoded)
        params.numTotalSamples = params.numPopulatedSamples = len(self.decoded) + 1

    def cuptiPmSamplingCounterDataGetSampleInfo(self, params: structs.Params) -> None:
        start, end, _ = self.decoded[params.sampleIndex]
        params.startTimestamp, params.endTimestamp = (
            self.started + round((when - self.started) * self.ticks) for when in (start, end)
        )

    def cuptiProfilerHostEvaluateToGpuValues(self, params: structs.Params) -> None:
        assert len(self.decoded[params.rangeIndex][2]) == params.numMetrics
        for i, value in enumerate(self.decoded[params.rangeIndex][2]):
            params.pMetricValues[i] = value


@dataclass
class Clock:
    """GpuClock on a Gpu."""

    gpu: Gpu
    host_ahead_ns: int = 0
    found: list[tuple[str, int, int]] = field(default_factory=list)

    @contextmanager
    def span(self, name: str) -> Iterator[None]:
        begin = max(self.gpu.now, self.gpu.free_at)
        yield
        self.found.append((name, begin, self.gpu.free_at))

    def spans(self) -> list[tuple[str, int, int]]:
        return self.found


@dataclass
class TwoLaunches(Load):
    """qk: 1 GB read, 0.5 GB written, 50 M sectors in 1 ms; pv: 2 GB, 0.2 GB, 25 M in 0.5 ms; 40 MB stay in L2.

    Right after a pass, so that L2 is warm, qk reads 0.3 GB less. What is dirty is written by what comes next. Evicting
    reads 120 MB (3.75 M sectors) in 0.1 ms, and writes 1 MB that is not the pass's. A spin has no traffic.
    """

    gpu: Gpu
    device: DeviceInfo = H200
    l2: str = "cold"
    drain: bool = True
    dirty: float = 0.0
    is_warm: bool = False
    scale: float = 1.0
    compulsory_bytes: int = 0
    launch_names = ("qk", "pv")

    def launch(self, hook: LaunchHook = nullcontext) -> None:
        with hook("qk"):
            self.gpu.run(MS, (0.7e9 if self.is_warm else 1e9) * self.scale, self.dirty + 0.5e9, 50e6)
        with hook("pv"):
            self.gpu.run(MS // 2, 2e9 * self.scale, 0.2e9, 25e6)
        self.dirty, self.is_warm = 40e6, True

    def spin(self, cycles: int = HEAD_STARTS_CYCLES[0]) -> None:
        self.gpu.run(cycles // 2)

    def evict_l2(self) -> None:
        self.gpu.run(MS // 10, 120e6, self.dirty + 1e6, 3.75e6)
        self.dirty, self.is_warm = 0.0, False

    def synchronize(self) -> None:
        self.gpu.synchronize()
