"""measure(workload) -> Run: the only orchestrator, one straight page."""

import logging
import platform
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import torch
import triton

from kernels.own import is_own
from kernels.own_forward import untouched
from kernels.problem import TileConfig
from kernels.run import Output
from kernels.schedule import Schedule
from profiler.accuracy import measure_errors
from profiler.bench import Bench, Load
from profiler.commit import commits
from profiler.counter import Counter, Reading, Unavailable, all_counters
from profiler.gradient_accuracy import measure_gradient_errors
from profiler.memory_model import peak_tensors
from profiler.once_each import once_each
from profiler.own_kernel import OWN_ALLOCATES, as_imported, problem_flops
from profiler.own_launch import first_launch
from profiler.run import HALVES, DeviceInfo, Measurement, ProgramTrace, Run, SoftmaxTrace, new_id
from profiler.state_trace import record_softmax, record_timeline
from profiler.tile_trace import traced_accesses
from profiler.workload import AUTO, Workload

LIBRARY_UNTOLD = tuple(
    Measurement(name, None, "B", "schedule", "what a library asks for inside its one launch is not known from outside")
    for name in HALVES["requested_bytes"]
)


Progress = Callable[[str, int, int], None]  # phase, phases done, phases in all


def measure(
    workload: Workload,
    device: DeviceInfo,
    request: str,
    progress: Progress = lambda *_: None,
    run_id: str | None = None,
    beside: tuple[Measurement, ...] = (),
) -> Run:
    """Run one admitted Workload through every source of numbers and gather a Run, under a new id unless one is given.

    A source that cannot answer leaves Measurements of None with its reason; errors of the kernel itself propagate.
    `beside` is what another process measured of the same.
    """
    if is_own(workload.kernel):
        workload = as_imported(workload)
    return measured(partial(Bench, workload, device), workload, device, request, progress, run_id, beside)


def measured(
    make: Callable[[], Bench],
    workload: Workload,
    device: DeviceInfo,
    request: str,
    progress: Progress = lambda *_: None,
    run_id: str | None = None,
    beside: tuple[Measurement, ...] = (),
) -> Run:
    """`measure` of the Bench that `make` makes, which is made where its time and its memory count as the kernel's."""
    begun = time.time()
    counters = tuple(counter for counter in all_counters() if counter.is_asked(workload))
    clock = PhaseClock(progress, total=3 + sum(counter.measure is not None for counter in counters))
    with clock.phase("compile" if workload.on_gpu else "interpret"), torch.inference_mode():
        bench = make()
        output, readings, softmax = _first_launch(bench)
    # An own kernel may leave its inputs alone at first only.
    kept = untouched(bench.own.name, bench.inputs) if bench.own is not None else nullcontext()
    with torch.inference_mode(), kept:
        readings += _read_counters(counters, bench, clock)
        with clock.phase("check"):
            output = output or bench.launch()
            errors = measure_errors(bench, output.o)
            if output.gradients is not None:
                errors += measure_gradient_errors(bench, output.gradients)
        with clock.phase("trace"):
            timeline: ProgramTrace | None = None
            if workload.on_gpu and workload.trace is not None:
                if workload.attention_kernel.has_trace:
                    softmax, _ = record_softmax(bench)
                if workload.attention_kernel.has_timeline:
                    timeline = record_timeline(bench)
    return Run(
        id=run_id or new_id(workload.kernel),
        request=request,
        created=f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}",
        workload=workload,
        device=device,
        environment=environment(),
        measurements=(
            *modelled(workload, bench.own is not None and bench.own.reference is not None),
            *beside,
            *resident(bench),
            *(m for r in readings for m in r.measurements),
            *errors,
        ),
        samples={name: values for reading in readings for name, values in reading.samples.items()},
        series=tuple(series for reading in readings for series in reading.series),
        spans=tuple(span for reading in readings for span in reading.spans),
        # Each source that names them names all of them.
        kernels=next((reading.kernels for reading in readings if reading.kernels), ()),
        memory=next((reading.memory for reading in readings if reading.memory), None),
        softmax=softmax,
        timeline=timeline,
        phases=clock.seconds,
        # A clock that was set back meanwhile tells nothing.
        measured_at=(begun, ended) if (ended := time.time()) >= begun else None,
    )


def _first_launch(bench: Bench) -> tuple[Output | None, list[Reading], SoftmaxTrace | None]:
    """Compile and launch once. Interpreted, this one launch also gives the output, accesses and state: it is slow.

    On a GPU the output is dropped, so that it does not count as memory of the passes to come.
    """
    workload = bench.workload
    if bench.own is not None:
        return *first_launch(bench, bench.own), None
    if workload.on_gpu:
        bench.launch()
        bench.synchronize()
        return None, [], None
    if not workload.attention_kernel.is_triton:
        return bench.launch(), [], None
    softmax = None
    with traced_accesses() as trace:
        if workload.trace is None or not workload.attention_kernel.has_trace:
            output = bench.launch()
        else:
            softmax, output = record_softmax(bench, trace)
    note = "every load and store of the interpreted programs"
    note += "; an atomic add is a write" if workload.problem.backward else ""
    requested = tuple(
        Measurement(f"requested_{direction}_bytes", float(trace.total(direction)), "B", "interpreter", note)
        for direction in ("read", "write")
    )
    return output, [Reading(requested)], softmax


def _read_counters(counters: tuple[Counter, ...], bench: Bench, clock: "PhaseClock") -> list[Reading]:
    readings: list[Reading] = []
    with ExitStack() as watching:
        endings: list[tuple[Counter, Callable[[], Reading]]] = []
        for counter in counters:
            is_spare = counter.is_slow and bench.workload.counters == AUTO
            is_needless = is_spare and _is_counted(counter, readings)
            reason = None if is_needless else counter.unavailable(bench.device)
            # Where a spare one is not here, the quick ones have said why there is no number.
            if is_needless or (is_spare and reason is not None):
                clock.leave_out()
                continue
            phase: AbstractContextManager[None] = clock.phase(counter.phase) if counter.measure else nullcontext()
            with phase:
                if reason is not None:
                    readings.append(counter.missing(reason))
                elif counter.watch is not None:
                    endings.append((counter, watching.enter_context(counter.watch(bench))))
                elif counter.measure is not None:
                    readings.append(ask(counter, bench))
        readings += [_ask(counter, ending, bench) for counter, ending in endings]
    return readings


def _is_counted(counter: Counter, readings: list[Reading]) -> bool:
    """Whether every quantity of a slow source already has a value from a quick one."""
    known = {m.name for reading in readings for m in reading.measurements if m.value is not None}
    known |= {whole for whole, halves in HALVES.items() if known.issuperset(halves)}
    return known.issuperset(name for name, *_ in counter.quantities)


def ask(counter: Counter, load: Load) -> Reading:
    """What a source measures, or why it cannot; a fault of its own is a reason too, and costs no other source's number.

    Raises what the work itself raises: out of memory, and every error that the GPU still reports afterwards.
    """
    if counter.measure is None:
        return counter.missing("it only watches while others measure")
    return _ask(counter, partial(counter.measure, load), load)


def _ask(counter: Counter, question: Callable[[], Reading], load: Load) -> Reading:
    try:
        return question()
    except Unavailable as reason:
        return counter.missing(str(reason))
    except torch.OutOfMemoryError:
        raise
    except Exception as fault:
        load.synchronize()
        logging.getLogger("bytescope").exception("%s", counter.title)
        return counter.missing(f"{counter.title} failed ({type(fault).__name__}: {fault}); report this line")


def modelled(workload: Workload, has_own_reference: bool = False) -> tuple[Measurement, ...]:
    """What follows from problem, schedule and tensor sizes without running anything.

    A kernel with a reference of its own does other work than the problem's, so its FLOP are not known.
    """
    problem, kernel = workload.problem, workload.attention_kernel
    tile = workload.tile or TileConfig()
    schedule = kernel.schedule(problem, tile)
    tensors = peak_tensors(kernel, problem, tile)
    split = " + ".join(f"{name.upper()} {size:,} B" for name, size in tensors.items())
    return (
        problem_flops(problem, has_own_reference),
        Measurement("compulsory_bytes", float(problem.compulsory_bytes), "B", "model", once_each(problem)),
        *(requested(schedule) if kernel.tells_requests else () if is_own(workload.kernel) else LIBRARY_UNTOLD),
        Measurement("predicted_peak_bytes", None, "B", "model", OWN_ALLOCATES)
        if is_own(workload.kernel)
        else Measurement("predicted_peak_bytes", float(sum(tensors.values())), "B", "model", f"{split}, alive at once"),
    )


def requested(schedule: Schedule) -> tuple[Measurement, ...]:
    """What loads and stores ask for, in all and, where there are several, of each launch."""
    per_launch = [
        Measurement(f"requested_{direction}_bytes", float(sum(part.values())), "B", "schedule", launch=launch.name)
        for launch in schedule.launches
        if len(schedule.launches) > 1
        for direction, part in (("read", launch.reads), ("write", launch.writes))
    ]
    read, written = float(schedule.requested_read_bytes), float(schedule.requested_write_bytes)
    return (
        Measurement("requested_read_bytes", read, "B", "schedule", "what the programs' loads ask for"),
        Measurement("requested_write_bytes", written, "B", "schedule", "what the programs' stores ask for"),
        *per_launch,
    )


def resident(bench: Bench) -> tuple[Measurement, ...]:
    """programs_at_once, where the compiled kernel and the GPU tell it."""
    if bench.programs_at_once is None:
        return ()
    note = "CUDA's occupancy calculator for the compiled kernel × SMs"
    return (Measurement("programs_at_once", float(bench.programs_at_once), "1", "model", note),)


def environment() -> dict[str, str]:
    """Versions that a number may depend on."""
    return {
        "torch": torch.__version__,
        "triton": triton.__version__,
        "python": platform.python_version(),
        "cuda": torch.version.cuda or "none",
        "platform": platform.platform(terse=True),
        **commits(Path.cwd()),
    }


class PhaseClock:
    """Names the phase that runs now, tells `progress`, and keeps the seconds spent in each."""

    def __init__(self, progress: Progress, total: int) -> None:
        self.seconds: dict[str, float] = {}
        self._progress, self._total, self._done = progress, total, 0

    def leave_out(self) -> None:
        """One phase fewer will come."""
        self._total -= 1

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Time the block as one phase."""
        self._progress(name, self._done, self._total)
        begun = time.perf_counter()
        yield
        self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - begun
        self._done += 1
