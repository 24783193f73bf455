"""What the pages show of a Q tile whose rows are query heads, and where a head is found again between kernels."""

from dataclasses import replace
from functools import cache

import pytest
from streamlit.testing.v1 import AppTest

from app import softmax_asked
from app.level_table import levels
from app.packed_rows import head_title, rows_in_words, why_packed
from app.perfetto_slices import lane_slices
from app.program_card import chosen
from app.selection import compare
from app.softmax_asked import Asked
from app.softmax_pages import last_recorded, whole_acc
from app.softmax_recording import recording
from app.standing import Pair, Standing
from app.style import LIGHT
from app.subject import Subject
from app.tile_moment import Moment
from app.tile_pages import headline, matrix, shown_scores
from app.tile_tables import moved, moved_both
from app.timeline_pages import timed
from app.traffic_pictures import by_tensor
from app.traffic_tables import spelled_out
from kernels.problem import AttentionProblem, TileConfig
from kernels.walk import Walk
from profiler.codec import NotARun
from profiler.device import cpu_device
from profiler.measure import measure
from profiler.run import Run
from profiler.run_document import from_json, to_json
from profiler.workload import TraceRequest, Workload
from tests import fake_timelines

# Heads 0 to 2 share K/V head 0, heads 3 to 5 share 1; each K/V head has 3 KV tiles, a program each.
PROBLEM, TILE = AttentionProblem(1, 6, 2, 1, 24, 16, "float32", causal=True), TileConfig(4, 8)
PACKED, FLASH = (Subject(kernel, kernel, PROBLEM, TILE) for kernel in ("split_kv", "flash"))


def walk_of(subject: Subject) -> Walk:
    walk = subject.schedule.walk
    assert walk is not None
    return walk


@cache
def traced() -> Run:
    """Head 4, interpreted, as it comes out of a file; its programs as if they had run on 2 SMs for 1 µs."""
    run = measure(Workload("split_kv", PROBLEM, TILE, trace=TraceRequest(0, 4)), cpu_device(), "packed")
    timeline = fake_timelines.scheduled(walk_of(PACKED), lanes=2, step_ns=1024)
    (read,) = from_json(to_json((replace(run, timeline=replace(timeline, launch="split")),)))
    return read


def test_rows_in_words() -> None:
    packed, plain = walk_of(PACKED).grid, walk_of(FLASH).grid
    assert (head_title(packed), head_title(plain), why_packed(plain)) == ("K/V head", "head", "")
    assert rows_in_words(packed, 1, 0, 3) == "Q rows 0 to 2, which are query heads 3 to 5"
    assert rows_in_words(plain, 4, 0, 1) == "Q rows 0 to 0"
    assert "the 3 query heads that share a K/V head are the rows" in why_packed(packed)


def test_the_tile_page_names_k_v_heads() -> None:
    """Program 4 is the second of K/V head 1, whose K is 24 rows of 64 B and Q 3 rows."""
    moment, words = Moment(walk_of(PACKED), 4, 0), headline(PACKED)
    assert words.sentence == "Split K/V reads K and V once and Q 3 times a K/V head."
    assert "GQA packing" in words.detail and "3 programs a K/V head" in words.detail
    caption = matrix(PACKED, moment, LIGHT).caption
    assert "K/V head 1, program 4, its step 1 of 1: Q rows 0 to 2, which are query heads 3 to 5, KV tile 1" in caption
    assert "how often this K/V head has read K" in caption
    table = moved(PACKED, moment)
    assert "this K/V head" in table.columns
    rows = {row[:2]: row[2:5] for row in table.rows}
    assert rows["Q", "read"] == ("192 B", "384 B", "2.0×") and rows["K", "read"] == ("512 B", "1.02 kB", "0.67×")
    assert any("of this K/V head" in row for row in levels(PACKED, moment).rows)


def test_a_head_beside_a_k_v_head_is_compared_by_its_share() -> None:
    """Flash reads K of a head, 1,536 B; of split K/V's K/V head a third is a head's."""
    both = Pair.beside(Standing.of(FLASH, 4, 2), PACKED)
    assert both.second is not None and both.second.moment is not None
    assert (both.first.head, both.second.head, both.second.moment.head) == (4, 3, 1)
    assert both.second.moved_to(0).moment == Moment(walk_of(PACKED), 3, 0)
    rows = {row[:2]: row[2:4] for row in moved_both(both).rows}
    assert rows["K", "read"] == ("1.54 kB", "512 B") and rows["Q", "read"] == ("64 B", "192 B")
    assert "Where query heads share a tile (split_kv), one head's share of it." in moved_both(both).caption


def test_scores_of_one_head_are_not_printed_on_a_tile_of_several() -> None:
    """Even where the K/V head has the number of the recorded head: head 1 is a row of K/V head 0."""
    run = measure(Workload("flash", PROBLEM, TILE, trace=TraceRequest(0, 1)), cpu_device(), "packed")
    found = (replace(FLASH, run=run), PACKED)
    assert shown_scores(FLASH, found, Moment(walk_of(FLASH), 1)) is not None
    assert shown_scores(PACKED, found, Moment(walk_of(PACKED), 4)) is None


def _tiles() -> None:
    import streamlit as st

    from app.views import tile_schedule as view

    view.render(st.session_state.get("runs", ()))


def test_a_head_is_kept_from_kernel_to_kernel() -> None:
    """Head 4 is the second of K/V head 1; with K/V head 0 it is the second of that, head 1."""
    app = AppTest.from_function(_tiles, default_timeout=30)
    state = {"problem": PROBLEM, "tile": TILE, "tile.kernel": "flash", "batch": 0, "head": 4, "row": 0, "key": 9}
    for name, value in state.items():
        app.session_state[name] = value
    app.run()
    app.selectbox(key="tile.choice").set_value("split_kv").run()
    assert not app.exception
    assert app.number_input(key="tile.K/V head").value == 1
    app.number_input(key="tile.KV tile").set_value(2).run()
    assert [app.session_state[name] for name in ("program", "head", "row", "key")] == [5, 4, 0, 16]
    app.number_input(key="tile.K/V head").set_value(0).run()
    assert [app.session_state[name] for name in ("program", "head", "row", "key")] == [2, 1, 0, 16]
    app.selectbox(key="tile.choice").set_value("flash").run()
    assert not app.exception and app.number_input(key="tile.Head").value == 1


def test_a_recording_of_one_head_is_found_in_its_tile() -> None:
    """Three programs share the row, a KV tile each: the row of head 4 is the second of K/V head 1."""
    found = recording(traced())
    assert found is not None and (found.batch_head, found.offset, found.q_tile(0)) == (1, 1, 0)
    assert [part.tolist() for part in found.row(0).states] == [[0], [1], [2]] and found.shares == 3
    assert found.last_tiles == (0, 1, 2) and last_recorded(found) == 2
    m, exact = found.totals(exact=False), found.totals(exact=True)
    assert m[0].tolist() == pytest.approx(exact[0].tolist()) and m[1].tolist() == pytest.approx(exact[1].tolist())
    picture = whole_acc(found, 2, 0, LIGHT)
    assert picture.caption.startswith("acc of head 4 after KV tile 2") and "not kept" not in picture.caption
    assert softmax_asked.sentence(Asked(0, 4, 0), found, 0) == ""
    assert softmax_asked.sentence(Asked(0, 5, 0), found, 0) == (
        "Row 0 of head 5, chosen elsewhere, was not recorded; row 0 of head 4 was: this is row 0 of head 4."
    )


def _softmax() -> None:
    import streamlit as st

    from app.views import online_softmax as view

    view.render(st.session_state["runs"])


def test_the_softmax_page_leads_to_the_tiles_of_the_head() -> None:
    """The largest difference lies in head 4: one of the programs 3 to 5 of K/V head 1."""
    app = AppTest.from_function(_softmax, default_timeout=30)
    app.session_state["runs"] = (traced(),)
    app.run()
    assert not app.exception
    app.button(key="softmax.to-l").click().run()
    assert not app.exception
    assert (app.session_state["head"], app.session_state["row"]) == (4, 0)
    assert app.session_state["program"] in (3, 4, 5)


def test_a_program_says_which_query_heads_it_has_and_what_state_it_left() -> None:
    """Program 4 has KV tile 1 of K/V head 1, and the recorded head 4 among its rows; program 1 is of K/V head 0."""
    run, (one,) = traced(), timed((traced(),))
    assert run.softmax is not None
    table = chosen(one, 4)
    cells = {row[0]: row[1] for row in table.rows}
    assert (cells["batch, K/V head"], cells["query heads"], cells["KV tiles"]) == ("0, 1", "3 to 5", "1")
    assert float(cells["m"]) == pytest.approx(float(run.softmax.m.numpy()[0, 1]), rel=1e-3)
    assert "of row 0 of query head 4" in table.caption
    assert {row[1] for row in chosen(one, 1).rows[-3:]} == {"–"}
    slices = [event["args"] for event in lane_slices(run, one.found).events(0, 0) if event["ph"] == "X"]
    (work,) = (args for args in slices if args.get("program") == 4)
    assert (work["kv_head"], work["query_heads"]) == (1, "3 to 5") and "head" not in work


def test_a_run_of_another_version_of_its_kernel_has_no_walk() -> None:
    """Had it asked for K and V once for each query head, its programs would have been others, and more or fewer."""
    run, seven = traced(), fake_timelines.traced([0] * 7, range(0, 7000, 1000), range(1000, 8000, 1000))
    told = tuple(replace(m, value=3 * m.value) if m.source == "schedule" and m.value else m for m in run.measurements)
    (other,) = from_json(to_json((replace(run, measurements=told, timeline=seven),)))
    assert recording(other) is None
    (one,) = timed((other,))
    assert "batch, K/V head" not in {row[0] for row in chosen(one, 6).rows}
    # Nor are its bytes put down to tensors by today's schedule, beside the sum that it was told.
    assert spelled_out(compare((other,))).rows == () and spelled_out(compare((run,))).rows
    assert by_tensor(compare((run,)), LIGHT).chart.data
    drawn = by_tensor(compare((other,)), LIGHT).chart
    assert not drawn.data and "another version of the kernel" in str(drawn.layout.annotations)
    with pytest.raises(NotARun, match="should hold 6 programs"):
        from_json(to_json((replace(run, timeline=seven),)))
