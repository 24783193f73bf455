"""AttentionProblem and TileConfig: what is refused and how it is said; sizes and masks against counting by hand."""

import time
from dataclasses import FrozenInstanceError
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernels.problem import AttentionProblem, Refused, TileConfig

LLAMA = AttentionProblem(1, 32, 8, 4096, 4096, 128, "bfloat16", causal=True)


def sees(problem: AttentionProblem, query: int, key: int) -> bool:
    """The mask as its docstring says it, one score at a time."""
    position = query + problem.seq_len_kv - problem.seq_len_q
    return (not problem.causal or key <= position) and (problem.window is None or abs(key - position) < problem.window)


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"batch": 0}, "batch is 0; it must be at least 1."),
        ({"seq_len_kv": 0}, "seq_len_kv is 0; it must be at least 1."),
        ({"seq_len_q": -5}, "seq_len_q is -5; it must be at least 1."),
        ({"head_dim": 0}, "head_dim is 0; it must be at least 1."),
        ({"window": 0}, "window is 0; it must be at least 1."),
        ({"batch": 1.0}, "batch is 1.0; it must be a whole number."),
        ({"heads": True}, "heads is True; it must be a whole number."),
        ({"heads": "8"}, "heads is '8'; it must be a whole number."),
        ({"causal": 1}, "causal is 1; it must be true or false."),
        ({"dtype": "float8"}, "dtype 'float8' is not supported; choose float16, bfloat16, float32."),
        ({"heads": 12, "kv_heads": 5}, "kv_heads 5 does not divide heads 12; choose one of 1, 2, 3, 4, 6, 12."),
        ({"heads": 2, "kv_heads": 4}, "kv_heads 4 does not divide heads 2; choose one of 1, 2."),
        ({"head_dim": 257}, "head_dim 257 is above 256; choose 1 to 256."),
        ({"seq_len_q": 2**24 + 1}, "seq_len_q 16777217 is above 16777216; choose a smaller value."),
        ({"seq_len_kv": 2**24 + 1}, "seq_len_kv 16777217 is above 16777216; choose a smaller value."),
        ({"heads": 2**20 + 1}, "heads 1048577 is above 1048576; choose a smaller value."),
        (
            {"batch": 2**20, "seq_len_q": 2**22},
            "batch × heads × seq_len_q is beyond any GPU grid; make one of them smaller.",
        ),
    ],
    ids=str,
)
def test_an_impossible_problem_is_refused(wrong: dict[str, Any], sentence: str) -> None:
    with pytest.raises(Refused) as refusal:
        AttentionProblem(**wrong)
    assert str(refusal.value) == sentence


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"BLOCK_M": 48}, "BLOCK_M is 48; it must be a power of two up to 1024, such as 32."),
        ({"BLOCK_N": 2**25}, "BLOCK_N is 33554432; it must be a power of two up to 16777216, such as 16777216."),
        ({"BLOCK_N": 0}, "BLOCK_N is 0; it must be at least 1."),
        ({"num_warps": 3}, "num_warps is 3; it must be a power of two up to 32, such as 2."),
        ({"num_warps": 64}, "num_warps is 64; it must be a power of two up to 32, such as 32."),
        ({"num_stages": 9}, "num_stages is 9; choose 1 to 8."),
        ({"num_stages": 0}, "num_stages is 0; it must be at least 1."),
        ({"order": "spiral"}, "order 'spiral' is not known; choose linear, sawtooth, longest_first, persistent."),
    ],
    ids=str,
)
def test_an_impossible_tile_is_refused(wrong: dict[str, Any], sentence: str) -> None:
    with pytest.raises(Refused) as refusal:
        TileConfig(**wrong)
    assert str(refusal.value) == sentence


@pytest.mark.parametrize("heads", [10**18, 720_720])
def test_absurd_heads_are_refused_at_once_and_briefly(heads: int) -> None:
    """A hostile file may say anything; finding and listing every divisor would take hours."""
    begun = time.monotonic()
    with pytest.raises(Refused) as refusal:
        AttentionProblem(heads=heads, kv_heads=17)
    assert time.monotonic() - begun < 2
    assert len(str(refusal.value)) < 120


def test_sizes_by_hand() -> None:
    assert (LLAMA.group, LLAMA.element_bytes, LLAMA.sm_scale) == (4, 2, 128**-0.5)
    assert LLAMA.tensor_bytes == {
        "q": 32 * 4096 * 128 * 2,
        "k": 8 * 4096 * 128 * 2,
        "v": 8 * 4096 * 128 * 2,
        "o": 32 * 4096 * 128 * 2,
        "lse": 32 * 4096 * 4,
    }
    assert LLAMA.score_bytes == 32 * 4096 * 4096 * 2
    assert LLAMA.visible_pairs == 4096 * 4097 // 2
    assert LLAMA.flops == 4 * 32 * (4096 * 4097 // 2) * 128
    assert LLAMA.compulsory_bytes == (2 * 32 + 2 * 8) * 4096 * 128 * 2  # K and V counted with kv_heads


@pytest.mark.parametrize(
    ("problem", "size"),
    [
        (AttentionProblem(1, 16, 16, 8192, 8192, 128, "bfloat16"), 134_217_728),  # 0.134 GB
        (AttentionProblem(8, 16, 16, 4096, 4096, 128, "bfloat16", causal=True), 536_870_912),  # 0.537 GB
        # Decode that sees the last 4 of 20 keys: Q and O one row each, K and V four rows each.
        (AttentionProblem(1, 8, 2, 1, 20, 16, causal=True, window=4), 2 * 8 * 16 * 2 + 2 * 2 * 4 * 16 * 2),
        # 5 queries over 2 keys see both; Q and O count whole.
        (AttentionProblem(1, 1, 1, 5, 2, 16, causal=True), 2 * 5 * 32 + 2 * 2 * 32),
        # Causal never hides the first key when all queries fit; a window of 2 and 2 queries see 3 of 10 keys.
        (AttentionProblem(1, 1, 1, 2, 10, 16, causal=True, window=2), 2 * 2 * 32 + 2 * 3 * 32),
    ],
    ids=lambda value: value.label if isinstance(value, AttentionProblem) else "",
)
def test_compulsory_bytes_by_hand(problem: AttentionProblem, size: int) -> None:
    assert problem.compulsory_bytes == size


@given(
    st.integers(1, 30),
    st.integers(1, 30),
    st.booleans(),
    st.none() | st.integers(1, 40),
)
def test_mask_equals_the_definition(queries: int, keys: int, causal: bool, window: int | None) -> None:
    problem = AttentionProblem(1, 1, 1, queries, keys, 1, causal=causal, window=window)
    seen = [{key for key in range(keys) if sees(problem, query, key)} for query in range(queries)]
    lo, hi = problem.visible_keys()
    assert [set(range(*ends)) for ends in zip(lo, hi, strict=True)] == seen
    assert problem.visible_pairs == sum(map(len, seen))
    assert problem.is_masked == (problem.visible_pairs < queries * keys)
    used = len(set().union(*seen))
    assert problem.compulsory_bytes == 2 * (2 * queries + 2 * used)
    part_lo, part_hi = problem.visible_keys(queries // 2, queries)
    assert part_lo.tolist() == lo[queries // 2 :].tolist() and part_hi.tolist() == hi[queries // 2 :].tolist()


@pytest.mark.parametrize(
    ("head_dim", "padded"), [(1, 16), (16, 16), (17, 32), (63, 64), (64, 64), (80, 128), (96, 128), (256, 256)]
)
def test_padded_head_dim(head_dim: int, padded: int) -> None:
    assert AttentionProblem(head_dim=head_dim).padded_head_dim == padded


def test_labels() -> None:
    assert LLAMA.label == "(1, 32/8, 4096, 128) bfloat16, causal"
    assert AttentionProblem(2, 4, 4, 1, 20, 16, window=7).label == "(2, 4, 1×20, 16) float16, full mask, window 7"


def test_frozen_and_hashable() -> None:
    assert len({AttentionProblem(), AttentionProblem(), AttentionProblem(batch=2)}) == 2
    with pytest.raises(FrozenInstanceError):
        AttentionProblem().batch = 2  # type: ignore[misc]
