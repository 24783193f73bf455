"""Plans of sweeps, notes of failed cells, project files and audits that anybody may have written."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kernels.problem import Refused
from profiler.audit import from_json as audit_from_json
from profiler.audit import to_json as audit_to_json
from profiler.codec import NotARun, encode
from profiler.grid import Grid
from profiler.project import FILE, Project, read_project
from profiler.store import StoreError
from profiler.sweep import FAILED, PLAN, Failure, create, failures, open_sweep, read_plan
from tests.fake_audits import h200_audit
from tests.hostile import (
    EXAMPLES,
    HOSTILE_TEXTS,
    changed_bytes,
    changed_documents,
    often,
    quickly,
    require_sentence,
)

pytestmark = pytest.mark.computes


def encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("hostile")


@pytest.fixture(scope="module")
def plan(place: Path) -> dict[str, Any]:
    """The plan of a sweep of four cells."""
    grid = Grid({"BLOCK_M": (16, 32), "BLOCK_N": (16, 32), "causal": (False,)}, "BLOCK_M >= 16")
    plan: dict[str, Any] = encode(create(grid, place / "sweep").plan)
    return plan


def require_opened_or_refused(folder: Path) -> None:
    try:
        with quickly():
            found = read_plan(folder)
            assert open_sweep(folder).plan == found
    except (NotARun, Refused, StoreError) as fault:
        require_sentence(str(fault))


@often
@given(data=st.data())
def test_a_changed_plan_is_opened_or_refused(place: Path, plan: dict[str, Any], data: st.DataObject) -> None:
    text = data.draw(changed_documents(st.just(plan).map(lambda one: json.loads(json.dumps(one)))))
    (place / "sweep" / PLAN).write_bytes(encoded(text))
    require_opened_or_refused(place / "sweep")


@often
@given(data=st.data())
def test_changed_bytes_of_a_plan_are_opened_or_refused(place: Path, plan: dict[str, Any], data: st.DataObject) -> None:
    (place / "sweep" / PLAN).write_bytes(data.draw(changed_bytes(st.just(json.dumps(plan).encode()))))
    require_opened_or_refused(place / "sweep")


NOTE = encode(
    Failure("0123456789ab", {"kernel": "flash", "BLOCK_M": "16"}, "It ran out of memory.", "2026-11-29T12:00:00Z")
)


@often
@given(data=st.data())
def test_a_changed_note_of_a_failed_cell_is_read_or_passed_over(place: Path, data: st.DataObject) -> None:
    folder = place / "notes"
    (folder / FAILED).mkdir(parents=True, exist_ok=True)
    text = data.draw(changed_documents(st.just(NOTE).map(lambda one: json.loads(json.dumps(one)))))
    (folder / FAILED / "note.json").write_bytes(encoded(text))
    with quickly():
        found = failures(folder)
    for failure in found:
        assert failure.reason.isprintable() and len(failure.reason) <= 500
        assert all(word.isprintable() for item in failure.values.items() for word in item)


RECORDED = (EXAMPLES / "audits" / "nvidia_h200.json").read_text()
AUDITS = (json.loads(audit_to_json(h200_audit())), json.loads(RECORDED))


def require_audit_or_refused(data: bytes) -> None:
    try:
        with quickly():
            found = audit_from_json(data)
    except NotARun as fault:
        require_sentence(str(fault))
    else:
        assert audit_from_json(audit_to_json(found)) == found
        assert found.summary.isprintable()


@often
@given(changed_documents(st.sampled_from(AUDITS).map(lambda one: json.loads(json.dumps(one)))))
def test_a_changed_audit_is_read_or_refused(text: str) -> None:
    require_audit_or_refused(encoded(text))


@often
@given(changed_bytes(st.sampled_from([RECORDED.encode(), audit_to_json(h200_audit()).encode()])))
def test_changed_bytes_of_an_audit_are_read_or_refused(data: bytes) -> None:
    require_audit_or_refused(data)


TOML = '[kernels]\nown = ["my_module:my_attention", "a.b:c"]\n'
TOML_VALUES = (
    '"a:b"', '"os:system"', '"a"', "1", "1.5", "nan", "true", "[]", "[[]]", "{}", '{a = 1}', "1979-05-27", '"""a\nb"""',
    '"\\u0000"', '"\\ud800"', "[" * 3_000, "{a=" * 3_000, "a" * 70_000, '"a:b",' * 40, "0x" + "f" * 5_000, "9" * 5_000,
)  # fmt: skip
TOML_LINES = (
    "", "[kernels]", "[[kernels]]", "[kernels.own]", "[other]", "own = []", "kernels = 1", '"own" = ["a:b"]',
    "own.x = 1", "[" + "a." * 2_000 + "a]", "\0", "#\0", "= 1", "own = ",
)  # fmt: skip
TOMLS = st.lists(
    st.sampled_from(TOML_LINES)
    | st.sampled_from(TOML_VALUES).map(lambda value: f"own = [{value}]")
    | st.sampled_from(TOML_VALUES).map(lambda value: f"own = {value}")
    | HOSTILE_TEXTS.map(lambda text: f"own = [{json.dumps(text)}]")
    | HOSTILE_TEXTS,
    max_size=4,
).map(lambda lines: encoded("\n".join(lines)))


@often
@given(data=changed_bytes(st.just(TOML.encode())) | TOMLS)
@example(data=b"[" + b"a." * 2_000 + b"a]\n[" + b"a." * 2_000 + b"a]")  # the parser quotes the whole key
def test_a_project_file_names_kernels_or_has_a_fault(place: Path, data: bytes) -> None:
    (place / FILE).write_bytes(data)
    with quickly():
        found = read_project(place)
    if found.fault:
        require_sentence(found.fault)
        assert found == Project(fault=found.fault)
    else:
        assert all(name.isascii() and ":" in name for name in found.own)
