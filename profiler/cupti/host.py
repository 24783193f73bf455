"""The host half of CUPTI: which metrics a chip has, how many passes a set needs, and the values of a range.

Needs no GPU and no driver.
"""

import ctypes
import math
from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property

from profiler.cupti import structs
from profiler.cupti.library import Cupti, CuptiError

RANGE_PROFILER, PM_SAMPLING = 0, 1
METRIC_TYPES = (0, 1, 2)  # counter, ratio, throughput

# A sector is the 32 bytes that L2 hands over at a time (Nsight Compute's profiling guide).
SECTOR_BYTES = 32
LARGEST_COUNT = 2.0**64  # counters have fewer bits


def supported_chips(cupti: Cupti) -> tuple[str, ...]:
    """The chips this libcupti knows, by NVIDIA's names: GA100 is in the A100, GH100 in the H100 and H200."""
    answer = cupti.call(structs.HostGetSupportedChips())
    return tuple(name.decode() for name in answer.ppChipNames[: answer.numChips])


class MetricsHost:
    """CUPTI's metrics of one chip, set up for one tuple of metrics, such as ("dram__bytes_read.sum",).

    `profiler_type` tells what will count them, RANGE_PROFILER or PM_SAMPLING: a chip has others for each.
    A context manager. Metrics once added stay, so that each set has a MetricsHost of its own.
    Raises CuptiError if the library does not know the chip or one of the metrics.
    """

    def __init__(
        self, cupti: Cupti, chip: str, metrics: tuple[str, ...] = (), profiler_type: int = RANGE_PROFILER
    ) -> None:
        if chip not in supported_chips(cupti):
            raise CuptiError(
                f"No GPU counters: {cupti.path} (API {cupti.version}) does not know the chip {chip}. "
                "Install a newer CUDA toolkit or torch."
            )
        self.cupti = cupti
        self.chip = chip
        self.metrics = metrics
        initialised = structs.HostInitialize(profilerType=profiler_type, pChipName=chip.encode())
        self._object = cupti.call(initialised).pHostObject
        try:
            self._add_metrics()
        except CuptiError:
            self.close()
            raise

    def _add_metrics(self) -> None:
        unknown = [name for name in self.metrics if name.split(".")[0] not in self.base_metrics]
        if unknown:
            raise CuptiError(f"No GPU counters: {self.chip} has no metric {', '.join(unknown)}.")
        if self.metrics:
            names = structs.c_names(self.metrics)
            self.cupti.call(
                structs.HostConfigAddMetrics(
                    pHostObject=self._object, ppMetricNames=names, numMetrics=len(self.metrics)
                )
            )

    def __enter__(self) -> "MetricsHost":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Gives CUPTI's host object back."""
        self.cupti.call(structs.HostDeinitialize(pHostObject=self._object))

    @cached_property
    def base_metrics(self) -> frozenset[str]:
        """Every metric of the chip, without its suffixes: dram__bytes_read, not dram__bytes_read.sum."""
        names: set[str] = set()
        for metric_type in METRIC_TYPES:
            answer = self.cupti.call(structs.HostGetBaseMetrics(pHostObject=self._object, metricType=metric_type))
            names.update(name.decode() for name in answer.ppMetricNames[: answer.numMetrics])
        return frozenset(names)

    @cached_property
    def config_image(self) -> "ctypes.Array[ctypes.c_char]":
        """What tells the GPU to count `metrics`."""
        size = self.cupti.call(structs.HostGetConfigImageSize(pHostObject=self._object)).configImageSize
        image = ctypes.create_string_buffer(size)
        self.cupti.call(structs.HostGetConfigImage(pHostObject=self._object, configImageSize=size, pConfigImage=image))
        return image

    @property
    def passes(self) -> int:
        """How often the work must run to count all of `metrics`."""
        image = self.config_image
        answer = self.cupti.call(structs.HostGetNumOfPasses(configImageSize=len(image), pConfigImage=image))
        return int(answer.numOfPasses)

    def evaluate(self, counter_data: "ctypes.Array[ctypes.c_char]", range_index: int) -> dict[str, float]:
        """The value of each metric in one range of a decoded counter-data image.

        Raises CuptiError if a metric has no value, or one that no counter can have: what was not counted must not
        pass for a number.
        """
        values = (ctypes.c_double * len(self.metrics))()
        self.cupti.call(
            structs.HostEvaluateToGpuValues(
                pHostObject=self._object,
                pCounterDataImage=counter_data,
                counterDataImageSize=len(counter_data),
                rangeIndex=range_index,
                ppMetricNames=structs.c_names(self.metrics),
                numMetrics=len(self.metrics),
                pMetricValues=values,
            )
        )
        for name, value in zip(self.metrics, values, strict=True):
            if not math.isfinite(value) or not 0 <= value < LARGEST_COUNT:
                raise CuptiError(f"No GPU counters: CUPTI gave no value for {name} in range {range_index}.")
        return dict(zip(self.metrics, values, strict=True))


@dataclass(frozen=True)
class TrafficMetrics:
    """The chip's names of the metrics behind the HBM and L2↔SM bytes; together they fit in one pass.

    Of those that are None where a chip lacks them, `to_sm` counts what arrives at the SMs' L1 over the crossbar, and
    `sm_reads` the sectors that L2 reads for them: fewer, where several SMs ask for the same ones at once.
    """

    read: str
    write: str
    sectors: str
    time: str
    to_sm: str | None = None
    sm_reads: str | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """What a MetricsHost or RangeProfiler takes."""
        names = (self.read, self.write, self.sectors, self.time, self.to_sm, self.sm_reads)
        return tuple(name for name in names if name is not None)

    def traffic(self, values: dict[str, float]) -> dict[str, float]:
        """A range's values under the names of the measurements: bytes, and seconds for gpu_time_seconds."""
        found = {
            "hbm_read_bytes": values[self.read],
            "hbm_write_bytes": values[self.write],
            "l2_sm_bytes": values[self.sectors] * SECTOR_BYTES,
            "gpu_time_seconds": values[self.time] / 1e9,
        }
        if self.to_sm is not None:
            found["l2_to_sm_bytes"] = values[self.to_sm]
        if self.sm_reads is not None:
            found["l2_sm_read_bytes"] = values[self.sm_reads] * SECTOR_BYTES
        return found


def traffic_metrics(base_metrics: Collection[str]) -> TrafficMetrics:
    """Picks the traffic metrics by the names the chip has: on GB20x, CUDA 13 writes op_read for read.

    Raises CuptiError if the chip has none of the alternatives, as those without memory of their own (GB10B).
    """

    def first(*alternatives: str) -> str:
        found = optional(*alternatives)
        if found is None:
            raise CuptiError(f"No GPU counters: the chip has no metric {' or '.join(alternatives)}.")
        return found

    def optional(*alternatives: str) -> str | None:
        return next((f"{name}.sum" for name in alternatives if name in base_metrics), None)

    return TrafficMetrics(
        read=first("dram__bytes_read", "dram__bytes_op_read"),
        write=first("dram__bytes_write", "dram__bytes_op_write"),
        sectors=first("lts__t_sectors_srcunit_tex"),
        time=first("gpu__time_duration"),
        to_sm=optional("l1tex__m_xbar2l1tex_read_bytes"),
        sm_reads=optional("lts__t_sectors_srcunit_tex_op_read"),
    )
