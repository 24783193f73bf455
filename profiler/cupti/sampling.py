"""CUPTI's PM sampling: the GPU's counters read at a fixed interval while work runs, in this process.

with PmSampler(("dram__bytes_read.sum", "dram__bytes_write.sum")) as sampler:
    with sampler.sampling(interval_ns=20_000, max_samples=1_000):
        launch_qk()
sampler.samples.values["dram__bytes_read.sum"].sum()  # 2.1e9, by all programs on the GPU
"""

import ctypes
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from time import perf_counter_ns, sleep

import numpy as np
from numpy.typing import NDArray

from profiler.cupti import sampling_structs, structs
from profiler.cupti.driver import current_chip, current_context, synchronize
from profiler.cupti.host import PM_SAMPLING, MetricsHost
from profiler.cupti.library import Cupti, CuptiError, load

# CUpti_PmSampling_TriggerMode, _DecodeStopReason and _HardwareBuffer_AppendMode (cupti_pmsampling.h).
SYSCLK_INTERVAL, TIME_INTERVAL = 0, 1
COUNTER_DATA_FULL, END_OF_RECORDS = 1, 2
KEEP_OLDEST = 0
OVERFLOW = 8  # CUPTI_ERROR_OUT_OF_MEMORY, as cuptiPmSamplingDecodeData means it

# The boost clock of an A100 (datasheet); at another clock samples are shorter or longer, and their times tell so.
SYSCLK_HERTZ = 1.41e9
# CUPTI does not tell the size of a raw sample; others report up to 7 KB on an H100, with four metrics.
HARDWARE_BYTES_PER_SAMPLE = 2**14
SAME_CLOCK = 0.05  # a sample is this close to the interval if its times are in ns
MARGIN_NS, MARGIN_INTERVALS = 1_000_000, 10


@dataclass(frozen=True)
class Samples:
    """Samples without gaps [samples]: when each starts and ends, in ns of CUPTI's clock; what it counted, by metric.

    A metric that ends in .sum is a number of events, such as bytes, within its sample: over all samples they add up.
    """

    start_ns: NDArray[np.int64]
    end_ns: NDArray[np.int64]
    values: dict[str, NDArray[np.float64]]


class PmSampler:
    """Samples `metrics` on the GPU of this thread's CUDA context, of everything that runs on it.

    A context manager; `samples` holds what the last `sampling` inside took. The times of a second one in the same
    sampler were late by several samples on an H200; its sums were right. The metrics must fit in one pass. While it
    is open nothing else may profile this process. Entering it raises CuptiError where counters cannot be read; the
    process can go on after that, and after any error inside.
    """

    samples: Samples

    def __init__(self, metrics: tuple[str, ...], cupti: Cupti | None = None) -> None:
        self.metrics = metrics
        self.cupti = cupti or load()

    def __enter__(self) -> "PmSampler":
        _, device = current_context()
        with ExitStack() as undo:
            chip = current_chip(self.cupti)
            self._host = undo.enter_context(MetricsHost(self.cupti, chip, self.metrics, PM_SAMPLING))
            if self._host.passes > 1:
                raise CuptiError(
                    f"No GPU counters: {', '.join(self.metrics)} need {self._host.passes} passes on {chip}, and "
                    "samples come from one. Ask for fewer metrics."
                )
            enabled = sampling_structs.PmSamplingEnable(deviceIndex=device)
            self._object = self.cupti.call(enabled).pPmSamplingObject
            undo.callback(self._call, sampling_structs.PmSamplingDisable)
            self._undo = undo.pop_all()
        return self

    def __exit__(self, kind: type[BaseException] | None, *exception: object) -> None:
        # An error inside says more than what CUPTI may add.
        with suppress(CuptiError) if kind else nullcontext():
            self._undo.close()

    @contextmanager
    def sampling(self, interval_ns: int, max_samples: int) -> Iterator[None]:
        """Samples the work launched inside every `interval_ns`, between two margins in which this process is idle.

        The margins count among `max_samples`, for each of which CUPTI takes some 16 KB of host memory twice. On GA100
        and Turing, which count clocks instead of time, the interval is only about as long. Raises CuptiError if CUPTI
        fails, if more samples come, or if any of the work may be missing in them; RuntimeError if the work failed.
        """
        self._configure(interval_ns, max_samples)
        margin_ns = max(MARGIN_NS, MARGIN_INTERVALS * interval_ns)
        synchronize()
        with self._started():
            begin = perf_counter_ns()
            sleep(margin_ns * 1e-9)
            yield
            synchronize()
            sleep(margin_ns * 1e-9)
            elapsed_ns = perf_counter_ns() - begin
        self.samples = self._in_time(self._decode(max_samples), interval_ns)
        _require_whole(self.samples, elapsed_ns, margin_ns)

    @property
    def _counts_clocks(self) -> bool:
        """Whether the chip has no time trigger."""
        return self._host.chip == "GA100" or self._host.chip.startswith("TU")

    def _in_time(self, samples: Samples, interval_ns: int) -> Samples:
        """The samples in ns. Once torch.profiler has given CUPTI a clock of its own, their times may be its ticks; the
        trigger keeps time all the same, so each sample then lasts the interval."""
        ticks = float(np.median(samples.end_ns - samples.start_ns))
        if self._counts_clocks or not ticks or abs(ticks / interval_ns - 1) <= SAME_CLOCK:
            return samples
        zero = samples.start_ns[0]
        start_ns, end_ns = (
            zero + np.round((times - zero) * (interval_ns / ticks)).astype(np.int64)
            for times in (samples.start_ns, samples.end_ns)
        )
        return Samples(start_ns, end_ns, samples.values)

    def _configure(self, interval_ns: int, max_samples: int) -> None:
        self._call(
            sampling_structs.PmSamplingSetConfig,
            configSize=len(self._host.config_image),
            pConfig=self._host.config_image,
            hardwareBufferSize=max_samples * HARDWARE_BYTES_PER_SAMPLE,
            samplingInterval=round(interval_ns * 1e-9 * SYSCLK_HERTZ) if self._counts_clocks else interval_ns,
            triggerMode=SYSCLK_INTERVAL if self._counts_clocks else TIME_INTERVAL,
            hwBufferAppendMode=KEEP_OLDEST,
        )
        size = self._call(
            sampling_structs.PmSamplingGetCounterDataSize,
            pMetricNames=structs.c_names(self.metrics),
            numMetrics=len(self.metrics),
            maxSamples=max_samples,
        ).counterDataSize
        self._counter_data = ctypes.create_string_buffer(size)
        self._clear()

    def _clear(self) -> None:
        self._call(
            sampling_structs.PmSamplingCounterDataImageInitialize,
            counterDataSize=len(self._counter_data),
            pCounterData=self._counter_data,
        )

    @contextmanager
    def _started(self) -> Iterator[None]:
        self._call(sampling_structs.PmSamplingStart)
        try:
            yield
        except BaseException:
            # As in __exit__.
            with suppress(CuptiError):
                self._call(sampling_structs.PmSamplingStop)
            raise
        self._call(sampling_structs.PmSamplingStop)

    def _decode(self, max_samples: int) -> Samples:
        times: list[tuple[int, int]] = []
        values: list[dict[str, float]] = []
        for position, (start, end, index) in enumerate(self._decoded(max_samples)):
            # The first one began before Start, or never.
            if position:
                times.append((start, end))
                values.append(self._host.evaluate(self._counter_data, index))
        if not times:
            raise CuptiError("No GPU counters: CUPTI took no sample. Sample at a shorter interval.")
        start_ns, end_ns = np.array(times, dtype=np.int64).T
        return Samples(start_ns, end_ns, {m: np.array([v[m] for v in values]) for m in self.metrics})

    def _decoded(self, max_samples: int) -> Iterator[tuple[int, int, int]]:
        """Start, end and index in the counter data of each sample, as long as the next is not asked for."""
        decoded = 0
        while True:
            stop_reason = self._decode_data(max_samples)
            image = {"pCounterDataImage": self._counter_data, "counterDataImageSize": len(self._counter_data)}
            count = self.cupti.call(sampling_structs.PmSamplingGetCounterDataInfo(**image)).numCompletedSamples
            for index in range(count):
                info = self._call(sampling_structs.PmSamplingCounterDataGetSampleInfo, sampleIndex=index, **image)
                # After Stop there are some that cover no time.
                if info.startTimestamp != info.endTimestamp or not info.startTimestamp:
                    yield info.startTimestamp, info.endTimestamp, index
            if stop_reason == END_OF_RECORDS:
                return
            if stop_reason == COUNTER_DATA_FULL:
                raise _too_many(max_samples)
            if not count and decoded:
                return  # whether that was all, the samples' own times tell
            if not count:
                raise CuptiError(
                    "No GPU counters: CUPTI stopped reading its samples before the last one and gives no reason "
                    f"(stop reason {stop_reason}). Repeat the measurement."
                )
            decoded += count
            self._clear()

    def _decode_data(self, max_samples: int) -> int:
        try:
            decoded = self._call(
                sampling_structs.PmSamplingDecodeData,
                pCounterDataImage=self._counter_data,
                counterDataImageSize=len(self._counter_data),
            )
        except CuptiError as error:
            if error.code == OVERFLOW:
                raise _too_many(max_samples) from error
            raise
        if decoded.overflow:
            raise _too_many(max_samples)
        return int(decoded.decodeStopReason)

    def _call(self, params: type[structs.Params], **values: object) -> structs.Params:
        return self.cupti.call(params(pPmSamplingObject=self._object, **values))


def _too_many(max_samples: int) -> CuptiError:
    return CuptiError(
        f"No GPU counters: more than the planned {max_samples:,} samples came, and CUPTI lost some: the work took "
        "longer than expected. Repeat the measurement, or sample at a longer interval."
    )


def _require_whole(samples: Samples, elapsed_ns: int, margin_ns: int) -> None:
    """Raises CuptiError unless each sample starts where the one before ended, and all of the work lies within.

    The host's clock tells how long was sampled: if less than one margin is missing, work is not.
    """
    steps = samples.start_ns[1:] - samples.end_ns[:-1]
    if (abs(steps) > np.median(samples.end_ns - samples.start_ns) / 2).any():
        raise CuptiError(
            "No GPU counters: CUPTI's samples do not follow one another without a gap, so some are lost. "
            "Repeat the measurement, or sample at a longer interval."
        )
    covered_ns = int(samples.end_ns[-1] - samples.start_ns[0])
    if elapsed_ns - covered_ns > margin_ns:
        raise CuptiError(
            f"No GPU counters: CUPTI's samples cover {covered_ns * 1e-6:.2f} of {elapsed_ns * 1e-6:.2f} ms, so some "
            "are lost. Repeat the measurement, or sample at a longer interval."
        )
