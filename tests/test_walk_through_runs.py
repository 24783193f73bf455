"""What Runs tell the walk-through: its live numbers, recordings that stand in, and dashes that say why."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from app import lesson_subject
from app.lesson_steps import Step, steps
from app.lesson_text_en import ENGLISH
from app.lesson_text_zh import CHINESE
from app.picture import Picture, Table
from app.recorded import EXAMPLES
from app.style import LIGHT
from kernels.base import all_kernels
from profiler.codec import PackedArray
from profiler.run import Measurement, Run
from profiler.store import load
from tests.fake_runs import NO_COUNTERS, cpu_run, flash_run, naive_run

BOTH = (naive_run(), flash_run())


def made(runs: tuple[Run, ...]) -> tuple[Step, ...]:
    return steps(runs, ENGLISH, LIGHT)


def table(step: Step) -> dict[str, tuple[str, ...]]:
    assert isinstance(step.item, Table)
    return {row[0]: row[1:] for row in step.item.rows}


def test_peak_memory_of_the_shown_naive_run() -> None:
    """4.43e9 B are 4.13 GiB; S and P in bfloat16 are 16 · 8192² · 2 B each."""
    (peak,) = made(BOTH)[0].item.figures
    assert (peak.label, peak.value, peak.source) == ("naive: peak memory", "4.13 GiB", "torch")
    assert peak.detail == "S and P alone, in bfloat16: 4.00 GiB. Measured on NVIDIA H200."


def test_a_number_that_no_shown_run_has_is_recorded_and_says_so() -> None:
    """The recordings' own values, read from their files: 61,210,624 B of spills, and 4 launches against 1."""
    found = made((cpu_run(),))
    spills, refused = found[5].item.figures
    assert (spills.label, spills.value, spills.source) == ("query_tiled: spills read", "61.2 MB", "cupti-range")
    assert spills.detail.startswith("Recorded on NVIDIA H200, ")
    assert spills.detail.endswith(", for (1, 16, 512, 128) bfloat16, full mask.")
    assert (refused.label, refused.value) == ("query_tiled: S = 8,192, NVIDIA H200", "–")
    # 8,192 keys of 128 bfloat16: 2 MiB.
    assert refused.reason.startswith("All 8,192 keys at once need at least 2,048 KB of shared memory")
    assert [figure.value for figure in found[9].item.figures] == ["1", "4", "136 MB"]
    assert all("Recorded on NVIDIA H200" in figure.detail for figure in found[9].item.figures)


def test_rescales_are_counted_in_the_trace() -> None:
    """What a row's maxima were before each step decides; a tile that the mask skips is no step."""
    run = cpu_run()
    assert run.softmax is not None
    m = run.softmax.m.numpy().astype(float)
    could = moved = 0
    for row in m:
        seen = row[~np.isnan(row)]
        could += len(seen) - 1
        moved += int((np.diff(seen) > 0).sum())
    # Causal, 64 rows in tiles of 16: 16 rows each have 0, 1, 2 and 3 steps after the first.
    assert could == 96
    (counted,) = made((run,))[4].item.figures
    assert (counted.label, counted.value) == ("flash: steps that moved the maximum", f"{moved} of 96")
    assert "with BLOCK_N = 16" in counted.detail and counted.detail.endswith("Measured on Two-core CPU.")
    (last,) = made((run,))[7].item.figures
    assert last.value == f"{int((np.diff(m[63]) > 0).sum())} of 3"
    assert last.detail.startswith("Row 63, 4 KV tiles.")


def test_scores_of_a_run_glued_sum_to_its_tiles() -> None:
    """Row 63 sees 4 tiles of 16 keys; of row 31, the mask leaves two."""
    run = cpu_run()
    assert run.softmax is not None
    scores = np.random.default_rng(1).standard_normal((1, 64)).astype(np.float32)
    whole = replace(run.softmax, scores=PackedArray.pack(scores), score_start=63)
    (glued,) = made((replace(run, softmax=whole),))[6].item.figures
    assert (glued.label, glued.value, glued.source) == ("flash: a row's sum, glued", "4", "interpreter")
    assert glued.detail.startswith("64 scores of row 63 from the running kernel")
    scores[0, 32:48], scores[0, 48:] = -np.inf, np.nan
    hidden = replace(run.softmax, scores=PackedArray.pack(scores), score_start=63)
    (glued,) = made((replace(run, softmax=hidden),))[6].item.figures
    assert glued.value == "2" and glued.detail.startswith("32 scores of row 63")


def test_reasons_in_chinese_read_as_quoted() -> None:
    found = steps(BOTH, CHINESE, LIGHT)
    assert "无法实测：原因（英文）：All 8,192 keys at once" in found[3].note
    assert found[5].item.figures[1].reason.startswith("原因（英文）：All 8,192 keys")
    item = steps((cpu_run(),), CHINESE, LIGHT)[10].item
    assert isinstance(item, Table)
    # The page's own words are Chinese already.
    assert item.reasons[0] == ("", "所示的 Run 中没有这个问题的 naive。", f"原因（英文）：{NO_COUNTERS}", "")


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
    monkeypatch.setattr(lesson_subject, "LADDERS", ())
    found = made(())
    assert table(found[8]) == {"–": ()}
    assert found[10].text.endswith("How much, no Run here tells.")
    assert table(found[10])["HBM bytes"] == ("–", "–", "–")
    reasons = {figure.reason for step in found for figure in step.item.figures}
    assert all(figure.value == "–" for step in found for figure in step.item.figures)
    assert reasons == {
        "No naive Run of this problem is shown.",
        "No row_streaming Run of this problem is shown.",
        "No query_tiled Run of this problem is shown.",
        "No flash Run of this problem is shown.",
        "No Run that is shown recorded its softmax state.",
        "No Run that is shown kept the scores of a row.",
    }


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
    for module in ("app.lesson_live", "app.lesson_steps", "app.lesson_subject"):
        monkeypatch.setattr(f"{module}.all_kernels", lambda: left)
    step = made(BOTH)[3]
    assert "This installation has no kernel row_streaming for this problem." in step.note
    assert isinstance(step.item, Picture)
    dashes = [note for note in step.item.chart.layout.annotations if note.text == "–"]
    assert [note.hovertext for note in dashes][1] == "This installation has no kernel query_tiled for this problem."


def test_a_score_matrix_that_fits_into_l2_is_said_to_stay_there() -> None:
    """16 heads of 512 × 512 scores in bfloat16 are 8 MiB, L2 holds 60 MiB; at 8,192 they are 2 GiB."""
    assert "L2 holds" not in made(BOTH)[1].note
    recordings = load(EXAMPLES / "ladder_512.json")
    assert "is 8.00 MiB and L2 holds 60.0 MiB" in made(recordings)[1].note
