"""Moments of a walk and what was asked for until then, against numbers worked out by hand, for every kernel."""

from functools import cache

import numpy as np
import pytest

from app.subject import Subject
from app.tile_moment import Moment
from kernels.base import all_kernels
from kernels.problem import AttentionProblem, TileConfig
from kernels.walk import Walk

ARTICLE = AttentionProblem(seq_len_q=16, seq_len_kv=16, head_dim=16, dtype="float32")
FOURS = TileConfig(4, 4)
TWO_HEADS = AttentionProblem(heads=2, kv_heads=2, seq_len_q=16, seq_len_kv=16, head_dim=16, causal=True)
ODD = {
    "causal": AttentionProblem(seq_len_q=50, seq_len_kv=65, head_dim=16, causal=True),
    "window": AttentionProblem(seq_len_q=50, seq_len_kv=65, head_dim=16, window=20),
    "blind rows": AttentionProblem(seq_len_q=65, seq_len_kv=35, head_dim=16, causal=True, window=20),
}
WALKED = [name for name, kernel in all_kernels().items() if kernel.is_tiled]


@cache
def subject(kernel: str, problem: AttentionProblem, tile: TileConfig = FOURS) -> Subject:
    return Subject(kernel, kernel, problem, all_kernels()[kernel].cut(problem, tile))


def walk(kernel: str, problem: AttentionProblem, tile: TileConfig = FOURS) -> Walk:
    found = subject(kernel, problem, tile).schedule.walk
    assert found is not None
    return found


def moved(kernel: str, moment: Moment, problem: AttentionProblem) -> dict[tuple[str, str], tuple[int, int, float]]:
    table = moment.moved(subject(kernel, problem).tensor_bytes)
    return {(part.tensor, part.way): (part.program, part.head, part.times or 0.0) for part in table}


def test_bytes_moved_so_far_in_the_articles_example() -> None:
    """Program 1 at its third KV tile: a tile is 4 rows × 16 × 4 B = 256 B, a whole tensor 1,024 B."""
    assert moved("flash", Moment(walk("flash", ARTICLE), 1, 2), ARTICLE) == {
        ("q", "read"): (256, 512, 0.5),
        ("k", "read"): (3 * 256, 7 * 256, 7 / 4),
        ("v", "read"): (3 * 256, 7 * 256, 7 / 4),
        ("o", "write"): (0, 256, 0.25),
        ("lse", "write"): (0, 16, 0.25),
    }


def test_kv_outer_has_read_each_kv_tile_once_and_every_q_tile_for_each_of_them() -> None:
    """Step 7 of 16: KV tile 1 with Q tile 2. 7 visits of 256 B of Q, and of as much acc both ways."""
    moment = Moment.of_head(walk("flash_kv_outer", ARTICLE), 0, 6)
    assert (moment.tile, moment.step, moment.head_steps) == ((2, 1), 6, 16)
    found = moved("flash_kv_outer", moment, ARTICLE)
    assert found["q", "read"] == (7 * 256, 7 * 256, 7 / 4)
    assert found["k", "read"] == found["v", "read"] == (512, 512, 0.5)
    # The state of all 16 rows is also written once to begin with.
    assert found["acc", "read"][1:] == (7 * 256, 7 / 4) and found["acc", "write"][1:] == (11 * 256, 11 / 4)
    assert found["o", "write"] == (0, 0, 0.0)
    assert [part.tolist() for part in moment.kv_reads] == [[1, 1, 0, 0]] * 2


def test_row_streaming_reads_k_and_then_v() -> None:
    """Row 2, the second sweep's first step: rows 0 and 1 are done, K of row 2 too, and one tile of V."""
    moment = Moment(walk("row_streaming", ARTICLE), 2, 4)
    found = moved("row_streaming", moment, ARTICLE)
    assert found["k", "read"] == (1024, 3 * 1024, 3.0) and found["v", "read"] == (256, 2 * 1024 + 256, 2.25)
    assert [part.tolist() for part in moment.kv_reads] == [[3, 3, 3, 3], [3, 2, 2, 2]]
    assert (moment.kv_now, Moment(moment.walk, 2, 3).kv_now) == ({"v"}, {"k"})


def test_what_is_on_chip_of_k_and_v_stays_there_while_q_streams() -> None:
    """flash_kv_outer asks for them on the first visit of a column only."""
    moment = Moment.of_head(walk("flash_kv_outer", ARTICLE), 0, 6)
    assert moment.asked_now == {"q", "acc", "m", "l"} and moment.kv_now == {"k", "v"}


def test_query_tiled_takes_a_program_a_step() -> None:
    moment = Moment.of_head(walk("query_tiled", ARTICLE), 0, 2)
    assert (moment.program, moment.step, moment.head_steps, moment.tile, moment.keys) == (2, 0, 4, (2, 0), (0, 16))
    assert moved("query_tiled", moment, ARTICLE)["k", "read"] == (1024, 3 * 1024, 3.0)


@pytest.mark.parametrize("problem", ODD.values(), ids=ODD)
@pytest.mark.parametrize("kernel", WALKED)
def test_the_end_of_a_head_has_moved_what_the_launch_asks_for(kernel: str, problem: AttentionProblem) -> None:
    found, launch = walk(kernel, problem), subject(kernel, problem).schedule.main
    end = Moment.of_head(found, 0, 10**9)
    assert launch is not None and end.head_step == end.head_steps - 1
    by_tensor = {key: head for key, (_, head, _) in moved(kernel, end, problem).items()}
    assert by_tensor == {
        (tensor, way): size
        for way, part in (("read", launch.reads), ("write", launch.writes))
        for tensor, size in part.items()
    }


@pytest.mark.parametrize("problem", ODD.values(), ids=ODD)
@pytest.mark.parametrize("kernel", WALKED)
def test_every_step_of_a_head_is_reached_in_turn(kernel: str, problem: AttentionProblem) -> None:
    found = walk(kernel, problem)
    seen = [(p, step) for p, steps in enumerate(found.steps.tolist()) for step in range(steps)]
    moments = [Moment.of_head(found, 0, at) for at in range(len(seen))]
    assert [(moment.program, moment.step) for moment in moments] == seen
    assert [moment.head_step for moment in moments] == list(range(len(seen)))


def test_steps_go_on_through_the_head_and_back() -> None:
    moment, seen = Moment(walk("flash", TWO_HEADS), 4), []
    for _ in range(1 + 2 + 3 + 4):
        seen.append((moment.head, *moment.tile))
        moment = moment.further(1)
    assert seen == [(1, i, j) for i in range(4) for j in range(i + 1)]
    assert (moment.program, moment.step) == (4, 0), "the second head begins anew and is not left"
    assert moment.further(-1).tile == (3, 3)


def test_a_program_that_sees_nothing_has_one_step_in_which_it_writes() -> None:
    problem = AttentionProblem(seq_len_q=8, seq_len_kv=4, head_dim=16, causal=True)
    moment = Moment.at_tile(walk("flash", problem), 0, 0, 5)
    assert (moment.kv_tile, moment.keys, moment.kv_now, moment.steps) == (None, None, frozenset(), 1)
    assert moved("flash", moment, problem)["o", "write"][0] == 4 * 16 * 2
    assert moment.asked_now == {"q", "o", "lse"}


def test_numbers_out_of_range_are_clamped() -> None:
    last = Moment(walk("flash", ARTICLE), 99, 99)
    assert (last.program, last.step) == (3, 3) and Moment(last.walk, -1, -1).tile == (0, 0)


def test_a_window_asks_for_no_key_that_nobody_sees() -> None:
    """seq_len_q 4 against 16 keys, window 4 of a causal mask: keys 9 to 15 of tiles 2 and 3; tiles 0 and 1 never."""
    problem = AttentionProblem(seq_len_q=4, seq_len_kv=16, head_dim=16, causal=True, window=4)
    end = Moment.of_head(walk("flash", problem), 0, 99)
    assert end.kv_reads[0].tolist() == [0, 0, 1, 1]
    assert moved("flash", end, problem)["k", "read"] == (8 * 32, 8 * 32, 1.0)
    assert np.array_equal(end.done, [2])
