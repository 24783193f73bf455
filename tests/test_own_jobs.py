"""Own kernels through the real worker and the command line: permitted, failing, hanging, and beside others."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import TimeoutError
from pathlib import Path
from typing import Any

import pytest
from pebble import ProcessFuture

from kernels.problem import AttentionProblem, TileConfig
from profiler import child
from profiler.gpu_errors import ContextLost
from profiler.interpreter import why_not_interpreted
from profiler.own_job import told_of, trace_of
from profiler.own_kernel import FRAMES, NO_OWN, NOBODY, Permit, on_cpu
from profiler.store import load
from profiler.worker import Job, JobStatus, Worker
from profiler.workload import CPU, Workload, workloads
from tests.command_line import answer_to
from tests.test_own_kernel import EAGER

PROBLEM = AttentionProblem(1, 2, 2, 40, 40, 16, "float32")
PATIENCE = 60.0
MODULE = (
    EAGER
    + """
import time


def raises(q, k, v, causal):
    return inner(q)


def inner(q):
    raise ValueError("no tile")


def hangs(q, k, v, causal):
    while True:
        time.sleep(0.01)


def spoiled(*inputs):
    return eager(*inputs) * torch.nan


def doubled(*inputs):
    return eager(*inputs) * 2
"""
)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The working directory, with mine.py in it."""
    home = tmp_path / "home"
    home.mkdir()
    (home / "mine.py").write_text(MODULE)
    monkeypatch.chdir(home)
    yield home


def measured(worker: Worker, *names: str, timeout: float = PATIENCE, permit: Permit | None = None) -> JobStatus:
    chosen = workloads(names, PROBLEM, TileConfig(16, 16), CPU)
    permit = Permit.here(*(name for name in names if ":" in name)) if permit is None else permit
    status = worker.submit(chosen, timeout, permit).wait(PATIENCE)
    assert status.is_over, status
    return status


def kernels_of(status: JobStatus, runs: Path) -> list[str]:
    return [load(runs / f"{run_id}.json")[0].workload.kernel for run_id in status.run_ids]


def test_only_what_is_permitted_is_imported(cpu_worker: Worker, folder: Path) -> None:
    (folder / "trap.py").write_text(f"open({str(folder / 'sprung')!r}, 'w').close()\n{EAGER}")
    for permit in (NOBODY, Permit.here("mine:eager")):
        status = measured(cpu_worker, "trap:eager", "flash", permit=permit)
        assert (status.state, status.run_ids) == ("refused", ())
        assert status.error.startswith("trap:eager may not be imported here: name it on the command line")
    assert not (folder / "sprung").exists()
    assert measured(cpu_worker, "trap:eager").state == "done"
    assert (folder / "sprung").exists()
    # A permit lasts for its Job.
    assert measured(cpu_worker, "trap:eager", permit=NOBODY).state == "refused"


def test_one_that_raises_costs_none_of_the_others(cpu_worker: Worker, runs: Path, folder: Path) -> None:
    status = measured(cpu_worker, "mine:raises", "flash", "mine:eager")
    assert status.state == "failed" and kernels_of(status, runs) == ["flash", "mine:eager"]
    assert status.error == "mine:raises raised ValueError: no tile."
    lines = status.trace.splitlines()
    assert lines[0] == "Traceback (most recent call last):" and lines[-1] == "ValueError: no tile"
    assert f'  File "{folder / "mine.py"}", line 16, in inner' in lines
    assert not any("own_forward" in line for line in lines)


def test_one_that_hangs_is_told_with_where_it_stands(cpu_worker: Worker, runs: Path, folder: Path) -> None:
    status = measured(cpu_worker, "mine:hangs", "flash", timeout=4.0)
    assert status.state == "failed" and kernels_of(status, runs) == ["flash"]
    assert status.error == (
        "mine:hangs (phase: interpret) was stopped after 4 s. Choose a smaller problem or a longer time-out."
    )
    assert status.trace.splitlines()[0] == "Where it stood when it was stopped (most recent call last):"
    assert f'File "{folder / "mine.py"}", line ' in status.trace and status.trace.endswith("in hangs")


def test_one_that_does_not_import_costs_none_of_the_others(cpu_worker: Worker, runs: Path, folder: Path) -> None:
    (folder / "broken.py").write_text("1 / 0")
    status = measured(cpu_worker, "flash", "broken:f", "mine:raises")
    assert status.state == "failed" and kernels_of(status, runs) == ["flash"]
    assert status.error == (
        "The module broken does not import: ZeroDivisionError: division by zero. "
        "mine:raises raised ValueError: no tile."
    )
    assert "broken.py" in status.trace and "mine.py" in status.trace


def test_where_none_can_begin_all_is_refused(cpu_worker: Worker, folder: Path) -> None:
    (folder / "broken.py").write_text("1 / 0")
    status = measured(cpu_worker, "broken:f", "mine:absent")
    assert (status.state, status.run_ids) == ("refused", ())
    assert status.error.startswith("The module broken does not import: ZeroDivisionError: division by zero. The module")
    assert "broken.py" in status.trace


def test_a_file_that_was_edited_is_measured_as_it_is_now(cpu_worker: Worker, runs: Path, folder: Path) -> None:
    errors = []
    for factor in (1, 2):
        (folder / "edited.py").write_text(EAGER + f"def f(*inputs): return eager(*inputs) * {factor}")
        status = measured(cpu_worker, "edited:f")
        errors.append(load(runs / f"{status.run_ids[0]}.json")[0].value("relative_error"))
    assert errors[0] == pytest.approx(0, abs=1e-6) and errors[1] == pytest.approx(1, abs=1e-6)


LEFT_BEHIND = """
import os, sys


def interrupts(*inputs):
    raise KeyboardInterrupt


class Mute(Exception):
    def __str__(self):
        sys.exit(3)


def mute(*inputs):
    raise Mute


def leaves(*inputs):
    os._exit(0)


def breaks_torch(*inputs):
    o = eager(*inputs)
    torch.set_default_device("meta")
    torch.Tensor.double = lambda self: 1 / 0
    sys.modules.pop("torch")
    return o
"""


def test_what_ends_a_thread_or_a_process_ends_only_its_kernel(cpu_worker: Worker, runs: Path, folder: Path) -> None:
    (folder / "odd.py").write_text(EAGER + LEFT_BEHIND)
    status = measured(cpu_worker, "odd:interrupts", "odd:mute", "odd:leaves", "flash")
    assert status.state == "failed" and kernels_of(status, runs) == ["flash"]
    assert status.error == (
        "odd:interrupts raised KeyboardInterrupt, without a word. odd:mute raised Mute, without a word. "
        "odd:leaves (phase: interpret) ended: the worker process left with exit code 0. Run again: a "
        "fresh one takes over."
    )


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("import os\nos._exit(0)", "odd:f did not import, for the worker process left with exit code 0; see what the"),
        ("raise KeyboardInterrupt", "The module odd does not import: KeyboardInterrupt, without a word."),
        (f"{LEFT_BEHIND}\nraise Mute", "The module odd does not import: Mute, without a word."),
    ],
)
def test_what_ends_a_thread_or_a_process_at_import(cpu_worker: Worker, folder: Path, text: str, told: str) -> None:
    (folder / "odd.py").write_text(text)
    status = measured(cpu_worker, "odd:f")
    assert status.state == "refused" and status.error.startswith(told), status


def test_what_it_does_to_its_process_ends_with_it(cpu_worker: Worker, runs: Path, folder: Path) -> None:
    """Within its Job and after it, whatever becomes of its own Run."""
    (folder / "odd.py").write_text(EAGER + LEFT_BEHIND)
    status = measured(cpu_worker, "odd:breaks_torch", "flash", "odd:eager")
    assert kernels_of(status, runs)[-2:] == ["flash", "odd:eager"] and status.error.count("odd:") <= 1
    after = measured(cpu_worker, "flash")
    assert (after.state, after.error) == ("done", "")
    for run_id in (*status.run_ids[-2:], *after.run_ids):
        assert 0 < (load(runs / f"{run_id}.json")[0].value("relative_error") or 0) < 1e-6


def test_what_a_module_does_at_import_is_not_there_for_others(cpu_worker: Worker, runs: Path, folder: Path) -> None:
    (folder / "odd.py").write_text(EAGER + "torch.Tensor.double = lambda self: 1 / 0")
    status = measured(cpu_worker, "flash", "mine:eager", "odd:eager")
    assert kernels_of(status, runs) == ["flash", "mine:eager"] and "ZeroDivisionError" in status.error


def test_a_module_that_breaks_torch_at_import_is_told_alone(cpu_worker: Worker, runs: Path, folder: Path) -> None:
    (folder / "odd.py").write_text("import sys\nsys.modules.pop('torch')\nimport torch")
    status = measured(cpu_worker, "odd:f", "flash")
    assert kernels_of(status, runs) == ["flash"] and status.error.startswith("The module odd does not import: Runtime")


class Elsewhere(Worker):
    """A Worker whose child answers with this."""

    answer: BaseException = KeyboardInterrupt()

    def schedule(self, *_: Any, **__: Any) -> Any:
        future: ProcessFuture[Any] = ProcessFuture()
        future.set_exception(self.answer)
        return future


@pytest.mark.parametrize("answer", [KeyboardInterrupt(), SystemExit(0), GeneratorExit()])
def test_whatever_reaches_the_thread_of_a_job_ends_it_with_a_sentence(
    monkeypatch: pytest.MonkeyPatch, answer: BaseException
) -> None:
    monkeypatch.setattr(Elsewhere, "answer", answer)
    status = measured(Elsewhere(CPU), "flash")
    assert status.state == "failed" and type(answer).__name__ in status.error


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_job_whose_thread_is_dead_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Job, "_follow", lambda _: 1 / 0)
    assert measured(Elsewhere(CPU), "flash") == JobStatus("failed", "flash", error=Job.LOST)


LINE = ("run", "--seq-len", "40", "--head-dim", "16", "--dtype", "float32", "--device", "cpu")


@pytest.mark.parametrize(
    ("kernel", "code", "told"),
    [
        ("mine:eager", 0, ""),
        ("mine:raises", 1, "mine:raises raised ValueError: no tile.\nTraceback (most recent call last):\n"),
        (
            "mine:spoiled",
            1,
            "mine:spoiled has no error against float64: O holds NaN or infinity (against",
        ),
        (
            "mine:doubled",
            1,
            "The output of mine:doubled is wrong: relative error 1 against float64 attention, and rounding explains",
        ),
        ("mine:absent", 2, "The module mine has no absent; it has eager, raises, inner, hangs, spoiled, doubled.\n"),
        ("absent:f", 2, "There is no module absent in "),
        ("mine:f.g", 2, "Kernel 'mine:f.g' is not spelled as one of your own is: module:function, such as "),
    ],
)
def test_the_command_line(
    cpu_worker: Worker,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    kernel: str,
    code: int,
    told: str,
) -> None:
    answer = answer_to((*LINE, "--kernel", kernel), monkeypatch, capsys)
    assert answer.code == code and answer.err.startswith(told)
    assert bool(told) == bool(answer.err)


def test_the_command_line_measures_those_that_import(
    cpu_worker: Worker, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    answer = answer_to((*LINE, "--kernel", "absent:f", "--kernel", "mine:eager"), monkeypatch, capsys)
    assert answer.code == 1 and "Saved as" in answer.out
    assert answer.err.startswith("There is no module absent in ")


def test_what_a_kernel_prints_is_not_on_stdout(folder: Path, runs: Path) -> None:
    (folder / "loud.py").write_text(EAGER + "def loud(*inputs):\n    print('tile 1')\n    return eager(*inputs)")
    command = [sys.executable, "-m", "profiler", *LINE, "--kernel", "loud:loud", "--json"]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=True)
    (line,) = done.stdout.splitlines()
    assert json.loads(line)["runs"][0]["workload"]["kernel"] == "loud:loud"
    assert "tile 1" in done.stderr


def test_a_module_that_hangs_while_it_is_imported(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    (folder / "slow.py").write_text("import time\ntime.sleep(600)")
    worker = Worker(CPU)
    try:
        worker.schedule(child.import_torch).result(PATIENCE)
        monkeypatch.setattr("profiler.job.START_TIMEOUT", 2.0)
        status = measured(worker, "slow:f", "flash")
    finally:
        worker.stop()
    assert (status.state, status.run_ids) == ("refused", ())
    assert status.error == "slow:f did not import within 2 s; see what the module does when it is imported."


def test_a_sweep_and_a_schedule_refuse_it(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    answer = answer_to(("schedule", "--kernel", "mine:eager"), monkeypatch, capsys)
    assert (answer.code, answer.err) == (
        2,
        "What mine:eager asks for shows when it runs: use `run --kernel mine:eager`.\n",
    )
    answer = answer_to(("sweep", "--kernel", "mine:eager", "--out", "sweep"), monkeypatch, capsys)
    assert answer.code == 2 and "A sweep takes Bytescope's kernels; measure mine:eager with" in answer.err


ON_GPU = Workload("mine:eager", PROBLEM, None, "cuda:0")


def asked(answer: object) -> Any:
    """The CPU's worker, which answers or raises this."""

    def ask(function: object, *arguments: object, timeout: float) -> object:
        if function is child.import_torch:
            return None
        assert (function, arguments) == (child.interpret, (on_cpu(ON_GPU), Permit()))
        if isinstance(answer, BaseException):
            raise answer
        return answer

    return ask


def test_on_a_gpu_it_is_interpreted_beside(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("profiler.own_kernel.why_not_interpreted", lambda: None)
    told = told_of(ON_GPU, Permit(), 5.0, asked(("measured",)))
    assert (told.beside, told.seconds) == (("measured",), 5.0)
    assert on_cpu(ON_GPU).device == CPU
    for error, reason in (
        (TimeoutError(), "mine:eager (phase: interpret) was stopped after 60 s"),
        (ValueError("no"), "mine:eager (phase: interpret) failed: ValueError: no"),
    ):
        found = told_of(ON_GPU, Permit(), 5.0, asked(error)).beside
        assert [m.value for m in found] == [None, None] and found[0].note.startswith(reason)
    assert told_of(Workload("naive", PROBLEM, None, "cuda:0"), Permit(), 5.0, asked(())) is NO_OWN
    assert told_of(Workload("mine:eager", PROBLEM, None, CPU), Permit(), 5.0, asked(())).beside == ()


def test_why_it_is_not_interpreted_beside(monkeypatch: pytest.MonkeyPatch) -> None:
    large = Workload("mine:eager", AttentionProblem(1, 16, 16, 8192, 8192, 128), None, "cuda:0")
    monkeypatch.setattr("profiler.own_kernel.why_not_interpreted", lambda: None)
    # 4 · 16 · 8192² · 128 FLOP are 524,288 steps of 64×64×64, at 6 ms each.
    (reason, _) = (m.note for m in told_of(large, Permit(), 5.0, asked(())).beside)
    assert reason.startswith("to interpret this problem would take roughly 52 minutes; run a smaller one")
    monkeypatch.setattr("profiler.own_kernel.why_not_interpreted", lambda: "it is broken")
    assert told_of(ON_GPU, Permit(), 5.0, asked(())).beside[0].note == "it is broken"


def test_what_the_interpreter_sees_in_another_process(cpu_worker: Worker) -> None:
    assert why_not_interpreted() is None
    permit = Permit(["examples.own_triton:two_pass"], str(Path(__file__).parents[1]))  # type: ignore[arg-type]
    work = Workload("examples.own_triton:two_pass", PROBLEM, None, CPU)
    read, written = cpu_worker.schedule(child.interpret, work, permit).result(PATIENCE)
    # Two Q tiles of 32 read 40 rows of K twice and of V once, and Q once: 2 heads of 16 float32.
    assert (read.value, written.value) == (2 * (40 + 2 * 3 * 40) * 16 * 4, 2 * 40 * 16 * 4)
    assert {read.source, written.source} == {"interpreter"}


def test_traces_that_are_none(tmp_path: Path) -> None:
    progress = tmp_path / "progress.json"
    assert trace_of(TimeoutError(), progress) == ""
    (tmp_path / FRAMES).write_text('Thread 0x1 (most recent call first):\n  File "/x/other.py", line 1 in wait\n')
    assert trace_of(TimeoutError(), progress) == ""
    assert trace_of(ValueError("x"), progress) == ""
    assert trace_of(ContextLost("x", "Traceback of a lost context"), progress) == "Traceback of a lost context"


EXAMPLES = ("examples.own_triton:two_pass", "examples.own_tiled:streamed", "examples.own_flex:documents")
HERE = Permit(EXAMPLES, str(Path(__file__).parents[1]))


@pytest.fixture
def gpu_worker() -> Iterator[Worker]:
    worker = Worker("cuda:0")
    yield worker
    worker.stop()


@pytest.mark.gpu
def test_the_examples_on_a_gpu(gpu_worker: Worker, runs: Path) -> None:
    problem = AttentionProblem(1, 8, 8, 2048, 2048, 64, causal=True)
    chosen = workloads((*EXAMPLES, "flash"), problem, TileConfig(64, 64), "cuda:0", repeats=5)
    status = gpu_worker.submit(chosen, 300.0, HERE).wait(600.0)
    assert (status.state, status.error) == ("done", "")
    for run in (load(runs / f"{run_id}.json")[0] for run_id in status.run_ids):
        assert 0 < (run.value("relative_error") or 0) < 2e-3, run.workload.kernel
        assert 1e-6 < (run.value("gpu_time_seconds") or 0) < 1e-1
        assert (run.value("kernels_launched") or 0) >= 1 or run.kernels
        # Inputs and O are there at least; with a counter, what moved is at least the inputs.
        assert (run.value("peak_allocated_bytes") or 0) >= problem.compulsory_bytes
        read = run.value("hbm_read_bytes")
        assert read is None or read > 0.9 * sum(problem.tensor_bytes[name] for name in "qkv")
        if run.workload.kernel in EXAMPLES[:2]:
            named = {kernel.kernel for kernel in run.kernels}
            assert any("two_pass_kernel" in name or "streamed_kernel" in name for name in named)
    tiled = load(runs / f"{status.run_ids[1]}.json")[0]
    assert (tiled.workload.like, tiled.workload.tile) == ("flash without lse", TileConfig(64, 64))


@pytest.mark.gpu
def test_a_lost_context_keeps_its_sentence_and_the_next_kernel_is_measured(
    gpu_worker: Worker, runs: Path, folder: Path
) -> None:
    (folder / "far.py").write_text(
        EAGER
        + """
from tests.far_away import write_far_away


def far(q, k, v, causal):
    write_far_away[(1,)](q)
    torch.cuda.synchronize()
    return q
"""
    )
    chosen = workloads(("far:far", "flash"), PROBLEM, TileConfig(16, 16), "cuda:0", repeats=2)
    permit = Permit(("far:far",), str(folder))
    status = gpu_worker.submit(chosen, PATIENCE, permit).wait(240.0)
    assert status.state == "failed" and kernels_of(status, runs) == ["flash"]
    assert status.error.startswith("far:far lost its CUDA context: far:far raised ")
    assert "in far" in status.trace
