"""A Run of source ncu from Nsight Compute's raw page: kernels that were profiled elsewhere, to compare with ours."""

import re
import statistics
import uuid
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from kernels.problem import AttentionProblem, Refused
from kernels.shown import named, shown
from profiler.codec import NotARun
from profiler.device import as_in_table
from profiler.launched import shortened
from profiler.ncu_page import QUANTITIES, TOLD, Page, Quantity
from profiler.once_each import once_each
from profiler.plausible import MAX_CAPABILITY, MAX_LAUNCHES, MAX_TEXT, require_plausible
from profiler.run import HALVES, DeviceInfo, LaunchedKernel, Measurement, Run, spread_of
from profiler.workload import Workload

FAMILY = "ncu"  # before the colon of an imported kernel's name
SOURCE = "ncu"
MAX_NAME, MAX_TITLE = 80, 60
MOST_TOLD = 8  # names in a sentence
ELSEWHERE = "profiled elsewhere: what its loads and stores ask for is not known"
# What Bytescope's own Runs hold beside the counters, and why none that is imported does.
LACKED = {
    "an ncu file holds no bandwidth of copies, a Run of Bytescope's own on that GPU does": (
        ("copy_bytes_per_second", "B/s", "cuda-event"),
        ("l2_copy_bytes_per_second", "B/s", "cuda-event"),
        ("l2_read_bytes_per_second", "B/s", "cuda-event"),
    ),
    "an ncu file holds no energy": (("energy_joules", "J", "nvml"),),
    "an ncu file holds no samples over time": (("hbm_read_bytes", "B", "cupti-sampling"),),
    "ncu sees kernels and no allocator": (
        ("baseline_allocated_bytes", "B", "torch"),
        ("peak_allocated_bytes", "B", "torch"),
        ("allocator_events", "1", "torch"),
    ),
}
ABOUT_GPU = ("device__attribute_display_name", "Device Name")
SM_COUNT, L2_SIZE, PASSES = (
    "device__attribute_multiprocessor_count",
    "device__attribute_l2_cache_size",
    "profiler__replayer_passes",
)
# What ncu's --cache-control does before each kernel.
L2 = {"cold": "L2 flushed before each kernel", "warm": "L2 as the kernel before left it"}
Kernel = tuple[str, ...]


@dataclass(frozen=True)
class Asked:
    """What the file does not tell: the problem that was run, the state of L2, how often the file holds the work.

    `only` keeps kernels whose name holds one of these texts; `name` and `device_name` replace what would be guessed.
    """

    problem: AttentionProblem
    name: str = ""
    only: tuple[str, ...] = ()
    passes: int = 1
    l2: str = "cold"
    device_name: str = ""


def is_imported(kernel: str) -> bool:
    """Whether a kernel's name is one that `imported` gives."""
    return kernel.startswith(f"{FAMILY}:")


def imported(page: Page, asked: Asked) -> Run:
    """The Run of a page. Raises Refused where what is asked does not fit it, NotARun where its numbers cannot be."""
    kernels = _chosen(page, asked.only)
    passes = _passes(page, kernels, asked.passes)
    device = _device(page, kernels, asked.device_name)
    launches = _launches(page, passes[0])
    name = f"{FAMILY}:{_identifier(asked.name or _longest(page, passes[0]))}"
    now = datetime.now(UTC)
    run = Run(
        id=f"{now:%Y%m%dT%H%M%S}-{name.replace(':', '-')[:40]}-{uuid.uuid4().hex[:8]}",
        request=uuid.uuid4().hex,
        created=f"{now:%Y-%m-%dT%H:%M:%SZ}",
        workload=Workload(
            name, asked.problem, None, device.device, l2=asked.l2, repeats=asked.passes, counters=SOURCE, drain=False
        ),
        device=device,
        environment={"imported from": "Nsight Compute, raw page"},
        measurements=(
            *_modelled(asked.problem),
            *_whole(page, passes, asked.l2),
            *_of_launches(page, passes, launches),
            *_lacked(),
        ),
        kernels=tuple(
            LaunchedKernel(launch, _kernel(page, row)) for launch, row in zip(launches, passes[0], strict=True)
        ),
    )
    # Kernels that may each be are together perhaps more than a Run can be.
    require_plausible(run, "run")
    return run


def _chosen(page: Page, only: Sequence[str]) -> list[Kernel]:
    found = [row for row in page.kernels if not only or any(text in _kernel(page, row) for text in only)]
    if not found:
        names = ", ".join(repr(shortened(name)[:60]) for name, _ in _names(page).most_common(MOST_TOLD))
        wanted = " or ".join(map(named, only[:MOST_TOLD])) + (", or others" if len(only) > MOST_TOLD else "")
        raise Refused(f"No kernel's name holds {wanted}; the file has {names}.")
    return found


def _passes(page: Page, kernels: list[Kernel], count: int) -> list[list[Kernel]]:
    """The kernels of each pass. Raises Refused where the file does not hold the work so often."""
    if count < 1 or len(kernels) % count:
        raise Refused(
            f"{len(kernels)} kernels are not {shown(count)} equal passes; say with --passes how often the work ran."
        )
    size = len(kernels) // count
    passes = [kernels[start : start + size] for start in range(0, len(kernels), size)]
    names = [[_kernel(page, row) for row in one] for one in passes]
    if any(other != names[0] for other in names):
        raise Refused(
            f"The kernels are not the same in each of {count} passes; choose some with --only, or fewer passes."
        )
    if size > MAX_LAUNCHES:
        raise Refused(
            f"A pass has {size:,} kernels, and a Run holds up to {MAX_LAUNCHES}; choose some with --only, or say with "
            "--passes how often the work ran."
        )
    return passes


def _names(page: Page) -> Counter[str]:
    return Counter(_kernel(page, row) for row in page.kernels)


def _kernel(page: Page, row: Kernel) -> str:
    return shortened(page.text(row, "Kernel Name"))


def _longest(page: Page, kernels: Sequence[Kernel]) -> str:
    """The kernel that took the longest, or the first where no time is told."""
    time = next(quantity for quantity in QUANTITIES if quantity.name == "gpu_time_seconds")
    return _kernel(page, max(kernels, key=lambda row: page.value(time, row) or 0.0))


def _identifier(name: str) -> str:
    """A name as kernels outside Bytescope are spelled: letters, digits and _, without a C++ signature."""
    named = re.sub(r"^(void|auto)\s+|<unnamed>::|\(anonymous namespace\)::", "", name.strip())
    bare = named.partition("(")[0].partition("<")[0].rpartition("::")[2]
    words = re.sub(r"[^A-Za-z0-9_]+", "_", bare or name).strip("_")[:MAX_TITLE]
    return words if words and not words[0].isdigit() else f"kernel_{words}".rstrip("_")


def _launches(page: Page, kernels: Sequence[Kernel]) -> list[str]:
    """A name for each launch of a pass: its kernel's, and a number where several have it."""
    bare = [_identifier(_kernel(page, row)) for row in kernels]
    seen: Counter[str] = Counter()
    names = []
    for name in bare:
        seen[name] += 1
        names.append(name if bare.count(name) == 1 else f"{name[: MAX_NAME - 8]} {seen[name]}")
    return names


def _modelled(problem: AttentionProblem) -> tuple[Measurement, ...]:
    return (
        Measurement("flops", float(problem.flops), "FLOP", "model", "4 · visible scores · head_dim"),
        Measurement("compulsory_bytes", float(problem.compulsory_bytes), "B", "model", once_each(problem)),
        *(Measurement(name, None, "B", "schedule", ELSEWHERE) for name in HALVES["requested_bytes"]),
    )


def _whole(page: Page, passes: Sequence[Sequence[Kernel]], l2: str) -> list[Measurement]:
    """Each quantity summed over the kernels of a pass: the median of the passes."""
    found = []
    for quantity in QUANTITIES:
        if page.place(quantity) is None:
            if quantity.name in TOLD:
                found.append(_missing(quantity))
            continue
        if unknown := _uncounted(page, quantity, passes):
            found.append(unknown)
            continue
        sums = tuple(sum(page.value(quantity, row) or 0.0 for row in one) for one in passes)
        note = f"{_how(page, quantity, passes)}; summed over {len(passes[0])} kernels; {L2[l2]}"
        found.append(_measured(quantity, sums, note))
    return found


def _of_launches(page: Page, passes: Sequence[Sequence[Kernel]], launches: Sequence[str]) -> list[Measurement]:
    """Each quantity of each kernel, where there are several."""
    if len(launches) < 2:
        return []
    found = []
    for index, launch in enumerate(launches):
        for quantity in QUANTITIES:
            if page.place(quantity) is None:
                continue
            rows = [one[index] for one in passes]
            if unknown := _uncounted(page, quantity, [rows]):
                found.append(replace(unknown, launch=launch))
                continue
            values = tuple(page.value(quantity, row) or 0.0 for row in rows)
            found.append(_measured(quantity, values, _how(page, quantity, passes), launch))
    return found


def _lacked() -> list[Measurement]:
    return [
        Measurement(name, None, unit, source, f"profiled elsewhere, and {reason}")
        for reason, quantities in LACKED.items()
        for name, unit, source in quantities
    ]


def _measured(quantity: Quantity, values: tuple[float, ...], note: str, launch: str | None = None) -> Measurement:
    value = statistics.median(values)
    return Measurement(quantity.name, value, quantity.unit, SOURCE, note, spread_of(values), launch)


def _missing(quantity: Quantity) -> Measurement:
    reason = f"the ncu file has no column {quantity.metrics[0]}"
    return Measurement(quantity.name, None, quantity.unit, SOURCE, reason)


def _uncounted(page: Page, quantity: Quantity, passes: Sequence[Sequence[Kernel]]) -> Measurement | None:
    """What to say of a sum that lacks a kernel; None where every kernel has its number."""
    row = next((row for one in passes for row in one if page.value(quantity, row) is None), None)
    if row is None:
        return None
    column = page.columns[page.place(quantity) or 0]
    reason = f"ncu had no {column} of kernel {page.text(row, 'ID')}: n/a in the file"
    return Measurement(quantity.name, None, quantity.unit, SOURCE, reason)


def _how(page: Page, quantity: Quantity, passes: Sequence[Sequence[Kernel]]) -> str:
    """What was counted, how exactly it was printed, over how many passes, and whether ncu replayed the kernels."""
    place = page.place(quantity)
    unit = "" if place is None else page.units[place]
    words = [quantity.note]
    if unit and not unit.startswith(("byte", "ns", "sector")):
        words.append(f"printed in {unit}, so to a few digits")
    if len(passes) > 1:
        words.append(f"median of {len(passes)} passes")
    replays = max(
        (int(text) for one in passes for row in one if (text := page.text(row, PASSES)).isdecimal()), default=1
    )
    if replays > 1:
        words.append(f"each kernel replayed {replays:,} times")
    return ", ".join(words)


def _device(page: Page, kernels: Sequence[Kernel], name: str) -> DeviceInfo:
    """The GPU that all kernels ran on, as far as page and table of GPUs tell. Raises Refused where it was not one."""
    facts = {(page.text(row, "Device"), page.text(row, "CC")) for row in kernels}
    if len(facts) > 1:
        raise Refused("The kernels ran on several GPUs; keep those of one of them in the file.")
    ((device, capability),) = facts
    match = re.fullmatch(r"(\d{1,2})\.(\d{1,2})", capability, re.ASCII)
    cc = (int(match[1]), int(match[2])) if match else None
    if cc is not None and not 1 <= cc[0] <= MAX_CAPABILITY:
        raise NotARun(f"The compute capability is {capability!r}; no GPU has it.")
    is_index = re.fullmatch(r"\d{1,4}", device, re.ASCII) is not None
    if name and (len(name) > MAX_TEXT or not name.isprintable() or not name.strip()):
        raise Refused(f"--device-name is {shown(name)}; give up to {MAX_TEXT} characters that can be printed.")
    told = name or page.text(kernels[0], *ABOUT_GPU) or ("" if is_index else device)
    guessed = f"GPU of compute capability {capability}" if cc else "GPU that ncu does not name"
    return as_in_table(
        DeviceInfo(
            f"cuda:{int(device)}" if is_index else "cuda:0",
            told or guessed,
            compute_capability=cc,
            sm_count=page.count(kernels[0], SM_COUNT),
            l2_bytes=page.count(kernels[0], L2_SIZE),
        )
    )
