"""Sweeps on a Ray cluster: a real one of two nodes, one of them killed; and all that can be wrong before."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from kernels.problem import Refused
from profiler import cluster, cluster_link
from profiler.cluster import RayCluster
from profiler.codec import encode
from profiler.grid import Grid, read_axes
from profiler.run import Run
from profiler.run_document import to_json
from profiler.store import StoreError, load
from profiler.sweep import Sweep, create, open_sweep
from profiler.sweep_job import LocalDevices, SweepJob
from profiler.turns import DONE, FAILED, STOPPED, SweepStatus, Turns
from tests.fake_runs import cpu_run

ROOT = Path(__file__).parents[1]
PATIENCE = 120.0
NODE = (
    *("--num-gpus", "0", "--object-store-memory", "80000000"),
    *("--min-worker-port", "0", "--max-worker-port", "0", "--dashboard-agent-listen-port", "0", "--block"),
)
# What a copy of the naive kernel does at some numbers of heads; on the nodes only.
DEADLY = """

_healthy = forward


def forward(q, k, v, problem, *arguments, **options):
    import os, signal, time

    match problem.heads:
        case 3:
            os.kill(os.getpid(), signal.SIGKILL)
        case 5:
            os.kill(os.getppid(), signal.SIGKILL)
        case 7:
            time.sleep(600)
    return _healthy(q, k, v, problem, *arguments, **options)
"""


class Node:
    """One node of a cluster: `ray start`, and all that it starts, in a session of its own."""

    def __init__(self, *words: str) -> None:
        self._process = subprocess.Popen(
            [str(Path(sys.executable).with_name("ray")), "start", *words, *NODE],
            env=os.environ | {"RAY_USAGE_STATS_ENABLED": "0"},
            cwd="/",
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def family(self) -> dict[int, str]:
        """Its processes and what they call themselves."""
        found = {}
        for folder in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                pid = int(folder.name)
                if os.getsid(pid) == self._process.pid and (name := (folder / "cmdline").read_bytes()):
                    found[pid] = name.replace(b"\0", b" ").decode(errors="replace")
        return found

    @property
    def is_measuring(self) -> bool:
        """Whether it is in the middle of a cell."""
        return any("ray::measured" in name for name in self.family().values())

    def kill(self) -> bool:
        """End all of it at once, as if its host lost power; True then."""
        wait_until(self._is_killed)
        self._process.wait(PATIENCE)
        return True

    def _is_killed(self) -> bool:
        family = self.family()
        for pid in family:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return not family


class Nodes:
    """A head that measures nothing, and two nodes that do."""

    def __init__(self, folder: str) -> None:
        self.address = f"127.0.0.1:{free_port()}"
        port = self.address.rpartition(":")[2]
        self._head = Node(
            *("--head", "--port", port, "--num-cpus", "0", "--include-dashboard", "false", "--temp-dir", folder),
            *("--node-ip-address", "127.0.0.1"),
        )
        self.workers: list[Node] = []

    def add_workers(self) -> None:
        """Hosts of their own, so that a sweep belongs to the head's; one by one, for Ray mixes up two that start."""
        wait_until(lambda: is_listening(self.address))
        for count, host in enumerate(("127.0.0.2", "127.0.0.3"), 1):
            self.workers.append(Node("--address", self.address, "--num-cpus", "1", "--node-ip-address", host))
            wait_until(lambda: workers_at(self.address) == count)  # noqa: B023 - asked before it moves on

    def kill(self) -> None:
        """Nothing of it is left."""
        for node in (*self.workers, self._head):
            node.kill()


@pytest.fixture(scope="module")
def nodes() -> Iterator[Nodes]:
    # A short path, for Ray makes sockets in it.
    with tempfile.TemporaryDirectory(prefix="ray-", dir="/tmp", ignore_cleanup_errors=True) as folder:
        found = Nodes(folder)
        try:
            found.add_workers()
            yield found
        finally:
            found.kill()


def wait_until(is_so: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE
    while not is_so():
        assert time.monotonic() < end
        time.sleep(0.02)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def workers_at(address: str) -> int:
    with suppress(Refused):
        executor = RayCluster(address)
        executor.stop()
        return executor.workers
    return 0


def is_listening(address: str) -> bool:
    host, _, port = address.rpartition(":")
    with suppress(OSError), socket.create_connection((host, int(port)), 1):
        return True
    return False


def sweep_of(folder: Path, **words: str) -> Sweep:
    small = {"kernel": "naive", "heads": "1", "seq_len_q": "16", "head_dim": "16"} | words
    return create(Grid(read_axes({name: text.split(",") for name, text in small.items()})), folder)


def twelve(folder: Path) -> Sweep:
    """Naive is quick, flash takes half a second."""
    return sweep_of(folder, kernel="naive,flash", seq_len_q="192,200", BLOCK_M="32", BLOCK_N="32", seed="0,1,2")


def follow(job: SweepJob) -> SweepStatus:
    status = job.wait(PATIENCE)
    assert status.is_over, status
    return status


def told(sweep: Sweep) -> dict[str, dict[str, Any]]:
    """What the Run of each cell says, without what differs from one measuring to the next."""
    found = {}
    for path in sweep.runs.iterdir():
        (run,) = load(path)
        assert path.stem == run.id and run.request == sweep.plan.id and run.device.device == "cpu"
        plain = encode(run)
        for name in ("id", "request", "created", "device", "phases", "measured_at"):
            del plain[name]
        found[run.id.removeprefix(f"{sweep.plan.id}-")] = plain
    return found


def test_a_node_dies_and_the_files_are_those_of_a_local_sweep(nodes: Nodes, tmp_path: Path) -> None:
    here, there = twelve(tmp_path / "here"), twelve(tmp_path / "there")
    job = SweepJob(there, RayCluster(nodes.address))
    wait_until(lambda: job.status().done >= 2)
    # The first that is seen in the middle of a cell.
    wait_until(lambda: any(node.kill() for node in nodes.workers if node.is_measuring))
    assert job.status().done < 12
    status = follow(job)
    assert (status.state, status.done, status.failed, status.error) == (DONE, 12, 0, "")
    assert follow(SweepJob(here, LocalDevices(["cpu"], 1))).state == DONE
    assert told(there) == told(here)
    assert told(there).keys() == there.by_id.keys()


def test_stopped_in_the_middle_and_taken_up_again(nodes: Nodes, tmp_path: Path) -> None:
    sweep = twelve(tmp_path)
    job = SweepJob(sweep, RayCluster(nodes.address))
    wait_until(lambda: job.status().done >= 2)
    job.stop()
    status = follow(job)
    assert (status.state, status.failed, status.running) == (STOPPED, 0, ())
    first = {path.name: path.read_bytes() for path in sweep.runs.iterdir()}
    assert 2 <= len(first) == status.done < 12
    status = follow(SweepJob(open_sweep(tmp_path), RayCluster(nodes.address)))
    assert (status.state, status.finished, status.error) == (DONE, 12 - len(first), "")
    assert told(sweep).keys() == sweep.by_id.keys()
    assert {name: (sweep.runs / name).read_bytes() for name in first} == first


def test_cells_that_kill_their_process_fail_and_others_go_on(
    nodes: Nodes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker's process, Ray's process each time it tries, and one that sleeps; beside another sweep."""
    other = SweepJob(sweep_of(tmp_path / "other", seed="0,1,2,3"), RayCluster(nodes.address))
    for name in cluster_link.TRAVELS:
        shutil.copytree(ROOT / name, tmp_path / "code" / name)
    with (tmp_path / "code/kernels/naive/kernel.py").open("a") as kernel:
        kernel.write(DEADLY)
    driver = tmp_path / "code/profiler/cluster_driver.py"
    # One retry shows it as well as three.
    driver.write_text(driver.read_text().replace("MAX_RETRIES = 3", "MAX_RETRIES = 1"))
    monkeypatch.setattr(cluster_link, "ROOT", tmp_path / "code")
    sweep = sweep_of(tmp_path / "deadly", heads="3,5,7,1")
    status = follow(SweepJob(sweep, RayCluster(nodes.address, timeout=2.0)))
    assert (status.state, status.done, status.failed) == (DONE, 1, 3)
    reasons = {failure.values["heads"]: failure.reason for failure in sweep.failed().values()}
    assert "the worker process was killed by SIGKILL" in reasons["3"]
    assert reasons["5"].startswith("Its process or its node was lost each time, 2 times in all: WorkerCrashedError")
    assert "was stopped after 2 s" in reasons["7"]
    assert follow(other).state == DONE and other.status().done == 4


@contextmanager
def server(words: bytes) -> Iterator[str]:
    """Something else that listens: it says `words` to whoever connects, and no more."""
    code = (
        "import socket, sys\n"
        "with socket.create_server(('127.0.0.1', 0)) as server:\n"
        "    print(server.getsockname()[1], flush=True)\n"
        "    kept = []\n"
        "    while True:\n"
        "        kept.append(server.accept()[0])\n"
        f"        kept[-1].sendall({words!r})\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        try:
            yield f"127.0.0.1:{int(process.stdout.readline())}"
        finally:
            process.kill()


@pytest.mark.parametrize(
    "words", [b"", b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n"], ids=["silent", "http"]
)
def test_something_else_listens_there(words: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "ANSWER_SECONDS", 3.0)
    with server(words) as address, pytest.raises(Refused) as refusal:
        RayCluster(address)
    assert str(refusal.value).startswith(f"No Ray cluster answers at {address} (")
    assert_sentence(refusal)


def test_nobody_listens_there() -> None:
    address = f"127.0.0.1:{free_port()}"
    with pytest.raises(Refused, match="ConnectionRefusedError") as refusal:
        RayCluster(address)
    assert_sentence(refusal)


@pytest.mark.parametrize(
    "address",
    ["", "local", "ray://127.0.0.1:10001", "127.0.0.1", ":6379", "host:0", "host:65536", "host:x\n", "host:²"],
)
def test_no_address(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "DriverProcess", lambda _: pytest.fail("nothing is asked"))
    with pytest.raises(Refused, match="HOST:PORT") as refusal:
        RayCluster(address)
    assert_sentence(refusal)


def test_ray_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(Refused, match=r"requirements-ray\.txt"):
        RayCluster("127.0.0.1:6379")


def test_no_time() -> None:
    with pytest.raises(Refused, match="timeout is 0 s"):
        RayCluster("127.0.0.1:6379", timeout=0)


def assert_sentence(refusal: pytest.ExceptionInfo[Refused]) -> None:
    text = str(refusal.value)
    assert "\n" not in text and text.endswith(".") and len(text) < 600


class Script:
    """A driver that answers each order as it is told; `most` is how many it was ever at."""

    last_words = "the head left"

    def __init__(
        self, answer: Callable[[dict[str, Any]], Sequence[dict[str, Any]]], room: int = 2, device: str = "cpu"
    ) -> None:
        self._answer = answer
        self._said: list[dict[str, Any]] = [{"ready": device, "workers": 2}, {"room": room}]
        self._at: set[str] = set()
        self.most = 0

    def say(self, order: dict[str, Any]) -> None:
        self._at.add(order["cell"])
        self.most = max(self.most, len(self._at))
        self._said += [{"cell": order["cell"]} | said for said in self._answer(order)]

    def hear(self, within: float | None = None) -> dict[str, Any] | None:
        said = self._said.pop(0) if self._said else None
        if said is not None and said.keys() & {"run", "failed", "unfit"}:
            self._at.remove(said["cell"])
        return said

    def kill(self) -> None:
        """Nothing runs."""

    end = kill


def turns_of(sweep: Sweep, script: Script, monkeypatch: pytest.MonkeyPatch) -> Turns:
    """What became of the sweep with a driver of that script."""
    monkeypatch.setattr(cluster, "DriverProcess", lambda _: script)
    monkeypatch.setattr(cluster.importlib.util, "find_spec", lambda _: "found")
    turns = Turns(sweep)
    RayCluster("127.0.0.1:6379").run(turns)
    turns.end()
    return turns


def run_of(sweep: Sweep, order: dict[str, Any]) -> Run:
    return cpu_run(run_id=f"{sweep.plan.id}-{order['cell']}")


def test_no_more_cells_wait_at_the_cluster_than_it_wants(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sweep = sweep_of(tmp_path, seed=",".join(map(str, range(40))))
    script = Script(lambda order: [{"node": "a"}, {"node": "a", "run": to_json([run_of(sweep, order)])}], room=5)
    status = turns_of(sweep, script, monkeypatch).status()
    assert (status.state, status.done, script.most) == (DONE, 40, 5)


def test_a_cluster_of_gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    devices = []

    def answer(order: dict[str, Any]) -> Sequence[dict[str, Any]]:
        devices.append(order["workload"]["device"])
        return [{"node": "a GPU 0"}, {"node": "a GPU 0", "failed": "A reason."}]

    sweep = sweep_of(tmp_path, seed="0,1")
    status = turns_of(sweep, Script(answer, device="cuda:0"), monkeypatch).status()
    assert (status.state, status.failed, devices) == (DONE, 2, ["cuda:0"] * 2)
    assert {failure.reason for failure in sweep.failed().values()} == {"A reason."}
    monkeypatch.setattr(cluster, "DriverProcess", lambda _: Script(answer, device="cuda:0"))
    executor = RayCluster("127.0.0.1:6379")
    assert (executor.title, executor.workers, executor.on_gpu) == ("the Ray cluster at 127.0.0.1:6379, 2 GPUs", 2, True)


def test_the_cluster_is_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    turns = turns_of(sweep_of(tmp_path, seed="0,1,2"), Script(lambda order: [{"node": "a"}]), monkeypatch)
    assert (turns.status().state, len(turns.waiting), turns.status().failed) == (FAILED, 3, 0)
    assert turns.status().error == "The Ray cluster at 127.0.0.1:6379 was lost (the head left)."


def test_a_node_that_measures_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = Script(lambda order: [{"node": "a", "unfit": "No torch."}])
    turns = turns_of(sweep_of(tmp_path, seed="0,1,2,3"), script, monkeypatch)
    assert (turns.status().state, len(turns.waiting), turns.status().failed) == (FAILED, 4, 0)
    assert turns.status().error.startswith("Node a can measure nothing: No torch.")


def test_a_node_is_ill_for_a_moment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sweep, asked = sweep_of(tmp_path, seed="0,1,2,3,4,5"), []

    def answer(order: dict[str, Any]) -> Sequence[dict[str, Any]]:
        asked.append(order["cell"])
        if len(asked) % 3:
            return [{"node": "a", "unfit": "No memory."}]
        return [{"node": "a", "run": to_json([run_of(sweep, order)])}]

    status = turns_of(sweep, Script(answer, room=1), monkeypatch).status()
    assert (status.state, status.done, len(asked)) == (DONE, 6, 18)


def test_the_disk_here_is_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sweep = sweep_of(tmp_path, seed="0,1,2")

    def save(*_: object) -> None:
        raise StoreError("No space left.")

    monkeypatch.setattr(cluster, "save", save)
    script = Script(lambda order: [{"node": "a", "run": to_json([run_of(sweep, order)])}])
    turns = turns_of(sweep, script, monkeypatch)
    assert (turns.status().state, turns.status().error, len(turns.waiting)) == (FAILED, "No space left.", 3)


@pytest.mark.parametrize("text", ["{}", to_json([cpu_run(run_id="another")])])
def test_what_comes_back_is_not_the_cells_run(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sweep = sweep_of(tmp_path)
    status = turns_of(sweep, Script(lambda order: [{"node": "a", "run": text}]), monkeypatch).status()
    assert (status.state, status.failed, list(sweep.runs.iterdir())) == (DONE, 1, [])
    assert "is not the cell's Run" in next(iter(sweep.failed().values())).reason
