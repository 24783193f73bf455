"""No id, name or link that a file or a browser brings leads a write or a read out of its folder."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from kernels.problem import Refused
from profiler.codec import NotARun, decode, encode
from profiler.grid import Grid
from profiler.run_document import from_json, to_json
from profiler.store import StoreError, load, save
from profiler.sweep import FAILED, PLAN, Plan, create, open_sweep, read_plan
from tests.fake_audits import h200_audit
from tests.fake_runs import cpu_run

LEADING_OUT = (
    "../x",
    "..",
    ".",
    "/etc/x",
    "a/b",
    "a\\b",
    "a\x00b",
    "a\nb",
    "C:x",
    "%2e%2e%2fx",
    "~x",
    "",
    "x" * 81,
    "a.b",
)
CONTENT = "what was there before"


def everything(folder: Path) -> dict[str, str]:
    """The files below a folder, links not followed, and what is in them."""
    return {
        str(path.relative_to(folder)): path.read_text()
        for path in folder.rglob("*")
        if path.is_file() and not path.is_symlink()
    }


@pytest.mark.parametrize("name", LEADING_OUT)
def test_an_id_that_could_lead_out_is_none(name: str) -> None:
    with pytest.raises(NotARun, match=r"A Run's id is .*letters, digits, - and _ only"):
        replace(cpu_run(), id=name)
    document = json.loads(to_json([cpu_run()]))
    document["runs"][0]["id"] = name
    with pytest.raises(NotARun):
        from_json(json.dumps(document))
    plan = {**encode(_plan()), "id": name}
    with pytest.raises(NotARun):
        decode(Plan, plan, PLAN)
    for told in ({"id": name}, {"run_ids": (name,)}):
        with pytest.raises(NotARun):
            replace(h200_audit(), **told)


def _plan() -> Plan:
    return Plan(1, "20260101T000000-sweep-00000000", "2026-01-01T00:00:00Z", {"kernel": ("flash",)}, "", False, 1, "0")


def test_every_id_that_is_one_is_a_file_of_the_folder(tmp_path: Path) -> None:
    for name in ("x" * 80, "ä-_9", "٣", "²"):
        assert save(replace(cpu_run(), id=name), tmp_path / "runs").parent == tmp_path / "runs"
    assert {path.parent for path in tmp_path.rglob("*.json")} == {tmp_path / "runs"}


def test_an_id_that_no_disk_takes_is_a_sentence(tmp_path: Path) -> None:
    run = replace(cpu_run(), id="𝟘" * 80)  # 320 bytes
    with pytest.raises(StoreError, match=r"could not be saved in .*: File name too long"):
        save(run, tmp_path)
    assert everything(tmp_path) == {}


def test_a_link_in_the_place_of_a_run_is_replaced_and_its_target_left_alone(tmp_path: Path) -> None:
    outside, runs = tmp_path / "outside.txt", tmp_path / "runs"
    outside.write_text(CONTENT)
    runs.mkdir()
    (runs / "fake-cpu.json").symlink_to(outside)
    path = save(cpu_run(), runs)
    assert not path.is_symlink() and load(path) == (cpu_run(),)
    assert outside.read_text() == CONTENT


def test_a_folder_or_pipe_in_the_place_of_a_run_is_refused(tmp_path: Path) -> None:
    (tmp_path / "fake-cpu.json").mkdir()
    with pytest.raises(StoreError, match="no ordinary file"):
        save(cpu_run(), tmp_path)


def test_notes_of_a_sweep_from_elsewhere_name_no_file(tmp_path: Path) -> None:
    """A note that a cell failed is believed of cells of the grid alone; the cell that it names is no path."""
    folder, victim = tmp_path / "sweep", tmp_path / "victim.json"
    victim.write_text(CONTENT)
    sweep = create(Grid({"kernel": ("flash",), "heads": (1,), "seq_len_q": (64,), "head_dim": (16,)}), folder)
    note = {"cell": "../../victim", "values": {}, "reason": "x", "created": "2026-01-01T00:00:00Z"}
    (folder / FAILED / "a.json").write_text(json.dumps(note))
    opened = open_sweep(folder)
    assert opened.failed() == {} and opened.left(again=True) == sweep.cells
    for cell in opened.cells:
        assert re.fullmatch("[0-9a-f]+", cell.id)
        opened.forget_failure(cell)
    assert victim.read_text() == CONTENT


@pytest.mark.parametrize(
    "condition",
    [
        "(SELECT count(*) FROM read_text('/etc/hostname')) > 0",
        "(SELECT count(*) FROM read_csv('http://127.0.0.1:9/x')) > 0",
        "getenv('HOME') <> ''",
        "true); COPY (SELECT 1) TO 'stolen.csv'; SELECT (true",
        "true; INSTALL httpfs",
    ],
)
def test_the_condition_of_a_sweep_from_elsewhere_reaches_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, condition: str
) -> None:
    monkeypatch.chdir(tmp_path)
    document = {**encode(_plan()), "where": condition}
    (tmp_path / "sweep").mkdir()
    (tmp_path / "sweep" / PLAN).write_text(json.dumps(document))
    assert read_plan(tmp_path / "sweep").where == condition
    with pytest.raises(Refused, match="The condition"):
        open_sweep(tmp_path / "sweep")
    assert [*everything(tmp_path)] == [f"sweep/{PLAN}"]
