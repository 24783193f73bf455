"""The faults that a worker may meet: each a way to bring it about for real, and what the user is told then."""

import os
import signal
from collections.abc import Callable

from benchmarks.memory_limit import NoLimit, limited
from benchmarks.worker_scene import PATIENCE, Fault, NotHere, Scene, wait_for
from profiler.job import Job, JobStatus
from profiler.proc_stat import STATE, fields
from tests import faults

HANG_TIMEOUT = 2.0  # that a Run which hangs is given
FREE_BYTES = 256 * 2**20  # that a process may still allocate before the OOM killer strikes

KILLED = r"the worker process was killed by SIGKILL \(the system may be out of memory\)"
AGAIN = r"Run again: a fresh one takes over\."
DOCTOR = r"If that dies too, `python -m profiler doctor` tells which source does it\."
FREE = r"Choose a smaller problem or free some memory; run again\."
PHASE = r"flash \(phase: (interpret|compile)\)"


def _in_flash(fault: str, timeout: float = PATIENCE) -> Callable[[Scene], JobStatus]:
    def act(scene: Scene) -> JobStatus:
        return scene.broken(fault, timeout=timeout)[0].wait(PATIENCE)

    return act


def _killed_in_mid_run(scene: Scene) -> JobStatus:
    pid = scene.pid
    job, note = scene.broken("sleep", "naive", "flash")
    wait_for(note.exists)
    os.kill(pid, signal.SIGKILL)
    return job.wait(PATIENCE)


def _killed_while_idle(scene: Scene) -> None:
    os.kill(scene.pid, signal.SIGKILL)


def _killed_between_two_runs(scene: Scene) -> JobStatus:
    pid = scene.pid

    class Killed(Job):
        def _count(self, run_id: str) -> None:
            super()._count(run_id)
            if len(self.status().run_ids) == 1:
                os.kill(pid, signal.SIGKILL)

    return Killed(scene.worker, scene.workloads("naive", "flash"), PATIENCE).wait(PATIENCE)


def _stopped_while_idle(scene: Scene) -> None:
    pid = scene.pid
    os.kill(pid, signal.SIGSTOP)
    wait_for(lambda: fields(pid)[STATE] == "T")


def _context_lost(scene: Scene) -> JobStatus:
    return _in_flash("illegal address" if scene.on_gpu else "fake illegal address")(scene)


def _oom_killed(scene: Scene) -> JobStatus:
    try:
        with limited(scene.pid, FREE_BYTES):
            return _in_flash("eat memory")(scene)
    except NoLimit as reason:
        raise NotHere(str(reason)) from None


def _spoiled(how: str) -> Callable[[Scene], JobStatus]:
    def act(scene: Scene) -> JobStatus:
        scene.ask(faults.spoil_answer, how)
        return scene.submit("flash").wait(PATIENCE)

    return act


def _planted(plant: Callable[[], None]) -> Callable[[Scene], JobStatus]:
    def act(scene: Scene) -> JobStatus:
        scene.ask(plant)
        return scene.submit("flash").wait(PATIENCE)

    return act


KEPT = "The Run of flash is kept, but then"
MISSING = r"Run again what is missing\."
STOPPED = rf"{PHASE} was stopped after 2 s\. Choose a smaller problem or a longer time-out\."
FAULTS = (
    Fault(
        "killed in mid Run",
        "kill -9 while the second of two kernels ran",
        rf"{PHASE} ended: {KILLED}\. {AGAIN}",
        _killed_in_mid_run,
    ),
    Fault("killed while idle", "kill -9 between two Jobs", "", _killed_while_idle),
    Fault("killed between two Runs", "kill -9 between two Runs of a Job", "", _killed_between_two_runs, is_kept=True),
    Fault(
        "segmentation fault in a counter's library",
        "libcupti was made to write to address 8 while it counted",
        rf"flash \(phase: crash\) ended: the worker process was killed by SIGSEGV\. {AGAIN} {DOCTOR}",
        _planted(faults.plant_source),
    ),
    Fault(
        "CUDA context lost",
        "a kernel wrote 2⁴³ elements too far (on the CPU: torch.cuda fails as after that)",
        r"flash lost its CUDA context: .*illegal memory access.*\. Run again: a fresh worker takes over\.",
        _context_lost,
    ),
    Fault(
        "no memory for a tensor",
        "torch was asked for 32 TiB",
        rf"{PHASE} ran out of (GPU )?memory: .* Choose a shorter sequence, fewer heads or only flash\.",
        _in_flash("out of memory"),
    ),
    Fault(
        "the kernel's OOM killer",
        "the process took 2 GiB in a control group with 256 MiB left",
        rf"{PHASE} ended: the worker process was killed by the system, which ran out of memory\. {FREE}",
        _oom_killed,
    ),
    Fault("hang in Python", "the kernel slept, with a time-out of 2 s", STOPPED, _in_flash("sleep", HANG_TIMEOUT)),
    Fault(
        "hang in C, with the GIL held",
        "libc's sleep through ctypes.PyDLL, with a time-out of 2 s",
        STOPPED,
        _in_flash("hang in C", HANG_TIMEOUT),
    ),
    Fault(
        "stopped in mid Run",
        "kill -STOP while the kernel ran",
        rf"{PHASE} ended: the worker process was stopped by a signal and had not gone on after 2 s\. {AGAIN}",
        _in_flash("stop"),
    ),
    Fault("stopped while idle", "kill -STOP between two Jobs", "", _stopped_while_idle),
    Fault(
        "killed while saving",
        "kill -9 when the Run's file was half written",
        rf"flash \(phase: [a-z]+\) ended: {KILLED}\. {AGAIN}",
        _planted(faults.die_while_saving),
    ),
    Fault(
        "death while sending the answer",
        "kill -9 when half of it was in the pipe",
        rf"{KEPT} {KILLED}; a fresh one takes over\. {MISSING}",
        _spoiled("cut off"),
        is_kept=True,
    ),
    Fault(
        "an answer that cannot be sent",
        "the answer was a lambda",
        rf"{KEPT} its answer cannot be sent \(.*\)\. {MISSING}",
        _spoiled("never sent"),
        is_kept=True,
    ),
    Fault(
        "an answer too large",
        "the answer had 65 MiB",
        rf"{KEPT} its answer has 65 MiB, and at most 64 MiB are taken\. {MISSING}",
        _spoiled("huge"),
        is_kept=True,
    ),
    Fault(
        "a Run too large for its file",
        "the Run had 65 MiB in a part that cannot be left out",
        r"The Run of flash is not saved: The file is 6\d MiB; Run files stay under 64 MiB\. Please report this line\.",
        _planted(faults.measure_too_much),
    ),
)
