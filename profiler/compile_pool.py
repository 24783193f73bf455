"""Compile many configurations at once, in processes of their own; free of torch and Triton."""

import os
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Event

from pebble import ProcessFuture, ProcessPool

from kernels.base import GpuLimits
from kernels.problem import Refused
from profiler import compiling
from profiler.architecture import ARCHITECTURES
from profiler.device import cpu_free_bytes
from profiler.failures import explain
from profiler.resource_cache import ResourceCache, resources_folder, triton_version
from profiler.resources import Configuration, Resources
from profiler.scratch import scratch
from profiler.spawn import LoneContext
from profiler.store import StoreError, require_writable
from profiler.target import spell

PROCESS_BYTES = 2**30  # torch, Triton and what it compiles
DEFAULT_TIMEOUT = 120.0  # seconds one configuration may take
STOP_POLL_SECONDS = 0.2
Finished = tuple[Configuration, "ProcessFuture[Resources]"]
OLDEST_SUPPORTED = (8, 0)  # Triton's README: NVIDIA GPUs of compute capability 8.0 and newer
MOST_POOLS = 5  # that may break before the rest is given up
KEEP_DYING = "The processes that compile it keep dying before they begin; see what ends them, and try again."


def compile_all(
    chosen: Sequence[Configuration],
    timeout: float = DEFAULT_TIMEOUT,
    processes: int | None = None,
    stopping: Event | None = None,
) -> Generator[Resources, None, None]:
    """What each configuration takes, as it comes: what is refused or cached at once, then what is compiled.

    One process for each core, unless `processes` says otherwise. Whatever fails becomes its configuration's reason.
    Closing the iterator ends the processes, and so does `stopping` once it is set, whatever they are at.
    """
    stopping = stopping or Event()
    cache = ResourceCache(resources_folder(), triton_version() or "")
    at_once = known(chosen)
    yield from at_once.values()
    missing = [one for one in dict.fromkeys(chosen) if one not in at_once]
    for _ in range(MOST_POOLS):
        if not missing or stopping.is_set():
            return
        missing = yield from _compile(missing, cache, timeout, processes or _processes(), stopping)
    for one in () if stopping.is_set() else missing:
        yield Resources(one, cache.triton, reason=KEEP_DYING)


def known(chosen: Sequence[Configuration]) -> dict[Configuration, Resources]:
    """What can be told at once: of configurations that are refused, and of those in the cache."""
    triton = triton_version()
    cache = ResourceCache(resources_folder(), triton or "")
    found = ((one, _refused(one, triton) or cache.find(one)) for one in dict.fromkeys(chosen))
    return {one: resources for one, resources in found if resources is not None}


def _compile(
    missing: Sequence[Configuration], cache: ResourceCache, timeout: float, processes: int, stopping: Event
) -> Generator[Resources, None, list[Configuration]]:
    """Compile in one pool; return what it left, for pebble gives a pool up when a process dies between two tasks."""
    done: SimpleQueue[Finished] = SimpleQueue()
    left: list[Configuration] = []
    with compilers(min(processes, len(missing))) as pool:
        for one in missing:
            future = pool.schedule(compiling.compile_configuration, (one, cache), timeout=timeout)
            future.add_done_callback(partial(_tell, done, one))
        for _ in missing:
            if (finished := _next(done, stopping)) is None:
                return left
            one, future = finished
            try:
                yield future.result()
            except BrokenProcessPool:
                left.append(one)
            # Whatever went wrong in the process, or with it.
            except Exception as error:
                yield Resources(one, cache.triton, reason=_reason(error, one, timeout))
    return left


@contextmanager
def compilers(count: int) -> Iterator[ProcessPool]:
    """So many processes that compile; they end with the block."""
    with ExitStack() as stack:
        # Triton compiles nothing where it cannot keep it.
        kept = None if _is_writable(_triton_folder()) else str(stack.enter_context(scratch()))
        pool = ProcessPool(count, initializer=compiling.start, initargs=(kept,), context=LoneContext())
        try:
            yield pool
        finally:
            pool.stop()
            pool.join()


def _triton_folder() -> Path:
    """Where Triton keeps what it compiles."""
    chosen = os.environ.get("TRITON_CACHE_DIR")
    return Path(chosen) if chosen else Path(os.environ.get("TRITON_HOME") or Path.home()) / ".triton" / "cache"


def _is_writable(folder: Path) -> bool:
    try:
        require_writable(folder)
    except StoreError:
        return False
    return True


def _tell(done: "SimpleQueue[Finished]", one: Configuration, future: "ProcessFuture[Resources]") -> None:
    done.put((one, future))


def _next(done: "SimpleQueue[Finished]", stopping: Event) -> Finished | None:
    """Whatever is finished next; None once it is to stop."""
    while not stopping.is_set():
        with suppress(Empty):
            return done.get(timeout=STOP_POLL_SECONDS)
    return None


def _refused(one: Configuration, triton: str | None) -> Resources | None:
    """Why it need not be compiled, if there is a reason; the limits are those of any GPU of its compute capability."""
    capability = one.compute_capability
    if triton is None:
        return Resources(one, "", reason="Triton is not installed here; install the versions of requirements.txt.")
    title = f"Compute capability {spell(capability)}"
    if capability < OLDEST_SUPPORTED:
        reason = f"{title} is older than what Triton supports, {spell(OLDEST_SUPPORTED)} and newer; choose another GPU."
        return Resources(one, triton, reason=reason, is_refused=True)
    limits = GpuLimits(title, capability, ARCHITECTURES[capability].shared_memory_per_block)
    try:
        one.attention_kernel.refuse(one.problem, one.tile, limits)
    except Refused as refusal:
        return Resources(one, triton, reason=str(refusal), is_refused=True)
    return None


def _reason(error: Exception, one: Configuration, timeout: float) -> str:
    if isinstance(error, MemoryError):
        return f"Compiling {one.kernel} ran out of memory; free some, and try again."
    return explain(error, timeout, "compile", one.kernel)


def _processes() -> int:
    """One for each core that this process may use, as far as there is memory for them."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    free = cpu_free_bytes()
    return cores if free is None else max(1, min(cores, free // PROCESS_BYTES))
