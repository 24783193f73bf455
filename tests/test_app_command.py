"""The command line that repeats Runs, read back by the command line itself."""

import shlex
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import pytest
from typer.testing import CliRunner

import profiler.__main__ as cli
from app.command import command
from kernels.problem import AttentionProblem, TileConfig
from profiler import run_command
from profiler.own_kernel import Permit
from profiler.worker import JobStatus
from profiler.workload import TraceRequest, Workload, workloads

PROBLEM = AttentionProblem(2, 8, 2, 512, 1024, 64, "bfloat16", causal=True, window=100)
TILE = TileConfig(128, 32, 8, 2)


@dataclass
class Recorder:
    """Stands for the worker of a device: keeps what it is asked for."""

    asked: list[tuple[Workload, ...]] = field(default_factory=list)

    def submit(self, wanted: tuple[Workload, ...], timeout: float, permit: Permit) -> "Recorder":
        self.asked.append(wanted)
        return self

    def status(self) -> JobStatus:
        return JobStatus("done")


@pytest.fixture
def repeat(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], tuple[Workload, ...]]:
    """Runs a command line without measuring and returns the Workloads it asks for."""

    def run(line: str) -> tuple[Workload, ...]:
        recorder = Recorder()
        monkeypatch.setattr(run_command, "worker_for", lambda device: recorder)
        words = shlex.split(line)
        assert words[:3] == ["python", "-m", "profiler"]
        result = CliRunner().invoke(cli.app, words[3:])
        assert result.exit_code == 0, result.output
        return recorder.asked[0]

    return run


@pytest.mark.parametrize(
    "wanted",
    [
        workloads(("naive", "flash"), PROBLEM, TILE, "cuda:0", seed=7, l2="warm", repeats=50),
        workloads(("flash",), AttentionProblem(), TileConfig(), "cpu", trace=TraceRequest(0, 0, 5)),
        workloads(("flash",), AttentionProblem(), TileConfig(), "cpu", trace=None),
        workloads(("flash",), AttentionProblem(), TileConfig(), "cpu", counters="nvml-gpm", drain=False, detail=True),
        workloads(("naive",), AttentionProblem(), TileConfig(), "cpu"),
    ],
    ids=["both", "traced row", "no trace", "counters", "naive"],
)
def test_it_asks_for_the_same_workloads(
    wanted: tuple[Workload, ...], repeat: Callable[[str], tuple[Workload, ...]]
) -> None:
    assert repeat(command(wanted)) == wanted


def test_one_line_for_what_one_call_can_measure() -> None:
    pair = workloads(("naive", "flash"), PROBLEM, TILE, "cuda:0")
    other = workloads(("flash",), PROBLEM, TileConfig(64, 64), "cuda:0")
    lines = command((*pair, *other)).splitlines()
    assert len(lines) == 2
    assert lines[0].startswith("python -m profiler run --kernel naive --kernel flash --batch 2 --heads 8 --kv-heads 2 ")
    assert "--block-m 64 --block-n 64" in lines[1]
    assert command((*pair, *pair)) == lines[0], "a Workload given twice is measured once"


def test_what_was_imported_cannot_be_repeated() -> None:
    (naive,) = workloads(("naive",), PROBLEM, TILE, "cuda:0")
    lines = command([replace(naive, kernel="ncu:naive"), naive]).splitlines()
    assert lines[0].startswith("python -m profiler run --kernel naive") and len(lines) == 2
    assert lines[1] == "# ncu:naive was profiled elsewhere; import its file anew"
