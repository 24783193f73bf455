"""Prints what each source of numbers takes and finds, in one process, and what counting does to a pass's own time.

python -m benchmarks.source_cost          needs a GPU; about a minute

Sources follow one another in several orders, since what one leaves behind may disturb the next.
"""

import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext

import torch

from kernels.problem import AttentionProblem, TileConfig
from profiler.bench import Bench, Load
from profiler.child import describe
from profiler.counter import all_counters
from profiler.cupti import library
from profiler.cupti.chip import chip_metrics, chip_traffic
from profiler.cupti.host import PM_SAMPLING, traffic_metrics
from profiler.cupti.library import CuptiError
from profiler.cupti.ranges import RangeProfiler
from profiler.cupti.sampling import PmSampler
from profiler.measure import ask
from profiler.probe import known_copy
from profiler.workload import Workload

DEVICE = "cuda:0"
REPEATS = 5
COSTLIEST = 4
ORDER = (
    *("cupti_sampling", "cupti_range", "cupti_detail", "nvml_gpm", "ncu", "cupti_range", "cupti_sampling"),
    *("kernel_names", "cupti_range", "cupti_detail", "cupti_sampling", "kernel_names", "cupti_range"),
    *("copy_bandwidth", "nvml_energy"),
)


def main() -> None:
    """Every source on a copy, flash and naive; then the time of a pass, alone and while counted."""
    if not torch.cuda.is_available():
        sys.exit("This benchmark needs an NVIDIA GPU.")
    device = describe(DEVICE)
    loads: dict[str, Load] = {"copy": known_copy(device)}
    for kernel, tile in (("flash", TileConfig(128, 64, 8, 3)), ("naive", None)):
        problem = AttentionProblem(1, 16, 16, 8192, 8192, 128, "bfloat16")
        loads[kernel] = Bench(Workload(kernel, problem, tile, DEVICE), device)
    for load in loads.values():
        load.launch()
        load.evict_l2()
        load.synchronize()
    counters = {counter.name: counter for counter in all_counters()}
    for name in ORDER:
        for title, load in loads.items():
            with _costs(f"{name}, {title}"):
                reading = ask(counters[name], load)
            for measurement in (m for m in reading.measurements if m.launch is None):
                print(f"    {measurement.name} {measurement.value} {measurement.unit} | {measurement.note}")
            for series in reading.series[:1]:
                print(f"    {len(series.values)} samples of {(series.interval or 0) * 1e6:.2f} µs")
            for span in reading.spans:
                print(f"    {span.launch} from {span.start * 1e6:.0f} to {span.end * 1e6:.0f} µs")
            for kernel in reading.kernels:
                print(f"    {kernel.launch}: {kernel.kernel[:80]}")
    for title, load in loads.items():
        alone, ranged, sampled = (_pass_ms(load, around) for around in (nullcontext, _in_a_range, _sampled))
        print(f"{title}: a pass alone {alone}, in a range {ranged}, while sampled {sampled} ms")


@contextmanager
def _costs(title: str) -> Iterator[None]:
    """Print the seconds of the block, and the calls of CUPTI that took most of them."""
    spent: dict[str, list[float]] = {}
    plain = library.Cupti.call

    def timed(self: library.Cupti, params: library.AnyParams) -> library.AnyParams:
        begun = time.perf_counter()
        try:
            return plain(self, params)
        finally:
            spent.setdefault(params.function, []).append(time.perf_counter() - begun)

    begun = time.perf_counter()
    with ExitStack() as undo:
        library.Cupti.call = timed  # type: ignore[method-assign]
        undo.callback(setattr, library.Cupti, "call", plain)
        yield
    costliest = sorted(spent.items(), key=lambda item: -sum(item[1]))[:COSTLIEST]
    calls = ", ".join(f"{name} {len(times)} × {sum(times) / len(times) * 1e3:.2f} ms" for name, times in costliest)
    print(f"{title}: {time.perf_counter() - begun:.3f} s; {calls}")


def _pass_ms(load: Load, around: Callable[[], AbstractContextManager[object]]) -> str:
    """Median time of a pass between two events, each pass within a context of its own; or why there is none."""
    times = []
    try:
        for _ in range(REPEATS):
            with around():
                one = load.timed_pass()
                load.synchronize()
            times.append(one.seconds * 1e3)
    except CuptiError as error:
        return f"({error})"
    return f"{statistics.median(times):.4f}"


@contextmanager
def _in_a_range() -> Iterator[None]:
    with RangeProfiler(chip_traffic().names) as profiler, profiler.collecting() as ranges, ranges.range("pass"):
        yield


@contextmanager
def _sampled() -> Iterator[None]:
    traffic = traffic_metrics(chip_metrics(PM_SAMPLING)[1])
    with PmSampler((traffic.read, traffic.write, traffic.sectors)) as sampler, sampler.sampling(20_000, 4_096):
        yield


if __name__ == "__main__":
    with torch.inference_mode():
        main()
