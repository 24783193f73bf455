"""Run files that anybody may have written: each is read as what it says, or refused with one sentence."""

import json
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from profiler.catalogue import catalogue
from profiler.codec import DTYPES, NotARun, PackedArray
from profiler.run_document import from_json, to_document, to_json
from profiler.store import load
from tests.fake_runs import cpu_run, naive_run
from tests.hostile import (
    HOSTILE_TEXTS,
    NUMBERS,
    changed_bytes,
    changed_documents,
    documents,
    often,
    originals,
    quickly,
    require_sentence,
)

pytestmark = pytest.mark.computes


def require_read_or_refused(data: str | bytes) -> bool:
    """Whether it is read; fail where it is read as something else than it is written as again, or badly refused."""
    try:
        with quickly():
            runs = from_json(data)
    except NotARun as fault:
        require_sentence(str(fault))
        return False
    assert from_json(to_json(runs)) == runs
    return True


@pytest.mark.parametrize("text", originals(), ids=lambda text: json.loads(text)["runs"][0]["id"])
def test_originals_are_read(text: str) -> None:
    assert require_read_or_refused(text)


@often
@given(changed_documents(documents()))
def test_a_changed_document_is_read_or_refused(text: str) -> None:
    require_read_or_refused(text)


@often
@given(changed_bytes(st.sampled_from(originals()).map(str.encode)))
def test_changed_bytes_are_read_or_refused(data: bytes) -> None:
    require_read_or_refused(data)


SMALL_DOCUMENTS = st.sampled_from([naive_run(), cpu_run()]).map(lambda run: to_document([run]))
TOGETHER = 16


@settings(max_examples=-(-settings().max_examples // TOGETHER) * 2)
@given(st.lists(changed_documents(SMALL_DOCUMENTS), min_size=TOGETHER, max_size=TOGETHER))
def test_what_can_be_opened_is_listed_and_what_is_not_listed_has_a_sentence(
    tmp_path_factory: pytest.TempPathFactory, texts: list[str]
) -> None:
    folder = tmp_path_factory.mktemp("listed")
    for i, text in enumerate(texts):
        (folder / f"{i}.json").write_bytes(text.encode("utf-8", "surrogatepass"))
    with quickly(), catalogue([folder]) as saved:
        listed = Counter(name for (name,) in saved.runs.project("name").fetchall())
        faults = {fault.partition(": ")[0]: fault for fault in saved.faults}
    for i in range(TOGETHER):
        name = f"{i}.json"
        assert (listed[name] > 0) != (name in faults)
        try:
            opened = len(load(folder / name))
        except NotARun:
            continue
        assert listed[name] == opened, faults.get(name)
    for fault in faults.values():
        require_sentence(fault)
        assert "please report" not in fault


SHAPES = st.lists(st.sampled_from([n for n in NUMBERS if isinstance(n, int)]) | st.integers(0, 9), max_size=9)


@often
@given(SHAPES, st.sampled_from(DTYPES) | HOSTILE_TEXTS, HOSTILE_TEXTS | st.binary(max_size=40).map(bytes.hex))
def test_an_array_is_unpacked_or_refused(shape: list[int], dtype: str, data: str) -> None:
    try:
        with quickly():
            found = PackedArray(tuple(shape), dtype, data).numpy()
    except NotARun as fault:
        require_sentence(str(fault))
    else:
        assert (found.shape, found.dtype.name, found.nbytes) == (tuple(shape), dtype, PackedArray.pack(found).nbytes)


def test_a_field_that_stands_twice_among_many_is_found_at_once(tmp_path: Path) -> None:
    fields = ",".join(f'"{i}":0' for i in range(300_000))
    with quickly(), pytest.raises(NotARun, match="has the field '7' twice in one object"):
        from_json(f'{{"7":1,{fields}}}')
