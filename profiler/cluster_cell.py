"""What a node of a Ray cluster does: one cell on the device that it is lent, by a worker that stays warm."""

import json
import os
import platform
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from profiler import child
from profiler.codec import decode, encode
from profiler.failures import KeptAnyway
from profiler.store import StoreError
from profiler.worker import START_TIMEOUT, Job, Worker
from profiler.workload import CPU, Workload

_workers: dict[tuple[str, str], Worker] = {}


def order(cell: str, workload: Workload, request: str, run_id: str, timeout: float) -> dict[str, Any]:
    """What a node is told of a cell: plain values, and no object of Python's."""
    return {
        "cell": cell,
        "workload": encode(workload),
        "request": request,
        "run_id": run_id,
        "timeout": timeout,
    }


def measured(text: str) -> Iterator[str]:
    """Carry out the `order` in a JSON text, and yield JSON: {"node"} when it begins, and at the end one thing more.

    That is "run", a Run's JSON; "failed", why the cell has none; or "unfit", why this node can measure nothing at all.
    What dies in a kernel is the worker's process and not Ray's, so Ray does not try such a cell again.
    """
    ordered = json.loads(text)
    workload = decode(Workload, ordered["workload"], "workload")
    node = {"node": _node(workload.device)}
    yield json.dumps(node)
    # Ray's folder for this code: what a killed process leaves there goes with the cluster.
    tempfile.tempdir = os.getcwd()
    with tempfile.TemporaryDirectory(prefix="cell-") as folder:
        job = CellJob(_worker(workload.device), workload, ordered, folder)
        status = job.wait()
        if status.state == "done":
            answer = {"run": (Path(folder) / f"{ordered['run_id']}.json").read_text(encoding="utf-8")}
        else:
            answer = {"unfit" if job.is_unfit else "failed": status.error}
    yield json.dumps(node | answer)


class CellJob(Job):
    """A cell on its way through a worker; `is_unfit` says that where it fails, any other would have."""

    def __init__(self, worker: Worker, workload: Workload, ordered: dict[str, Any], folder: str) -> None:
        self.is_unfit = True
        self._ordered, self._to = ordered, folder
        super().__init__(worker, (workload,), ordered["timeout"])

    def _work(self) -> None:
        self._ask(child.describe, self._worker.device, timeout=START_TIMEOUT)
        self.is_unfit = False
        try:
            self._hold_gpu()
            self._ask(child.admit_all, self._workloads, timeout=START_TIMEOUT)
            (workload,) = self._workloads
            with suppress(KeptAnyway):
                self._measure_into(Path(self._to), self._ordered["run_id"], workload, self._ordered["request"])
        except (StoreError, child.CannotStart):
            self.is_unfit = True
            raise
        self._update(state="done", phase="done")


def _worker(device: str) -> Worker:
    """The worker of the GPU that Ray lends this process, which may be another one from cell to cell."""
    lent = device, _lent()
    if lent not in _workers:
        for other in _workers.values():
            other.stop()
        _workers.clear()
        _workers[lent] = Worker(device)
    return _workers[lent]


def _node(device: str) -> str:
    """What users call this node, and the GPU of it that Ray lends."""
    return platform.node() if device == CPU else f"{platform.node()} GPU {_lent()}"


def _lent() -> str:
    return os.environ.get("CUDA_VISIBLE_DEVICES", "")
