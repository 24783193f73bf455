"""Memory over sequence length: closed forms by hand, where a GPU is full, points of Runs, and lengths that are safe."""

import dataclasses

import pytest

from app import memory_measured, memory_sweep
from app.growth_chart import growth, tokens
from app.memory_growth import Measured, at, full_at, length_of, lengths, need
from app.style import LIGHT
from kernels.problem import MAX_SEQ_LEN, AttentionProblem, Refused, TileConfig
from profiler.run import Measurement, Run
from profiler.store import save
from profiler.workload import Workload
from tests import fake_memory, fake_runs

GIB = 2**30
NAIVE, FLASH = (make().workload for make in (fake_runs.naive_run, fake_runs.flash_run))


def test_naive_grows_with_the_square_and_flash_does_not() -> None:
    """Q, K, V and O take 16,384 B a token, S and P 64 B for each pair, LSE 64 B a token."""
    for length in (1, 1000, 8192):
        assert need(NAIVE, length) == 16_384 * length + 64 * length**2
        assert need(FLASH, length) == 16_448 * length


def test_where_a_gpu_is_full() -> None:
    end = full_at(NAIVE, 150e9)
    assert end == 48_284 and need(NAIVE, end) <= 150e9 < need(NAIVE, end + 1)  # type: ignore[operator]
    assert full_at(FLASH, 16_448 * 1000) == 1000 and full_at(FLASH, 16_448 * 1000 - 1) == 999
    assert full_at(FLASH, 10) is None, "not even one token fits"
    assert full_at(FLASH, 1e18) is None and (need(FLASH, MAX_SEQ_LEN) or 0) < 1e18


def test_decoding_grows_by_its_keys_alone() -> None:
    """K and V take 2 · 8 · 128 · 2 B a key; Q and O 16 KiB together, LSE 128 B."""
    problem = AttentionProblem(1, 32, 8, 1, 4096, 128, "bfloat16")
    work = Workload("flash", problem, TileConfig(16, 64))
    assert at(problem, 9).seq_len_q == 1
    assert need(work, 1000) == 4096 * 1000 + 2 * 32 * 128 * 2 + 128


def test_another_length_of_the_same_problem() -> None:
    problem = NAIVE.problem
    assert length_of(problem, at(problem, 99)) == 99
    assert length_of(problem, dataclasses.replace(at(problem, 99), causal=True)) is None
    assert length_of(problem, dataclasses.replace(problem, seq_len_q=99)) is None, "queries alone differ"
    decoding = AttentionProblem(1, 32, 8, 1, 4096, 128)
    assert length_of(decoding, dataclasses.replace(decoding, seq_len_kv=7)) == 7
    assert length_of(decoding, dataclasses.replace(decoding, seq_len_q=2)) is None


def test_lengths_reach_from_what_was_seen_to_where_it_is_full() -> None:
    found = lengths([8192], [48_284, None])
    assert (found[0], found[-1]) == (1024, 2 * 48_284) and found == sorted(set(found))
    assert lengths([1], [None])[-1] > lengths([1], [None])[0]


@pytest.mark.parametrize(("length", "words"), [(512, "512"), (8192, "8.00K"), (2**21, "2.00M")])
def test_lengths_are_spelled_as_in_the_field(length: int, words: str) -> None:
    assert tokens(length) == words


def other_length(run: Run, length: int, peak: float, run_id: str) -> Run:
    """The Run's kernel at another length, with that peak."""
    work = dataclasses.replace(run.workload, problem=at(run.workload.problem, length))
    told = Measurement("peak_allocated_bytes", peak, "B", "torch")
    return dataclasses.replace(
        run, id=run_id, workload=work, measurements=(told,), softmax=None, timeline=None, memory=None
    )


def test_points_come_from_runs_on_show_and_from_saved_ones(tmp_path: object) -> None:
    naive, flash = fake_memory.naive_run(), fake_memory.flash_run()
    shown = memory_measured.of_runs([naive, other_length(naive, 4096, 5e8, "short"), flash], naive.workload.problem)
    assert [(point.kernel, point.seq_len, point.allocated) for point in shown] == [
        ("flash", 8192, 128.5 * 2**20), ("naive", 4096, 5e8), ("naive", 8192, 4256.0 * 2**20),
    ]  # fmt: skip
    assert memory_measured.stored(naive.workload.problem, ["naive"]) == []
    save(other_length(naive, 2048, 3e8, "saved"))
    save(other_length(flash, 2048, 3e7, "other-kernel"))
    found = memory_measured.stored(naive.workload.problem, ["naive"])
    assert found == [Measured("naive", 2048, 3e8, "NVIDIA H200")]


def test_the_chart_has_dashed_curves_points_and_diamonds_on_the_limit() -> None:
    named = [("naive", fake_memory.naive_run()), ("flash", fake_memory.flash_run())]
    found = growth(named, [Measured("naive", 8192, 4.4e9, "NVIDIA H200")], LIGHT)
    assert "twice the length takes naive 4.0×, flash 2.0×." in found.caption
    chart = found.chart
    traces = {trace.name: trace for trace in chart.data}
    assert {traces[name].line.dash for name in ("naive", "flash")} == {"dash"}
    assert (list(traces["naive, measured"].x), list(traces["naive, measured"].y)) == ([8192], [4.4e9])
    full = traces["naive full at 48,284"]
    assert (full.x[0], full.y[0]) == (48_284, 150_000_000_000)
    assert {note.text for note in chart.layout.annotations} == {
        "H200, 140 GiB", "naive full at 48,284", "flash full at 9,119,649",
    }  # fmt: skip


def test_names_that_would_meet_stand_on_each_other() -> None:
    flash = fake_memory.flash_run()
    named = [("a", flash), ("b", flash), ("c", fake_memory.naive_run())]
    chart = growth(named, [], LIGHT).chart
    shifts = {note.text: note.yshift for note in chart.layout.annotations if "full" in note.text}
    assert shifts == {"c full at 48,284": 8, "a full at 9,119,649": 23, "b full at 9,119,649": 38}


def test_a_cpu_run_has_curves_and_no_limit() -> None:
    found = growth([("flash", fake_runs.cpu_run())], [], LIGHT)
    assert found.sources == ("model",) and not found.chart.layout.annotations


def test_measuring_stops_where_it_is_not_safe() -> None:
    """Naive: 64 S² + 16,384 S ≤ 64 GiB up to 32,640. Flash: 8,192 S² FLOP in half a second at 989 TFLOP/s."""
    found = memory_sweep.plan((NAIVE, FLASH), fake_runs.H200, 128 * GIB)
    assert found.longest == {"naive": 16_384, "flash": 131_072}
    assert found.grid.given["seq_len_q"] == (512, 1024, 2048, 4096, 8192, 16_384, 32_768, 65_536, 131_072)
    cells = found.grid.cells("cuda:0")
    measured = {(cell.workload.kernel, cell.workload.problem.seq_len_q) for cell in cells if cell.workload}
    assert len(measured) == 6 + 9 and ("naive", 16_384) in measured and ("naive", 32_768) not in measured
    assert {cell.workload.repeats for cell in cells if cell.workload} == {1}
    assert all(length_of(NAIVE.problem, cell.workload.problem) for cell in cells if cell.workload)


def test_the_command_makes_the_same_grid() -> None:
    words = memory_sweep.plan((NAIVE, FLASH), fake_runs.H200, 128 * GIB).command
    assert words.startswith(
        "python -m profiler sweep --kernel naive,flash --batch 1 --heads 16 --kv-heads 16 --seq-len 512,"
    )
    assert words.endswith("--device cuda:0") and "--where '(kernel = '\"'\"'naive" in words


def test_nothing_is_measured_where_nothing_is_safe() -> None:
    with pytest.raises(Refused, match="more than half of the free memory at S = 512"):
        memory_sweep.plan((NAIVE,), fake_runs.H200, 10**6)
    with pytest.raises(Refused, match="how much memory is free is not known"):
        memory_sweep.plan((NAIVE,), fake_runs.H200, None)


def test_a_peak_of_0_has_no_place_on_a_log_axis() -> None:
    shown = [("naive", fake_memory.naive_run())]
    axis = growth(shown, [Measured("naive", 8192, 0.0, "NVIDIA H200")], LIGHT).chart.layout.yaxis
    assert axis.range == growth(shown, [], LIGHT).chart.layout.yaxis.range
