"""Two compared Runs side by side on shared axes: kinds of bytes, time, peak memory, launches, bandwidth over time."""

from collections.abc import Callable, Sequence

from app.bandwidth import bandwidth_over_time
from app.bars import Axis, Bar, Group, bars
from app.four_kinds import FOUR_KINDS, Bytes
from app.peak_check import possible_hbm
from app.picture import Picture
from app.selection import Comparison
from app.style import LIBRARY, Theme, capacity, kernel_colour, seconds, traffic
from app.traffic_pictures import by_launch
from profiler.compare import Compared
from profiler.run import Measurement, Run

TIME_UNITS = {"s": 1.0, "ms": 1e-3, "µs": 1e-6, "ns": 1e-9}
MEMORY_UNITS = {"TiB": 2.0**40, "GiB": 2.0**30, "MiB": 2.0**20, "KiB": 2.0**10, "B": 1.0}


def pictures(compared: Compared, theme: Theme) -> tuple[Picture, ...]:
    """Every picture that at least one of both Runs has something for."""
    both = Comparison((compared.before, compared.after), compared.names)
    over_time = bandwidth_over_time(both, theme)
    found = (
        _kinds(compared, theme),
        _single(compared, "gpu_time_seconds", theme),
        _single(compared, "peak_allocated_bytes", theme),
        by_launch(both, theme) if any(possible_hbm(run).value is not None for run in both.runs) else None,
        over_time if isinstance(over_time, Picture) else None,
    )
    return tuple(picture for picture in found if picture is not None)


def colours(compared: Compared, theme: Theme) -> tuple[str, str]:
    """The kernels' colours; grey for the first where both would have the same."""
    one, other = (kernel_colour(run.workload.kernel, theme) for run in (compared.before, compared.after))
    return (one, other) if one != other else (LIBRARY, other if other != LIBRARY else "#3B6FB6")


def _named(compared: Compared, theme: Theme) -> list[tuple[str, Run, str]]:
    return list(zip(compared.names, (compared.before, compared.after), colours(compared, theme), strict=True))


def _kinds(compared: Compared, theme: Theme) -> Picture:
    groups: list[Group] = []
    sources: list[str] = []
    kinds: dict[str, Callable[[Run], Bytes]] = FOUR_KINDS | {"HBM": possible_hbm}
    for kind, read in kinds.items():
        row = []
        for name, run, colour in _named(compared, theme):
            part = read(run)
            # Named once, in the first group: beside the longest bars there is room for the number alone.
            row.append(
                Bar("" if groups else name, part.value, traffic(part.value), colour, part.is_measured, part.reason)
            )
            sources += [part.source] if part.value is not None else []
        groups.append(Group(kind, tuple(row)))
    caption = "Solid: measured. Hatched: closed form or schedule. A dash: not measured, the reason is on hover."
    chart = bars(groups, Axis("bytes, log axis", is_log=True), theme)
    return Picture("Four kinds of bytes", caption, chart, tuple(dict.fromkeys(sources)))


def _single(compared: Compared, name: str, theme: Theme) -> Picture | None:
    """One quantity of both Runs on one axis from 0; None where neither tells it."""
    title, caption, spell, units = _SINGLE[name]
    found = [(*item, item[1].find(name)) for item in _named(compared, theme)]
    values = [part.value for *_, part in found if part is not None and part.value is not None]
    if not values:
        return None
    groups = []
    for label, _, colour, part in found:
        value, reason = (None, "This Run does not hold it.") if part is None else (part.value, part.note)
        spread = None if part is None else part.spread
        groups.append(Group(label, (Bar("", value, spell(value), colour, True, reason, spread=spread),)))
    unit = spell(max(values)).rpartition(" ")[2]
    chart = bars(groups, Axis(f"{title.lower()}, {unit}", units[unit]), theme)
    return Picture(title, caption, chart, _sources([part for *_, part in found]))


def _sources(found: Sequence[Measurement | None]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(part.source for part in found if part is not None and part.value is not None))


_SINGLE: dict[str, tuple[str, str, Callable[[float | None], str], dict[str, float]]] = {
    "gpu_time_seconds": ("Time", "Median; the whisker spans the 20th to the 80th percentile.", seconds, TIME_UNITS),
    "peak_allocated_bytes": ("Peak memory", "By torch's allocator, at its highest.", capacity, MEMORY_UNITS),
}
