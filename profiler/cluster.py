"""A sweep's cells on a Ray cluster, one for each GPU at a time; each Run is kept here as soon as it is back."""

import importlib.util
from collections import Counter
from dataclasses import replace
from itertools import count
from typing import Any

from kernels.problem import Refused
from profiler.cluster_cell import order
from profiler.cluster_link import DriverProcess
from profiler.codec import NotARun
from profiler.grid import Cell
from profiler.plausible import printable
from profiler.run_document import from_json
from profiler.store import StoreError, require_writable, save
from profiler.timeout import require_possible_timeout
from profiler.turns import Turns
from profiler.worker import DEFAULT_TIMEOUT
from profiler.workload import CPU

AUTO = "auto"
ANSWER_SECONDS = 8.0
MAX_UNFIT = 3  # times in a row that a node cannot measure
HOW = "Give HOST:PORT of its head, as `ray start --head` tells it, on a machine that belongs to the cluster"


class Unfit(RuntimeError):
    """A node that measures nothing takes cell after cell; the message says which and why."""


class RayCluster:
    """The Executor of the Ray cluster at HOST:PORT, or of the one that this machine belongs to (auto).

    `timeout` is what one cell may take, in seconds. Raises Refused, within 10 s, where no cluster answers.
    """

    def __init__(self, address: str, timeout: float = DEFAULT_TIMEOUT) -> None:
        require_possible_timeout(timeout)
        if importlib.util.find_spec("ray") is None:
            raise Refused("A cluster needs Ray, which is not installed: pip install -r requirements-ray.txt.")
        _require_address(address)
        self._address, self._timeout = address, timeout
        self._driver = DriverProcess(address)
        said = self._driver.hear(ANSWER_SECONDS) or {"refused": self._driver.last_words}
        if "ready" not in said:
            self._driver.end()
            raise Refused(f"No Ray cluster answers at {address} ({said['refused'].rstrip(' .')}). {HOW}.")
        self._device: str = said["ready"]
        self.on_gpu = self._device != CPU
        self.workers: int = said["workers"]
        self.title = f"the Ray cluster at {address}, {self.workers} {'GPUs' if self.on_gpu else 'CPUs'}"
        self._room = 0
        self._is_stopped = False
        self._sent: dict[str, tuple[str, Cell]] = {}
        self._node_of: dict[str, str] = {}
        self._unfit: Counter[str] = Counter()

    def run(self, turns: Turns) -> None:
        """See Executor."""
        names = (f"task {number}" for number in count())
        try:
            require_writable(turns.sweep.runs)
            while (said := self._driver.hear()) is not None:
                self._take_in(turns, said)
                while len(self._sent) < self._room and (cell := turns.take(who := next(names))) is not None:
                    self._send(turns, who, cell)
                if self._room and not self._sent:
                    return
            if not self._is_stopped:
                turns.give_up(f"The Ray cluster at {self._address} was lost ({self._driver.last_words}).")
        except (StoreError, Unfit) as fault:
            turns.give_up(str(fault))
        finally:
            for who, cell in self._sent.values():
                turns.give_back(who, cell)
            self._driver.end()

    def stop(self) -> None:
        """See Executor."""
        self._is_stopped = True
        self._driver.kill()

    def _send(self, turns: Turns, who: str, cell: Cell) -> None:
        assert cell.workload is not None, "Turns hands out no other"
        turns.note(who, f"{cell.label}, waits at the cluster")
        self._sent[cell.id] = who, cell
        workload, sweep = replace(cell.workload, device=self._device), turns.sweep
        self._driver.say(order(cell.id, workload, sweep.plan.id, sweep.run_id(cell), self._timeout))

    def _take_in(self, turns: Turns, said: dict[str, Any]) -> None:
        """Act on what was heard. Raises StoreError or Unfit where no further cell could be kept or measured."""
        if "room" in said:
            self._room = said["room"]
            return
        who, cell = self._sent[said["cell"]]
        if "node" in said:
            node = printable(said["node"])
            self._node_of[cell.id] = f"Node {node}"
            turns.note(who, f"{cell.label} on {node}")
        if "run" in said:
            self._keep(turns, who, cell, said["run"])
        elif "failed" in said:
            turns.failed(who, cell, said["failed"])
        elif "unfit" in said:
            turns.give_back(who, cell)
        if said.keys() & {"run", "failed", "unfit"}:
            del self._sent[cell.id]
            self._judge(self._node_of.pop(cell.id, "A node"), said.get("unfit"))

    def _keep(self, turns: Turns, who: str, cell: Cell, text: str) -> None:
        """Save a Run that came back. Raises StoreError."""
        try:
            runs = from_json(text)
            if [run.id for run in runs] != [turns.sweep.run_id(cell)]:
                raise NotARun("it is another cell's.")
        except NotARun as fault:
            turns.failed(who, cell, f"What came back from the cluster is not the cell's Run: {fault}")
            return
        save(runs[0], turns.sweep.runs)
        turns.done(who, cell)

    def _judge(self, node: str, reason: str | None) -> None:
        """Raise Unfit where a node has failed at everything for too long."""
        if reason is None:
            del self._unfit[node]
            return
        self._unfit[node] += 1
        if self._unfit[node] >= MAX_UNFIT:
            raise Unfit(f"{node} can measure nothing: {printable(reason)} Mend it, or take it out of the cluster.")


def _require_address(address: str) -> None:
    """Raise Refused for what is neither HOST:PORT nor auto; Ray would start a cluster of its own for some words."""
    host, _, port = address.rpartition(":")
    if address != AUTO and ("://" in address or not host or not (port.isdecimal() and 0 < int(port) < 2**16)):
        raise Refused(f"The Ray address {printable(address, 80)!r} cannot be used. {HOW}, or auto there.")
