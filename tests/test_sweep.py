"""A sweep's folder and its turns: what is kept, what is left, what another process may not do."""

import json
import os
import time
from dataclasses import replace
from pathlib import Path

import pytest
from filelock import FileLock

from kernels.problem import Refused
from profiler.codec import NotARun
from profiler.grid import Grid
from profiler.store import StoreError, save
from profiler.sweep import Sweep, all_sweeps, create, failures, is_sweep, open_sweep, read_plan
from profiler.turns import SweepStatus, Turns
from tests.fake_runs import cpu_run

GRID = Grid({"heads": (1,), "seq_len_q": (64,), "head_dim": (16,), "BLOCK_M": (16, 32, 64), "BLOCK_N": (16, 32)})


@pytest.fixture
def sweep(tmp_path: Path) -> Sweep:
    return create(GRID, tmp_path / "sweep")


def finish(sweep: Sweep, turns: Turns, who: str = "somebody") -> str:
    """Do the next cell as a worker would, with a Run made by hand."""
    cell = turns.take(who)
    assert cell is not None
    save(replace(cpu_run(), id=sweep.run_id(cell)), sweep.runs)
    turns.done(who, cell)
    return cell.id


def test_a_folder_is_opened_as_it_was_made(sweep: Sweep) -> None:
    again = open_sweep(sweep.folder)
    assert again == sweep
    assert [cell.id for cell in again.left()] == [cell.id for cell in sweep.cells]
    assert (read_plan(sweep.folder).cells, read_plan(sweep.folder).axes["BLOCK_M"]) == (6, ("16", "32", "64"))


def test_without_a_folder_it_stands_beside_the_runs(runs: Path) -> None:
    made = create(GRID)
    assert made.folder == runs / "sweeps" / made.plan.id
    assert all_sweeps() == [made.folder] and is_sweep(made.folder)


def test_done_and_failed_cells_are_not_left(sweep: Sweep) -> None:
    turns = Turns(sweep)
    first = finish(sweep, turns)
    second = turns.take("somebody")
    assert second is not None
    turns.failed("somebody", second, "It broke.\nBadly.")
    assert sweep.done() == {first}
    assert {cell: failure.reason for cell, failure in sweep.failed().items()} == {second.id: "It broke. Badly."}
    assert sweep.failed()[second.id].values["BLOCK_N"] == "32"
    assert [cell.id for cell in sweep.left()] == [cell.id for cell in sweep.cells[2:]]
    assert [cell.id for cell in sweep.left(again=True)] == [cell.id for cell in sweep.cells[1:]]


def test_a_cell_that_succeeds_later_is_no_failure(sweep: Sweep) -> None:
    turns = Turns(sweep)
    cell = turns.take("somebody")
    assert cell is not None
    turns.failed("somebody", cell, "It broke.")
    assert finish(sweep, Turns(sweep, again=True)) == cell.id
    assert sweep.failed() == {} and failures(sweep.folder) == []


def test_a_note_that_cannot_be_read_is_asked_again(sweep: Sweep) -> None:
    (sweep.folder / "failed" / f"{sweep.cells[0].id}.json").write_text('{"cell": ')
    assert sweep.cells[0].id in {cell.id for cell in sweep.left()}


def test_a_cell_that_cannot_be_is_noted_wherever_it_stands(tmp_path: Path) -> None:
    for blocks in ((48, 16), (16, 48), (8, 48, 16)):
        sweep = create(Grid(GRID.given | {"BLOCK_M": blocks, "BLOCK_N": (16,)}), tmp_path / str(blocks))
        turns = Turns(sweep)
        taken = []
        while (cell := turns.take("somebody")) is not None:
            taken.append(cell.workload.tile.BLOCK_M if cell.workload and cell.workload.tile else 0)
        assert taken == [block for block in blocks if block != 48]
        (failure,) = failures(sweep.folder)
        assert "BLOCK_M is 48" in failure.reason and turns.status().failed == 1


def test_a_run_file_that_cannot_be_read_is_named_and_measured_again(sweep: Sweep) -> None:
    turns = Turns(sweep)
    done = [finish(sweep, turns) for _ in range(4)]
    paths = [sweep.runs / f"{sweep.plan.id}-{cell}.json" for cell in done]
    paths[0].write_bytes(paths[0].read_bytes()[:100])
    paths[1].write_text("")
    again = Turns(open_sweep(sweep.folder))
    assert again.broken.keys() == set(done[:2])
    assert all(path.name in again.broken[cell] for path, cell in zip(paths[:2], done[:2], strict=True))
    assert (again.status().done, len(again.waiting)) == (2, 4)
    assert finish(sweep, again) == done[0] and again.broken.keys() == {done[1]}
    again.end()
    assert again.status().done == 3


def test_two_that_begin_at_once_are_one(tmp_path: Path) -> None:
    create(GRID, tmp_path / "sweep")
    with pytest.raises(Refused, match="holds another sweep; choose another folder"):
        create(GRID, tmp_path / "sweep")
    other = tmp_path / "other"
    other.mkdir()
    with FileLock(other / ".lock", timeout=0), pytest.raises(Refused, match="Another process is running the sweep"):
        create(GRID, other)
    assert not is_sweep(other)


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("id", "/tmp/x", "none that a sweep has"),
        ("id", "", "none that a sweep has"),
        ("created", "yesterday", "none that a sweep has"),
        ("cells", 0, "it is of 0 cells"),
        ("cells", 10**30, "a sweep has 1 to 100,000"),
    ],
)
def test_a_plan_that_cannot_be(sweep: Sweep, field: str, value: object, words: str) -> None:
    plan = json.loads((sweep.folder / "sweep.json").read_text())
    (sweep.folder / "sweep.json").write_text(json.dumps(plan | {field: value}))
    with pytest.raises(NotARun, match=words):
        read_plan(sweep.folder)


def test_cells_that_are_no_longer_the_same_are_refused(sweep: Sweep) -> None:
    plan = json.loads((sweep.folder / "sweep.json").read_text())
    plan["axes"]["BLOCK_M"] = ["16"]
    (sweep.folder / "sweep.json").write_text(json.dumps(plan))
    with pytest.raises(Refused, match="no longer gives the cells that it was begun with"):
        open_sweep(sweep.folder)


def test_a_condition_that_changes_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Refused, match="keeps other cells each time"):
        create(Grid({"seed": tuple(range(200))}, "random() < 0.5"), tmp_path / "sweep")


def test_a_failure_is_shown_without_control_characters(sweep: Sweep) -> None:
    turns = Turns(sweep)
    cell = turns.take("somebody")
    assert cell is not None
    turns.failed("somebody", cell, "It broke.")
    note = sweep.folder / "failed" / f"{cell.id}.json"
    note.write_text(note.read_text().replace("It broke.", "\\u001b[31mIt broke."))
    assert sweep.failed()[cell.id].reason == "\N{REPLACEMENT CHARACTER}[31mIt broke."


def test_foreign_files_are_no_cells(sweep: Sweep) -> None:
    (sweep.runs / "other.json").write_text("{}")
    (sweep.runs / f".{sweep.run_id(sweep.cells[0])}.json.part").write_text("half")
    (sweep.runs / f"{sweep.plan.id}-ffffffffffff.json").write_text("{}")
    assert sweep.done() == frozenset()


def test_one_process_at_a_time(sweep: Sweep) -> None:
    with sweep.held(), pytest.raises(Refused, match="Another process is running the sweep in"), sweep.held():
        pass
    with sweep.held():
        pass


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "is not JSON"),
        ("[]", "format_version None"),
        ('{"format_version": 2}', "format_version 2; this Bytescope reads 1"),
        ('{"format_version": 1}', "lacks the field 'id'"),
        ("[" * 100_000, "is not JSON"),
    ],
)
def test_a_plan_that_is_none(sweep: Sweep, text: str, words: str) -> None:
    (sweep.folder / "sweep.json").write_text(text)
    with pytest.raises(NotARun, match=words):
        open_sweep(sweep.folder)


def test_a_plan_of_impossible_values_is_refused(sweep: Sweep) -> None:
    plan = json.loads((sweep.folder / "sweep.json").read_text())
    plan["axes"]["BLOCK_M"] = ["x"]
    (sweep.folder / "sweep.json").write_text(json.dumps(plan))
    with pytest.raises(Refused, match="BLOCK_M is 'x'"):
        open_sweep(sweep.folder)


def test_a_grid_of_which_nothing_can_run(tmp_path: Path) -> None:
    with pytest.raises(Refused, match=r"No cell of the grid can run\. Kernel 'flush' is not known"):
        create(Grid({"kernel": ("flush",)}), tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "sweep").write_text("")
    with pytest.raises(StoreError, match="Nothing could be written"):
        create(GRID, tmp_path / "sweep")


def test_turns_run_out(sweep: Sweep) -> None:
    turns = Turns(sweep)
    for _ in sweep.cells:
        finish(sweep, turns)
    assert turns.take("somebody") is None
    turns.end()
    status = turns.status()
    assert (status.state, status.cells, status.done, status.failed, status.finished, status.left) == (
        "done",
        6,
        6,
        0,
        6,
        0,
    )


def test_a_cell_that_is_given_back_is_done_by_another(sweep: Sweep) -> None:
    turns = Turns(sweep)
    cell = turns.take("one")
    assert cell is not None and turns.status().running == (cell.label,)
    turns.give_back("one", cell)
    assert turns.status().running == () and turns.take("two") is cell


def test_what_was_stopped_or_given_up_says_so(sweep: Sweep) -> None:
    stopped, broken = Turns(sweep), Turns(sweep)
    stopped.stop()
    broken.give_up("The disk is full.")
    broken.give_up("The disk is full.")
    broken.give_up("The Run is kept in memory.")
    told = "The disk is full. The Run is kept in memory."
    for turns, state, error in ((stopped, "stopped", ""), (broken, "failed", told)):
        assert turns.take("somebody") is None
        turns.end()
        assert (turns.status().state, turns.status().error, turns.status().is_over) == (state, error, True)


def test_where_a_failure_cannot_be_noted_the_sweep_ends(sweep: Sweep) -> None:
    turns = Turns(sweep)
    cell = turns.take("somebody")
    assert cell is not None
    (sweep.folder / "failed").rmdir()
    (sweep.folder / "failed").write_text("")
    turns.failed("somebody", cell, "It broke.")
    turns.end()
    assert turns.status().state == "failed" and "could not be written" in turns.status().error
    assert turns.status().failed == 0


def test_rate_and_time_left() -> None:
    status = SweepStatus("running", cells=100, done=30, failed=10, finished=20, seconds=40.0)
    assert (status.left, status.rate, status.seconds_left) == (60, 0.5, 120.0)
    fresh = SweepStatus("running", cells=100, done=30, failed=10, finished=0, seconds=40.0)
    assert (fresh.rate, fresh.seconds_left) == (None, None)


def test_the_clock_stands_still_at_the_end(sweep: Sweep) -> None:
    turns = Turns(sweep)
    turns.end()
    before = turns.status().seconds
    time.sleep(0.02)
    assert turns.status().seconds == before


def test_a_pipe_among_the_notes_of_failures_is_passed_over(sweep: Sweep) -> None:
    sweep.note_failure(sweep.cells[0], "it broke")
    os.mkfifo(sweep.folder / "failed" / "x.json")
    assert [one.reason for one in failures(sweep.folder)] == ["it broke"]
