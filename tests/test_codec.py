"""Dataclasses to plain values and back; arrays as text; everything that is not what it should be is named."""

import base64
import json
import time
import tracemalloc
import zlib
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from numpy.typing import NDArray

from kernels.problem import ADDED
from profiler.codec import DTYPES, MAX_ARRAY_BYTES, NotARun, PackedArray, decode, encode


@dataclass(frozen=True)
class Inner:
    name: str
    size: int | None


@dataclass(frozen=True)
class Outer:
    inner: Inner
    maybe: Inner | None
    values: tuple[float, ...]
    pair: tuple[int, str]
    table: dict[str, tuple[int, ...]]
    flag: bool


WHOLE = Outer(Inner("ü", None), Inner("", 3), (1.5, 2.0), (7, "x"), {"a": (1, 2), "": ()}, True)


def test_round_trip_through_json() -> None:
    text = json.dumps(encode(WHOLE), allow_nan=False)
    assert decode(Outer, json.loads(text)) == WHOLE


@pytest.mark.parametrize(
    ("path", "value", "sentence"),
    [
        (("inner",), 3, "run.inner should be an object."),
        (("inner", "name"), 3, "run.inner.name should be str, not int."),
        (("inner", "size"), 3.0, "run.inner.size should be int, not float."),
        (("inner", "size"), True, "run.inner.size should be int, not bool."),
        (("maybe", "size"), "3", "run.maybe.size should be int, not str."),
        (("values",), 1.0, "run.values should be a list."),
        (("values",), [1.0, None], "run.values[1] should be float, not NoneType."),
        (("values",), [1.0, True], "run.values[1] should be float, not bool."),
        (("values",), [1.0, float("nan")], "run.values[1] is nan; a measured value is finite or absent."),
        (("values",), [float("inf")], "run.values[0] is inf; a measured value is finite or absent."),
        (("pair",), [1], "run.pair should be a list of 2."),
        (("pair",), [1, "x", 2], "run.pair should be a list of 2."),
        (("pair",), ["x", 1], "run.pair[0] should be int, not str."),
        (("table",), [], "run.table should be an object."),
        (("table", "a"), [1, "2"], "run.table.a[1] should be int, not str."),
        (("flag",), 1, "run.flag should be bool, not int."),
        (("inner", "name"), "a\ud800", "run.inner.name holds half a character (a lone surrogate)."),
        (("table", "\udfff"), [], "run.table holds half a character (a lone surrogate)."),
        (("extra",), 1, "run has a field that this version does not know: 'extra'."),
        (("inner", "extra"), 1, "run.inner has a field that this version does not know: 'extra'."),
    ],
    ids=str,
)
def test_a_fault_is_named_with_its_place(path: tuple[str, ...], value: object, sentence: str) -> None:
    data: Any = encode(WHOLE)
    place = data
    for name in path[:-1]:
        place = place[name]
    place[path[-1]] = value
    with pytest.raises(NotARun) as fault:
        decode(Outer, data)
    assert str(fault.value) == sentence


@pytest.mark.parametrize("name", ["inner", "maybe", "values", "flag"])
def test_a_missing_field_is_named(name: str) -> None:
    data: Any = encode(WHOLE)
    del data[name]
    with pytest.raises(NotARun, match=rf"^run lacks the field '{name}'\.$"):
        decode(Outer, data)


def test_a_field_added_since_has_its_default_in_older_files() -> None:
    @dataclass(frozen=True)
    class Grown:
        name: str
        drain: bool = field(default=True, metadata=ADDED)
        seed: int = 0

    assert decode(Grown, {"name": "x", "seed": 1}) == Grown("x", True, 1)
    assert decode(Grown, {"name": "x", "drain": False, "seed": 1}) == Grown("x", False, 1)
    with pytest.raises(NotARun, match="lacks the field 'seed'"):
        decode(Grown, {"name": "x"})


def test_whole_numbers_are_floats_where_floats_are_due() -> None:
    found = decode(tuple[float, ...], [1, 2])
    assert found == (1.0, 2.0) and all(isinstance(value, float) for value in found)


def test_a_number_beyond_every_float_is_a_sentence() -> None:
    with pytest.raises(NotARun, match=r"^run\[1\] is inf; a measured value is finite or absent\.$"):
        decode(tuple[float, ...], [1, 10**400])


def test_a_million_floats_are_read_without_spelling_their_places() -> None:
    values = [0.5] * 1_000_000
    begun = time.process_time()
    assert decode(tuple[float, ...], values) == tuple(values)
    assert time.process_time() - begun < 1.0


PACKABLE = arrays.arrays(
    st.sampled_from(DTYPES).map(np.dtype),
    arrays.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=5),
)


@given(PACKABLE)
def test_arrays_come_back_bit_for_bit(array: NDArray[Any]) -> None:
    packed = PackedArray.pack(array)
    found = decode(PackedArray, json.loads(json.dumps(encode(packed)))).numpy()
    assert (found.shape, found.dtype) == (array.shape, array.dtype)
    assert found.tobytes() == array.tobytes()  # NaN, −0 and infinities included


def test_a_strided_array_packs_like_its_copy() -> None:
    array = np.arange(24, dtype=np.float32).reshape(4, 6)[::2, ::-3]
    assert PackedArray.pack(array).numpy().tolist() == array.tolist()


def test_an_unpacked_array_is_read_only() -> None:
    with pytest.raises(ValueError, match="read-only"):
        PackedArray.pack(np.zeros(3, np.float32)).numpy()[0] = 1


def packed(raw: bytes) -> str:
    return base64.b64encode(zlib.compress(raw)).decode()


@pytest.mark.parametrize(
    "data",
    [
        packed(bytes(7)),
        packed(bytes(9)),
        packed(b""),
        packed(bytes(8))[:-4],
        base64.b64encode(bytes(8)).decode(),
        "not base64!",
        "ä",
        "",
    ],
    ids=["short", "long", "empty", "cut", "not zlib", "not base64", "not ascii", "nothing"],
)
def test_wrong_data_of_an_array_is_a_sentence(data: str) -> None:
    with pytest.raises(NotARun, match=r"^An array (holds more or less|cannot be unpacked)"):
        PackedArray((2,), "float32", data).numpy()


def test_a_small_file_does_not_unpack_into_a_large_one() -> None:
    """100 MiB of zeros in 140 KB, said to be 8 bytes."""
    bomb = PackedArray((2,), "float32", packed(bytes(100 * 2**20)))
    tracemalloc.start()
    try:
        with pytest.raises(NotARun, match=r"^An array holds more or less than the 8 bytes of its shape \(2,\)\.$"):
            bomb.numpy()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 2**20


@pytest.mark.parametrize(
    ("shape", "dtype"),
    [
        ((-1,), "float32"),
        ((MAX_ARRAY_BYTES // 8 + 1,), "float64"),
        ((2**40, 2**40), "int32"),
        ((0, 2**70), "int32"),
        ((1,) * 100, "int32"),
        ((2,), "object"),
        ((2,), "<f4"),
    ],
    ids=str,
)
def test_an_impossible_array_is_a_sentence(shape: tuple[int, ...], dtype: str) -> None:
    with pytest.raises(NotARun, match=r"^An array "):
        PackedArray(shape, dtype, packed(b"")).numpy()
