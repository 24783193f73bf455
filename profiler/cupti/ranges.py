"""The target half of CUPTI: counts metrics over ranges of GPU work, in this process.

CUPTI replays nothing: what one pass cannot count together is counted by running the work again, see `collect`.

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
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext, suppress

from profiler.cupti import structs
from profiler.cupti.driver import current_chip, current_context, synchronize
from profiler.cupti.host import MetricsHost
from profiler.cupti.library import Cupti, CuptiError, load

# CUpti_ProfilerRange and CUpti_ProfilerReplayMode (cupti_profiler_target.h).
AUTO_RANGE, USER_RANGE = 1, 2
USER_REPLAY = 3


class RangeProfiler:
    """Counts `metrics` on the GPU of this thread's CUDA context, for up to `max_ranges` ranges a collection.

    A context manager, in which one may collect any number of times; `passes` tells how often `collect` runs the work.
    The metrics must fit in one pass unless `passes_allowed`. While it is open nothing else may profile this process
    (torch.profiler, ncu, nsys). Entering it raises CuptiError where counters cannot be read; the process can go on
    after that, and after any error inside.
    """

    passes: int

    def __init__(
        self,
        metrics: tuple[str, ...],
        max_ranges: int = 16,
        cupti: Cupti | None = None,
        passes_allowed: bool = False,
    ) -> None:
        self.metrics = metrics
        self.max_ranges = max_ranges
        self.cupti = cupti or load()
        self.passes_allowed = passes_allowed

    def __enter__(self) -> "RangeProfiler":
        context, _ = current_context()
        with ExitStack() as undo:
            self._host = undo.enter_context(MetricsHost(self.cupti, current_chip(self.cupti), self.metrics))
            self.passes = self._host.passes
            if not self.passes_allowed:
                self._require_one_pass()
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
        self._require_one_pass()
        self._configure(USER_RANGE, self.max_ranges)
        ranges = Ranges(self)
        with self._between(structs.RangeProfilerStart, structs.RangeProfilerStop):
            yield ranges
        ranges.values = list(zip(ranges.names, self._decode(len(ranges.names)), strict=True))

    def collect(self, work: Callable[["Ranges"], object]) -> list[tuple[str, dict[str, float]]]:
        """One collection of `passes` passes: `work` runs once for each and opens the same ranges every time.

        Gives (name, {metric: value}) of each range, in order. Whatever the values depend on, such as what L2 holds,
        `work` must bring about anew, outside its ranges. Raises CuptiError if CUPTI fails or drops a range.
        """
        done: list[Ranges] = []

        def one_pass() -> None:
            done.append(Ranges(self))
            work(done[-1])

        self._configure(USER_RANGE, self.max_ranges)
        self._run_passes(one_pass)
        names = done[0].names
        if any(ranges.names != names for ranges in done):
            raise CuptiError("No GPU counters: the work opened other ranges in one pass than in the next.")
        return list(zip(names, self._decode(len(names)), strict=True))

    def collect_kernels(
        self, work: Callable[[], object], count: int, prepare: Callable[[], object] = lambda: None
    ) -> list[dict[str, float]]:
        """{metric: value} of each of the `count` kernels that `work` launches, in the order of their launches.

        Each kernel is a range of its own, and the GPU is idle between them: names and numbers of kernels are those of
        profiler.cupti.launches. Afterwards this profiler opens no ranges of the user's: on an H200 CUPTI 13.0 refuses
        them. `work` runs `passes` times, each after `prepare`, whose kernels do not count. Raises
        CuptiError if CUPTI fails, drops a range, or counts more or fewer kernels.
        """
        self._configure(AUTO_RANGE, max(self.max_ranges, count))

        def one_pass() -> None:
            work()
            synchronize()

        self._run_passes(one_pass, prepare)
        return self._decode(count, "kernels", "The work must launch the same kernels each time it runs.")

    def _require_one_pass(self) -> None:
        if self.passes > 1:
            raise CuptiError(
                f"No GPU counters: {', '.join(self.metrics)} need {self.passes} passes on {self._host.chip}, and a "
                "replay would change what is measured. Ask for fewer metrics."
            )

    def _run_passes(self, one_pass: Callable[[], object], prepare: Callable[[], object] = lambda: None) -> None:
        """Start, pass, Stop until CUPTI has all it needs.

        Between passes there is no SetConfig: with user replay CUPTI advances by itself. Only application replay,
        where every pass is a process of its own, hands passIndex and targetNestingLevel on to the next SetConfig.
        """
        for _ in range(self.passes):
            prepare()
            synchronize()
            with self._between(structs.RangeProfilerStart, structs.RangeProfilerStop) as stop:
                one_pass()
            if stop.isAllPassSubmitted:
                return
        raise CuptiError(
            f"No GPU counters: {', '.join(self.metrics)} need {self.passes} passes on {self._host.chip}, and CUPTI "
            f"still wants pass {stop.passIndex} at nesting level {stop.targetNestingLevel} after as many. Report it "
            "with the versions of CUPTI and driver."
        )

    def _configure(self, mode: int, max_ranges: int) -> None:
        size = self._call(
            structs.RangeProfilerGetCounterDataSize,
            pMetricNames=structs.c_names(self.metrics),
            numMetrics=len(self.metrics),
            maxNumOfRanges=max_ranges,
            maxNumRangeTreeNodes=max_ranges,
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
            range=mode,
            replayMode=USER_REPLAY,
            maxRangesPerPass=max_ranges,
            numNestingLevels=1,
            minNestingLevel=1,
            passIndex=0,
            targetNestingLevel=1,
        )

    def _decode(
        self, expected: int, what: str = "ranges", advice: str = "Measure fewer ranges at a time."
    ) -> list[dict[str, float]]:
        """The values of each range by rising number: ours count up, and so do CUPTI's of automatic ranges."""
        dropped = self._call(structs.RangeProfilerDecodeData).numOfRangeDropped
        image = {"pCounterDataImage": self._counter_data, "counterDataImageSize": len(self._counter_data)}
        counted = self.cupti.call(structs.RangeProfilerGetCounterDataInfo(**image)).numTotalRanges
        if dropped or counted != expected:
            raise CuptiError(
                f"No GPU counters: CUPTI counted {counted} of {expected} {what} and dropped {dropped}. {advice}"
            )
        values = {}
        for index in range(counted):
            named = structs.RangeProfilerCounterDataGetRangeInfo(rangeIndex=index, rangeDelimiter=b"/", **image)
            number = int(self.cupti.call(named).rangeName)
            values[number] = self._host.evaluate(self._counter_data, index)
        if len(values) != counted:
            raise CuptiError(f"No GPU counters: CUPTI gave {counted} {what} {len(values)} numbers. Report its version.")
        return [values[number] for number in sorted(values)]

    @contextmanager
    def _between(
        self, begin: type[structs.Params], end: type[structs.Params], **values: object
    ) -> Iterator[structs.Params]:
        """Yields the parameters of the call that ends it; their outputs are there afterwards."""
        ending = end(pRangeProfilerObject=self._object)
        self._call(begin, **values)
        try:
            yield ending
        except BaseException:
            # It says more than what CUPTI may add to a measurement cut short.
            with suppress(CuptiError):
                self.cupti.call(ending)
            raise
        self.cupti.call(ending)

    def _call(self, params: type[structs.Params], **values: object) -> structs.Params:
        return self.cupti.call(params(pRangeProfilerObject=self._object, **values))


class Ranges:
    """The ranges of one collection, one after another; a name may come again.

    `values` holds (name, {metric: value}) for each, in order; it is empty until the collection has ended.
    """

    def __init__(self, profiler: RangeProfiler) -> None:
        self.names: list[str] = []
        self.values: list[tuple[str, dict[str, float]]] = []
        self.cupti = profiler.cupti
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
