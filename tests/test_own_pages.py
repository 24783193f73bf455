"""Own kernels on every page: shown like any, imported by none, and run only where the project file names them."""

import re
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from app import cost, form, own_kernels
from app.answer import headline, pair
from app.compare_words import figures
from app.growth_chart import growth
from app.memory_growth import Measured
from app.no_timeline import why_no_timeline
from app.own_kernels import offered, permit, refusal, titles
from app.picture import Picture, Table
from app.registry import all_views
from app.selection import compare, names, title
from app.style import DARK, LIGHT, OWN, kernel_colour
from app.subject import subjects
from app.tile_pages import headline as tile_headline
from app.views import memory, overview, roofline
from kernels.base import all_kernels
from kernels.problem import AttentionProblem, TileConfig
from profiler.catalogue import catalogue
from profiler.compare import compare as compare_two
from profiler.own_kernel import OWN_ALLOCATES, OWN_REFERENCE, OWN_WORK, needed_flops
from profiler.project import FILE, Project
from profiler.run import Measurement, Run
from profiler.store import load, save
from profiler.workload import CPU, Workload, workloads
from tests.fake_runs import PROBLEM, THIS_CPU, cpu_run, flash_run, naive_run

pytestmark = pytest.mark.computes

SMALL, TILE = AttentionProblem(1, 2, 2, 64, 64, 16, "float32", causal=True), TileConfig(16, 16)


def own_run(kernel: str = "mine:streamed", like: str = "flash", on_gpu: bool = False) -> Run:
    """A Run of an own kernel with the numbers of a fake one."""
    base = flash_run() if on_gpu else cpu_run()
    work = base.workload
    tile = work.tile if like else None
    return replace(
        base,
        id=f"fake-{re.sub('[.:]', '-', kernel)}",
        created="2026-11-29T12:00:09Z",
        workload=replace(work, kernel=kernel, tile=tile, trace=None, like=like),
        softmax=None,
        timeline=None,
    )


@pytest.fixture
def named(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A project file that names two kernels."""
    monkeypatch.setattr(own_kernels, "project", lambda: Project(("mine:streamed", "other:streamed")))
    offered.cache_clear()
    yield
    offered.cache_clear()


def test_the_form_offers_what_the_project_file_names(named: None) -> None:
    assert [*offered()] == [*all_kernels(), "mine:streamed", "other:streamed"]
    # Two functions of one name are told apart by their modules.
    assert titles()["mine:streamed"] == "mine:streamed" and titles()["flash"] == "Flash"
    assert permit().names == ("mine:streamed", "other:streamed") and permit().folder == str(Path.cwd())


def test_a_saved_run_of_another_kernel_is_not_run_again(named: None) -> None:
    (theirs,) = workloads(("mine:streamed",), SMALL, TILE, CPU)
    stranger = Workload("os:system", SMALL, None, CPU)
    assert refusal((theirs,)) == ""
    sentence = (
        f"os:system is not named in {FILE}, so nothing of it is imported here. Name it under [kernels] own and start "
        "Bytescope again, or run it from the command line."
    )
    assert refusal((theirs, stranger)) == sentence
    assert cost.refusal((stranger,), THIS_CPU, None) == sentence


def test_what_it_costs_is_not_told(named: None) -> None:
    found = cost.cost(workloads(("mine:streamed", "naive"), SMALL, TILE, CPU))
    assert found.requested_bytes["mine:streamed"] is None and found.memory_bytes["mine:streamed"] is None
    assert found.memory_bytes["Naive"] is not None
    assert '<th title="mine:streamed">mine:streamed</th><td>–</td><td>–</td>' in form.cost_html(found, CPU)


def test_what_it_says_of_itself_is_no_other_setting() -> None:
    wanted = workloads(("mine:streamed", "mine:plain"), cpu_run().workload.problem, TileConfig(16, 16), CPU)
    shown = (own_run(), own_run("mine:plain", ""))
    shown = tuple(replace(run, workload=replace(run.workload, repeats=20)) for run in shown)
    assert form.shows_others(wanted, shown) == ""
    assert form.shows_others(wanted[:1], shown) == "The Runs shown have other settings."


def test_names_are_short_where_they_tell_kernels_apart() -> None:
    runs = (own_run("a:streamed"), own_run("b:streamed"), own_run("a:plain", ""), own_run("a:flash"), cpu_run())
    assert names(runs) == ("a:streamed", "b:streamed", "plain", "a:flash", "flash")
    found = compare((own_run(), replace(own_run(), id="later", created="2026-11-29T12:00:10Z")))
    assert found.names == ("streamed 12:00:09", "streamed 12:00:10")
    assert [title(run, name) for run, name in zip(found.runs, found.names, strict=True)] == [
        "streamed 12:00:09",
        "streamed 12:00:10",
    ]
    assert title(own_run("a:streamed"), "a:streamed 12:00") == "streamed 12:00"


def test_the_overview_is_about_it() -> None:
    found = headline(compare((naive_run(), flash_run(), own_run(on_gpu=True))))
    assert found.sentence == "Flash moved 135 MB through HBM. streamed moved 135 MB: about the same."
    assert "Same answer to a relative error of 2.3e-3" in found.detail


def test_two_that_compute_different_things_give_no_same_answer() -> None:
    note = "against the kernel's own reference in float64, all rows"
    run = own_run(on_gpu=True)
    run = replace(run, measurements=(*run.measurements[:-1], replace(run.measurements[-1], note=note)))
    assert "Relative error up to 2.3e-3" in headline(compare((flash_run(), run))).detail


def test_nan_is_in_the_answer_and_the_line_below() -> None:
    run = own_run(on_gpu=True)
    spoiled = Measurement("relative_error", None, "1", "torch", "O holds NaN or infinity (against float64)")
    run = replace(run, measurements=(*run.measurements[:-1], spoiled))
    found = headline(compare((flash_run(), run)))
    assert "mine:streamed has no error against float64: O holds NaN or infinity (against float64)." in found.detail
    assert found.sentence.startswith("The output of streamed holds NaN or infinity. Flash moved 135 MB")
    unknown = replace(run, measurements=(spoiled,))
    assert headline(compare((unknown,))).sentence == (
        "The output of streamed holds NaN or infinity. streamed ran, but its bytes are not known."
    )
    assert errors((flash_run(), run))["streamed"][0] == "NaN or infinity"


def errors(runs: tuple[Run, ...]) -> dict[str, tuple[str, ...]]:
    (table,) = [item for item in overview.sheet(runs, LIGHT).items if item.title == "Error against float64"]
    assert isinstance(table, Table)
    return {row[0]: row[1:] for row in table.rows}


def test_a_wrong_result_is_in_the_answer_the_figure_and_the_table() -> None:
    run = own_run(on_gpu=True)
    wrong = Measurement("relative_error", 0.79, "1", "torch", "against float64, all rows")
    run = replace(run, measurements=(*run.measurements[:-1], wrong))
    found = overview.sheet((naive_run(), flash_run(), run), LIGHT)
    assert found.headline is not None and found.headline.sentence.startswith(
        "The output of streamed is wrong: relative error 0.79 against float64 attention, and rounding explains no more "
        "than 0.05. Flash moved"
    )
    (figure,) = [figure for figure in found.figures if figure.label == "relative error, streamed"]
    assert (figure.value, figure.detail) == ("7.9e-1", "wrong: rounding explains no more than 0.05")
    assert [row[0] for row in errors((flash_run(), run)).values()] == ["2.3e-3", "7.9e-1, wrong"]


def test_one_whose_bytes_are_known_goes_before_one_whose_are_not() -> None:
    known, unknown = own_run(), replace(own_run("mine:plain", ""), created="2026-11-29T12:00:30Z", measurements=())
    assert pair(compare((cpu_run(), known, unknown))).name == "streamed"
    assert pair(compare((cpu_run(), unknown))).name == "plain"


def test_the_tile_page_says_whose_word_the_schedule_is() -> None:
    def told(run: Run) -> str:
        return tile_headline(subjects((run,), PROBLEM, TILE)[0]).detail

    assert told(own_run()).endswith(
        "from the schedule of flash, which the kernel says is its own; the interpreter saw the same bytes."
    )
    doubled = [replace(m, value=(m.value or 0) * 2) if m.source == "interpreter" else m for m in own_run().measurements]
    assert told(replace(own_run(), measurements=tuple(doubled))).endswith(
        "which the kernel says is its own, but the interpreter saw 2.0× these bytes: it is another."
    )
    assert told(own_run(on_gpu=True)).endswith("it was not interpreted, so nothing confirms that.")
    assert told(cpu_run()).endswith("from the schedule, no Run needed.")
    (plain,) = (one for one in subjects((own_run("mine:plain", ""),), PROBLEM, TILE) if one.kernel == "mine:plain")
    assert "the function names no schedule, such as schedule =" in tile_headline(plain).detail


def test_its_schedule_is_what_the_tile_page_opens_with() -> None:
    first = subjects((flash_run(), own_run(on_gpu=True)), PROBLEM, TILE)[0]
    assert first.kernel == "mine:streamed" and first.schedule.walk is not None
    assert first.tensor_bytes == subjects((flash_run(),), PROBLEM, TILE)[0].tensor_bytes
    assert "streamed has no timeline, since its programs do not note when" in why_no_timeline((own_run(),))


def test_every_page_of_a_report_shows_it_and_imports_nothing() -> None:
    runs = (naive_run(), flash_run(), own_run(on_gpu=True), own_run("os:system", "", on_gpu=True))
    before = {*sys.modules}
    shown = [view.sheet(runs, LIGHT) for view in all_views() if hasattr(view, "sheet")]
    assert sum(not sheet.missing for sheet in shown) >= 4
    assert "mine" not in {*sys.modules} - before
    assert kernel_colour("mine:streamed") == OWN and kernel_colour("mine:streamed", DARK) != OWN


def test_its_memory_is_measured_and_never_predicted() -> None:
    for runs in ((own_run(on_gpu=True),), (flash_run(), own_run(on_gpu=True)), (own_run(),)):
        found = memory.sheet(runs, LIGHT)
        tables = {item.title: item for item in found.items if isinstance(item, Table)}
        ends, reasons = tables["Where memory ends"].rows[-1], tables["Where memory ends"].reasons[-1]
        assert ends[0] == "mine:streamed" and {*ends[1:-1]} == {"–"} and {*reasons[1:-1]} == {OWN_ALLOCATES}
        (full,) = (figure for figure in found.figures if figure.label == "full at S, streamed")
        assert (full.value, full.source, full.reason) == ("–", "", OWN_ALLOCATES)
        whole = next(row for row in tables["Predicted and measured"].rows if row[0] == "= allocated")
        assert whole[2 * len(runs) - 1] == "–"
    told = memory.sheet((own_run(on_gpu=True),), LIGHT).figures[0]
    assert (told.label, told.detail) == ("peak, streamed", "not predicted")


def test_a_peak_that_nobody_measured_is_not_invented() -> None:
    """Of an own kernel on a CPU, and of one that ncu profiled elsewhere, there is no number at all."""
    elsewhere = replace(own_run("ncu:flash_fwd", "", on_gpu=True), measurements=(), created="2026-11-29T12:00:10Z")
    for run, name, reason in (
        (replace(own_run(), measurements=()), "streamed", OWN_ALLOCATES),
        (elsewhere, "flash_fwd", "profiled elsewhere: what it allocates is not known"),
    ):
        found = memory.sheet((run,), LIGHT)
        assert found.headline is not None and found.headline.sentence == (
            f"What {name} holds at its peak is not known."
        )
        assert f"not predicted: {reason}." in found.headline.detail
        assert {(figure.value, figure.source) for figure in found.figures} == {("–", "")}
        assert [item.sources for item in found.items if isinstance(item, Picture)] == [(), ()]
    beside = memory.sheet((flash_run(), elsewhere), LIGHT)
    assert beside.headline is not None and beside.headline.sentence == (
        "Flash holds 140 MiB at its peak, 96.0 MiB of it Q, K and V. What flash_fwd holds at its peak is not known."
    )
    (peaks,) = (item for item in overview.sheet((flash_run(), elsewhere), LIGHT).items if item.title == "Peak memory")
    assert isinstance(peaks, Picture)
    hatched = [trace for trace in peaks.chart.data if trace.type == "bar" and trace.marker.pattern.shape]
    assert len(hatched) == 2, "Flash's inputs, and what it adds"


def test_its_memory_grows_from_measured_lengths_alone() -> None:
    run = own_run(on_gpu=True)
    points = [Measured("mine:streamed", 4096, 2e8, "H200"), Measured("mine:streamed", 8192, 4e8, "H200")]
    found = growth([("streamed", run)], points, LIGHT)
    (line,) = found.chart.data
    assert (line.mode, list(line.x), list(line.y)) == ("lines+markers", [4096, 8192], [2e8, 4e8])
    assert found.sources == ("torch",) and "twice" not in found.caption and "Diamonds" not in found.caption
    assert "streamed: from measured lengths alone, joined by lines" in found.caption


def test_saved_runs_are_listed(runs: Path) -> None:
    saved = (own_run(), own_run("a.b:plain", ""))
    for run in saved:
        save(run)
        assert load(runs / f"{run.id}.json") == (run,)
    (runs / "bad.json").write_text((runs / "fake-mine-streamed.json").read_text().replace("mine:streamed", "mine:s()"))
    with catalogue([runs], []) as found:
        listed, faults = found.newest(found.runs, 10)
        assert sorted(one.workload.kernel for one in listed) == ["a.b:plain", "mine:streamed"]
        assert any("bad.json" in fault for fault in (*found.faults, *faults))


def of_its_own_reference() -> Run:
    """A Run on a GPU whose errors are against the kernel's own reference, in a file from before FLOP said so too."""
    run = own_run("mine:documents", "", on_gpu=True)
    kept = [m for m in run.measurements if m.name != "relative_error"]
    error = Measurement("relative_error", 1e-3, "1", "torch", f"{OWN_REFERENCE}, all rows")
    flops = Measurement("flops", float(PROBLEM.flops), "FLOP", "model", "4 · visible scores · head_dim")
    return replace(run, measurements=(*kept, error, flops))


def test_what_is_not_attention_has_no_flop_of_attention() -> None:
    """Its mask may hide most scores: 549.8 GFLOP in 1.28 ms would be 429 TFLOP/s that nobody made."""
    run = of_its_own_reference()
    assert needed_flops(run).value is None and needed_flops(flash_run()).value == PROBLEM.flops
    shown = {figure.label: figure for figure in overview.sheet((run,), LIGHT).figures}
    assert shown["time, documents"].value == "1.28 ms" and shown["time, documents"].detail == f"FLOP/s –: {OWN_WORK}"
    sheet = roofline.sheet((run,), LIGHT)
    assert sheet.headline is not None and "how near it is to compute is not known" in sheet.headline.sentence
    assert (sheet.figures[0].value, sheet.figures[0].reason) == ("–", f"I{OWN_WORK[1:]}.")
    table = next(item for item in sheet.items if isinstance(item, Table))
    row, reasons = (dict(zip(table.columns, cells[0], strict=True)) for cells in (table.rows, table.reasons))
    for column in ("FLOP", "HBM, FLOP/B", "reached"):
        assert (row[column], reasons[column]) == ("–", f"I{OWN_WORK[1:]}.")
    assert "documents, which is not attention" in table.caption


def test_its_flop_are_those_that_its_tensor_cores_made() -> None:
    """128 TFLOP a second are 13% of the peak of 989."""
    run = of_its_own_reference()
    counted = Measurement("tensor_flops", 1.28e-3 * 128e12, "FLOP", "cupti-range")
    sheet = roofline.sheet((replace(run, measurements=(*run.measurements, counted)),), LIGHT)
    table = next(item for item in sheet.items if isinstance(item, Table))
    row = dict(zip(table.columns, table.rows[0], strict=True))
    assert row["reached"] == "128 TFLOP/s" and table.sources[0][table.columns.index("FLOP")] == "cupti-range"


def test_two_problems_of_a_kernel_that_is_not_attention_have_no_rate() -> None:
    longer = AttentionProblem(1, 16, 16, 4096, 4096, 64, "bfloat16")
    found = figures(compare_two(of_its_own_reference(), flash_run(longer, run_id="other")))
    rate = next(figure for figure in found if figure.label == "FLOP per second")
    assert (rate.value, rate.reason) == ("–", f"mine:documents: {OWN_WORK}")
