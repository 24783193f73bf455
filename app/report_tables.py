"""What the report says about Runs beside their pages: every measurement, settings, environment."""

from collections.abc import Callable, Mapping, Sequence

from app import style
from app.asked import asked
from app.launch_chart import launch_title
from app.picture import Table
from app.report_parts import folded, table
from app.traffic_tables import flag
from profiler.run import HELD, Measurement, Run

# Memory that is held, in powers of 1024; other bytes moved, in powers of 1000.
SPELL: Mapping[str, Callable[[float], str]] = {
    "B": style.traffic,
    "B/s": style.bandwidth,
    "s": style.seconds,
    "FLOP": lambda value: style.flop_rate(value).removesuffix("/s"),
    "1": style.error,
    "%": lambda value: f"{style.significant(value)}%",
    "Hz": lambda value: f"{style.significant(value / 1e9)} GHz",
}


def measurements(name: str, run: Run) -> str:
    """Every Measurement of a Run as one table, folded on screen and open on paper; notes are footnotes, as HTML."""
    columns = ("measurement", "launch", "value", "source", "exact", "20th to 80th percentile")
    rows = tuple(map(_row, run.measurements))
    reasons = tuple(("", "", flag(run, m) or m.note, "", "", "") for m in run.measurements)
    about = f"{len(rows)} measurements of Run {run.id} on {run.device.name}, {run.created}"
    return folded(name, about, table(Table(name, "", columns, rows, reasons)), "printed")


def spelled(name: str, unit: str, value: float | None) -> str:
    """A Measurement's value with three significant digits and its unit; a dash without one."""
    if value is None:
        return "–"
    if unit == "1" and value == int(value):
        return f"{value:,.0f}"  # a count
    spell = style.capacity if name in HELD else SPELL.get(unit, lambda v: f"{style.significant(v)} {unit}")
    return spell(value)


def _row(measurement: Measurement) -> tuple[str, ...]:
    value, spread, unit = measurement.value, measurement.spread, measurement.unit
    return (
        measurement.name,
        launch_title(measurement.launch) if measurement.launch else "whole",
        spelled(measurement.name, unit, value),
        measurement.source,
        "" if value is None else _exact(value, unit),
        "" if spread is None else f"{_exact(spread[0], unit)} to {_exact(spread[1], unit)}",
    )


def _exact(value: float, unit: str) -> str:
    """A value in full: whole bytes, operations and hertz, six significant digits of the rest."""
    number = f"{value:,.0f}" if unit in ("B", "FLOP", "Hz") else f"{value:.6g}"
    return number if unit == "1" else f"{number}%" if unit == "%" else f"{number} {unit}"


def settings(runs: Sequence[Run]) -> tuple[Table, ...]:
    """What each Run was asked for, and of those on a GPU how they were to be measured."""
    columns = ("kernel", "problem", "tile", "warps, stages", "device", "seed", "traced", "Run")
    caption = "Tile: BLOCK_M × BLOCK_N; traced: batch, head, row."
    what = Table("Settings", caption, columns, tuple(map(_settings, runs)))
    measured = [
        (run.workload.attention_kernel.title, asked(run.workload), run.id) for run in runs if run.workload.on_gpu
    ]
    if not measured:
        return (what,)
    heads = ("kernel", *measured[0][1], "Run")
    rows = tuple((kernel, *how.values(), run_id) for kernel, how, run_id in measured)
    return what, Table("How it was measured", "L2: its state before each pass.", heads, rows)


def _settings(run: Run) -> tuple[str, ...]:
    work, tile, trace = run.workload, run.workload.tile, run.workload.trace
    return (
        work.attention_kernel.title,
        work.problem.label,
        "–" if tile is None else f"{tile.BLOCK_M}\u00a0×\u00a0{tile.BLOCK_N}, {tile.order}",
        "–" if tile is None else f"{tile.num_warps}, {tile.num_stages}",
        work.device,
        str(work.seed),
        "–" if trace is None else f"{trace.batch}, {trace.head}, {'last' if trace.row is None else trace.row}",
        run.id,
    )


def environment(runs: Sequence[Run]) -> tuple[Table, ...]:
    """One table for each different environment: device, driver and versions; None is shown as a dash."""
    found: dict[tuple[tuple[str, str], ...], list[Run]] = {}
    for run in runs:
        found.setdefault((*_device(run), *run.environment.items()), []).append(run)
    return tuple(
        Table("Environment", f"as found when measured: {_named(group, runs)}", ("what", "found"), facts)
        for facts, group in found.items()
    )


def _device(run: Run) -> tuple[tuple[str, str], ...]:
    device, capability = run.device, run.device.compute_capability
    return (
        ("device", f"{device.name} ({device.device})"),
        ("driver", device.driver or "–"),
        ("compute capability", "–" if capability is None else f"{capability[0]}.{capability[1]}"),
        ("SMs", "–" if device.sm_count is None else str(device.sm_count)),
        ("memory", style.capacity(device.memory_bytes)),
        ("L2", style.capacity(device.l2_bytes)),
        ("shared memory per CTA", style.capacity(device.shared_memory_per_block)),
        ("peak HBM bandwidth", _sourced(style.bandwidth(device.peak_hbm_bytes_per_second), device.peak_hbm_source)),
        ("peak FLOP/s", _sourced(style.flop_rate(device.peak_flops_per_second), device.peak_flops_source)),
    )


def _sourced(text: str, source: str) -> str:
    return f"{text} ({source})" if source else text


def _named(group: Sequence[Run], runs: Sequence[Run]) -> str:
    return "the same for all Runs" if len(group) == len(runs) > 1 else ", ".join(run.id for run in group)
