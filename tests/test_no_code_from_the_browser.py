"""Opening a Run, clicking everything and forging what a browser sends imports nothing and measures no own kernel."""

import importlib
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from app import block_jobs
from app.doctor_table import Checkup
from app.registry import all_views
from kernels.own import is_own
from profiler.run import Run
from profiler.run_document import from_json, to_json
from profiler.sweep_job import SweepJob
from tests.fake_runs import H200, THIS_CPU, cpu_run, flash_run
from tests.test_app_main import MAIN, FakeJob, FakeWorker, field_of, gpus, open_app, worker

__all__ = ["worker"]  # a fixture
BAIT = "bytescope_bait"
NAMES = ("os:system", "subprocess:getoutput", f"{BAIT}:attention")
MODULES = {name.partition(":")[0] for name in NAMES}
MOST_CLICKS = 60


def uploaded() -> tuple[Run, ...]:
    """Runs that a file brings, on this machine's devices: of kernels that it names, and of ours beside them."""
    found = [flash_run(), replace(cpu_run(), device=THIS_CPU)]
    for base in tuple(found):
        for kernel in NAMES:
            work = replace(base.workload, kernel=kernel, tile=None, trace=None)
            name = f"{base.id}-{kernel.replace(':', '-')}"
            found.append(replace(base, id=name, workload=work, softmax=None, timeline=None))
    return from_json(to_json(found))


@pytest.fixture
def imported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[list[str]]:
    """Names that importlib was asked for, with a module in the working directory that would be found."""
    (tmp_path / f"{BAIT}.py").write_text("raise SystemExit('A Run has imported this.')\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    asked: list[str] = []
    really = importlib.import_module

    def import_module(name: str, package: str | None = None) -> Any:
        asked.append(name)
        return really(name, package)

    monkeypatch.setattr(importlib, "import_module", import_module)
    yield asked
    assert BAIT not in sys.modules


@pytest.fixture
def swept(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Sweeps, compilations and check-ups that a click has begun; none really begins."""
    begun: list[object] = []
    monkeypatch.setattr(block_jobs, "start_sweep", lambda *what: begun.extend(what[0].given["kernel"]))
    monkeypatch.setattr(block_jobs, "start_compiling", lambda chosen: begun.extend(one.kernel for one in chosen))
    monkeypatch.setattr(Checkup, "start", lambda self: None)
    monkeypatch.setattr(SweepJob, "__init__", lambda *_: pytest.fail("A sweep has begun."))
    return begun


def page_of(view: str, runs: object) -> None:
    import importlib as libraries

    from app import form, session

    session.select(runs)  # type: ignore[arg-type]
    form.prepare()
    form.draw()
    libraries.import_module(f"app.views.{view}").render(session.current())


def permitted_of(jobs: list[FakeJob]) -> None:
    """No Job may import anything, and none is of an own kernel."""
    for job in jobs:
        assert job.permit.names == ()
        assert not [workload.kernel for workload in job.workloads if is_own(workload.kernel)]


@pytest.mark.parametrize("view", [view.__name__.rpartition(".")[2] for view in all_views()])
def test_no_button_of_any_page_imports_what_an_opened_run_names(
    worker: FakeWorker,
    monkeypatch: pytest.MonkeyPatch,
    imported: list[str],
    swept: list[object],
    view: str,
) -> None:
    gpus(monkeypatch, H200)
    told = {"view": view, "runs": uploaded()}
    at = AppTest.from_function(page_of, default_timeout=60, kwargs=told).run()
    assert not at.exception, at.exception
    keys = [button.key for button in at.button if not button.disabled and button.key]
    assert len(keys) < MOST_CLICKS
    for key in keys:
        found = [button for button in at.button if button.key == key and not button.disabled]
        if found:
            found[0].click().run()
            assert not at.exception, key
        for job in worker.jobs:
            job.stop()
    permitted_of(worker.jobs)
    assert not [name for name in swept if is_own(str(name))]
    assert not {*imported} & MODULES


@pytest.mark.parametrize("kernel", NAMES)
def test_a_forged_choice_of_the_form_is_refused(
    worker: FakeWorker,
    imported: list[str],
    kernel: str,
) -> None:
    at = open_app()
    kernels = f"form.{at.session_state['form-turn']}.kernels"
    at.session_state[kernels] = [kernel]
    at.run()
    for button in [button for button in at.button if button.key == "run" and not button.disabled]:
        button.click().run()
    permitted_of(worker.jobs)
    assert field_of(at, "checkbox", "causal") is not None  # the form is still there
    assert not {*imported} & MODULES


def test_what_stands_in_the_address_is_no_choice(worker: FakeWorker, imported: list[str]) -> None:
    at = AppTest.from_file(MAIN, default_timeout=30)
    for name in ("kernel", "kernels", "own", "page", "run", "form.0.kernels"):
        at.query_params[name] = f"{BAIT}:attention"
    at.run()
    assert not at.exception
    at.button(key="run").click().run()
    permitted_of(worker.jobs)
    assert [work.kernel for work in worker.jobs[0].workloads] == ["naive", "flash"]
