"""The sentences and figures that a comparison leads to."""

from dataclasses import replace

import pytest

from app.answer import bytes_in_words, compared, figures, headline, pair
from app.selection import compare
from profiler.run import Measurement, Run
from tests.fake_runs import NO_COUNTERS, cpu_run, flash_run, naive_run


def without(run: Run, *names: str) -> Run:
    return replace(run, measurements=tuple(m for m in run.measurements if m.name not in names))


def test_both_with_counters() -> None:
    words = headline(compare((naive_run(), flash_run())))
    assert words.sentence == "Naive moved 13.09 GB through HBM. Flash moved 0.135 GB: 97 times less."
    # 6.40 ms / 1.28 ms = 5.0; 147e6 B = 140.2 MiB; 4.43e9 B = 4.126 GiB.
    assert words.detail == (
        "Same answer to a relative error of 2.3e-3 (bfloat16 against float64), 5.0 times faster, 140 MiB of peak memory"
        " instead of 4.13 GiB. (1, 16, 8192, 128) bfloat16, full mask, cold L2, 20 passes, NVIDIA H200."
    )


def test_one_run_is_held_against_compulsory_bytes() -> None:
    # Compulsory: 4 tensors of 16 · 8192 · 128 · 2 B = 134,217,728 B.
    assert headline(compare((flash_run(),))).sentence == (
        "Flash moved 135 MB through HBM: 1.0 times the compulsory bytes."
    )
    # 13.09e9 / 134,217,728 = 97.5
    assert headline(compare((naive_run(),))).sentence == (
        "Naive moved 13.09 GB through HBM: 98 times the compulsory bytes."
    )


def test_without_counters_requested_bytes_are_told_and_named() -> None:
    words = headline(compare((cpu_run(),)))
    assert " requests " in words.sentence and "HBM" not in words.sentence
    assert "HBM bytes were not measured; requested bytes are what loads and stores ask for." in words.detail


def test_one_sided_counters_fall_back_to_requested_bytes_for_both() -> None:
    naive = without(naive_run(), "hbm_read_bytes", "hbm_bytes")
    words = headline(compare((naive, flash_run())))
    assert words.sentence.startswith("Naive requests ")
    assert "HBM bytes were not measured" in words.detail


def test_nothing_known() -> None:
    bare = replace(flash_run(), measurements=())
    assert headline(compare((bare,))).sentence == "Flash ran, but its bytes are not known."
    assert [figure.value for figure in figures(compare((bare,)))] == ["–"]


def test_figures_lead_with_hbm_and_carry_their_sources() -> None:
    found = figures(compare((naive_run(), flash_run())))
    assert len(found) == 5
    assert (found[0].label, found[0].value, found[0].source) == ("HBM bytes, flash", "0.135 GB", "cupti-range")
    assert found[0].detail == "1.0× compulsory"  # 135e6 / 134,217,728
    # 4 · 16 · 8192² · 128 FLOP / 1.28 ms = 429.5 TFLOP/s, of 989: 43%.
    assert (found[1].value, found[1].detail) == ("1.28 ms", "429 TFLOP/s, 43% of peak")


def test_a_missing_figure_is_a_dash_with_its_reason() -> None:
    first = figures(compare((cpu_run(),)))[0]
    assert (first.value, first.reason) == ("–", NO_COUNTERS)


def test_bytes_above_the_peak_are_flagged_and_not_told() -> None:
    # 4.814 TB/s for 1.28 ms is 6.16 GB.
    extra = Measurement("hbm_read_bytes", 7e9, "B", "cupti-range")
    broken = replace(without(flash_run(), "hbm_read_bytes"), id="broken")
    broken = replace(broken, measurements=(extra, *broken.measurements))
    comparison = compare((broken,))
    assert "requests" in headline(comparison).sentence
    assert "above the peak" in figures(comparison)[0].reason


def test_recorded_runs_say_so() -> None:
    recorded = replace(flash_run(), recorded="H200, for the examples")
    assert "recorded on NVIDIA H200, driver 580.159.04, 2026-11-29." in headline(compare((recorded,))).detail


def test_different_cache_states_are_named() -> None:
    naive = naive_run()
    warm = replace(naive, workload=replace(naive.workload, l2="warm"))
    assert "naive warm L2 on NVIDIA H200: not alike." in headline(compare((warm, flash_run()))).detail


def test_pair_prefers_flash_against_naive() -> None:
    two = pair(compare((naive_run(), flash_run())))
    assert (two.name, two.baseline_name) == ("flash", "naive")
    alone = pair(compare((naive_run(),)))
    assert (alone.name, alone.baseline) == ("naive", None)


@pytest.mark.parametrize(
    ("baseline", "subject", "words"),
    [
        (13.09, 0.135, "97 times less"),
        (5.0, 1.0, "5.0 times less"),
        (1.0, 2.5, "2.5 times more"),
        (1.0, 1.04, "about the same"),
        (0, 1, "not comparable"),
    ],
)
def test_ratio_in_words(baseline: float, subject: float, words: str) -> None:
    assert compared(baseline, subject) == words


def test_both_amounts_in_the_unit_of_the_larger() -> None:
    assert bytes_in_words(13.09e9, 13.09e9) == "13.09 GB"
    assert bytes_in_words(0.135e9, 13.09e9) == "0.135 GB"
    assert bytes_in_words(6_815_744, 6_815_744) == "6.82 MB"
    assert bytes_in_words(4096, 13.09e9) == "4.10 kB"
