"""Runs in a terminal: each reason for a dash is there once, with the kernels that it is about."""

from collections.abc import Sequence
from dataclasses import replace

from rich.text import Text

from profiler.run import Measurement, Run
from profiler.show import runs_table
from tests.fake_runs import cpu_run


def of(kernel: str, *found: Measurement) -> Run:
    run = cpu_run()
    return replace(run, workload=replace(run.workload, kernel=kernel, trace=None), measurements=found)


def peak(value: float | None, note: str = "") -> Measurement:
    return Measurement("predicted_peak_bytes", value, "B", "model", note)


def lines(runs: Sequence[Run]) -> list[str]:
    """Those below the table."""
    caption = runs_table(runs).caption
    assert isinstance(caption, Text)
    return caption.plain.splitlines()


def test_a_dash_beside_a_value_keeps_its_reason() -> None:
    unseen = [Measurement(f"requested_{way}_bytes", None, "B", "interpreter", "too large") for way in ("read", "write")]
    own, flash = of("my:attention", peak(None, "not known"), *unseen), of("flash", peak(4e6))
    assert lines((own,)) == [
        "–  predicted_peak_bytes by model: not known",
        "–  requested_read_bytes, requested_write_bytes by interpreter: too large",
    ]
    assert lines((own, flash)) == [
        "–  predicted_peak_bytes by model of attention: not known",
        "–  requested_read_bytes, requested_write_bytes by interpreter of attention: too large",
    ]


def test_two_reasons_for_one_quantity() -> None:
    runs = of("a:one", peak(None, "why")), of("b:two", peak(None, "why")), of("c:three", peak(None, "another"))
    assert lines(runs) == [
        "–  predicted_peak_bytes by model of one, two: why",
        "–  predicted_peak_bytes by model of three: another",
    ]
    assert lines(runs[:2]) == ["–  predicted_peak_bytes by model: why"]
