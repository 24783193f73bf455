"""The target half of CUPTI: counts metrics over ranges of GPU work, in this process, replaying nothing.

with RangeProfiler(("dram__bytes_read.sum", "dram__bytes_write.sum")) as profiler:
    with profiler.collecting() as ranges:
        with ranges.range("qk"):
            launch_qk()
        flush_l2()
        with ranges.range("softmax"):
            launch_softmax()
ranges.values  # [("qk", {"dram__bytes_read.sum": 2.1e9, ...}), ("softmax", {...})]
"""

import ctypes
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from functools import cache

from profiler.cupti import structs
from profiler.cupti.host import MetricsHost
from profiler.cupti.library import Cupti, CuptiError, load

USER_RANGE = 2
USER_REPLAY = 3


class RangeProfiler:
    """Counts `metrics` on the GPU of this thread's CUDA context, for up to `max_ranges` ranges a collection.

    A context manager; `collecting` may be used in it any number of times. The metrics must fit in one pass.
    While it is open nothing else may profile this process (torch.profiler, ncu, nsys). Entering it raises
    CuptiError where counters cannot be read; the process can go on after that, and after any error inside.
    """

    def __init__(self, metrics: tuple[str, ...], max_ranges: int = 16, cupti: Cupti | None = None) -> None:
        self.metrics = metrics
        self.max_ranges = max_ranges
        self.cupti = cupti or load()

    def __enter__(self) -> "RangeProfiler":
        context, _ = current_context()
        with ExitStack() as undo:
            self._host = undo.enter_context(MetricsHost(self.cupti, current_chip(self.cupti), self.metrics))
            if self._host.passes > 1:
                raise CuptiError(
                    f"No GPU counters: {', '.join(self.metrics)} need {self._host.passes} passes on "
                    f"{self._host.chip}, and a replay would change what is measured. Ask for fewer metrics."
                )
            self._object = self.cupti.call(structs.RangeProfilerEnable(ctx=context)).pRangeProfilerObject
            undo.callback(self._call, structs.RangeProfilerDisable)
            self._undo = undo.pop_all()
        return self

    def __exit__(self, kind: type[BaseException] | None, *exception: object) -> None:
        # As in _between, an error inside comes first.
        with suppress(CuptiError) if kind else nullcontext():
            self._undo.close()

    @contextmanager
    def collecting(self) -> Iterator["Ranges"]:
        """One collection: the ranges opened on what it yields, whose `values` are there when it has ended.

        Raises CuptiError if CUPTI fails or drops a range.
        """
        self._configure()
        ranges = Ranges(self)
        with self._between(structs.RangeProfilerStart, structs.RangeProfilerStop):
            yield ranges
        ranges.values = self._decode(ranges.names)

    def _configure(self) -> None:
        size = self._call(
            structs.RangeProfilerGetCounterDataSize,
            pMetricNames=structs.c_names(self.metrics),
            numMetrics=len(self.metrics),
            maxNumOfRanges=self.max_ranges,
            maxNumRangeTreeNodes=self.max_ranges,
        ).counterDataSize
        # CUPTI writes here until the next SetConfig or Disable, so that it must outlive this call.
        self._counter_data = ctypes.create_string_buffer(size)
        self._call(
            structs.RangeProfilerCounterDataImageInitialize,
            counterDataSize=size,
            pCounterData=self._counter_data,
        )
        self._call(
            structs.RangeProfilerSetConfig,
            configSize=len(self._host.config_image),
            pConfig=self._host.config_image,
            counterDataImageSize=size,
            pCounterDataImage=self._counter_data,
            range=USER_RANGE,
            replayMode=USER_REPLAY,
            maxRangesPerPass=self.max_ranges,
            numNestingLevels=1,
            minNestingLevel=1,
            passIndex=0,
            targetNestingLevel=1,
        )

    def _decode(self, names: list[str]) -> list[tuple[str, dict[str, float]]]:
        dropped = self._call(structs.RangeProfilerDecodeData).numOfRangeDropped
        image = {"pCounterDataImage": self._counter_data, "counterDataImageSize": len(self._counter_data)}
        counted = self.cupti.call(structs.RangeProfilerGetCounterDataInfo(**image)).numTotalRanges
        if dropped or counted != len(names):
            raise CuptiError(
                f"No GPU counters: CUPTI counted {counted} of {len(names)} ranges and dropped {dropped}. "
                "Measure fewer ranges at a time."
            )
        values = {}
        for index in range(counted):
            named = structs.RangeProfilerCounterDataGetRangeInfo(rangeIndex=index, rangeDelimiter=b"/", **image)
            position = int(self.cupti.call(named).rangeName)
            values[position] = self._host.evaluate(self._counter_data, index)
        return [(name, values[position]) for position, name in enumerate(names)]

    @contextmanager
    def _between(self, begin: type[structs.Params], end: type[structs.Params], **values: object) -> Iterator[None]:
        self._call(begin, **values)
        try:
            yield
        except BaseException:
            # It says more than what CUPTI may add to a measurement cut short.
            with suppress(CuptiError):
                self._call(end)
            raise
        self._call(end)

    def _call(self, params: type[structs.Params], **values: object) -> structs.Params:
        return self.cupti.call(params(pRangeProfilerObject=self._object, **values))


class Ranges:
    """The ranges of one collection, one after another; a name may come again.

    `values` holds (name, {metric: value}) for each, in order; it is empty until the collection has ended.
    """

    def __init__(self, profiler: RangeProfiler) -> None:
        self.names: list[str] = []
        self.values: list[tuple[str, dict[str, float]]] = []
        self._profiler = profiler
        self._is_open = False

    @contextmanager
    def range(self, name: str) -> Iterator[None]:
        """Counts the GPU work launched inside, and only that: waits for the GPU before and after.

        Raises CuptiError if the collection is full or another range is open, RuntimeError if the work failed.
        """
        if self._is_open:
            raise CuptiError(f"Range {name} opens inside {self.names[-1]}; close that one first.")
        if len(self.names) == self._profiler.max_ranges:
            raise CuptiError(
                f"Range {name} is one more than max_ranges, {self._profiler.max_ranges}; raise max_ranges."
            )
        synchronize()
        number = len(self.names)
        self.names.append(name)
        self._is_open = True
        try:
            # By number: a name may come again, and CUPTI tells ranges apart by what they are called.
            with self._profiler._between(
                structs.RangeProfilerPushRange, structs.RangeProfilerPopRange, pRangeName=str(number).encode()
            ):
                yield
                synchronize()
        finally:
            self._is_open = False


@cache
def cuda_driver() -> ctypes.CDLL:
    """libcuda, which the NVIDIA driver installs. Raises CuptiError where there is none."""
    try:
        return ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        raise CuptiError(
            "No GPU counters: there is no NVIDIA driver (libcuda.so.1). Use a machine with an NVIDIA GPU; "
            "in a container, start it with the NVIDIA runtime."
        ) from error


def current_context() -> tuple[int, int]:
    """This thread's CUDA context, as a handle, and its device's number. Raises CuptiError if it has none."""
    handle, device = ctypes.c_void_p(), ctypes.c_int()
    # CUPTI takes a NULL context and crashes the process.
    if cuda_driver().cuCtxGetCurrent(ctypes.byref(handle)) or handle.value is None:
        raise CuptiError("No GPU counters: this thread has no CUDA context yet. Make a tensor on the GPU in it first.")
    _check(cuda_driver().cuCtxGetDevice(ctypes.byref(device)))
    return handle.value, device.value


def current_chip(cupti: Cupti) -> str:
    """The chip of this thread's CUDA context, such as GH100. Raises CuptiError if there is no context."""
    _, device = current_context()
    # Only with a context: before CUDA is initialised it answers CUPTI_ERROR_UNKNOWN.
    cupti.call(structs.ProfilerInitialize())
    name: bytes = cupti.call(structs.DeviceGetChipName(deviceIndex=device)).pChipName
    return name.decode()


def synchronize() -> None:
    """Waits for all work of this thread's CUDA context. Raises RuntimeError if some of it failed."""
    _check(cuda_driver().cuCtxSynchronize())


def _check(code: int) -> None:
    if code:
        name = ctypes.c_char_p()
        cuda_driver().cuGetErrorName(code, ctypes.byref(name))
        raise RuntimeError(f"The GPU work failed: {(name.value or b'a CUDA error').decode()} ({code}).")
