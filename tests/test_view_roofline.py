"""The Roofline page: each Run and launch under the right roof, in words, and what may not be drawn as fact."""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from app.page import table_html
from app.picture import Picture, Sheet, Table
from app.problem_names import named
from app.roofline_tables import BEYOND, NO_ENERGY, joules
from app.roofline_work import Work, works
from app.roofs import machines
from app.style import DARK, LIGHT
from app.views import roofline
from kernels.problem import AttentionProblem
from profiler.run import Measurement, Run
from profiler.run_document import from_json
from profiler.workload import Workload
from tests.fake_runs import H200, cpu_run, flash_run, naive_run

HOSTILE = '<img src=x onerror="alert(1)">'
COPY, L2_COPY = 4.2e12, 6e12


def with_roofs(
    run: Run, copy: float = COPY, l2: float = L2_COPY, l2_read: float = 5.5e12, energy: float | None = None
) -> Run:
    """The Run with what the GPU's copies reached, and with the energy of a pass."""
    found = [
        Measurement("copy_bytes_per_second", copy, "B/s", "cuda-event", "1024 MiB"),
        Measurement("l2_copy_bytes_per_second", l2, "B/s", "cuda-event", "7.5 MiB"),
        Measurement("l2_read_bytes_per_second", l2_read, "B/s", "cuda-event", "15 MiB"),
    ]
    if energy is not None:
        found.append(Measurement("energy_joules", energy, "J", "nvml", "the whole board"))
    return replace(run, measurements=(*run.measurements, *found))


def changed(run: Run, name: str, value: float | None, launch: str | None = None) -> Run:
    kept = [m for m in run.measurements if (m.name, m.launch) != (name, launch)]
    first = next((m for m in run.measurements if m.name == name), None)
    unit, source = (first.unit, first.source) if first else ("FLOP", "cupti-range")
    note = "why" if value is None else ""
    return replace(run, measurements=(*kept, Measurement(name, value, unit, source, note, launch=launch)))


def work_of(*runs: Run) -> dict[tuple[str, str | None], Work]:
    (machine,) = machines(runs)
    return {(work.name, work.launch): work for work in works(machine)}


def tables(sheet: Sheet) -> dict[str, Table]:
    return {item.title: item for item in sheet.items if isinstance(item, Table)}


def rows(table: Table) -> dict[str, Mapping[str, str]]:
    """Rows by their first cells, with their cells by the columns' names."""
    return {" ".join(row[:2]): dict(zip(table.columns, row, strict=True)) for row in table.rows}


def traces(sheet: Sheet) -> dict[str, Any]:
    picture = next(item for item in sheet.items if isinstance(item, Picture))
    return {trace.name: trace for trace in picture.chart.data}


@pytest.fixture(scope="module")
def pair_of_runs() -> tuple[Run, Run]:
    return with_roofs(naive_run(), energy=3.1), with_roofs(flash_run(), energy=0.61)


def test_flash_and_naive_by_hand(pair_of_runs: tuple[Run, Run]) -> None:
    """Flash: 549.8 GFLOP in 1.28 ms are 429.5 TFLOP/s, 43.4% of 989; 2.73 GB L2↔SM in it 2.13 TB/s, 36% of 6.

    Naive: 13.09 GB in 6.4 ms are 2.045 TB/s, 48.7% of 4.2; its 15.5 GB L2↔SM 40% of 6.
    """
    found = work_of(*pair_of_runs)
    flash, naive = found["flash", None], found["naive", None]
    assert flash.reached == pytest.approx(429.5e12, rel=1e-3)
    assert flash.intensity("HBM") == pytest.approx(549.756 / 0.135, rel=1e-3)
    assert flash.intensity("L2") == pytest.approx(549.756 / 2.73, rel=1e-3)
    assert flash.limited is not None and flash.limited[0].name == "bfloat16 peak"
    assert flash.limited[1] == pytest.approx(0.4343, abs=1e-4)
    assert naive.limited is not None and naive.limited[0].name == "HBM copy"
    assert naive.limited[1] == pytest.approx(0.4870, abs=1e-4)


def test_launches_of_naive_stand_on_their_own(pair_of_runs: tuple[Run, Run]) -> None:
    """scale: 16 · 8192² multiplications on 2.148 + 2.121 GB in 0.97 ms: 0.252 FLOP/B, 4.40 TB/s, above the copy's 4.2.

    softmax: 4.274 GB in 4.1 ms are 1.042 TB/s, 24.8%.
    """
    found = work_of(*pair_of_runs)
    scale, softmax = found["naive", "scale"], found["naive", "softmax"]
    assert scale.flops == 16 * 8192**2 and scale.flops_source == "schedule"
    assert scale.intensity("HBM") == pytest.approx(1.0737 / 4.269, rel=1e-3)
    assert scale.limited is not None and scale.limited[1] == pytest.approx(4.4010 / 4.2, rel=1e-3)
    assert softmax.flops == 4 * 16 * 8192**2
    assert softmax.limited is not None and softmax.limited[1] == pytest.approx(0.2482, abs=1e-3)
    assert ("flash", "flash") not in found, "one launch is the whole Run"


def test_the_answer_in_words(pair_of_runs: tuple[Run, Run]) -> None:
    said = roofline.sheet(pair_of_runs, LIGHT).headline
    assert said is not None
    assert said.sentence == (
        "Flash is limited by compute: 43% of the bfloat16 peak. Naive is limited by HBM: 49% of HBM's copy bandwidth."
    )
    # 4.1 of 0.65 + 0.97 + 4.1 + 0.68 ms
    assert said.detail.startswith(
        "Naive spends 64% of its time in softmax, at 25% of HBM's copy bandwidth. (1, 16, 8192"
    )
    assert "Not known" not in said.detail


def test_a_run_far_below_every_roof_is_not_called_limited() -> None:
    slow = changed(with_roofs(flash_run()), "gpu_time_seconds", 12.8e-3)
    said = roofline.sheet((slow,), LIGHT).headline
    assert said is not None
    assert said.sentence == "Flash stays far below every roof: 4% of the lowest, the bfloat16 peak."


def test_of_many_runs_those_nearest_to_and_furthest_from_their_roofs_are_told() -> None:
    """429.5 TFLOP/s of 989 are 43%; in 8 times the time 5%. Naive's 49% of the copy are nearest."""
    slow = replace(changed(with_roofs(flash_run()), "gpu_time_seconds", 8 * 1.28e-3), id="slow")
    slow = replace(slow, created="2026-11-29T23:00:00Z")
    said = roofline.sheet((with_roofs(naive_run()), with_roofs(flash_run()), slow), LIGHT).headline
    assert said is not None
    assert said.sentence == (
        "Naive is nearest to its roof: 49% of HBM's copy bandwidth. "
        "Flash 23:00:00 is furthest from its roof: 5% of the bfloat16 peak."
    )


def test_runs_of_several_dtypes_are_told_apart_in_words() -> None:
    base = flash_run()
    half = replace(base.workload, problem=replace(base.workload.problem, dtype="float16"))
    other = replace(changed(base, "gpu_time_seconds", 2.56e-3), id="half", workload=half)
    sheet = roofline.sheet((with_roofs(base), with_roofs(other)), LIGHT)
    assert sheet.headline is not None
    assert sheet.headline.sentence.startswith("Flash bfloat16 is nearest to its roof: 43%")
    assert "Flash float16 is furthest from its roof: 22%" in sheet.headline.sentence
    labels = (base.workload.problem.label, half.problem.label)
    assert f"{labels[0]} and {labels[1]}, " in sheet.headline.detail


def test_five_figures(pair_of_runs: tuple[Run, Run]) -> None:
    shown = roofline.sheet(pair_of_runs, LIGHT).figures
    assert [figure.value for figure in shown] == ["429 TFLOP/s", "85.9 TFLOP/s", "4.20 TB/s", "6.00 TB/s", "610 mJ"]
    assert [figure.source for figure in shown] == ["cuda-event", "cuda-event", "cuda-event", "cuda-event", "nvml"]
    assert shown[2].detail == "87% of the peak 4.81 TB/s" and shown[3].detail == "read 5.50 TB/s"
    assert shown[4].detail == "of a pass, naive 3.10 J"


def test_what_limits_what_with_sources_and_reasons(pair_of_runs: tuple[Run, Run]) -> None:
    table = tables(roofline.sheet(pair_of_runs, LIGHT))["Which roof limits what"]
    found = rows(table)
    assert list(found) == ["naive whole", "naive QKᵀ", "naive scale", "naive softmax", "naive PV", "flash whole"]
    naive, flash, scale = found["naive whole"], found["flash whole"], found["naive scale"]
    assert (flash["limited by"], flash["share of it"], flash["energy"]) == ("bfloat16 peak", "43%", "610 mJ")
    assert (naive["HBM, FLOP/B"], naive["L2↔SM, FLOP/B"], naive["reached"]) == ("42.0", "35.5", "85.9 TFLOP/s")
    assert scale["share of it"] == "105% ⚠" and scale["energy"] == ""
    place = list(found).index("naive scale")
    assert table.reasons[place][8].startswith("More than HBM's copy bandwidth, which is what was tried")
    assert table.reasons[place][5] == "This Run holds no l2_sm_bytes."
    assert table.sources[0][3] == "model" and table.sources[place][3] == "schedule" and table.sources[0][9] == "nvml"
    assert table.fills[place][8] is not None and table.fills[place][8] > BEYOND


def test_what_the_tensor_cores_executed_is_told_beside_what_is_needed() -> None:
    run = changed(with_roofs(flash_run()), "tensor_flops", 5.58e11)
    table = tables(roofline.sheet((run,), LIGHT))["Which roof limits what"]
    assert rows(table)["flash whole"]["FLOP"] == "550 GFLOP"
    assert table.reasons[0][3] == "Its tensor cores executed 558 GFLOP, as counted: masked tiles and padding too."


def test_roofs_with_their_ridges(pair_of_runs: tuple[Run, Run]) -> None:
    """989 / 4.2 = 235, / 4.814 = 205, / 6 = 165 FLOP/B."""
    table = tables(roofline.sheet(pair_of_runs, LIGHT))["Roofs"]
    assert [row[:3] for row in table.rows] == [
        ("HBM copy", "4.20 TB/s", "235"),
        ("HBM peak", "4.81 TB/s", "205"),
        ("L2 copy", "6.00 TB/s", "165"),
        ("L2 read", "5.50 TB/s", "180"),
        ("bfloat16 peak", "989 TFLOP/s", ""),
    ]
    assert [row[4] for row in table.rows] == ["cuda-event", "model", "cuda-event", "cuda-event", "datasheet"]


def test_points_and_roofs_of_the_picture(pair_of_runs: tuple[Run, Run]) -> None:
    drawn = traces(roofline.sheet(pair_of_runs, LIGHT))
    copy, peak, l2, compute = (drawn[name] for name in ("HBM copy", "HBM peak", "L2 copy", "bfloat16 peak"))
    assert [line.line.dash for line in (copy, peak, l2, compute)] == ["solid", "dash", "solid", "dash"]
    assert copy.y[0] / copy.x[0] == pytest.approx(COPY) and copy.y[1] == pytest.approx(989e12)
    assert compute.x[0] == pytest.approx(989 / 6), "from where the fastest memory meets it"
    hbm, at_l2 = drawn["flash, HBM"], drawn["flash, L2"]
    assert (hbm.x[0], hbm.y[0]) == pytest.approx((549.756 / 0.135, 429.5e12), rel=1e-3)
    assert at_l2.x[0] == pytest.approx(549.756 / 2.73, rel=1e-3) and at_l2.y == hbm.y
    assert (hbm.marker.symbol, at_l2.marker.symbol) == ("circle", "diamond")
    joint = drawn["flash, L2 to HBM"]
    assert tuple(joint.x) == (at_l2.x[0], hbm.x[0])
    assert drawn["scale, HBM"].marker.size < hbm.marker.size and "scale, L2" not in drawn
    assert "429 TFLOP/s<br>4,070 FLOP/B of HBM bytes<br>43% of the bfloat16 peak, which limits it" in hbm.hovertext[0]


def test_without_a_roof_the_axes_have_ticks() -> None:
    device = replace(H200, name="another", peak_hbm_bytes_per_second=None, peak_flops_per_second=None)
    sheet = roofline.sheet((replace(flash_run(), device=device),), LIGHT)
    (chart,) = [item.chart for item in sheet.items if isinstance(item, Picture)]
    for axis in (chart.layout.xaxis, chart.layout.yaxis):
        low, high = axis.range
        assert len([at for at in axis.tickvals if low <= math.log10(at) <= high]) >= 2
    assert all(text.endswith("FLOP/s") for text in chart.layout.yaxis.ticktext)


def test_roofs_that_were_not_measured_are_said_and_never_made_up() -> None:
    sheet = roofline.sheet((naive_run(), flash_run()), LIGHT)
    assert sheet.headline is not None
    assert sheet.headline.sentence.endswith("Naive is limited by HBM: 42% of HBM's peak bandwidth.")
    assert "Not known: HBM copy, L2 copy, L2 read; why is below. HBM is held against its peak." in sheet.headline.detail
    assert {"HBM copy", "L2 copy"}.isdisjoint(traces(sheet))
    told = tables(sheet)["Roofs"]
    assert told.rows[0][:2] == ("HBM copy", "–") and "run one of them again" in told.reasons[0][1]
    assert sheet.figures[2].value == "–" and sheet.figures[2].reason.endswith("run one of them again; peak 4.81 TB/s.")
    assert sheet.figures[4].reason == NO_ENERGY


def test_energy_that_was_not_asked_for_and_energy_of_an_older_file_have_other_reasons() -> None:
    run = flash_run()
    detailed = replace(run, workload=replace(run.workload, detail=True))
    for one, reason in ((run, NO_ENERGY), (detailed, "This Run does not hold it: run it again.")):
        assert tables(roofline.sheet((one,), LIGHT))["Which roof limits what"].reasons[0][9] == reason


def test_the_picture_names_every_source_that_it_draws() -> None:
    picture = roofline.sheet((naive_run(),), LIGHT).items[0]
    assert isinstance(picture, Picture)
    assert picture.sources == ("model", "datasheet", "cupti-range", "cuda-event", "schedule")


def test_a_reason_of_the_run_is_kept() -> None:
    reasons = (
        Measurement("copy_bytes_per_second", None, "B/s", "cuda-event", "the GPU has no room for a copy"),
        Measurement("energy_joules", None, "J", "nvml", "NVML answers: Not Supported"),
    )
    run = replace(flash_run(), measurements=(*flash_run().measurements, *reasons))
    sheet = roofline.sheet((run,), LIGHT)
    assert tables(sheet)["Roofs"].reasons[0][1] == "The GPU has no room for a copy"
    assert tables(sheet)["Which roof limits what"].reasons[0][9] == "NVML answers: Not Supported"


def test_more_flop_than_the_gpu_makes_are_flagged_and_not_drawn() -> None:
    """549.8 GFLOP in 0.1 ms would be 5.5 PFLOP/s; its 0.135 GB in that time are 1.35 TB/s, which can be."""
    run = changed(with_roofs(flash_run()), "gpu_time_seconds", 1e-4)
    work = work_of(run)["flash", None]
    assert work.reached is None
    assert work.doubt == "5.50 PFLOP/s would be above the bfloat16 peak of 989 TFLOP/s, so it is not drawn."
    sheet = roofline.sheet((run,), LIGHT)
    assert "flash, HBM" not in traces(sheet)
    table = tables(sheet)["Which roof limits what"]
    assert rows(table)["flash whole"]["reached"] == "–" and table.reasons[0][6] == work.doubt


def test_more_bytes_than_the_memory_moves_are_flagged_and_not_drawn() -> None:
    run = changed(with_roofs(flash_run()), "hbm_read_bytes", 100e9)
    sheet = roofline.sheet((run,), LIGHT)
    assert "flash, HBM" not in traces(sheet) and "flash, L2" in traces(sheet)
    assert "above the peak of 4.81 TB/s" in tables(sheet)["Which roof limits what"].reasons[0][4]


def test_a_copy_above_the_peak_is_no_roof() -> None:
    sheet = roofline.sheet((with_roofs(flash_run(), copy=5e12),), LIGHT)
    assert "HBM copy" not in traces(sheet)
    told = tables(sheet)["Roofs"]
    assert told.rows[0][1] == "–" and told.reasons[0][1].startswith("5.00 TB/s would be above the peak of 4.81 TB/s")


def test_the_best_copy_of_one_gpu_is_its_roof() -> None:
    """Two workers measured it: what lowered one of them is no property of the GPU."""
    sheet = roofline.sheet((with_roofs(naive_run(), copy=4.0e12), with_roofs(flash_run(), copy=4.2e12)), LIGHT)
    assert tables(sheet)["Roofs"].rows[0][1] == "4.20 TB/s"


def test_the_faster_of_copying_and_reading_is_the_roof_of_l2() -> None:
    """8.5 GB L2↔SM in 1.28 ms are 6.64 TB/s, 95% of 7."""
    run = with_roofs(flash_run(), l2_read=7e12)
    sheet = roofline.sheet((run,), LIGHT)
    assert [row[0] for row in tables(sheet)["Roofs"].rows][2:4] == ["L2 read", "L2 copy"]
    assert "L2 read" in traces(sheet) and "L2 copy" not in traces(sheet)
    crowded = changed(run, "l2_sm_bytes", 8.5e9)
    work = work_of(crowded)["flash", None]
    assert work.limited is not None and work.limited[0].name == "L2 read"
    assert work.limited[1] == pytest.approx(8.5e9 / 1.28e-3 / 7e12)
    said = roofline.sheet((crowded,), LIGHT).headline
    assert said is not None and said.sentence == "Flash is limited by L2: 95% of L2's read bandwidth."


def test_launches_of_the_newest_run_alone_are_named(pair_of_runs: tuple[Run, Run]) -> None:
    """Two scales, one above the other, would not say whose they are."""
    older = replace(pair_of_runs[0], id="older", created="2026-11-28T12:00:00Z", workload=workload_of(seed=1))
    picture = roofline.sheet((older, *pair_of_runs), LIGHT).items[0]
    assert isinstance(picture, Picture)
    texts = [trace.text[0].strip("\u00a0") for trace in picture.chart.data if trace.text]
    assert texts.count("scale") == texts.count("softmax") == 1
    assert len([trace for trace in picture.chart.data if trace.name == "scale, HBM"]) == 2


def workload_of(seed: int) -> Workload:
    return replace(naive_run().workload, seed=seed)


def test_gpus_are_not_mixed() -> None:
    """Two of a kind in one machine have two rooflines, and another model has its own dtype's peak."""
    other = replace(H200, device="cuda:1")
    workload = replace(flash_run().workload, device="cuda:1")
    second = replace(with_roofs(flash_run(run_id="second"), copy=3e12), device=other, workload=workload)
    sheet = roofline.sheet((with_roofs(flash_run()), second), LIGHT)
    titles = [item.title for item in sheet.items]
    assert titles[:2] == ["Roofline, NVIDIA H200 (1)", "Roofline, NVIDIA H200 (2)"]
    found = tables(sheet)
    assert found["Roofs, NVIDIA H200 (1)"].rows[0][1] == "4.20 TB/s"
    assert found["Roofs, NVIDIA H200 (2)"].rows[0][1] == "3.00 TB/s"
    assert len(set(titles)) == len(titles)


def test_a_recorded_run_does_not_lend_its_roofs_to_a_gpu_of_the_same_kind_here() -> None:
    recorded = replace(with_roofs(naive_run()), recorded="H200, full_8k")
    found = tables(roofline.sheet((recorded, flash_run()), LIGHT))
    assert found["Roofs, NVIDIA H200, recorded"].rows[0][1] == "4.20 TB/s"
    assert found["Roofs, NVIDIA H200"].rows[0][1] == "–"


def test_each_dtype_has_its_own_peak() -> None:
    """float32 without tensor cores: 67 TFLOP/s. TF32 is another thing, and its peak is not known here."""
    problem = AttentionProblem(1, 16, 16, 1024, 1024, 64, "float32")
    single = changed(with_roofs(flash_run(problem, run_id="single")), "gpu_time_seconds", 4e-4)
    half = with_roofs(flash_run(replace(problem, dtype="float16"), run_id="half"))
    sheet = roofline.sheet((single, half), LIGHT)
    assert [row[:2] for row in tables(sheet)["Roofs"].rows[4:]] == [
        ("float32 peak", "67.0 TFLOP/s"),
        ("float16 peak", "989 TFLOP/s"),
    ]
    found = work_of(single, half)
    assert found["flash float32", None].roofs["compute"].name == "float32 peak"
    assert found["flash float16", None].roofs["compute"].name == "float16 peak"
    tensor_cores = changed(single, "tensor_flops", 1e9)
    assert "compute" not in work_of(tensor_cores)["flash", None].roofs
    assert "TF32" in tables(roofline.sheet((tensor_cores,), LIGHT))["Roofs"].caption


def test_a_launch_whose_flop_are_not_told_takes_those_of_its_tensor_cores() -> None:
    run = naive_run()
    workload = replace(run.workload, kernel="split_kv", tile=flash_run().workload.tile)
    parts = [
        Measurement("gpu_time_seconds", 1e-3, "s", "cuda-event", launch="split"),
        Measurement("gpu_time_seconds", 1e-4, "s", "cuda-event", launch="merge"),
        Measurement("tensor_flops", 3e11, "FLOP", "cupti-range", launch="split"),
        Measurement("tensor_flops", 0.0, "FLOP", "cupti-range", launch="merge"),
    ]
    whole = [m for m in run.measurements if m.launch is None]
    found = work_of(replace(run, workload=workload, measurements=(*whole, *parts)))
    assert found["split_kv", "split"].flops == 3e11 and found["split_kv", "split"].flops_source == "cupti-range"
    assert found["split_kv", "merge"].flops is None and found["split_kv", "merge"].reached is None


def test_runs_of_several_problems_have_names_that_tell_them_apart() -> None:
    small, large = (AttentionProblem(1, 16, 16, size, size, 64, "float16") for size in (1024, 2048))
    causal = replace(large, causal=True)
    runs = [flash_run(small, run_id="a"), flash_run(large, run_id="b"), flash_run(causal, run_id="c")]
    assert named(runs) == ("flash S 1,024 full", "flash S 2,048 full", "flash S 2,048 causal")
    assert named([naive_run(), flash_run()]) == ("naive", "flash")
    assert len(set(named([flash_run(small), flash_run(replace(small, heads=8, kv_heads=8), run_id="d")]))) == 2


def test_without_a_gpu_it_says_what_to_do(pair_of_runs: tuple[Run, Run]) -> None:
    assert roofline.sheet((), LIGHT) == Sheet(missing=roofline.EMPTY)
    assert roofline.sheet((cpu_run(),), LIGHT) == Sheet(missing=roofline.NO_GPU)
    mixed = roofline.sheet((*pair_of_runs, cpu_run()), LIGHT)
    assert mixed.headline is not None and "Runs on a CPU are left out" in mixed.headline.detail


def test_only_the_newest_are_shown() -> None:
    runs = [
        replace(with_roofs(flash_run(run_id=f"run-{i}")), created=f"2026-11-29T12:00:{i:02}Z")
        for i in range(roofline.MOST_RUNS + 2)
    ]
    sheet = roofline.sheet(tuple(runs), LIGHT)
    assert len(tables(sheet)["Which roof limits what"].rows) == roofline.MOST_RUNS
    assert sheet.headline is not None and f"The newest 12 of {len(runs)} Runs are shown." in sheet.headline.detail


def test_a_run_without_time_or_bytes_draws_no_point() -> None:
    run = replace(flash_run(), measurements=())
    sheet = roofline.sheet((run,), LIGHT)
    assert sheet.headline is not None
    assert sheet.headline.sentence == "Flash cannot be held against a roof: its time is not known."
    table = tables(sheet)["Which roof limits what"]
    assert rows(table)["flash whole"]["reached"] == "–" and table.reasons[0][2] == "This Run holds no time."
    unknown = replace(H200, peak_hbm_bytes_per_second=None, peak_flops_per_second=None, peak_flops_source="no table")
    bare = roofline.sheet((replace(flash_run(), device=unknown),), LIGHT)
    assert bare.headline is not None and "no roof of its GPU is known" in bare.headline.sentence
    assert "flash, HBM" in traces(bare), "the point is a fact without any roof"


def test_text_of_a_file_stays_text(pair_of_runs: tuple[Run, Run]) -> None:
    run = with_roofs(flash_run())
    told = replace(H200, name=HOSTILE, peak_hbm_source=HOSTILE)
    launches = tuple(replace(m, launch=HOSTILE) if m.launch == "qk" else m for m in naive_run().measurements)
    hostile = replace(naive_run(), device=told, measurements=launches)
    sheet = roofline.sheet((replace(run, device=told), hostile), LIGHT)
    html = " ".join(table_html(item) for item in sheet.items if isinstance(item, Table))
    assert "<img" not in html and "&lt;img" in html
    for item in sheet.items:
        if isinstance(item, Picture):
            for trace in item.chart.data:
                assert "<img" not in " ".join((*(trace.text or ()), *(trace.hovertext or ())))
            assert all("<img" not in note.text for note in item.chart.layout.annotations)


def test_energies_are_spelled_in_three_digits() -> None:
    assert [joules(value) for value in (None, 3.1, 0.61, 0.000_61, 2.3e-6)] == [
        *("–", "3.10 J", "610 mJ", "610 µJ", "2.30 µJ"),
    ]


@pytest.mark.parametrize("name", ["full_8k", "dtypes_1k", "ladder_8k", "decode_64k", "library_8k"])
def test_recorded_runs_draw_in_both_themes(name: str) -> None:
    from app.recorded import EXAMPLES

    runs = from_json((EXAMPLES / f"{name}.json").read_bytes())
    for theme in (LIGHT, DARK):
        sheet = roofline.sheet(runs, theme)
        picture = sheet.items[0]
        assert isinstance(picture, Picture) and len(picture.chart.to_json()) < 200_000
    points = {trace.name for trace in picture.chart.data if trace.name.endswith(", HBM")}
    assert len(points) >= len(runs)


def test_the_page_draws_and_stays_up_without_runs() -> None:
    def script(runs: object) -> None:
        from app.views import roofline

        roofline.render(runs)  # type: ignore[arg-type]

    for runs in ((), (cpu_run(),), (with_roofs(naive_run()), with_roofs(flash_run()))):
        at = AppTest.from_function(script, default_timeout=30, kwargs={"runs": runs}).run()
        assert not at.exception
    html = " ".join(element.proto.body for element in at.get("html"))
    assert "Flash is limited by compute" in html and "Which roof limits what" in html
