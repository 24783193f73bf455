"""float16, bfloat16 and float32 side by side: which Runs belong together, and when they may be started."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import pytest
from streamlit.testing.v1 import AppTest

from app import run_again, session
from app.softmax_dtypes import alike, chart, table, wanted
from app.softmax_recording import recording
from app.softmax_traced import missing, traced
from app.style import LIGHT
from kernels.base import all_kernels
from profiler.run import DeviceInfo, Measurement, Run
from profiler.worker import DEFAULT_TIMEOUT
from profiler.workload import Workload
from tests.fake_runs import H200, SMALL, THIS_CPU, cpu_run, flash_run, naive_run


def of_dtype(dtype: str, created: str, **changes: object) -> Run:
    """cpu_run in another dtype."""
    run = cpu_run(replace(SMALL, dtype=dtype), run_id=f"fake-{dtype}-{created}")
    return replace(run, created=created, workload=replace(run.workload, **changes))  # type: ignore[arg-type]


def test_runs_that_differ_in_dtype_alone_belong_together() -> None:
    half, brain, single = (of_dtype(name, f"2026-01-0{day}") for day, name in enumerate(DTYPES, start=1))
    older, seeded = of_dtype("float16", "2025-01-01"), of_dtype("bfloat16", "2026-01-09", seed=1)
    everything = (single, older, seeded, half, brain, naive_run(), flash_run())
    assert alike(half, everything) == (half, brain, single)
    assert alike(older, everything) == (older, brain, single), "the Run shown stays, though another is newer"
    assert alike(seeded, everything) == (seeded,)


DTYPES = ("float16", "bfloat16", "float32")


def test_the_same_workload_in_every_dtype() -> None:
    run = cpu_run()
    found = wanted(run)
    assert [one.problem.dtype for one in found] == list(DTYPES)
    assert found[2] == run.workload
    assert {(one.kernel, one.tile, one.trace, one.seed) for one in found} == {
        (run.workload.kernel, run.workload.tile, run.workload.trace, run.workload.seed)
    }


def test_table_and_bars_hold_the_largest_differences() -> None:
    half, single = of_dtype("float16", "2026-01-01"), of_dtype("float32", "2026-01-02")
    half = replace(half, measurements=(Measurement("relative_error", None, "1", "torch", "too long to check"),))
    found = table((half, single))
    assert [row[0] for row in found.rows] == ["float16", "float32"]
    assert found.rows[1][4] == "2.1e-7" and found.sources[1][4] == "torch"
    assert found.rows[0][4] == "–" and found.reasons[0][4] == "too long to check"
    figure = chart((half, single), LIGHT)
    assert list(figure.layout.yaxis.ticktext) == ["m, absolute", "l, relative", "|acc|, relative", "O, relative"]
    assert all("B" not in tick for tick in figure.layout.xaxis.ticktext), "no bytes"


def test_runs_are_offered_by_dtype_where_there_are_several() -> None:
    half, single = of_dtype("float16", "2026-01-01"), of_dtype("float32", "2026-01-02")
    assert [one.name for one in traced((single, half, flash_run(), naive_run()))][:1] == ["flash"]
    assert [one.name for one in traced((half, single))] == ["flash, float32", "flash, float16"]
    assert traced(()) == [] and recording(naive_run()) is None


def test_what_to_run_is_every_kernel_that_records() -> None:
    names = [kernel.name for kernel in all_kernels().values() if kernel.has_trace]
    assert "flash" in names and all(name in missing() for name in names) and "naive" not in missing()


@dataclass
class Desk:
    """A machine without a Job, and the Jobs that were started on it."""

    started: list[tuple[tuple[Workload, ...], float]]


@pytest.fixture
def desk(monkeypatch: pytest.MonkeyPatch) -> Iterator[Desk]:
    found = Desk([])
    monkeypatch.setattr(run_again, "devices", lambda: {"cpu": THIS_CPU})
    monkeypatch.setattr(run_again, "free_bytes", lambda device: 2**34)
    monkeypatch.setattr(session, "job", lambda: None)
    monkeypatch.setattr(session, "start", lambda workloads, timeout: found.started.append((workloads, timeout)))
    yield found


def test_a_run_of_this_machine_may_be_repeated(desk: Desk) -> None:
    assert run_again.check(cpu_run(), wanted) == (wanted(cpu_run()), "")


@pytest.mark.parametrize(
    ("device", "reason"),
    [
        (H200, "This Run was made on NVIDIA H200; cuda:0 is not here. Run the problem here first."),
        (replace(THIS_CPU, name="Another CPU"), "This Run was made on Another CPU; Two-core CPU is here. Run the"),
    ],
)
def test_a_run_of_another_machine_may_not(desk: Desk, device: DeviceInfo, reason: str) -> None:
    run = replace(cpu_run(), device=device, workload=replace(cpu_run().workload, device=device.device))
    assert run_again.check(run, wanted)[1].startswith(reason)


def test_nothing_starts_beside_a_job_or_without_memory(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_again, "free_bytes", lambda device: 1000)
    assert "GiB free" in run_again.check(cpu_run(), wanted)[1]
    monkeypatch.setattr(session, "job", lambda: object())
    assert run_again.check(cpu_run(), wanted)[1] == "A Job is running; wait for it or stop it."


def _card() -> None:
    import streamlit as st

    from app import softmax_dtype_card
    from app.style import LIGHT

    softmax_dtype_card.draw(st.session_state.run_shown, st.session_state.runs, LIGHT)


def test_the_button_starts_all_three(desk: Desk) -> None:
    app = AppTest.from_function(_card, default_timeout=30)
    app.session_state["run_shown"], app.session_state["runs"] = cpu_run(), (cpu_run(),)
    app.run()
    assert not app.exception
    app.button(key="softmax.run-dtypes").click().run()
    assert desk.started == [(wanted(cpu_run()), DEFAULT_TIMEOUT)]


def test_with_all_three_there_is_nothing_to_start(desk: Desk) -> None:
    runs = tuple(of_dtype(name, f"2026-01-0{day}") for day, name in enumerate(DTYPES, start=1))
    app = AppTest.from_function(_card, default_timeout=30)
    app.session_state["run_shown"], app.session_state["runs"] = runs[0], runs
    app.run()
    assert not app.exception and not app.button and len(app.get("plotly_chart")) == 1
