"""A Worker's process and its line: what is told of it, who is hurt by its end, and how long it is waited for."""

import os
import socket
import time
from concurrent.futures import CancelledError, TimeoutError
from typing import Any

import pytest

from kernels.own_fault import KernelFault
from kernels.problem import Refused
from profiler import child, gpu_lock, task_process
from profiler.gpu_errors import ContextLost
from profiler.task_pipe import TaskFailed, answer_to, order_of, read_answer, receive, send
from profiler.task_process import LONGEST_LOOK, SILENT_SECONDS, Ended, StoodStill, TaskProcess, Watch
from profiler.worker import Worker
from tests.faults import Unreadable, answer_unreadably, fork_and_die, leave_the_line, throw

PATIENCE = 60.0


def pid_of(worker: Worker) -> int:
    return int(worker.schedule(os.getpid).result(PATIENCE))


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (TimeoutError("of a library"), "TimeoutError: of a library"),
        (CancelledError(), "CancelledError, without a word"),
        (KeyboardInterrupt(), "KeyboardInterrupt, without a word"),
        (SystemExit(3), "SystemExit: 3"),
        (
            UnicodeDecodeError("utf-8", b"\xff", 0, 1, "no"),
            "UnicodeDecodeError: 'utf-8' codec can't decode byte 0xff in ",
        ),
        (socket.gaierror(2, "no name"), "gaierror: [Errno 2] no name"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_a_library_raises_comes_as_its_words(cpu_worker: Worker, error: BaseException, told: str) -> None:
    """As itself it would be taken for the worker's own time-out, for Stop, or not be read at all."""
    pid = pid_of(cpu_worker)
    with pytest.raises(TaskFailed) as failed:
        cpu_worker.schedule(throw, error).result(PATIENCE)
    assert str(failed.value).startswith(told)
    assert pid_of(cpu_worker) == pid


@pytest.mark.parametrize(
    "error", [Refused("no"), MemoryError("no"), KernelFault("no", "trace"), ContextLost("no", "trace")], ids=repr
)
def test_what_is_ours_comes_as_itself(error: BaseException) -> None:
    message, is_last = answer_to(order_of(throw, (error,)))
    went_well, found = read_answer(message)
    assert (went_well, type(found), str(found)) == (False, type(error), "no")
    assert getattr(found, "trace", "") == getattr(error, "trace", "")
    assert is_last == isinstance(error, ContextLost)


def test_an_answer_and_an_order_that_cannot_be_read(cpu_worker: Worker) -> None:
    pid = pid_of(cpu_worker)
    with pytest.raises(TaskFailed, match=r"^its answer cannot be read \(AssertionError: it is read elsewhere\)$"):
        cpu_worker.schedule(answer_unreadably).result(PATIENCE)
    with pytest.raises(TaskFailed, match=r"^AssertionError: it is read elsewhere$"):
        cpu_worker.schedule(throw, Unreadable()).result(PATIENCE)
    assert pid_of(cpu_worker) == pid


def test_an_order_that_cannot_be_sent(cpu_worker: Worker) -> None:
    with pytest.raises(TaskFailed, match=r"^it cannot be sent to the worker's process \(AttributeError: Can't pickle "):
        cpu_worker.schedule(lambda: 1).result(PATIENCE)


def test_messages_are_whole_or_none() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        send(ours, b"first")
        send(ours, b"")
        ours.sendall((10).to_bytes(8, "big") + b"half")
        assert (receive(theirs), receive(theirs)) == (b"first", b"")
        theirs.settimeout(0.01)
        with pytest.raises(TimeoutError):
            receive(theirs)
        ours.close()
        with pytest.raises(EOFError):
            receive(theirs)


def test_nobody_reads_what_is_sent() -> None:
    ours, theirs = socket.socketpair()
    looks = []

    def look() -> None:
        looks.append(1)
        if len(looks) == 3:
            raise StoodStill

    with ours, theirs:
        ours.settimeout(0.01)
        with pytest.raises(StoodStill):
            send(ours, b"x" * 2**24, look)


def test_a_process_that_leaves_its_line(cpu_worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task_process, "END_SECONDS", 0.5)
    pid = pid_of(cpu_worker)
    with pytest.raises(Ended, match=r"^broke off its line to Bytescope$"):
        cpu_worker.schedule(leave_the_line).result(PATIENCE)
    assert pid_of(cpu_worker) != pid


def test_a_process_that_dies_and_leaves_a_fork_of_itself(cpu_worker: Worker) -> None:
    """What it was spoken to with stays open in the fork."""
    pid = pid_of(cpu_worker)
    with pytest.raises(Ended) as ended:
        cpu_worker.schedule(fork_and_die).result(PATIENCE / 3)
    assert ended.value.exitcode == -9 and pid_of(cpu_worker) != pid


def test_a_task_that_is_cancelled_before_its_turn_costs_nothing(cpu_worker: Worker) -> None:
    pid = pid_of(cpu_worker)
    busy = cpu_worker.schedule(time.sleep, 0.5)
    waiting = [cpu_worker.schedule(os.getpid) for _ in range(3)]
    waiting[1].cancel()
    assert busy.result(PATIENCE) is None
    assert [waiting[0].result(PATIENCE), waiting[2].result(PATIENCE), pid_of(cpu_worker)] == [pid] * 3


def test_a_task_that_is_cancelled_as_it_ends_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may have taken the GPU's lock, which nobody would give back."""
    ended: list[object] = []

    class Quick:
        def __init__(self, device: str) -> None: ...

        def do(self, order: bytes, timeout: float | None, future: Any) -> tuple[bool, int]:
            if not ended:
                future.cancel()
            return True, len(ended)

        def end(self) -> None:
            ended.append(self)

    monkeypatch.setattr("profiler.worker.TaskProcess", Quick)
    worker = Worker("cpu")
    with pytest.raises(CancelledError):
        worker.schedule(os.getpid).result(PATIENCE)
    assert worker.schedule(os.getpid).result(PATIENCE) == 1
    worker.stop()
    assert len(ended) == 2


def test_the_system_makes_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(device: str) -> TaskProcess:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr("profiler.worker.TaskProcess", fail)
    worker = Worker("cpu")
    worker.start()
    end = time.monotonic() + PATIENCE
    while worker.why_not is None:
        assert time.monotonic() < end
        time.sleep(0.01)
    assert worker.why_not == (
        "The worker cannot start: the system makes no process for it (BlockingIOError: [Errno 11] Resource temporarily "
        "unavailable). End other programs, and run again."
    )
    worker.stop()


def test_only_who_holds_a_gpu_lets_go_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two Jobs of one Worker, one that never got the lock, or lost it with its process, leaves the other's alone."""
    released: list[str] = []

    class Lock:
        def release(self) -> None:
            released.append("once")

    monkeypatch.setattr(gpu_lock, "held_here", lambda device: Lock())
    for holder in (None, os.getppid()):
        child.unlock("cuda:0", holder)
    assert released == []
    child.unlock("cuda:0", os.getpid())
    assert released == ["once"]


def looks_of(monkeypatch: pytest.MonkeyPatch, *steps: float, state: str = "S") -> Watch:
    """A Watch that is allowed 5 s, after a look at the end of each step of so many seconds."""
    now = [100.0]
    monkeypatch.setattr(task_process.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(Watch, "_is_stopped", lambda self: state == "T")
    watch = Watch(1, lambda: False, lambda: False)
    watch.allow(5.0)
    for step in steps:
        now[0] += step
        watch.look()
    return watch


def test_a_time_out_counts_what_passes_while_somebody_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    looks_of(monkeypatch, *[0.5] * 9)
    with pytest.raises(TimeoutError):
        looks_of(monkeypatch, *[0.5] * 10)
    # Ctrl-Z has stopped this process and the worker's for an hour.
    looks_of(monkeypatch, 3_600.0, *[0.5] * int((5.0 - LONGEST_LOOK) / 0.5 - 1))


def test_one_that_is_stopped_is_waited_for_a_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = int(SILENT_SECONDS / 0.25)
    looks_of(monkeypatch, *[0.25] * looks, state="T")
    with pytest.raises(StoodStill):
        looks_of(monkeypatch, *[0.25] * (looks + 1), state="T")
