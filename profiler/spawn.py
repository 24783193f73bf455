"""Spawned processes that leave the parent's main module alone."""

import signal
import threading
from concurrent.futures import Future
from multiprocessing import resource_tracker, spawn
from multiprocessing.context import SpawnContext, SpawnProcess
from queue import SimpleQueue
from typing import Any

LEFT_WITH_0 = 256  # told as the exit code of a process that left with 0: no process can have it

_guard = threading.Lock()


class LoneProcess(SpawnProcess):
    """A spawned process that does not run the parent's `__main__` a second time.

    multiprocessing does that so that functions of `__main__` can be unpickled. Here it would run a Streamlit page, a
    notebook or an unguarded script of the user's again, and the worker's functions all live in modules of their own.
    """

    @staticmethod
    def _Popen(process_obj: Any) -> Any:
        return _starter().start(process_obj)

    @property
    def exitcode(self) -> int | None:
        """As of any process, but LEFT_WITH_0 for 0, which pebble takes for a process that had nothing left to do."""
        return LEFT_WITH_0 if (code := super().exitcode) == 0 else code


class LoneContext(SpawnContext):
    """multiprocessing's "spawn" with LoneProcess."""

    Process = LoneProcess


class Starter:
    """A thread that starts processes and lives as long as this one.

    Workers end with the thread that started them (profiler.orphans), and those that ask for one come and go.
    """

    def __init__(self) -> None:
        self._asked: SimpleQueue[tuple[Any, Future[Any]]] = SimpleQueue()
        self._thread = threading.Thread(target=self._serve, name="starter", daemon=True)
        self._thread.start()

    @property
    def is_alive(self) -> bool:
        """False in a fork of the process that made it."""
        return self._thread.is_alive()

    def start(self, process: Any) -> Any:
        """Its Popen. Raises what starting it does."""
        answer: Future[Any] = Future()
        self._asked.put((process, answer))
        return answer.result()

    def _serve(self) -> None:
        while True:
            process, answer = self._asked.get()
            # Started before, for it unblocks SIGINT in the thread that starts it.
            resource_tracker.ensure_running()
            # The child inherits the mask: Ctrl-C in a terminal is for the parent, which ends its children.
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
            spawn.get_preparation_data = _without_main
            try:
                answer.set_result(SpawnProcess._Popen(process))
            except BaseException as error:
                answer.set_exception(error)
            finally:
                spawn.get_preparation_data = _prepare
            # Kept until the next one, they would keep open what the process is spoken to with.
            del process, answer


_started: list[Starter] = []
_prepare = spawn.get_preparation_data


def _starter() -> Starter:
    with _guard:
        if not _started or not _started[-1].is_alive:
            _started[:] = [Starter()]
        return _started[-1]


def _without_main(name: str) -> dict[str, Any]:
    return {key: value for key, value in _prepare(name).items() if not key.startswith("init_main_from")}
