"""Spawned processes that leave the parent's main module alone."""

import signal
import threading
from multiprocessing import spawn
from multiprocessing.context import SpawnContext, SpawnProcess
from typing import Any

_guard = threading.Lock()


class LoneProcess(SpawnProcess):
    """A spawned process that does not run the parent's `__main__` a second time.

    multiprocessing does that so that functions of `__main__` can be unpickled. Here it would run a Streamlit page, a
    notebook or an unguarded script of the user's again, and the worker's functions all live in modules of their own.
    """

    @staticmethod
    def _Popen(process_obj: Any) -> Any:
        with _guard:
            spawn.get_preparation_data = _without_main
            # The child inherits the mask: Ctrl-C in a terminal is for the parent, which ends its children.
            mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
            try:
                return SpawnProcess._Popen(process_obj)
            finally:
                signal.pthread_sigmask(signal.SIG_SETMASK, mask)
                spawn.get_preparation_data = _prepare


class LoneContext(SpawnContext):
    """multiprocessing's "spawn" with LoneProcess."""

    Process = LoneProcess


_prepare = spawn.get_preparation_data


def _without_main(name: str) -> dict[str, Any]:
    return {key: value for key, value in _prepare(name).items() if not key.startswith("init_main_from")}
