"""What the report says about Runs beside their pages: every measurement, settings, environment."""

from collections.abc import Sequence

from app import style
from app.picture import Table
from profiler.run import Measurement, Run


def measurements(runs: Sequence[Run]) -> tuple[Table, ...]:
    """One table for each Run with every Measurement, in plain SI units, as stored."""
    columns = ("measurement", "launch", "value", "unit", "p20 to p80", "source", "note")
    return tuple(
        Table(
            f"{run.workload.attention_kernel.title}, {run.workload.problem.label}",
            f"Run {run.id} on {run.device.name}, {run.created}{', ' + run.recorded if run.recorded else ''}",
            columns,
            tuple(_row(measurement) for measurement in run.measurements),
        )
        for run in runs
    )


def _row(measurement: Measurement) -> tuple[str, ...]:
    value, spread, unit = measurement.value, measurement.spread, measurement.unit
    return (
        measurement.name,
        measurement.launch or "all",
        "–" if value is None else _exact(value, unit),
        unit,
        "" if spread is None else f"{_exact(spread[0], unit)} to {_exact(spread[1], unit)}",
        measurement.source,
        measurement.note,
    )


def _exact(value: float, unit: str) -> str:
    """A value for a table: whole bytes and operations in full, everything else with six significant digits."""
    return f"{value:,.0f}" if unit in ("B", "FLOP") else f"{value:.6g}"


def settings(runs: Sequence[Run]) -> Table:
    """What each Run was asked for."""
    columns = ("kernel", "problem", "tile", "warps, stages", "device", "L2 before", "launches", "seed", "traced", "Run")
    return Table("Settings", "BLOCK_M × BLOCK_N; traced: batch, head, row", columns, tuple(map(_settings, runs)))


def _settings(run: Run) -> tuple[str, ...]:
    work, tile, trace = run.workload, run.workload.tile, run.workload.trace
    return (
        work.attention_kernel.title,
        work.problem.label,
        "–" if tile is None else f"{tile.BLOCK_M} × {tile.BLOCK_N}, {tile.order}",
        "–" if tile is None else f"{tile.num_warps}, {tile.num_stages}",
        work.device,
        work.l2,
        str(work.repeats),
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
        Table("Environment", f"as found when measured: {_named(group)}", ("what", "found"), facts)
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


def _named(runs: Sequence[Run]) -> str:
    return ", ".join(run.id for run in runs)
