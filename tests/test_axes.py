"""Lists and ranges: every spelling by hand, and every misspelling as one sentence."""

import pytest

from kernels.problem import Refused
from profiler.axes import MAX_VALUES, flag, spell, values, whole, whole_or_none, word


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("64", (64,)),
        ("32,64,128", (32, 64, 128)),
        (" 32 , 64 ", (32, 64)),
        ("1:4", (1, 2, 3, 4)),
        ("1:8:3", (1, 4, 7)),
        ("1024:65536:*2", (1024, 2048, 4096, 8192, 16384, 32768, 65536)),
        ("1024:65535:*2", (1024, 2048, 4096, 8192, 16384, 32768)),
        ("16,16:64:*2,1", (16, 32, 64, 1)),
        ("7:7", (7,)),
        ("0:2", (0, 1, 2)),
    ],
)
def test_whole_numbers(text: str, expected: tuple[int, ...]) -> None:
    assert values("--seq-len", text, whole) == expected


def test_other_kinds() -> None:
    assert values("--window", "none,16", whole_or_none) == (None, 16)
    assert values("--causal", "false,TRUE", flag) == (False, True)
    assert values("--dtype", "float16, bfloat16,float16", word) == ("float16", "bfloat16")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "give values with commas"),
        ("1,,2", "give values with commas"),
        ("4:1", "smaller end first"),
        ("1:2:3:4", "a range is start:stop"),
        ("1:8:0", "a step of 1 or more"),
        ("1:8:-1", "a step of 1 or more"),
        ("1:8:*1", "a factor of 2 or more"),
        ("0:8:*2", "a factor of 2 or more from 1 on"),
        ("1:x", "must be a whole number"),
        ("١", "must be a whole number"),
        ("1e9", "must be a whole number"),
        (f"1:{MAX_VALUES + 1}", "more than 100,000 values"),
        ("1:99999999999999999999", "more than 100,000 values"),
    ],
)
def test_misspelled(text: str, words: str) -> None:
    with pytest.raises(Refused, match=words):
        values("--seq-len", text, whole)


def test_a_word_has_no_range() -> None:
    assert values("--kernel", "fl:ash", word) == ("fl:ash",)


def test_a_flag_is_no_number() -> None:
    with pytest.raises(Refused, match="choose true, false"):
        values("--causal", "1", flag)


@pytest.mark.parametrize("value", [None, True, False, 64, "linear"])
def test_a_value_survives_its_spelling(value: int | str | bool | None) -> None:
    read = flag if isinstance(value, bool) else word if isinstance(value, str) else whole_or_none
    assert read("x", spell(value)) == value
