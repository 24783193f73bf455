"""A disk that is full, read-only or another user's, under everything that writes: the reason is told, the old stays."""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from kernels.problem import AttentionProblem, TileConfig
from profiler import child, rescue, store
from profiler.audit import save as save_audit
from profiler.catalogue import catalogue, count
from profiler.export import PARQUET, RUNS, export
from profiler.grid import Grid
from profiler.output import put
from profiler.resource_cache import ResourceCache
from profiler.resources import Resources, configurations
from profiler.store import StoreError, list_runs, load, save
from profiler.sweep import create
from profiler.sweep_job import LocalDevices, SweepJob
from profiler.worker import Worker
from profiler.workload import CPU, workloads
from tests.command_line import Command, answer_to
from tests.fake_audits import h200_audit
from tests.fake_runs import cpu_run
from tests.small_disk import SmallDisk, anothers_folder, disk, open_folder, read_only_disk, small_disk

__all__ = ["disk", "open_folder"]
ROOT = Path(__file__).parents[1]
PATIENCE = 120.0
EXAMPLES = [str(ROOT / "examples" / name) for name in ("full_8k.json", "causal_4k.json")]
TINY = AttentionProblem(1, 1, 1, 16, 16, 16)
SMALL = "--heads 1 --seq-len 16 --head-dim 16 --block-m 16 --block-n 16"
NCU_WORDS = "--heads 1 --seq-len 64 --head-dim 16 --dtype float16"
NCU = ["import", str(ROOT / "tests/data/ncu_flash.csv"), *NCU_WORDS.split()]
COMMANDS = {
    "report html": ["report", *EXAMPLES],
    "report perfetto": ["report", EXAMPLES[0], "--format", "perfetto"],
    "compare table": ["compare", EXAMPLES[0] + ":naive", EXAMPLES[0] + ":flash"],
    "compare html": ["compare", EXAMPLES[0] + ":naive", EXAMPLES[0] + ":flash", "--format", "html"],
    "export csv": ["export", *EXAMPLES, "--format", "csv"],
    "export parquet": ["export", *EXAMPLES],
    "run": ["run", "--device", "cpu", "--kernel", "naive", *SMALL.split()],
    "import": NCU,
}
IN_THIS_PROCESS = ("compare table", "export csv", "export parquet", "run", "import")


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Command:
    return lambda *words: answer_to(words, monkeypatch, capfd)


@pytest.mark.parametrize(
    ("name", "is_noticed"),
    [*((name, True) for name in COMMANDS), *((name, False) for name in IN_THIS_PROCESS)],
    ids=lambda value: {True: "before", False: "while it writes"}.get(value, value),
)
def test_what_a_command_would_have_replaced_stays(
    name: str, is_noticed: bool, disk: SmallDisk, command: Command, monkeypatch: pytest.MonkeyPatch, cpu_worker: Worker
) -> None:
    if not is_noticed:
        monkeypatch.setattr(store, "ROOM_BYTES", 0)
    out = disk.folder / "out"
    out.write_text("good")
    disk.fill()
    answer = command(*COMMANDS[name], "--out", str(out))
    disk.free()
    assert answer.code == 2
    assert answer.err.strip().endswith(f"{disk.reason}.") and str(disk.folder) in answer.err
    assert "Traceback" not in answer.err and len(answer.err.strip().splitlines()) == 1
    assert out.read_text() == "good" and disk.names() == {"out"}


@pytest.mark.parametrize("words", [COMMANDS["run"], NCU, ["audit", "--device", "cpu", "--quick"]], ids=lambda w: w[0])
def test_a_full_folder_of_runs_is_told_before_anything_is_measured(
    words: list[str], disk: SmallDisk, command: Command, monkeypatch: pytest.MonkeyPatch, cpu_worker: Worker
) -> None:
    monkeypatch.setenv("BYTESCOPE_RUNS", str(disk.folder / "runs"))
    kept = save(cpu_run())
    disk.fill()
    answer = command(*words)
    assert answer.code in (1, 2) and answer.err.strip().endswith(f"{disk.reason}.")
    disk.free()
    assert load(kept) == (cpu_run(),) and [path.name for path in kept.parent.glob("*.json")] == [kept.name]
    assert command(*COMMANDS["run"]).code == 0


WRITERS: dict[str, Callable[[Path], object]] = {
    "Run": lambda folder: save(cpu_run(run_id="other"), folder / "runs"),
    "Run over another": lambda folder: save(cpu_run(run_id="kept"), folder / "runs"),
    "sweep": lambda folder: create(Grid({"head_dim": (16,), "seq_len_q": (16,)}), folder / "sweep"),
    "text": lambda folder: put("new" * 1000, folder / "kept.txt"),
    "audit": lambda folder: save_audit(h200_audit()),
}


def refused(writer: Callable[[Path], object], folder: Path) -> str:
    """The sentence of a writer that cannot write."""
    with pytest.raises(StoreError) as fault:
        writer(folder)
    return str(fault.value)


@pytest.mark.parametrize("name", WRITERS)
def test_every_writer_says_why_and_leaves_what_was_there(
    name: str, disk: SmallDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BYTESCOPE_RUNS", str(disk.folder / "runs"))
    monkeypatch.setattr(store, "ROOM_BYTES", 0)
    kept = save(cpu_run(run_id="kept"), disk.folder / "runs")
    (disk.folder / "kept.txt").write_text("good")
    before = kept.read_bytes()
    disk.fill()
    assert refused(WRITERS[name], disk.folder).endswith(f"{disk.reason}.")
    disk.free()
    with read_only_disk(disk) as reason:
        assert refused(WRITERS[name], disk.folder).endswith(f"{reason}.")
    assert kept.read_bytes() == before and (disk.folder / "kept.txt").read_text() == "good"
    assert [path for path in disk.folder.rglob("*") if path.suffix == ".part"] == []
    WRITERS[name](disk.folder)


def test_another_users_folder(open_folder: Path) -> None:
    kept = save(cpu_run(), open_folder)
    before = kept.read_bytes()
    with anothers_folder(open_folder) as reason:
        assert refused(lambda folder: save(cpu_run(run_id="other"), folder), open_folder).endswith(f"{reason}.")
        assert refused(lambda folder: put("new", folder / kept.name), open_folder).endswith(f"{reason}.")
    assert kept.read_bytes() == before and list_runs(open_folder).runs == (cpu_run(),)


FLASH = workloads(("flash",), TINY, TileConfig(16, 16), CPU)[0]


def measure(folder: Path, progress: Path) -> str:
    """What measuring says where the disk has filled up meanwhile."""
    with pytest.raises(StoreError) as fault:
        child.measure_and_save(FLASH, "request", str(folder), str(progress))
    return str(fault.value)


def test_a_run_that_no_disk_takes_is_kept_in_memory_or_said_to_be_lost(
    disk: SmallDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = tmp_path / "memory"
    memory.mkdir()
    with small_disk(memory) as other:
        monkeypatch.setattr(tempfile, "tempdir", str(disk.folder))
        monkeypatch.setenv("BYTESCOPE_CACHE", str(disk.folder / "cache"))
        monkeypatch.setattr(rescue, "IN_MEMORY", memory)
        disk.fill()
        if disk.is_mounted:  # a limit on files is one on all of them
            said = measure(disk.folder / "runs", disk.folder / "note.json")
            assert "The Run is kept in " in said and "until this machine restarts: open it on the Runs page." in said
            (kept,) = memory.rglob("*.json")
            assert str(kept) in said and load(kept)[0].workload == FLASH
            shutil.rmtree(kept.parent)
        other.fill()
        said = measure(disk.folder / "runs", disk.folder / "note.json")
        assert "Nor could it be kept elsewhere, so the Run of flash is lost. Free some space and run again." in said
        assert said.count(disk.reason) == 4


def test_each_worker_of_a_sweep_names_the_run_that_it_kept_elsewhere_and_the_sweep_goes_on_later(
    disk: SmallDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "ROOM_BYTES", 0)
    grid = Grid({"heads": (1,), "seq_len_q": (16,), "head_dim": (16,), "kernel": ("naive",), "seed": (1, 2)})
    sweep = create(grid, disk.folder / "s")
    if disk.is_mounted:
        monkeypatch.setenv("TMPDIR", str(tmp_path))
    disk.fill()
    status = SweepJob(sweep, LocalDevices([CPU], 2)).wait(PATIENCE)
    disk.free()
    assert (status.state, status.done, status.failed) == ("failed", 0, 0) and disk.reason in status.error
    if disk.is_mounted:
        kept = list(tmp_path.glob("bytescope-rescued-*/*.json"))
        assert 1 <= len(kept) <= 2 and all(str(path) in status.error for path in kept)
        shutil.rmtree(kept[0].parent)
    status = SweepJob(sweep, LocalDevices([CPU], 1)).wait(PATIENCE)
    assert (status.state, status.done, status.error) == ("done", 2, "")


def test_a_cache_that_is_full_or_read_only_costs_time_and_nothing_else(
    disk: SmallDisk, monkeypatch: pytest.MonkeyPatch, runs: Path
) -> None:
    monkeypatch.setenv("BYTESCOPE_CACHE", str(disk.folder))
    monkeypatch.setattr("profiler.catalogue.WORTH_KEEPING_BYTES", -1)
    save(cpu_run())
    (one,) = configurations("flash", TINY, [TileConfig(16, 16)], [(9, 0)])
    cache, found = ResourceCache(disk.folder / "resources", "3.7.1"), Resources(one, "3.7.1", reason="none")
    disk.fill()
    cache.keep(found)
    assert cache.find(one) is None and cache.find_code(cache.keep_code(b"code" * 1000)) is None
    with catalogue([runs]) as saved:
        assert (count(saved.runs), saved.faults) == (1, ())
    disk.free()
    with read_only_disk(disk):
        cache.keep(found)
        with catalogue([runs]) as saved:
            assert (count(saved.runs), saved.faults) == (1, ())
    assert list(disk.folder.rglob(".*")) == []
    cache.keep(found)
    assert cache.find(one) == found


def test_an_export_whose_scratch_is_full_is_a_sentence(
    disk: SmallDisk, runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(disk.folder))
    save(cpu_run())
    out = tmp_path / "out.parquet"
    out.write_text("good")
    with catalogue([runs]) as saved:
        disk.fill()
        with pytest.raises(StoreError, match=rf"out\.parquet could not be written: [^{{]+: {disk.reason}\.$"):
            export(saved, saved.runs, RUNS, PARQUET, out)
        disk.free()
        assert out.read_text() == "good"
        export(saved, saved.runs, RUNS, PARQUET, out)
    assert out.stat().st_size > 1000 and disk.names() == set()


@pytest.mark.parametrize(
    "words",
    [
        ["list"],
        ["list", "--json"],
        ["schedule", "--json"],
        ["schedule"],
        COMMANDS["compare table"],
    ],
    ids=" ".join,
)  # fmt: skip
def test_an_output_that_takes_nothing_is_a_sentence(words: list[str]) -> None:
    command = [sys.executable, "-m", "profiler", *words]
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            command, cwd=ROOT, stdout=full, stderr=subprocess.PIPE, text=True, timeout=200, check=False
        )
    assert done.returncode in (1, 2)
    assert done.stderr.strip().splitlines()[-1].startswith("The output could not be ")
    assert "Traceback" not in done.stderr and done.stderr.endswith(f"{os.strerror(28)}.\n")


def test_no_folder_is_made_for_an_output(tmp_path: Path, command: Command) -> None:
    """A name that is a slip is told alike by all."""
    out = tmp_path / "new" / "out"
    for words in COMMANDS.values():
        answer = command(*words, "--out", str(out))
        assert (answer.code, answer.err) == (
            2,
            f"{out} could not be written, for there is no folder {out.parent}; make it, or name another.\n",
        )
    assert not out.parent.exists()
