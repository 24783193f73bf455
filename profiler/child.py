"""The worker's side: what runs inside the child process of one device, told apart by what torch must see first."""

import dataclasses
import faulthandler
import os
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernels.own import is_own
from kernels.own_fault import RefusedKernel, said_by, together
from kernels.problem import Refused, TileConfig
from profiler import gpu_lock, lock_holder, progress_note
from profiler.admission import admit
from profiler.device import cpu_device, cpu_free_bytes, detect, limits
from profiler.gpu_errors import errors_told
from profiler.interpreter import why_not_interpreted
from profiler.orphans import end_with_parent
from profiler.own_kernel import FRAMES, NO_OWN, NOBODY, Own, Permit, as_imported, seen
from profiler.plausible import printable
from profiler.rescue import rescue
from profiler.run import DeviceInfo, Measurement, Run
from profiler.store import RunRefused, StoreError, save
from profiler.trace_plan import plan_trace
from profiler.workload import CPU, Workload

if TYPE_CHECKING:
    from profiler.audit_grid import Subject
    from profiler.audit_rows import Found
    from profiler.measure import Progress

MOST_WORDS = 300  # of what a library says
WAIT = "wait for the GPU"  # how the phase begins in which another process has it


class CannotStart(RuntimeError):
    """A worker's process could not be made ready; the message says why and what to do."""


def start(device: str) -> None:
    """Prepare a fresh process: the environment that torch and Triton read when they are imported.

    It imports neither, for nobody times what is done here; import_torch is a task, with a time-out.
    """
    if device == CPU:
        os.environ["TRITON_INTERPRET"] = "1"
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
    else:
        os.environ.pop("TRITON_INTERPRET", None)
        # NVML counts by PCI bus; so must CUDA, or two GPUs trade places.
        os.environ["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
    # The last line of the parent's stdout is a document; what a kernel prints goes where errors go.
    with suppress(OSError):  # a server may have closed both
        os.dup2(2, 1)
    sys.stdout = sys.stderr
    # A pool of compiling processes could outlive this one.
    os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"
    end_with_parent()


def words_of(error: BaseException, most: int = MOST_WORDS) -> str:
    """What an error says on one line, its type before it."""
    text, name = printable(said_by(error), most).strip(), type(error).__name__
    return f"{name}: {text}" if text else f"{name}, without a word"


def import_torch() -> None:
    """Import what measuring needs; at once where that is done. Raises CannotStart."""
    try:
        import profiler.measure  # noqa: F401
    # A broken torch may raise anything: also SystemExit, and what cannot be sent to the parent.
    except BaseException as error:
        words = words_of(error).rstrip(" .")
        raise CannotStart(f"The worker cannot start: {words}; install the versions of requirements.txt.") from None


def warm_up(device: str) -> DeviceInfo:
    """Be ready to measure, and tell the device's facts. Raises CannotStart or, where there is no device, Refused."""
    import_torch()
    return describe(device)


def describe(device: str) -> DeviceInfo:
    """Facts of the device: NVML's, completed by what torch knows. Raises Refused where it does not exist."""
    import torch

    if device == CPU:
        return cpu_device()
    index = int(device.removeprefix("cuda:"))
    count = torch.cuda.device_count()
    if index >= count:
        raise Refused(f"There is no GPU {device} here ({count} found); choose device cpu, or open a recorded Run.")
    torch.cuda.set_device(index)
    facts: Any = torch.cuda.get_device_properties(index)
    known = next((info for info in detect() if info.device == device), DeviceInfo(device, facts.name))
    return dataclasses.replace(
        known,
        memory_bytes=facts.total_memory,
        compute_capability=(facts.major, facts.minor),
        sm_count=facts.multi_processor_count,
        l2_bytes=facts.L2_cache_size or known.l2_bytes,
        shared_memory_per_block=getattr(facts, "shared_memory_per_block_optin", None) or known.shared_memory_per_block,
        shared_memory_per_sm=getattr(facts, "shared_memory_per_multiprocessor", None) or known.shared_memory_per_sm,
        warps_per_sm=facts.max_threads_per_multi_processor // facts.warp_size,
    )


def admit_all(workloads: tuple[Workload, ...], permit: Permit = NOBODY) -> dict[str, tuple[str, str]]:
    """Raise Refused if one of them cannot run here now; nothing has been started then.

    `permit` says which own kernels may be imported; without it none may. Of those that cannot even begin, where others
    can, sentence and traceback by name.
    """
    permit.give()
    faults: dict[str, tuple[str, str]] = {}
    # Own ones last: what their modules do to this process when they are imported is to harm nobody else.
    for asked in sorted(workloads, key=lambda workload: is_own(workload.kernel)):
        try:
            workload = as_imported(asked) if is_own(asked.kernel) else asked
        except RefusedKernel as fault:
            faults[asked.kernel] = (str(fault), fault.trace)
            continue
        device, kernel, tile = describe(workload.device), workload.attention_kernel, workload.tile or TileConfig()
        if not workload.on_gpu and kernel.is_triton and (reason := why_not_interpreted()):
            raise Refused(f"{kernel.title} cannot run without a GPU here: {reason}.")
        gpu = limits(device)
        admit(workload, device, gpu, free_bytes(workload.device))
        if workload.trace is not None:
            plan_trace(workload.problem, tile, workload.trace, kernel.schedule(workload.problem, tile))
        if gpu is not None and kernel.refuse_shared_memory is not None:
            kernel.refuse_shared_memory(workload.problem, tile, gpu, kernel.shared_memory(workload.problem, tile))
    if faults.keys() == {workload.kernel for workload in workloads}:
        raise RefusedKernel(*together(faults.values()))
    return faults


def free_bytes(device: str) -> int | None:
    """Memory that a new tensor could take: the device's free bytes and what torch holds without using it."""
    import torch

    if device == CPU:
        return cpu_free_bytes()
    free, _ = torch.cuda.mem_get_info(device)
    return free + torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)


def lock(device: str, progress_file: str) -> int | None:
    """Wait until no other process of this host measures on the GPU; the system drops the lock if this one dies.

    Each `lock` wants its own `unlock`, which is told what this returns; Jobs of one process may hold it together, since
    they take turns anyway. Raises Refused where the device does not exist.
    """
    if device == CPU:
        return None
    describe(device)

    def tell(holder: int | None) -> None:
        who = "another process of this host" if holder is None else f"process {holder} of this host"
        progress_note.write(Path(progress_file), phase=f"{WAIT}, on which {who} measures", done=0, total=1)

    progress_note.write(Path(progress_file), phase=WAIT, done=0, total=1)
    lock_holder.acquire(device, tell)
    return os.getpid()


def unlock(device: str, holder: int | None) -> None:
    """Let other processes measure; nothing happens unless this process is the holder, for the lock went with that."""
    if holder == os.getpid() and (held := gpu_lock.held_here(device)) is not None:
        held.release()
        # Others look every POLL_SECONDS; a process with Job after Job would be back before they do.
        time.sleep(1.2 * gpu_lock.POLL_SECONDS)


def measure_and_save(
    workload: Workload, request: str, folder: str, progress_file: str, run_id: str | None = None, own: Own = NO_OWN
) -> str:
    """Measure one Workload, write its Run to `folder` at once, and return the Run's id, a new one where none is given.

    Raises ContextLost, after which this process is of no more use, and KernelFault for an own kernel that fails.
    """
    from profiler.measure import measure

    own.permit.give()
    with _measuring(workload.device, progress_file) as progress, _frames_told(Path(progress_file), own.seconds):
        run = measure(workload, describe(workload.device), request, progress, run_id, own.beside)
    return _save(run, Path(folder))


def audit_loads(
    subjects: "tuple[Subject, ...]", device: str, sources: frozenset[str], progress_file: str
) -> "tuple[Found, ...]":
    """What these sources find of an audit's subjects on a GPU; the referee is asked alone, and for all of them at once.

    Raises ContextLost, after which this process is of no more use.
    """
    from profiler.audit_limits import REFEREE
    from profiler.audit_measure import by_referee, by_sources

    with _measuring(device, progress_file) as progress:
        info = describe(device)
        if sources == {REFEREE}:
            progress("referee", 0, 1)
            return by_referee(subjects, info)
        return tuple(by_sources(subject, info, sources, progress) for subject in subjects)


def interpret(workload: Workload, permit: Permit) -> tuple[Measurement, ...]:
    """What an own kernel asks for, from one interpreted launch on the CPU. Raises Refused and KernelFault."""
    import torch

    from profiler.bench import Bench
    from profiler.tile_trace import traced_accesses

    permit.give()
    with torch.inference_mode(), traced_accesses() as trace:
        Bench(as_imported(workload), describe(workload.device)).launch()
    return seen(trace)


@contextmanager
def _frames_told(progress_file: Path, seconds: float | None) -> Iterator[None]:
    """Where the block takes so many seconds, less a little, write where every thread stands; a hang is then told."""
    if seconds is None:
        yield
        return
    with ExitStack() as stack:
        with suppress(OSError):  # a full disk costs the frames of a hang
            file = stack.enter_context(progress_file.with_name(FRAMES).open("w", encoding="utf-8"))
            faulthandler.dump_traceback_later(max(seconds - 2.0, seconds / 2), file=file)
            stack.callback(faulthandler.cancel_dump_traceback_later)
        yield


@contextmanager
def _measuring(device: str, progress_file: str) -> Iterator["Progress"]:
    """Hold the GPU, and turn its errors into ones that the parent can read; yields what tells the progress."""

    def progress(phase: str, done: int, total: int) -> None:
        progress_note.write(Path(progress_file), phase=phase, done=done, total=total)

    # The Job holds the lock already, unless the process that took it has died since.
    with gpu_lock.lock_of(device) if device != CPU else nullcontext(), errors_told(device):
        yield progress


def _save(run: Run, folder: Path) -> str:
    try:
        save(run, folder)
    except RunRefused:
        raise  # and would be elsewhere
    except StoreError as fault:
        raise rescue(run, fault) from fault
    return run.id
