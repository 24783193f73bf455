"""The Memory page: parts that add up, words that say it, charts on one axis, and a way to the snapshot."""

import dataclasses
import re
import time
from pathlib import Path

import plotly.graph_objects as go
import pytest
from streamlit.testing.v1 import AppTest

from app import memory_bars, memory_sweep, memory_timeline
from app.memory_split import NO_HISTORY, SUMS, split
from app.memory_steps import REST, few, peak, steps
from app.memory_table import predicted_and_measured
from app.picture import Picture, Sheet, Table
from app.selection import compare
from app.style import DARK, LIGHT, TENSOR
from app.views import memory as view
from profiler.memory_trace import MemoryBlock, MemoryEvent, MemorySegment, MemoryTrace
from profiler.run import Measurement, Run
from profiler.store import load
from tests import fake_memory, fake_runs

MIB, GIB = 2**20, 2**30
EXAMPLES = Path(__file__).parents[1] / "examples"
BOTH = (fake_memory.naive_run(), fake_memory.flash_run())


def item(title: str, runs: tuple[Run, ...] = BOTH) -> Picture | Table:
    (found,) = [item for item in view.sheet(runs, LIGHT).items if item.title == title]
    return found


def chart(title: str, runs: tuple[Run, ...] = BOTH) -> go.Figure:
    found = item(title, runs)
    assert isinstance(found, Picture)
    return found.chart


def rows(runs: tuple[Run, ...] = BOTH) -> dict[str, tuple[str, ...]]:
    table = item("Predicted and measured", runs)
    assert isinstance(table, Table)
    return {row[0]: row[1:] for row in table.rows}


def test_steps_of_naive() -> None:
    """96 MiB of inputs; S 2 GiB, the workspace 32 MiB, P 2 GiB, O 32 MiB; then S and P go."""
    trace = BOTH[0].memory
    assert trace is not None
    found = steps(trace)
    assert [(step.what, step.launch) for step in found] == [
        ("before", ""), ("+ S", "qk"), ("+ workspace", "qk"), ("+ P", "softmax"), ("+ O", "pv"),
        ("− S", ""), ("− P", ""),
    ]  # fmt: skip
    assert [step.total // MIB for step in found] == [96, 2144, 2176, 4224, 4256, 2208, 160]
    assert peak(trace) is found[4] and found[4].alive["s"] == 2 * GIB


def event(action: str, address: int, size: int, name: str) -> MemoryEvent:
    return MemoryEvent(action, address, size, 0.0, 0, "", name)


def test_steps_of_what_was_there_before_and_goes() -> None:
    """8 B are freed that nobody allocated here, then their place is taken; another free of nothing is no step."""
    events = (
        event("free_requested", 1, 8, "mask"),
        event("free_completed", 1, 8, "mask"),
        event("alloc", 1, 6, "o"),
        event("free_requested", 9, 0, "other"),
        event("free_requested", 9, 0, "other"),
    )
    block = MemoryBlock(64, 512, 4, "active_allocated", "q")
    trace = MemoryTrace((MemorySegment(64, 512, 0, "small", (block,)),), events)
    assert [(step.what, step.total) for step in steps(trace)] == [
        ("before", 12), ("− MASK", 4), ("+ O", 10), ("− other", 10),
    ]  # fmt: skip


def test_parts_add_up_to_the_whole_device() -> None:
    for run in BOTH:
        parts = {part.name: part for part in split(run)}
        names = ("inputs", "outputs", "temporaries", "workspace", "other", "rounding")
        assert sum(parts[name].measured or 0 for name in names) == parts["allocated"].measured
        assert parts["allocated"].measured + parts["cached"].measured == parts["reserved"].measured  # type: ignore[operator]
        names = ("reserved", "CUDA context", "other processes", "not told apart")
        whole = sum(parts[name].measured or 0 for name in names)
        assert whole == parts["whole device"].measured


def told(name: str, value: float | None, reason: str = "") -> Measurement:
    return Measurement(name, value, "B", "nvml", reason)


def with_told(*measurements: Measurement) -> dict[str, tuple[float | None, str]]:
    """The measured parts of naive's Run with other Measurements, and why one is missing."""
    names = {one.name for one in measurements}
    kept = tuple(one for one in BOTH[0].measurements if one.name not in names)
    run = dataclasses.replace(BOTH[0], measurements=(*kept, *measurements))
    return {part.name: (part.measured, part.reason) for part in split(run)}


def test_what_the_driver_keeps_is_a_row_of_its_own() -> None:
    """4,256 MiB reserved, 500 of context and 1,024 of others: of 5,789 MiB are 9 left; without processes 1,533."""
    device = told("device_memory_bytes", 5789.0 * MIB)
    assert with_told(device)["not told apart"] == (9.0 * MIB, "")
    hidden = [told(name, None, "hidden") for name in ("context_bytes", "other_processes_bytes")]
    assert with_told(device, *hidden)["not told apart"] == (1533.0 * MIB, "")
    less = with_told(told("device_memory_bytes", 5000.0 * MIB))["not told apart"]
    assert less == (None, "NVML tells less for the whole device than for what is on it.")
    ever = with_told(told("device_memory_bytes", None, "hidden"), told("nvml_memory_used_bytes", 1.0 * GIB))
    assert ever["not told apart"][0] is None and "the most of the whole measuring" in ever["not told apart"][1]


@pytest.mark.parametrize("name", ["full_8k", "causal_4k", "short_1k", "gqa_4k", "ladder_512"])
def test_sums_of_recorded_runs_are_of_the_rows_above(name: str) -> None:
    for run in load(EXAMPLES / f"{name}.json"):
        total = 0.0
        for part in split(run):
            assert part.measured is not None
            if part.name in SUMS:
                assert part.measured == total
            else:
                total += part.measured


def test_predicted_and_measured_side_by_side() -> None:
    found = rows()
    assert found["temporaries"][:4] == ("4.00 GiB", "4.00 GiB", "0 B", "0 B")
    assert found["workspace"][:4] == ("–", "32.0 MiB", "–", "0 B")
    assert found["= allocated"][:4] == ("4.12 GiB", "4.16 GiB", "128 MiB", "128 MiB")
    assert found["= allocated"][4].endswith("naive: 32.0 MiB more: cuBLAS workspace")
    assert found["cached"][:4] == ("0 B", "0 B", "1.50 MiB", "1.50 MiB")
    assert found["CUDA context"][:4] == ("–", "500 MiB", "–", "500 MiB")
    table = item("Predicted and measured")
    assert isinstance(table, Table)
    assert table.reasons[0][1] == "Q 32.0 MiB, K 32.0 MiB, V 32.0 MiB", "on hover"
    assert table.sources[-1] == ("", "", "nvml", "", "nvml", "")


def test_two_runs_of_one_name_have_columns_of_their_own() -> None:
    run = fake_memory.flash_run()
    table = predicted_and_measured([("flash", run), ("flash", run)])
    assert {len(row) for row in (table.columns, *table.rows, *table.reasons, *table.sources)} == {6}


def test_recorded_runs_without_a_history_say_so() -> None:
    """Naive made 4,160 MiB in its pass: 4,128 of tensors and a workspace of 32."""
    runs = tuple(dataclasses.replace(run, memory=None) for run in load(EXAMPLES / "full_8k.json"))
    found = rows(runs)
    assert found["made in the pass"][:4] == ("4.03 GiB", "4.06 GiB", "32.5 MiB", "32.5 MiB")
    assert "temporaries" not in found
    assert found["= reserved"][:4] == ("4.12 GiB", "4.16 GiB", "130 MiB", "130 MiB")
    table = item("Allocations of one pass", runs)
    assert isinstance(table, Table) and table.rows == (("naive", NO_HISTORY), ("flash", NO_HISTORY))


def test_the_reason_why_there_is_no_history_is_told() -> None:
    told = Measurement("allocator_events", None, "1", "torch", "cudaMallocAsync does not record")
    run = dataclasses.replace(fake_runs.flash_run(), measurements=(told,))
    table = item("Allocations of one pass", (run,))
    assert isinstance(table, Table) and table.rows == (("flash", "cudaMallocAsync does not record"),)


def test_what_comes_beyond_the_prediction_is_explained() -> None:
    run = fake_memory.with_memory(fake_runs.flash_run(), 128 * MIB + 512 * 1024, 194 * MIB)
    assert rows((run,))["cached"][2].endswith(
        "flash: 64.0 MiB more: segments of earlier work that still hold something"
    )


def test_headline_and_figures() -> None:
    shown = view.sheet(BOTH, LIGHT)
    assert shown.headline is not None
    assert shown.headline.sentence == (
        "Naive holds 4.16 GiB at its peak, 4.00 GiB of it S and P. Flash holds 128 MiB at its peak: 33 times less."
    )
    assert "baseline taken after warm-up" in shown.headline.detail
    figures = {figure.label: (figure.value, figure.source, figure.detail) for figure in shown.figures}
    assert figures == {
        "peak, naive": ("4.16 GiB", "torch", "predicted 4.12 GiB"),
        "peak, flash": ("128 MiB", "torch", "predicted 128 MiB"),
        "baseline, flash": ("96.0 MiB", "torch", "there before the pass"),
        # 16,384 S + 64 S² = 150e9, and 16,448 S = 150e9
        "full at S, naive": ("48,284", "model", "fills 140 GiB"),
        "full at S, flash": ("9,119,649", "model", "fills 140 GiB"),
    }


def test_a_cpu_run_is_predicted_and_says_so() -> None:
    run = fake_runs.cpu_run()
    missing = Measurement("peak_allocated_bytes", None, "B", "torch", "no GPU here; torch counts on GPUs only")
    shown = view.sheet((dataclasses.replace(run, measurements=(*run.measurements, missing)),), DARK)
    assert shown.headline is not None and "needs 32.5 KiB at its peak" in shown.headline.sentence
    assert shown.headline.detail.endswith("sizes; not measured: no GPU here; torch counts on GPUs only.")
    assert (shown.figures[0].value, shown.figures[0].source) == ("32.5 KiB", "model")
    bars = shown.items[0]
    assert isinstance(bars, Picture) and bars.sources == ("model",)
    assert rows((run,))["outputs"][:2] == ("8.50 KiB", "–") and "made in the pass" not in rows((run,))
    assert shown.figures[1].value == "–" and shown.figures[1].reason


def test_bars_are_hatched_where_predicted() -> None:
    figure = chart("Peak memory, part by part")
    hatched = {trace.marker.pattern.shape for trace in figure.data}
    assert hatched == {None, "/"}
    solid = [trace for trace in figure.data if trace.marker.pattern.shape is None]
    # GiB of naive: Q, K, V, O, S, P, the workspace and the context, each in its colour.
    assert [round(trace.x[0], 4) for trace in solid] == [0.0312] * 4 + [2.0, 2.0, 0.0312, 0.4883]
    assert [trace.marker.color[0] for trace in solid][:6] == [TENSOR[name] for name in "qkvosp"]
    words = " ".join(note.text for note in figure.layout.annotations)
    assert "S, P 4.00 GiB" in words and "CUDA context 500 MiB" in words


def key(runs: tuple[Run, ...]) -> list[str]:
    """The lines below the bars, without their squares, from the top down."""
    notes = chart("Peak memory, part by part", runs).layout.annotations
    lines = sorted((note for note in notes if "■" in note.text), key=lambda note: note.y)
    return [re.sub(r"<[^>]+>", "", note.text) for note in lines]


def test_what_is_predicted_has_a_key_where_no_history_has_one() -> None:
    """Of naive alone: S and P are told by their squares; the measured bar has 4,160 MiB of which nobody knows more."""
    run = dataclasses.replace(BOTH[0], memory=None)
    assert key((run,)) == [
        "■■■ Q, K, V 96.0 MiB", "■■■ O, S, P 4.03 GiB",
        "■ inputs 96.0 MiB", "■ made in the pass 4.06 GiB", "■ CUDA context 500 MiB",
    ]  # fmt: skip
    assert key(BOTH[:1])[0] == "■■■ Q, K, V 96.0 MiB  ■ O 32.0 MiB"
    assert not any(line.startswith("■ inputs") for line in key(BOTH[:1])), "the history names them"


def test_lines_of_the_key_fit_a_phone() -> None:
    runs = tuple(load(EXAMPLES / "full_8k.json"))
    for shown in (runs, tuple(dataclasses.replace(run, memory=None) for run in runs)):
        assert max(map(len, key(shown))) <= 34 and "  " in " ".join(key(BOTH))


def test_both_timelines_have_one_axis() -> None:
    naive, flash = (chart(f"Allocations of one pass, {name}") for name in ("naive", "flash"))
    assert naive.layout.yaxis.range == flash.layout.yaxis.range
    assert naive.layout.yaxis.range[1] == pytest.approx(1.06 * 4256 / 1024)
    areas = {trace.name: trace for trace in naive.data}
    assert {*areas} == {"Q", "K", "V", "S", "workspace", "P", "O"}
    assert {trace.name for trace in flash.data} == {"Q", "K", "V", "O", "LSE"}
    assert list(areas["S"].y) == [0, 2, 2, 2, 2, 0, 0, 0], "one more, to the end of the last step"
    assert naive.layout.xaxis.ticktext[3] == "+ P<br>softmax"
    own = memory_timeline.timelines([(run.workload.kernel, run) for run in BOTH], LIGHT, is_common=False)
    assert own[1].chart.layout.yaxis.range[1] == pytest.approx(1.06 * 128.5)


def test_areas_lie_in_the_order_in_which_they_came() -> None:
    """Labels stand in the middle of what they name: S from 96 MiB up, over the 4 steps that it stays."""
    notes = {note.text: (note.x, note.y) for note in chart("Allocations of one pass, naive").layout.annotations}
    assert notes["S 2.00 GiB"] == (pytest.approx(3.0), pytest.approx((96 + 1024) / 1024))
    # P lies on S, the workspace and the inputs until S goes.
    assert notes["P 2.00 GiB"] == (pytest.approx(4.0), pytest.approx((96 + 2048 + 32 + 1024) / 1024))


def test_names_from_a_file_are_escaped() -> None:
    trace = BOTH[1].memory
    assert trace is not None
    hostile = tuple(dataclasses.replace(one, name="<b>x</b>", launch="<i>y</i>") for one in trace.events)
    run = dataclasses.replace(BOTH[1], id="hostile", memory=MemoryTrace(trace.segments, hostile))
    for title in ("Allocations of one pass", "Peak memory, part by part"):
        text = str(chart(title, (run,)).to_dict()).lower()
        assert "<b>x" not in text and "<i>y" not in text


def test_the_largest_history_is_drawn_at_once() -> None:
    pairs = [
        part
        for i in range(1_990)
        for part in (event("alloc", 8 * i, 1, f"t{i % 60}"), event("free_requested", 8 * i, 1, f"t{i % 60}"))
    ]
    run = dataclasses.replace(BOTH[1], id="large", memory=MemoryTrace((), tuple(pairs)))
    begun = time.process_time()
    (found,) = memory_timeline.timelines([("flash", run)], LIGHT)
    assert time.process_time() - begun < 5.0
    assert len(found.chart.to_json()) < 2_000_000
    assert len(found.chart.data) == 12 and found.chart.data[-1].name == "all smaller ones"


def test_thinned_steps_keep_the_peak_and_every_byte() -> None:
    """7 steps two by two: the larger of each pair; 3 tensors: the two largest, and the others together."""
    trace = BOTH[0].memory
    assert trace is not None
    found = few(steps(trace), 4, 3)
    assert [step.total // MIB for step in found] == [2144, 4224, 4256, 160]
    assert {name: size // MIB for name, size in found[2].alive.items()} == {"s": 2048, "p": 2048, REST: 160}


def test_where_memory_ends_on_gpus_of_usual_sizes() -> None:
    """16 GiB of naive: 64 S² + 16,384 S = 2³⁴ at S = 16,256; of flash: 2³⁴ / 16,448."""
    table = item("Where memory ends")
    assert isinstance(table, Table)
    assert table.columns == ("kernel", "16 GiB", "24 GiB", "40 GiB", "80 GiB", "140 GiB, NVIDIA H200", "source")
    assert [(row[0], row[1], row[5]) for row in table.rows] == [
        ("naive", "16,256", "48,284"),
        ("flash", "1,044,495", "9,119,649"),
    ]


@pytest.mark.parametrize("trace", [MemoryTrace((), ()), MemoryTrace((), (event("alloc", 8, 10**15, "s"),))])
def test_a_history_that_does_not_fit_its_run_is_drawn_and_doubted(trace: MemoryTrace) -> None:
    """A file may hold a history of nothing, or of more than torch counted."""
    run = dataclasses.replace(BOTH[1], memory=trace)
    shown = view.sheet((run,), LIGHT)
    assert shown.headline is not None and shown.headline.sentence.startswith("Flash holds 128 MiB")
    rounding = next(part for part in split(run) if part.name == "rounding")
    assert (rounding.measured is None) == bool(trace.events)


def test_without_runs_it_says_what_to_do() -> None:
    assert view.sheet((), LIGHT) == Sheet(missing=view.EMPTY)


def test_several_runs_have_two_bars_each() -> None:
    runs = tuple(load(EXAMPLES / "ladder_8k.json"))
    figure = memory_bars.peak_parts(compare(runs), LIGHT).chart
    assert len(figure.layout.yaxis.ticktext) == 2 * len(runs)


def _page() -> None:
    import streamlit as st

    from app.views import memory as view

    view.render(st.session_state.runs)


def test_page_draws_any_subset_of_runs() -> None:
    recorded = tuple(load(EXAMPLES / "decode_64k.json"))
    for runs in ((), BOTH, BOTH[:1], (BOTH[0], fake_runs.flash_run()), (fake_runs.cpu_run(),), recorded):
        app = AppTest.from_function(_page, default_timeout=30)
        app.session_state["runs"] = runs
        app.run()
        assert not app.exception
        if runs == BOTH:
            assert len(app.get("download_button")) == 2
            app.toggle(key="memory.own").set_value(True).run()
            assert not app.exception


def test_more_lengths_are_measured_by_a_sweep(monkeypatch: pytest.MonkeyPatch) -> None:
    started = []
    monkeypatch.setattr(memory_sweep, "devices", lambda: {"cuda:0": fake_runs.H200})
    monkeypatch.setattr(memory_sweep, "free_bytes", lambda device: 128 * GIB)
    monkeypatch.setattr(memory_sweep.block_jobs, "start_sweep", lambda *asked: started.append(asked))
    app = AppTest.from_function(_page, default_timeout=30)
    app.session_state["runs"] = BOTH
    app.run()
    button = app.button(key="memory.measure")
    assert button.label == "Measure naive to 16.0K, flash to 128K on NVIDIA H200, roughly 20 s"
    button.click().run()
    ((grid, device, _),) = started
    assert grid.given["kernel"] == ("naive", "flash") and device == "cuda:0"
