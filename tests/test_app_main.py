"""The whole application in Streamlit's test harness, with a worker and a GPU feed that do nothing by themselves."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
import streamlit as st
from streamlit.testing.v1 import AppTest

import app.devices
import app.form
import app.progress
import app.session
import app.views.live_gpu
from app.owners import Page
from app.registry import all_views
from profiler.job_queue import JobQueue
from profiler.own_kernel import Permit
from profiler.run import DeviceInfo, Run
from profiler.store import save
from profiler.worker import JobStatus
from profiler.workload import Workload
from tests.fake_runs import H200, cpu_run, flash_run, naive_run

MAIN = str(Path(__file__).resolve().parent.parent / "app" / "main.py")


@dataclass
class FakeJob:
    """A Job whose status the test sets."""

    workloads: tuple[Workload, ...]
    timeout: float
    permit: Permit
    now: JobStatus = field(default_factory=JobStatus)

    def status(self) -> JobStatus:
        return self.now

    def stop(self, why: str = "Stopped. Runs that were finished are kept.") -> None:
        self.now = replace(self.now, state="stopped", error=why)

    def wait(self) -> JobStatus:
        return self.now


@dataclass
class FakeWorker:
    """A worker that keeps its Jobs."""

    jobs: list[FakeJob] = field(default_factory=list)
    why_not: str | None = None
    queue: JobQueue = field(default_factory=JobQueue)

    def start(self) -> None:
        pass

    def submit(self, workloads: tuple[Workload, ...], timeout: float, permit: Permit) -> FakeJob:
        self.jobs.append(FakeJob(workloads, timeout, permit))
        return self.jobs[-1]


@dataclass
class FakeFeed:
    """A feed of a machine with the given GPUs and no readings."""

    gpus: tuple[DeviceInfo, ...] = ()

    @property
    def why_no_gpu(self) -> str | None:
        return None if self.gpus else "NVML does not start: Driver Not Loaded."

    def devices(self) -> tuple[DeviceInfo, ...]:
        return self.gpus

    def latest(self, device: str) -> None:
        return None


@pytest.fixture
def worker(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[FakeWorker]:
    """An empty store, no GPU, and a worker that does nothing."""
    fake = FakeWorker()
    monkeypatch.setenv("BYTESCOPE_RUNS", str(tmp_path))
    for module in (app.form, app.session):
        monkeypatch.setattr(module, "worker_for", lambda device: fake)
    gpus(monkeypatch)
    st.cache_resource.clear()
    yield fake
    st.cache_resource.clear()


def gpus(monkeypatch: pytest.MonkeyPatch, *found: DeviceInfo) -> None:
    for module in (app.devices, app.views.live_gpu):
        monkeypatch.setattr(module, "feed", lambda: FakeFeed(found))


def open_app() -> AppTest:
    at = AppTest.from_file(MAIN, default_timeout=30).run()
    assert not at.exception
    return at


def form_value(at: AppTest, field: str) -> object:
    return at.session_state[f"form.{at.session_state['form-turn']}.{field}"]


def field_of(at: AppTest, kind: str, field: str) -> Any:
    """A field's widget; kind is Streamlit's name for it."""
    return getattr(at, kind)(key=f"form.{at.session_state['form-turn']}.{field}")


def preset(at: AppTest) -> Any:
    return next(box for box in at.selectbox if box.label == "Preset")


def html(at: AppTest) -> str:
    return " ".join(element.proto.body for element in at.get("html"))


def test_without_a_gpu_it_starts_on_the_cpu_with_a_small_default_and_says_so(worker: FakeWorker) -> None:
    at = open_app()
    assert form_value(at, "device") == "cpu"
    assert preset(at).value == "Small, for a CPU"
    assert "No GPU: kernels are interpreted on the CPU" in html(at)
    assert "Press Run to see where attention&#x27;s bytes go." in html(at)
    assert at.session_state["problem"].seq_len_q == 512, "what pages show of schedules before anything has run"


def test_with_a_gpu_it_starts_there(worker: FakeWorker, monkeypatch: pytest.MonkeyPatch) -> None:
    gpus(monkeypatch, H200)
    at = open_app()
    assert form_value(at, "device") == "cuda:0"
    assert preset(at).value == "16 heads, 8K"
    assert "NVIDIA H200 · idle" in html(at)


def test_run_hands_the_form_to_the_worker(worker: FakeWorker) -> None:
    at = open_app()
    field_of(at, "selectbox", "BLOCK_M").set_value(128).run()
    at.button(key="run").click().run()
    (job,) = worker.jobs
    assert [workload.kernel for workload in job.workloads] == ["naive", "flash"]
    assert job.workloads[1].tile is not None and job.workloads[1].tile.BLOCK_M == 128
    assert job.timeout == 120.0


def test_an_impossible_request_disables_run_and_says_why(worker: FakeWorker) -> None:
    at = open_app()
    field_of(at, "number_input", "kv_heads").set_value(3).run()
    assert at.button(key="run").disabled
    assert "kv_heads 3 does not divide heads 2; choose one of 1, 2." in html(at)


def test_a_preset_fills_the_form_and_a_change_makes_it_custom(worker: FakeWorker) -> None:
    at = open_app()
    preset(at).set_value("Llama-style 8K").run()
    assert (field_of(at, "number_input", "kv_heads").value, field_of(at, "checkbox", "causal").value) == (8, True)
    assert at.button(key="run").disabled, "a CPU would take minutes"
    field_of(at, "number_input", "batch").set_value(2).run()
    assert (preset(at).value, field_of(at, "number_input", "kv_heads").value) == ("Custom", 8)
    preset(at).set_value("Small, for a CPU").run()
    assert (preset(at).value, field_of(at, "number_input", "batch").value) == ("Small, for a CPU", 1)
    assert form_value(at, "timeout") == 120.0, "what a preset does not name stays"


def test_the_first_finished_run_is_shown_while_the_second_still_runs(worker: FakeWorker) -> None:
    at = open_app()
    at.button(key="run").click().run()
    naive, flash = naive_run(), flash_run()
    save(naive)
    worker.jobs[0].now = JobStatus("running", "flash", "compile", 4, 8, 2.0, (naive.id,))
    at.run()
    assert at.session_state["current"] == (naive,)
    assert "Naive moved 13.09 GB through HBM: 98 times the compulsory bytes." in html(at)
    save(flash)
    worker.jobs[0].now = JobStatus("done", "flash", "done", 8, 8, 3.0, (naive.id, flash.id))
    at.run()
    assert "Naive moved 13.09 GB through HBM. Flash moved 0.135 GB: 97 times less." in html(at)
    assert at.session_state["job"] is None


def test_a_failure_shows_its_sentence_and_keeps_earlier_results(worker: FakeWorker) -> None:
    save(cpu_run())
    at = open_app()
    at.button(key="run").click().run()
    worker.jobs[0].now = JobStatus("failed", "flash", error="flash (phase: time) ran out of GPU memory.")
    at.run()
    assert '<p class="bs-message error" role="alert">flash (phase: time) ran out of GPU memory.</p>' in html(at)
    assert at.session_state["current"] == (cpu_run(),)
    at.button(key="dismiss").click().run()
    assert "ran out of GPU memory" not in html(at)


def test_the_traceback_of_an_own_kernel_is_folded_below_its_sentence(worker: FakeWorker) -> None:
    at = open_app()
    at.button(key="run").click().run()
    # Only what the project file names may be imported; there is no such file here.
    assert worker.jobs[0].permit.names == ()
    trace = "Traceback (most recent call last):\n<b>ValueError</b>"
    worker.jobs[0].now = JobStatus("failed", "mine:f", error="mine:f raised ValueError: <b>.", trace=trace)
    at.run()
    assert "mine:f raised ValueError: &lt;b&gt;." in html(at)
    (box,) = (box for box in at.expander if box.label == "Traceback")
    assert not box.proto.expanded and box.code[0].value == trace
    at.button(key="dismiss").click().run()
    assert not any(box.label == "Traceback" for box in at.expander)


def test_stop_ends_the_job(worker: FakeWorker) -> None:
    at = open_app()
    at.button(key="run").click().run()
    at.button(key="stop").click().run()
    assert worker.jobs[0].now.state == "stopped"
    assert "Stopped. Runs that were finished are kept." in html(at)


def test_a_reloaded_page_takes_up_the_running_job(worker: FakeWorker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app.session, "this_page", lambda: Page("a session", "a browser"))
    open_app().button(key="run").click().run()
    monkeypatch.setattr(Page, "is_open", False)
    again = open_app()
    assert again.session_state["job"] is worker.jobs[0]
    assert again.button(key="stop")


def test_after_a_restart_the_newest_request_is_there(worker: FakeWorker) -> None:
    for run in (cpu_run(), naive_run(), flash_run()):
        save(run)
    assert open_app().session_state["current"] == (naive_run(), flash_run())


def test_a_worker_that_cannot_start_says_why(worker: FakeWorker) -> None:
    worker.why_not = "The worker ended: torch is not installed."
    assert "The worker ended: torch is not installed." in html(open_app())


@pytest.mark.parametrize(
    "runs", [(), (naive_run(),), (flash_run(),), (cpu_run(),), (naive_run(), flash_run(), cpu_run())]
)
@pytest.mark.parametrize("view", [view.__name__.rpartition(".")[2] for view in all_views()])
def test_every_page_draws_any_selection(worker: FakeWorker, view: str, runs: tuple[Run, ...]) -> None:
    def script(view: str, runs: object) -> None:
        import importlib

        importlib.import_module(f"app.views.{view}").render(runs)

    at = AppTest.from_function(script, default_timeout=30, kwargs={"view": view, "runs": runs}).run()
    assert not at.exception
    assert html(at).count("<h1>") == 1


def test_a_page_that_fails_is_a_sentence_there(worker: FakeWorker, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(runs: tuple[Run, ...]) -> None:
        raise ValueError("<b>odd</b>")

    monkeypatch.setattr("app.views.overview.render", fail)
    at = open_app()
    assert "Overview cannot be drawn (ValueError: &lt;b&gt;odd&lt;/b&gt;)." in html(at)


def test_the_page_shows_the_place_in_the_queue(worker: FakeWorker) -> None:
    at = open_app()
    at.button(key="run").click().run()
    worker.jobs[0].now = JobStatus(kernel="flash", ahead=2, seconds=12.4)
    at.run()
    assert "<time>12 s</time>" in html(at) and "Number 3 in the queue: 2 Jobs before yours<" in html(at)
    worker.jobs[0].now = JobStatus(kernel="flash", ahead=1)
    at.run()
    assert "Number 2 in the queue: 1 Job before yours<" in html(at)
    assert at.button(key="stop")


def test_who_has_asked_for_nothing_is_told_of_the_queue_and_can_join_it(worker: FakeWorker) -> None:
    assert "Another session" not in html(open_app())
    worker.queue.join("a Job of another session")
    at = open_app()
    assert "Another session is measuring; a Run that you start now is number 2 in the queue." in html(at)
    assert not at.button(key="run").disabled
    worker.queue.join("one more")
    assert "Another session is measuring and 1 more waits; a Run that you start now is number 3" in html(open_app())


@pytest.mark.parametrize(
    ("status", "told"),
    [
        (JobStatus(kernel="flash", seconds=3), "flash: waiting for the worker, 3 s"),
        (
            JobStatus("waiting", "flash", "wait for the GPU, on which process 7 of this host measures", seconds=3),
            "flash: wait for the GPU, on which process 7 of this host measures, 3 s",
        ),
        (JobStatus("running", "flash", "time", 3, 8, 1.23), "flash: time, 3 of 8 steps, 1.2 s"),
    ],
)
def test_where_a_job_stands(status: JobStatus, told: str) -> None:
    assert app.progress.words(status) == told
