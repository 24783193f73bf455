"""The page of block sizes, drawn for real over Runs, compiled resources and sweeps made by hand."""

import contextlib
import itertools
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from app import block_jobs, block_measured, block_pages
from app.block_board import Subject
from app.block_buttons import BLOCKS
from app.block_measured import failures_of, of_runs, of_subject, stored
from app.block_progress import compile_words, sweep_words
from app.block_targets import default_targets, targets
from app.picture import Picture
from app.style import LIGHT
from app.views import block_sizes as view
from kernels.base import all_kernels
from kernels.problem import Refused, TileConfig
from profiler.compile_job import CompileJob, CompileStatus
from profiler.grid import Grid
from profiler.resource_cache import ResourceCache, resources_folder, triton_version
from profiler.resources import Configuration
from profiler.run import Run
from profiler.store import save
from profiler.sweep import create
from profiler.target import gpu_target
from profiler.turns import SweepStatus
from tests import fake_runs
from tests.fake_boards import PROBLEM, measured, resources, run, tile

FLASH = Subject("flash", PROBLEM)
THREE = (run(64, 64, 1.2, 5.8e9), run(128, 64, 1.3, 2.7e9), run(128, 128, 1.1, 2.6e9))


@pytest.fixture(autouse=True)
def fresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is kept from the test before, and the recorded sweep, which is of the same problem, is not there."""
    monkeypatch.setattr(block_measured, "RECORDED", tmp_path / "recorded")
    block_measured._stored.cache_clear()


def _page() -> None:
    import streamlit as st

    from app.views import block_sizes as view

    st.session_state.setdefault("problem", st.session_state["fake-problem"])
    st.session_state.setdefault("tile", st.session_state["fake-tile"])
    view.render(st.session_state.get("runs", ()))


def page(*runs: Run) -> AppTest:
    app = AppTest.from_function(_page, default_timeout=30)
    app.session_state["runs"] = runs
    app.session_state["fake-problem"] = PROBLEM
    app.session_state["fake-tile"] = TileConfig(128, 64, 4, 3)
    app.run()
    assert not app.exception, app.exception
    return app


def shown(app: AppTest) -> str:
    return " ".join(part.proto.body for part in app.get("html"))


def compilable(*gpus: str) -> int:
    """How many of the 25 usual tiles are not refused before they are compiled, over these GPUs."""
    count = 0
    for gpu in gpus:
        for m, n in itertools.product(BLOCKS, BLOCKS):
            with contextlib.suppress(Refused):
                all_kernels()["flash"].refuse(PROBLEM, tile(m, n), gpu_target(gpu).limits)
                count += 1
    return count


def test_nothing_known_says_what_to_press() -> None:
    app = page()
    assert "Which tile for Flash?" in shown(app)
    assert "Press Compile, or Measure." in shown(app)
    assert app.button(key="blocks.compile").label == f"Compile {compilable('a100', 'h100')} for sm_80, sm_90"
    assert app.multiselect(key="blocks.gpus").value == ["A100 SXM 80 GB", "H100 SXM"]


def test_measured_tiles_are_the_answer() -> None:
    app = page(*THREE)
    text = shown(app)
    assert "128×128 is fastest: 1.10 ms, 500 TFLOP/s." in text
    assert "It also moves the fewest bytes between L2 and the SMs, of 3 tiles." in text
    assert "3 of 25 tiles timed on NVIDIA H200" in text
    assert app.multiselect(key="blocks.gpus").value == ["NVIDIA H200"]


def test_runs_of_the_folder_and_of_sweeps_count(runs: Path) -> None:
    save(THREE[0])
    given = {name: (getattr(PROBLEM, name),) for name in ("heads", "kv_heads", "seq_len_q", "seq_len_kv", "head_dim")}
    grid = Grid(given | {"dtype": ("bfloat16",), "BLOCK_M": (64, 256), "BLOCK_N": (32, 256)})
    sweep = create(grid)
    for cell in sweep.cells[:3]:
        assert cell.workload is not None and cell.workload.problem == PROBLEM
        save(replace(THREE[1], id=sweep.run_id(cell), workload=replace(cell.workload, device="cuda:0")), sweep.runs)
    sweep.note_failure(sweep.cells[3], "It needs too much.")
    found = of_subject(stored(), FLASH)
    tiles = {(one.workload.tile.BLOCK_M, one.workload.tile.BLOCK_N) for one in found if one.workload.tile}
    assert tiles == {(64, 64), (64, 32), (64, 256), (256, 32)}
    assert {one.found["hbm_bytes"][0] for one in found} == {1.35e8}
    assert failures_of(FLASH) == {tile(256, 256): "It needs too much."}


def test_stored_and_open_runs_tell_the_same(runs: Path) -> None:
    for one in THREE:
        save(one)
    by_id = {one.run_id: one for one in stored()}
    for one in of_runs(THREE):
        same = by_id[one.run_id]
        assert (same.workload, same.device, same.created) == (one.workload, one.device, one.created)
        assert same.found["gpu_time_seconds"] == one.found["gpu_time_seconds"]
        assert same.found["l2_sm_bytes"] == one.found["l2_sm_bytes"]


def keep(*found: Any) -> None:
    cache = ResourceCache(resources_folder(), triton_version() or "")
    for one in found:
        cache.keep(replace(one, triton=cache.triton))


def test_compiled_tiles_come_from_the_cache() -> None:
    keep(resources(128, 64, registers=200, shared=98304), resources(64, 64, registers=128, shared=49152))
    app = page()
    app.multiselect(key="blocks.gpus").set_value(["H200 SXM"]).run()
    text = shown(app)
    assert "128×64 looks best, untimed." in text
    assert "2 of 25 tiles compiled for H200 SXM" in text
    assert app.button(key="blocks.compile").label == f"Compile {compilable('h200') - 2} for sm_90"


def test_a_click_makes_a_tile_the_forms() -> None:
    app = page(*THREE)
    view_state = {"selection": {"points": [{"customdata": {"0": 64, "1": 32}}]}}

    class Event:
        class selection:
            points = view_state["selection"]["points"]

    import streamlit as st

    from app import form_values

    put: list[dict[str, object]] = []
    original, form_values.put = form_values.put, put.append  # type: ignore[assignment]
    state = st.session_state
    try:
        st.session_state = {view.MAP: Event}  # type: ignore[assignment]
        view._clicked(TileConfig(num_warps=8, num_stages=2))
    finally:
        st.session_state, form_values.put = state, original
    assert put == [{"BLOCK_M": 64, "BLOCK_N": 32, "num_warps": 8, "num_stages": 2}]
    assert app is not None


def test_choices_outlive_other_pages() -> None:
    app = page(*THREE)
    app.selectbox(key="blocks.warps").set_value(8).run()
    assert app.selectbox(key="blocks.warps").value == 8
    assert "25 tiles" not in shown(app)  # nothing was measured at 8 warps
    assert app.session_state["kept.blocks.warps"] == 8


def test_each_gpu_is_offered_once() -> None:
    offered = targets(FLASH, [measured(64, 64, 1.0), measured(64, 64, 1.0, device="NVIDIA H900")])
    assert list(offered)[:2] == ["NVIDIA H200", "NVIDIA H900"]
    assert "H200 SXM" not in offered and "H100 SXM" in offered
    assert offered["NVIDIA H200"].gpu is not None and offered["NVIDIA H900"].gpu is None
    assert "NVIDIA H900 is not in the table of GPUs" in offered["NVIDIA H900"].why
    assert default_targets(offered) == ["NVIDIA H200", "NVIDIA H900"]


def test_recorded_runs_stand_apart() -> None:
    own, recorded = measured(64, 64, 1.0), replace(measured(64, 64, 2.0), recorded=True)
    offered = targets(FLASH, [recorded, own])
    assert list(offered)[:2] == ["NVIDIA H200 (recorded)", "NVIDIA H200"] and "H200 SXM" not in offered
    for title, seconds in (("NVIDIA H200 (recorded)", 2e-3), ("NVIDIA H200", 1e-3)):
        (cell,) = view._board(FLASH, [tile(64, 64)], offered[title], [recorded, own]).cells
        assert cell.value("gpu_time_seconds") == seconds


def test_the_report_has_the_tiles_of_its_runs() -> None:
    found = view.sheet(THREE, LIGHT)
    assert found.headline is not None and found.headline.sentence == "128×128 is fastest: 1.10 ms, 500 TFLOP/s."
    assert [item.title for item in found.items if isinstance(item, Picture)] == [
        "Time by tile", "L2↔SM by tile", "HBM by tile", "Time against L2↔SM bytes",
    ]  # fmt: skip
    assert view.sheet(THREE[:1], LIGHT).missing.startswith("Block sizes are compared where")
    assert view.sheet((fake_runs.naive_run(),), LIGHT).missing


def test_the_report_takes_the_commonest_warps_and_stages() -> None:
    other = replace(THREE[0], id="other", workload=replace(THREE[0].workload, tile=TileConfig(64, 64, 8, 3)))
    found = view.sheet((*THREE, other), LIGHT)
    assert found.headline is not None and "4 warps, 3 stages; 3 of 3 tiles timed" in found.headline.detail


def test_progress_in_words() -> None:
    assert compile_words(CompileStatus(25, 10, 2, 3.2)) == "Compiling: 10 of 25, 2 without code, 3 s"
    status = SweepStatus("running", cells=25, done=8, failed=2, finished=10, seconds=5.0)
    assert sweep_words(status) == "Measuring: 10 of 25 cells, 2 failed, 2.0 cells/s, 8 s left"


def test_a_compilation_follows_what_is_known_already() -> None:
    keep(resources(64, 64))
    refused = Configuration("flash", PROBLEM, TileConfig(8, 64, 4, 3), (9, 0))  # a GPU wants 16 queries or more
    job = CompileJob([resources(64, 64).configuration, refused])
    status = job.wait(20.0)
    assert (status.is_over, status.done, status.total, status.without_code, status.error) == (True, 2, 2, 1, "")
    before = status.seconds
    time.sleep(0.02)
    assert job.status().seconds == before


def test_a_table_of_the_current_tile() -> None:
    boards = [view._board(FLASH, [tile(128, 64)], targets(FLASH, of_runs(THREE))["NVIDIA H200"], of_runs(THREE))]
    found = block_pages.tile_table(boards, tile(128, 64))
    assert found is not None and found.columns == ("", "NVIDIA H200")
    cells = {row[0]: row[1] for row in found.rows}
    assert (cells["Time"], cells["L2↔SM"], cells["HBM"], cells["CTAs per SM"]) == ("1.30 ms", "2.70 GB", "135 MB", "–")
    assert block_pages.tile_table(boards, tile(16, 16)) is None


def test_a_sweep_that_was_stopped_is_taken_up_and_a_finished_one_is_not(runs: Path) -> None:
    grid = Grid({"kernel": ("naive",), "heads": (1,), "seq_len_q": (16,), "head_dim": (16,), "seed": (0, 1)})
    assert block_jobs.unfinished(grid) is None
    sweep = create(grid)
    assert block_jobs.unfinished(grid) == sweep
    assert block_jobs.unfinished(Grid(grid.given, "seed < 5")) is None
    with sweep.held():
        assert block_jobs.unfinished(grid) is None
    for cell in sweep.cells:
        save(replace(fake_runs.cpu_run(), id=sweep.run_id(cell)), sweep.runs)
    assert block_jobs.unfinished(grid) is None


def test_interpreted_tiles_tell_requests_and_errors(runs: Path) -> None:
    one = fake_runs.cpu_run()
    found = (*of_runs([one]),)
    subject = Subject(one.workload.kernel, one.workload.problem)
    offered = targets(subject, found)
    title = f"{one.device.name}, interpreted"
    assert default_targets(offered) == ["A100 SXM 80 GB", "H100 SXM", title]
    (cell,) = view._board(subject, view._all_tiles(subject, found), offered[title], found).cells
    assert cell.numbers["requested_bytes"].source == "interpreter"
    assert cell.value("relative_error") == one.value("relative_error")
    assert cell.numbers["gpu_time_seconds"].reason == "an interpreted kernel tells no time and no bytes of a GPU"
    assert view.sheet((one, replace(one, id="other")), LIGHT).missing.startswith("Block sizes are compared where")


def test_a_kernel_that_leaves_no_choice_has_one_tile() -> None:
    asked = view._used(Subject("row_streaming", PROBLEM), TileConfig(64, 64, 4, 3))
    assert asked == all_kernels()["row_streaming"].cut(PROBLEM, TileConfig(64, 64, 4, 3)) != TileConfig(64, 64, 4, 3)


def test_gpus_that_triton_does_not_know_are_not_offered() -> None:
    assert not {"V100 SXM2", "T4"} & targets(FLASH, []).keys()
