"""The walk-through: its numbers by hand, both languages alike, Runs that know little, and the page itself."""

from dataclasses import replace
from pathlib import Path
from string import Formatter
from time import perf_counter

import pytest
from streamlit.testing.v1 import AppTest

from app import lesson_source, lesson_subject
from app.lesson_numbers import SMALL_TILES, as_known, kv_bytes, rescales, slots, small_schedule
from app.lesson_steps import Step, steps
from app.lesson_subject import shown
from app.lesson_text_en import ENGLISH
from app.lesson_text_zh import CHINESE
from app.picture import Picture, Table
from app.style import DARK, LIGHT
from app.views import walk_through
from kernels.base import all_kernels
from kernels.problem import AttentionProblem
from profiler.run import Measurement, Run
from tests.fake_runs import NO_COUNTERS, cpu_run, flash_run, naive_run

ROOT = Path(__file__).parents[1]
BOTH = (naive_run(), flash_run())


def made(runs: tuple[Run, ...]) -> tuple[Step, ...]:
    return steps(runs, ENGLISH, LIGHT)


def table(step: Step) -> dict[str, tuple[str, ...]]:
    assert isinstance(step.item, Table)
    return {row[0]: row[1:] for row in step.item.rows}


def slots_of(text: str) -> set[str]:
    return {name for _, name, _, _ in Formatter().parse(text) if name}


def test_both_languages_have_the_same_steps_words_and_numbers() -> None:
    assert len(ENGLISH.steps) == len(CHINESE.steps) == 11
    for one, other in zip(ENGLISH.steps, CHINESE.steps, strict=True):
        # The ratio of S and O is a multiple in one language and a fraction in the other.
        assert {name.removesuffix("_plain") for name in slots_of(other.text)} == slots_of(one.text), one.title
        assert other.text and other.link
    for name in ("notes", "labels"):
        one, other = getattr(ENGLISH, name), getattr(CHINESE, name)
        assert list(one) == list(other)
        assert all(slots_of(one[key]) == slots_of(other[key]) for key in one)


def test_every_step_has_two_to_four_sentences() -> None:
    for step in made(BOTH):
        assert 2 <= len(step.text.replace(".)", ".").split(". ")) <= 4, step.title
    for step in steps(BOTH, CHINESE, LIGHT):
        assert 2 <= step.text.count("。") <= 4, step.title


def test_the_articles_matrix_in_numbers() -> None:
    """8192² scores, four bytes each; 32 heads; O is 8192 × 128 × 4 bytes."""
    found = table(made(())[0])
    assert found["scores"] == ("67.1 M",)
    assert found["S in float32"] == ("256 MiB",)
    assert found["S in 16 bits"] == ("128 MiB",)
    assert found["S in float32, all heads"] == ("8.00 GiB",)
    assert found["O in float32"] == ("4.00 MiB",)
    assert found["S / O"] == ("64×",)


def test_the_shown_problem_stands_beside_the_articles() -> None:
    """64 × 64 scores of two heads: 16 KiB each; O is 64 × 16 × 4 B = 4 KiB."""
    found = table(made((cpu_run(),))[0])
    assert found["scores"] == ("4,096", "67.1 M")
    assert found["S in float32"] == ("16.0 KiB", "256 MiB")
    assert found["S in float32, all heads"] == ("32.0 KiB", "8.00 GiB")
    assert found["O in float32"] == ("4.00 KiB", "4.00 MiB")


def test_small_tiles_ask_for_the_same_keys_and_values() -> None:
    """Four Q tiles read 16 rows of 64 B of K and of V: 4 · 2 · 1024 B. 4 × 4 goes on three times in each."""
    wide, square = SMALL_TILES
    assert kv_bytes(small_schedule(wide)) == kv_bytes(small_schedule(square)) == 8192
    assert (rescales(wide), rescales(square)) == (0, 12)
    item = made(())[4].item
    assert isinstance(item, Picture)
    titles = [str(note.text) for note in item.chart.layout.annotations]
    assert titles == [
        "<b>4 × 16</b>  K and V 8.19 kB<br>4 steps, 0 may rescale",
        "<b>4 × 4</b>  K and V 8.19 kB<br>16 steps, 12 may rescale",
    ]
    assert item.chart.data[0].z.shape == (4, 1)
    assert item.chart.data[1].z.tolist() == [[0, 1, 2, 3]] * 4


def test_what_the_sentences_take() -> None:
    found = slots(shown(BOTH))
    # S written by QKᵀ, read and written by scale, read by softmax; P written, and read by PV.
    assert found["trips"] == "6"
    assert (found["row_times"], found["tile_times"], found["kv_tiles"]) == ("8,192", "64", "128")
    assert found["row_block"] == "2.00 MiB"  # 64 · 8192 · 4 B
    assert found["fill_keys"] == "1,024"  # 256 KiB / (64 · 4 B)
    assert (found["a100_sm"], found["a100_block"]) == ("164 KiB", "163 KiB")
    assert found["glued_sum"] == "2"
    assert found["flops"] == "550 GFLOP"  # 4 · 16 · 8192² · 128


def test_a_mask_and_shared_heads_change_the_passes() -> None:
    """Causal, 64 queries and keys in tiles of 16: 16 queries each ask for 16, 32, 48 and 64 keys, 40 times all.

    Each of the four Q tiles takes all keys at once, hidden ones included.
    """
    found = slots(shown((cpu_run(),)))
    assert (found["row_times"], found["tile_times"]) == ("40", "4")
    assert found["trips"] == "8"  # the mask reads and writes S once more
    grouped = AttentionProblem(1, 4, 2, 64, 64, 16, "float32")
    assert slots(shown((cpu_run(grouped),)))["tile_times"] == "4"


def test_the_correction_of_the_articles_figure() -> None:
    step = made(())[5]
    assert "A100 SM has 164 KiB" in step.text and "228 KB; that is the H100's figure" in step.text
    assert "Hopper tuning guide" in step.note
    assert isinstance(step.item, Picture)
    ends = [text.strip() for text in step.item.chart.data[-1].text]
    assert ends == ["2.00 MiB", "16.0 KiB", "256 KiB", "164 KiB", "228 KiB"]


def test_the_broken_softmax_and_its_repair() -> None:
    broken, repaired = made(())[6:8]
    assert table(broken)["whole row"] == ("1/6", "1/6", "1/3", "1/3", "1")
    assert table(broken)["by block, glued"] == ("1/2", "1/2", "1/2", "1/2", "2")
    found = table(repaired)
    assert found["1"] == ("0, 0", "0", "–", "2")
    assert found["2"] == ("ln 2, ln 2", "ln 2", "1/2", "3")
    assert found["exp(s − m) / l"][0] == "1/6, 1/6, 1/3, 1/3"


def test_numbers_are_spelled_as_people_know_them() -> None:
    assert [as_known(number) for number in (0.0, 3.0, 2 / 3, 0.123456)] == ["0", "3", "2/3", "0.123"]


def test_acc_is_the_runs_own() -> None:
    run = flash_run()
    assert run.softmax is not None
    step = made((run,))[8]
    assert isinstance(step.item, Picture)
    exact, kernel = step.item.chart.data
    assert kernel.y.tolist() == run.softmax.acc_norm.numpy()[-1].astype(float).tolist()
    assert len(exact.y) == 128
    assert "row 8,191" in step.note and "Recorded" not in step.note


def test_without_a_trace_the_recorded_one_says_so() -> None:
    step = made((naive_run(),))[8]
    assert step.note.startswith("No Run that is shown recorded its softmax state.")
    assert "Recorded, not made here: NVIDIA H200" in step.note
    assert isinstance(step.item, Picture) and step.item.sources == ("interpreter",)


def test_the_moves_point_at_lines_that_are_there() -> None:
    found = lesson_source.places()
    assert set(found) == set(lesson_source.LINES)
    for name, place in found.items():
        assert place is not None, name
        lines = (ROOT / place.path).read_text().splitlines()
        assert place.code in lines[place.line - 1]
        assert any(f"def {place.function}(" in line for line in lines[: place.line])


def test_what_was_saved_by_these_runs() -> None:
    """6.610 + 6.480 GB against 0.101 + 0.034 GB: 97 times."""
    step = made(BOTH)[10]
    assert step.text.endswith("On NVIDIA H200, naive moved 13.09 GB through HBM and flash 0.135 GB: 97×.")
    assert table(step)["HBM bytes"] == ("13.1 GB", "135 MB", "97×")
    assert table(step)["GPU time"] == ("6.40 ms", "1.28 ms", "5.0×")
    assert isinstance(step.item, Table)
    assert step.item.sources[0] == ("", "cupti-range", "cupti-range", "")


def test_runs_without_counters_show_dashes_and_the_recorded_runs_beside_them() -> None:
    step = made((cpu_run(),))[10]
    assert isinstance(step.item, Table)
    assert step.item.rows[0] == ("HBM bytes, Runs shown", "–", "–", "–")
    assert step.item.reasons[0] == ("", "No naive Run of this problem is shown.", NO_COUNTERS, "")
    assert "As recorded on NVIDIA H200 for (1, 16, 8192, 128)" in step.text
    assert "Recorded, not made here" in step.note
    assert table(step)["HBM bytes"][2].endswith("×")


def test_nothing_is_made_up_where_the_recorded_runs_are_gone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(lesson_subject, "RECORDED", tmp_path / "gone.json")
    lesson_subject.recorded.cache_clear()
    try:
        found = made(())
    finally:
        lesson_subject.recorded.cache_clear()
    assert table(found[8]) == {"–": ()}
    assert found[10].text.endswith("How much, no Run here tells.")
    assert table(found[10])["HBM bytes"] == ("–", "–", "–")


def test_hbm_bytes_by_launch_or_what_the_schedule_asks() -> None:
    counted, asked = made(BOTH)[1], made((flash_run(),))[1]
    assert isinstance(counted.item, Picture) and counted.item.sources == ("cupti-range",)
    assert counted.item.chart.layout.annotations[0].text == "<b>2.22 GB</b>"  # 0.105 + 2.118
    assert isinstance(asked.item, Picture) and asked.item.sources == ("schedule",)
    assert "Run naive on a GPU" in asked.note
    # A launch whose writes are not known is not drawn as if they were 0.
    gone = Measurement("hbm_write_bytes", None, "B", "cupti-range", "Lost.", launch="pv")
    kept = [m for m in naive_run().measurements if (m.name, m.launch) != ("hbm_write_bytes", "pv")]
    broken = replace(naive_run(), measurements=(*kept, gone))
    assert "Requested by the naive schedule" in made((broken,))[1].note


def test_requested_bytes_of_rows_and_of_tiles() -> None:
    """Q, O, LSE of (1, 2, 64, 16) float32: 8192, 8192 and 512 B. K and V, 16,384 B: 40 times by rows, 4 by tiles."""
    item = made((cpu_run(),))[3].item
    assert isinstance(item, Picture)
    ends = [text.split()[-2:] for text in item.chart.data[-1].text]
    assert ends == [["32.8", "kB"], ["672", "kB"], ["82.4", "kB"]]


def test_kernels_that_have_not_run_are_named() -> None:
    assert "Run row_streaming, query_tiled to measure this." in made((cpu_run(),))[3].note
    # 128 whole rows of 8,192 scores are beyond any SM.
    step = made(BOTH)[3]
    assert "Run row_streaming to measure this." in step.note
    assert "query_tiled cannot be measured on NVIDIA H200: " in step.note


def test_a_kernel_that_is_not_there_is_a_dash(monkeypatch: pytest.MonkeyPatch) -> None:
    left = {name: kernel for name, kernel in all_kernels().items() if name in ("naive", "flash")}
    for module in ("app.lesson_steps", "app.lesson_subject"):
        monkeypatch.setattr(f"{module}.all_kernels", lambda: left)
    step = made(BOTH)[3]
    assert "This installation has no kernel row_streaming for this problem." in step.note
    assert isinstance(step.item, Picture)
    dashes = [note for note in step.item.chart.layout.annotations if note.text == "–"]
    assert [note.hovertext for note in dashes][1] == "This installation has no kernel query_tiled for this problem."


def test_the_sheet_prints_english_and_stays_small() -> None:
    found = walk_through.sheet(BOTH, LIGHT)
    assert [item.title.partition(".")[0] for item in found.items] == [str(number) for number in range(1, 12)]
    assert found.items[6].caption.startswith("A softmax divides by a sum over its whole row")
    assert found.headline is not None and found.headline.detail.startswith("(1, 16, 8192, 128)")
    charts = [item.chart.to_json() for item in found.items if isinstance(item, Picture)]
    assert sum(map(len, charts)) < 200_000


def test_steps_are_made_in_half_a_second() -> None:
    steps(BOTH, CHINESE, DARK)
    start = perf_counter()
    steps(BOTH, ENGLISH, LIGHT)
    assert perf_counter() - start < 0.5


def _page() -> None:
    import streamlit as st

    from app.views import walk_through as view

    view.render(st.session_state.runs)


def html(app: AppTest) -> str:
    return "".join(str(element.proto.body) for element in app.get("html"))


@pytest.mark.parametrize("runs", [(), (naive_run(),), (cpu_run(),), BOTH])
def test_the_page_draws_eleven_anchors(runs: tuple[Run, ...]) -> None:
    app = AppTest.from_function(_page, default_timeout=30)
    app.session_state["runs"] = runs
    app.run()
    assert not app.exception
    text = html(app)
    assert all(f'id="step-{number}"' in text and f'href="#step-{number}"' in text for number in range(1, 12))


def test_the_language_is_kept() -> None:
    app = AppTest.from_function(_page, default_timeout=30)
    app.session_state["runs"] = ()
    app.run()
    assert "The score matrix" in html(app) and 'lang="en"' in html(app)
    app.segmented_control[0].set_value("中文").run()
    assert "分数矩阵" in html(app) and "The score matrix" not in html(app)
    app.run()
    assert "分数矩阵" in html(app)
    assert app.session_state["walk.language"] == "中文"
