"""A Run of forward and backward through every layer: measured, saved, listed, shown, and told from forward alone."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from app import form, lesson_subject
from app.answer import headline
from app.command import command
from app.form import OTHERS, request
from app.launch_chart import launch_title
from app.paper_figures import FIG_2, beside_the_paper
from app.presets import fill
from app.problem_names import named
from app.report_text import csv, markdown
from app.requested_formula import formula, passes
from app.selection import compare
from app.style import LIGHT
from app.subject import schedule_of
from app.tensor_names import tensor_title
from app.views import hbm_traffic, overview
from kernels.base import all_kernels
from kernels.problem import AttentionProblem, Refused, TileConfig
from kernels.reference import reference_gradients
from kernels.run import Gradients
from profiler import gradient_accuracy
from profiler.admission import needs
from profiler.bench import Bench, draw_do, draw_inputs
from profiler.catalogue import catalogue
from profiler.compare import compare as compare_two
from profiler.device import cpu_device
from profiler.gradient_accuracy import measure_gradient_errors
from profiler.grid import Grid
from profiler.measure import measure
from profiler.memory_model import peak_tensors
from profiler.resources import Configuration
from profiler.run import Measurement, Run
from profiler.run_document import from_json, to_json
from profiler.store import save
from profiler.workload import Workload, workloads
from profiler.wrong_output import ERRORS, is_finite, is_wrong, why_wrong
from tests.command_line import answer_to
from tests.fake_runs import naive_run

PROBLEM = AttentionProblem(1, 2, 1, 40, 40, 16, "float16", causal=True, backward=True)
FORWARD = replace(PROBLEM, backward=False)
TILE = TileConfig(16, 16)


@pytest.fixture(scope="module")
def runs() -> tuple[Run, Run]:
    """naive and flash, interpreted."""
    naive, flash = (measure(work, cpu_device(), "both") for work in workloads(("naive", "flash"), PROBLEM, TILE, "cpu"))
    return naive, flash


def test_a_run_has_both_passes(runs: tuple[Run, Run]) -> None:
    """What the interpreter saw of all four launches is what the schedule says; gradients are as good as O."""
    _, flash = runs
    for direction in ("read", "write"):
        name = f"requested_{direction}_bytes"
        seen, told = flash.find(name, source="interpreter"), flash.find(name, source="schedule")
        assert seen is not None and told is not None and seen.value == told.value
        assert [m.launch for m in flash.launches(name)] == ["flash", "delta", "gradients", "dq"]
    for run in runs:
        assert [run.find(name) is not None for name in ERRORS.values()] == [True] * 4
        assert all(0 < (run.value(name) or 0) < 2e-3 for name in ERRORS.values())
        note = run.find("dk_relative_error")
        assert note is not None and note.note == "against float64, all 1 (batch, kv head)"
        # 40 · 41 / 2 pairs, 14 FLOP each a column of 16, of 2 heads.
        assert run.value("flops") == 14 * 2 * 820 * 16
    assert flash.softmax is not None


def test_it_comes_back_from_its_file_and_an_older_file_still_opens(runs: tuple[Run, Run]) -> None:
    assert from_json(to_json(runs)) == runs
    document = json.loads(to_json([replace(runs[0], workload=replace(runs[0].workload, problem=FORWARD))]))
    problem = document["runs"][0]["workload"]["problem"]
    assert problem.pop("backward") is False
    (older,) = from_json(json.dumps(document))
    assert older.workload.problem == FORWARD


def test_the_store_lists_it_apart(runs: tuple[Run, Run], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a file from before there was a backward pass the column is false."""
    monkeypatch.setenv("BYTESCOPE_RUNS", str(tmp_path))
    save(runs[0])
    older = json.loads(to_json([naive_run()]))
    del older["runs"][0]["workload"]["problem"]["backward"]
    (tmp_path / "older.json").write_text(json.dumps(older))
    with catalogue([tmp_path]) as found:
        assert found.faults == ()
        assert found.where("backward").project("id, dq_relative_error").fetchall() == [
            (runs[0].id, runs[0].value("dq_relative_error"))
        ]
        assert found.where("not backward").project("id").fetchall() == [("fake-naive",)]


def test_errors_by_hand() -> None:
    """Gradients that are wrong by a known share have that error; NaN has none, and its reason."""
    bench = Bench(Workload("naive", replace(PROBLEM, dtype="float32"), None), cpu_device())
    q, k, v = bench.inputs
    assert bench.do is not None
    dq, dk, dv = reference_gradients(q, k, v, bench.do, bench.workload.problem, 0, 0)
    found = Gradients((1.01 * dq).view(q.shape), dk.view(k.shape), (0.5 * dv).view(v.shape))
    errors = measure_gradient_errors(bench, found)
    assert [m.name for m in errors] == ["dq_relative_error", "dk_relative_error", "dv_relative_error"]
    assert [m.value for m in errors] == pytest.approx([0.01, 0, 0.5], abs=1e-12)
    assert {(m.unit, m.source) for m in errors} == {("1", "torch")}
    spoiled = found.dk.clone()
    spoiled[0, 0, 3, 2] = torch.nan
    _, bad, _ = measure_gradient_errors(bench, replace(found, dk=spoiled))
    assert bad.value is None and bad.note == "dK holds NaN or infinity (against float64, all 1 (batch, kv head))"


def test_where_all_would_be_dear_some_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 3 · 2 (batch, kv head) two are cheap: the first and the last. One alone that is too dear is not compared."""
    problem = AttentionProblem(3, 4, 2, 16, 16, 16, "float32", backward=True)
    bench = Bench(Workload("naive", problem, None), cpu_device())
    one = 14 * 2 * 16 * 16 * 16
    monkeypatch.setitem(gradient_accuracy.CHEAP_FLOPS, "cpu", 2.5 * one)
    gradients = bench.launch().gradients
    assert gradients is not None
    gradients.dv[1] = torch.nan  # neither the first batch nor the last
    errors = measure_gradient_errors(bench, gradients)
    assert {m.note for m in errors} == {"against float64, 2 of 6 (batch, kv head), evenly spaced"}
    assert all((m.value or 1) < 1e-6 for m in errors)
    monkeypatch.setitem(gradient_accuracy.MOST_FLOPS, "cpu", one - 1)
    assert {m.value for m in measure_gradient_errors(bench, gradients)} == {None}


def test_a_wrong_gradient_is_told_as_such(runs: tuple[Run, Run]) -> None:
    def told(name: str, value: float | None, note: str) -> Run:
        kept = tuple(m for m in runs[1].measurements if m.name != name)
        return replace(runs[1], measurements=(*kept, Measurement(name, value, "1", "torch", note)))

    wrong = told("dk_relative_error", 0.5, "against float64")
    assert is_wrong(wrong) and is_finite(wrong) and not is_wrong(runs[1])
    assert why_wrong(wrong, "flash").startswith(
        "The dK of flash is wrong: relative error 0.5 against float64 attention"
    )
    spoiled = told("dv_relative_error", None, "dV holds NaN or infinity (against float64)")
    assert not is_finite(spoiled) and why_wrong(spoiled, "flash") == "The dV of flash holds NaN or infinity."


def test_pages_and_exports_say_so(runs: tuple[Run, Run]) -> None:
    found = compare(runs)
    assert "causal, forward + backward" in headline(found).detail
    items = {item.title: item for item in overview.sheet(runs, LIGHT).items}
    table = items["Error against float64"]
    assert table.columns == ("run", "‖o − ref‖ / ‖ref‖", "dQ", "dK", "dV", "largest of O", "source")
    assert all(row[2] != "–" for row in table.rows)
    assert "Requested bytes of naive, launch by launch" in items and "Beside the paper's figures" not in items
    titles = [item.title for item in hbm_traffic.sheet(runs, LIGHT).items]
    assert "Requested bytes by tensor" in titles
    assert "| the same, dQ |" in markdown(runs) and "dq_relative_error" in csv(runs)
    assert "--causal --backward" in command([run.workload for run in runs])
    alone = replace(runs[0], id="alone", workload=replace(runs[0].workload, problem=FORWARD))
    assert named((alone, runs[1])) == ("naive forward", "flash forward + backward")
    assert "dQ" not in markdown([alone])
    assert compare_two(alone, runs[0]).names == ("naive forward", "naive forward + backward")
    assert (launch_title("flash", "flash"), launch_title("dq", "flash"), launch_title("flash")) == (
        "forward",
        "dQ",
        "flash",
    )


def test_every_tensor_of_both_has_a_name_and_a_size(runs: tuple[Run, Run]) -> None:
    naive, flash = (schedule_of(run) for run in runs)
    names = {part.tensor: tensor_title(part.tensor) for plan in (naive, flash) for part in passes(plan)}
    assert (names["dq"], names["do"], names["ds"], names["dq_sum"], names["delta"]) == (
        "dQ",
        "dO",
        "dS",
        "ΣdQ",
        "delta",
    )
    assert all(part.size > 0 for plan in (naive, flash) for part in passes(plan))
    # S passes four times, P five, twice of them for dS; dS five: once written, then scaled, then read by two products.
    assert {part.tensor: part.times for part in passes(naive)} == {
        "p": pytest.approx(5), "ds": 5, "dp": 2, "dp_p": 2, "mask": 1, "q": 2, "k": 2, "v": 2, "do": 2,
        **dict.fromkeys(("o", "dq", "dk", "dv"), 1),
    } | {"s": 6}  # the mask reads and writes S once more  # fmt: skip
    assert "dQ" in formula(flash)[0]


def test_peak_memory_by_hand() -> None:
    """2 heads of 64 · 16 float16 are 4 KiB, scores of 64 · 64 are 16 KiB: P, dP, dP∘P, dS beside Q, K, V, O, dO, dV."""
    problem = AttentionProblem(1, 2, 2, 64, 64, 16, backward=True)
    naive = peak_tensors(all_kernels()["naive"], problem, None)
    assert sum(naive.values()) == 6 * 4096 + 4 * 16384 and not {"dq", "dk", "s"} & {*naive}
    flash = peak_tensors(all_kernels()["flash"], problem, TILE)
    assert sum(flash.values()) == 8 * 4096 + 512 + 512 + 2 * 64 * 16 * 4
    # Twice scores of 8 · 8 take less than dQ and dK: then those are there at the peak, and dP no longer.
    short = peak_tensors(all_kernels()["naive"], replace(problem, seq_len_q=8, seq_len_kv=8), None)
    assert {"dq", "dk"} < {*short} and "dp" not in short


def test_compulsory_bytes_by_hand() -> None:
    """Q, K, V, O, dO, dQ, dK, dV of 2 (1) heads of 40 · 16 float16; K and V are read as one head's."""
    row = 40 * 16 * 2
    assert PROBLEM.compulsory_bytes == (2 + 1 + 1 + 2) * row + (2 + 2 + 1 + 1) * row
    assert PROBLEM.flops == 7 * FORWARD.flops // 2
    assert PROBLEM.label == "(1, 2/1, 40, 16) float16, causal, forward + backward"
    # A window that hides the first 30 keys from everybody: K and V count 10 rows, dK and dV all.
    late = AttentionProblem(1, 1, 1, 1, 40, 16, window=10, backward=True)
    assert late.compulsory_bytes == (1 + 1 + 1 + 1 + 10 + 10 + 40 + 40) * 32


def test_do_is_drawn_after_q_k_and_v() -> None:
    alone = draw_inputs(FORWARD, 3, "cpu")
    assert all(one.equal(other) for one, other in zip(alone, draw_inputs(PROBLEM, 3, "cpu"), strict=True))
    do = draw_do(PROBLEM, 3, "cpu")
    assert do.shape == alone[0].shape and not do.equal(alone[0]) and do.equal(draw_do(PROBLEM, 3, "cpu"))


def test_a_sweep_varies_it_and_older_cells_keep_their_ids() -> None:
    """The id of the default cell is that of the version before there was a backward pass."""
    forward, both = Grid({"backward": (False, True)}).cells()
    assert forward.id == Grid({}).cells()[0].id == "abb2a423eaa6"
    assert both.workload is not None and both.workload.problem.backward and both.id != forward.id
    (impossible,) = Grid({"num_stages": (9,)}).cells()
    assert impossible.workload is None and impossible.id == "e4854ab7e017"
    (refused,) = Grid({"kernel": ("split_kv",), "backward": (True,)}).cells()
    assert refused.workload is None and "has no backward pass" in refused.refused


def test_no_door_lets_a_kernel_without_one_in() -> None:
    with pytest.raises(Refused, match="has no backward pass; choose naive, flash"):
        Configuration("query_tiled", PROBLEM, TILE, (9, 0))
    with pytest.raises(Refused, match="has no backward pass; choose naive, flash"):
        request(fill("Small, for a CPU", "cpu") | OTHERS | {"backward": True, "kernels": ["split_kv"]})
    naive, flash = request(fill("Small, for a CPU", "cpu") | OTHERS | {"backward": True})
    assert naive.problem.backward and flash.problem.backward


def test_figure_2_of_the_paper_beside_ours() -> None:
    asked = request(fill("FlashAttention, Fig. 2", "cuda:0") | OTHERS)
    assert {work.problem for work in asked} == {FIG_2} and [work.kernel for work in asked] == ["naive", "flash"]
    run = naive_run(FIG_2)
    table = beside_the_paper(compare([run]))
    assert table is not None
    assert [row[2:] for row in table.rows[:2]] == [("40.3 GB", "41.7 ms"), ("4.40 GB", "7.30 ms")]
    assert [row[:2] for row in table.rows[:2]] == [
        ("standard attention, paper", "A100"),
        ("FlashAttention, paper", "A100"),
    ]
    assert table.rows[2][:2] == ("naive", "NVIDIA H200") and table.rows[2][2] != "–"
    assert beside_the_paper(compare([naive_run()])) is None


def test_the_form_offers_what_has_both_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels without a backward pass are named, not offered; one that is chosen all the same stays to be refused."""
    monkeypatch.setattr(form, "devices", lambda: {"cpu": cpu_device()})
    held: dict[str, object] = {"device": "cpu", "backward": True, "kernels": ["split_kv"]}
    monkeypatch.setattr(form, "values", lambda: held)
    offered, absent = form._kernels()
    assert offered == ["naive", "flash", "flash_tma", "split_kv"]
    assert absent[0].startswith("Flash, warp-specialised is written in Gluon")
    assert absent[-1].startswith("Without a backward pass: Row streaming") and "Split" not in absent[-1]
    held["backward"] = False
    offered, absent = form._kernels()
    assert "row_streaming" in offered
    titles = (
        "Flash, warp-specialised is",
        "cuDNN's attention runs",
        "FlashAttention-2 runs",
        "Memory-efficient attention",
    )
    assert [reason.startswith(title) for reason, title in zip(absent, titles, strict=True)] == [True] * 4


def test_the_command_line_asks_for_it(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    words = "schedule --kernel flash --seq-len 64 --head-dim 16 --block-m 32 --block-n 16 --backward --json"
    told = json.loads(answer_to(words.split(), monkeypatch, capsys).out)
    assert told["by_tensor"]["dv"] == {"read": 0, "write": 64 * 16 * 2}
    # Two KV tiles of 32 keys, and no mask: each adds to every element of dQ; a launch before clears them.
    assert told["by_tensor"]["dq_sum"] == {"read": 64 * 16 * 4, "write": 3 * 64 * 16 * 4}
    assert [step["launch"] for step in told["steps"][-3:]] == ["delta", "gradients", "dq"]
    refused = answer_to(["schedule", "--kernel", "split_kv", "--backward"], monkeypatch, capsys)
    assert refused.code == 2
    assert refused.err == (
        "Split K/V has no backward pass; choose naive, flash, flash_tma, flash_ws, or leave backward out.\n"
    )


def test_the_walk_through_speaks_of_forward_passes(runs: tuple[Run, Run]) -> None:
    assert lesson_subject.shown(runs).is_article
    alone = replace(runs[1], workload=replace(runs[1].workload, problem=FORWARD))
    assert lesson_subject.shown((*runs, alone)).problem == FORWARD


def test_interpreted_steps_of_both_passes_count() -> None:
    """A head of 512 keys in tiles of 64: 64 steps forward, and 64 visits backward; a mask of half leaves 36 of each."""
    for causal, steps in ((False, 128), (True, 72)):
        problem = AttentionProblem(1, 1, 1, 512, 512, 64, causal=causal, backward=True)
        (work,) = workloads(("flash",), problem, TileConfig(), "cpu")
        assert needs(work).tile_steps == steps and needs(work).flops == problem.flops
