"""What sits where, what was asked for, and two kernels in step, against numbers worked out by hand."""

from dataclasses import replace

import numpy as np
import pytest

from app import page
from app.level_table import levels
from app.picture import Table
from app.row_block_table import row_block
from app.standing import Pair, Standing
from app.style import LIGHT
from app.subject import Subject, schedule_of, subjects
from app.tile_moment import Moment
from app.tile_pages import headline, headline_of_two, matrix, shown_scores, whole_scores
from app.tile_tables import launches_moved, moved, moved_both
from kernels.base import all_kernels
from kernels.problem import AttentionProblem, TileConfig
from profiler.codec import PackedArray
from profiler.run import Measurement, Run
from tests import fake_runs
from tests.test_tile_moment import ARTICLE, subject, walk


def cells(table: Table, column: str) -> dict[str, str]:
    """The column by what each row holds, or by the tensor and whether it is read."""
    at = table.columns.index(column)
    keys = [row[1] if table.columns[1] else " ".join(row[:2]).strip() for row in table.rows]
    return {key: row[at] for key, row in zip(keys, table.rows, strict=True)}


def measured(kernel: str, **tile: int) -> Subject:
    """A kernel on an H200, at the problem of the recorded Runs."""
    found = TileConfig(**({"BLOCK_M": 128, "BLOCK_N": 64, "num_warps": 8, "num_stages": 3} | tile))
    used = all_kernels()[kernel].cut(fake_runs.PROBLEM, found)
    return Subject(kernel, kernel, fake_runs.PROBLEM, used, None, fake_runs.H200)


def test_moved_table_says_how_often_k_was_asked_for() -> None:
    table = moved(subject("flash", ARTICLE), Moment(walk("flash", ARTICLE), 3, 3))
    assert table.rows[1] == ("K", "read", "1.02 kB", "4.10 kB", "4.0×", "schedule")


def test_levels_hold_tensors_tiles_and_their_share_of_each_level() -> None:
    """128 × 128 bf16 is 32 KiB, of 227 KiB 14%; acc is 64 KiB of the 256 KiB of registers; K + V of a head 4 MiB."""
    flash = measured("flash")
    assert flash.schedule.walk is not None
    table = levels(flash, Moment.of_head(flash.schedule.walk, 0, 128 + 2))
    size, share, now = (cells(table, name) for name in ("size", "of level", "rows or keys"))
    assert (size["Q"], size["LSE"]) == ("32.0 MiB", "512 KiB")
    assert (size["K, V read"], share["K, V read"]) == ("4.00 MiB", "7%")
    assert (size["Q 128×128"], share["Q 128×128"], now["Q 128×128"]) == ("32.0 KiB", "14%", "128–255")
    assert (size["K 64×128"], share["K 64×128"], now["K 64×128"]) == ("16.0 KiB", "7%", "128–191")
    assert (size["acc 128×128"], share["acc 128×128"]) == ("64.0 KiB", "25%")
    assert table.fills[table.rows.index(next(row for row in table.rows if row[1] == "acc 128×128"))][3] == 0.25
    found = [row[0] for row in table.rows if row[0]]
    assert found == ["HBM, 140 GiB", "L2, 60.0 MiB", "shared memory, 227 KiB", "registers, 256 KiB"]


def test_l2_fills_with_what_the_head_has_read() -> None:
    """Of the first program's 128 steps two: 2 × 64 rows of K and of V, 256 B each."""
    flash = measured("flash")
    assert flash.schedule.walk is not None
    table = levels(flash, Moment.of_head(flash.schedule.walk, 0, 1))
    assert cells(table, "size")["K, V read"] == "64.0 KiB"


def test_temporaries_lie_in_hbm_and_are_called_so() -> None:
    """acc of 16 heads × 8,192 rows × 128 in float32 is 64 MiB."""
    outer = measured("flash_kv_outer")
    assert outer.schedule.walk is not None
    size = cells(levels(outer, Moment(outer.schedule.walk)), "size")
    assert (size["acc, temporary"], size["m, temporary"]) == ("64.0 MiB", "512 KiB")


def test_k_is_not_on_chip_while_v_streams() -> None:
    table = levels(subject("row_streaming", ARTICLE), Moment(walk("row_streaming", ARTICLE), 0, 5))
    now = cells(table, "rows or keys")
    assert (now["K 4×16"], now["V 4×16"], now["Q 1×16"]) == ("–", "4–7", "0")


def test_a_level_of_no_gpu_is_a_dash_with_its_reason() -> None:
    table = levels(subject("flash", ARTICLE), Moment(walk("flash", ARTICLE)))
    row = next(index for index, row in enumerate(table.rows) if row[0] == "L2")
    assert table.rows[row][3] == "–" and table.fills[row][3] is None
    assert table.reasons[row][3].startswith("Without a Run the L2 of no GPU is known")
    on_cpu = replace(subject("flash", ARTICLE), device=fake_runs.THIS_CPU)
    assert "Two-core CPU" in levels(on_cpu, Moment(walk("flash", ARTICLE))).reasons[row][3]


def test_bars_are_drawn_no_longer_than_full() -> None:
    html = page.table_html(Table("", "", ("a",), (("140%",), ("7%",)), fills=((1.4,), (0.07,))))
    assert '<i class="bs-fill over"><i style="width:100.0%">' in html
    assert '<i class="bs-fill"><i style="width:7.0%">' in html


def test_unmeasured_kernels_are_held_against_the_gpu_of_the_runs() -> None:
    found = subjects((fake_runs.flash_run(),), ARTICLE, TileConfig(4, 4))
    other = next(one for one in found if one.kernel == "flash_kv_outer")
    assert other.run is None and other.device == fake_runs.H200


def test_query_tiled_says_what_its_rows_need_and_from_where_on_they_do_not_fit() -> None:
    """8,192 keys × 128 in bf16 are 2 MiB. S and P of 128 × 8,192 are 4 and 2 MiB, acc is 64 KiB, m and l are 1 KiB."""
    table = row_block(measured("query_tiled"))
    assert table is not None and row_block(measured("flash")) is None
    registers, shared = table.rows
    assert registers[:4] == ("registers, num_warps 8", "6.06 MiB", "255 KiB", "24×")
    assert shared[0] == "shared memory, NVIDIA H200" and shared[1:4] == ("2.00 MiB", "227 KiB", "902%")
    # 512 keys take 128 KiB of shared memory, 1,024 would take 256; 256 keys take 257 KiB of registers, 128 take 161.
    assert (registers[4], shared[4]) == ("128", "512")


def test_without_a_gpu_the_table_of_gpus_stands_in() -> None:
    table = row_block(subject("query_tiled", fake_runs.PROBLEM, TileConfig(64, 64)))
    assert table is not None
    fits = {row[0]: (row[2], row[4]) for row in table.rows[1:]}
    assert fits["shared memory, A100 SXM 40 GB, A100 SXM 80 GB"] == ("163 KiB", "512")
    assert fits["shared memory, T4"] == ("64.0 KiB", "256")
    assert fits["shared memory, H100 SXM, H200 SXM, B200"] == ("227 KiB", "512")


def pair(first: str, second: str, at: int, problem: AttentionProblem = ARTICLE) -> Pair:
    """Two kernels with the first at a step of its head."""
    return Pair.beside(Standing.of(subject(first, problem), 0, at), subject(second, problem))


def test_two_kernels_with_equal_steps_stand_at_the_same_one() -> None:
    both = pair("flash", "flash_kv_outer", 6)
    assert both.second is not None
    assert (both.first.at, both.second.at, both.first.steps, both.second.steps) == (6, 6, 16, 16)
    table = moved_both(both)
    assert "Both have the same number of steps." in table.caption
    rows = {row[:2]: row[2:5] for row in table.rows}
    assert rows["K", "read"] == ("1.79 kB", "512 B", "3.5×") and rows["Q", "read"] == ("512 B", "1.79 kB", "0.29×")
    assert rows["acc", "write"] == ("0 B", "2.82 kB", "–")


@pytest.mark.parametrize(("at", "expected"), [(0, 0), (31, 0), (32, 1), (63, 1), (64, 2), (127, 3)])
def test_two_kernels_with_other_numbers_of_steps_stand_at_the_same_share(at: int, expected: int) -> None:
    """row_streaming has 16 rows × 8 steps, query_tiled 4 steps: one of its steps lasts 32."""
    both = pair("row_streaming", "query_tiled", at)
    assert both.second is not None and both.leader is both.first
    assert (both.first.steps, both.second.steps, both.second.at) == (128, 4, expected)
    assert (
        f"step {at + 1} of 128 (row_streaming) and step {expected + 1} of 4 (query_tiled)" in moved_both(both).caption
    )


@pytest.mark.parametrize("at", range(4))
def test_a_kernel_keeps_its_step_when_a_longer_one_is_put_beside_it(at: int) -> None:
    both = pair("query_tiled", "row_streaming", at)
    assert both.second is not None and both.leader is both.second
    assert both.second.at == 32 * (at + 1) - 1, "the longer one has done the same share"
    again = Pair.beside(both.second, both.first.subject)
    assert again.second is not None and again.second.at == at


def test_a_library_of_launches_stands_at_the_same_share() -> None:
    """Half of flash's 16 steps is two of naive's four launches: Q and K read, S written; S read and written."""
    both = pair("flash", "naive", 7)
    assert both.second is not None and (both.second.at, both.second.steps, both.second.moment) == (1, 4, None)
    rows = {row[:2]: row[3] for row in moved_both(both).rows}
    assert (rows["K", "read"], rows["S", "read"], rows["S", "write"]) == ("1.02 kB", "1.02 kB", "2.05 kB")
    assert rows["P", "write"] == rows["V", "read"] == "0 B"


def test_launches_count_for_one_head_beside_tiles() -> None:
    of_two = AttentionProblem(heads=2, kv_heads=2, seq_len_q=16, seq_len_kv=16, head_dim=16, dtype="float32")
    standing = Standing.of(subject("naive", of_two), 0, 3)
    assert standing.bytes_of_head()["o", "write"] == 1024


def test_headlines_say_how_often_k_and_v_are_read() -> None:
    assert headline(subject("flash", ARTICLE)).sentence == "Flash reads K and V 4 times and Q once a head."
    outer = headline(subject("flash_kv_outer", ARTICLE)).sentence
    assert outer.endswith(" reads K and V once and Q 4 times a head.")
    # A head: 4 × (1,024 + 1,024) of K and V, 1,024 of Q and of O, 64 of LSE, against 16 times K and V.
    words = headline_of_two(subject("flash", ARTICLE), subject("row_streaming", ARTICLE)).sentence
    assert words == "For one head row_streaming asks for 34.9 kB, 3.4× the 10.3 kB of flash."


def test_naive_steps_are_its_launches() -> None:
    schedule = all_kernels()["naive"].schedule(fake_runs.PROBLEM, TileConfig())
    rows = {row[0]: row[1:3] for row in launches_moved(schedule, 1).rows}
    assert rows["S"] == ("2.15 GB", "4.29 GB")  # written by QKᵀ, read and written by scale
    assert rows["P"] == ("0 B", "0 B")


def test_sawtooth_turns_on_the_wave_of_the_runs_gpu() -> None:
    """Two programs at once: Q tiles 0 and 1 go forwards, 2 and 3 backwards; without the measurement every second."""
    tile = TileConfig(16, 16, order="sawtooth")
    run = fake_runs.cpu_run(tile=tile)
    two = replace(run, measurements=(*run.measurements, Measurement("programs_at_once", 2.0, "1", "model")))
    assert [_first_kv_tile(one, 1) for one in (run, two)] == [1, 0]
    assert [_first_kv_tile(one, 2) for one in (run, two)] == [0, 2]


def _first_kv_tile(run: Run, program: int) -> int | None:
    found = schedule_of(run).walk
    assert found is not None
    assert Subject("", "flash", fake_runs.SMALL, run.workload.tile or TileConfig(), run).schedule.walk is found
    return found.tile_of(program, 0)[1]


def test_scores_are_printed_where_all_of_a_small_head_were_kept() -> None:
    small = AttentionProblem(seq_len_q=16, seq_len_kv=16, head_dim=16, dtype="float32", causal=True)
    run = fake_runs.cpu_run(small, TileConfig(4, 4))
    assert run.softmax is not None
    scores = np.where(np.tri(16, dtype=bool), np.arange(256).reshape(16, 16) / 100, -np.inf).astype(np.float32)
    whole_head = replace(run, softmax=replace(run.softmax, scores=PackedArray.pack(scores)))
    found = Subject("flash", "flash", small, TileConfig(4, 4), whole_head)
    assert found.schedule.walk is not None
    moment = Moment(found.schedule.walk, 1, 1)
    shown = shown_scores(found, (found,), moment)
    assert shown is not None
    picture = matrix(found, moment, LIGHT, scores=shown)
    printed = next(trace for trace in picture.chart.data if trace.type == "scatter" and trace.mode == "text")
    assert len(printed.text) == 256 and list(printed.text[16:18]) == ["0.16", "0.17"] and printed.text[1] == "−∞"
    assert printed.hovertext[17] == "row 1, key 1: 0.17"
    assert "schedule" in picture.sources and "interpreter" in picture.sources
    part = replace(run.softmax, scores=PackedArray.pack(scores[4:]), score_start=4)
    assert shown_scores(replace(found, run=replace(run, softmax=part)), (), moment) is None
    assert shown_scores(replace(found, run=run), (), moment) is None, "a Run without scores"


def scored(kernel: str, problem: AttentionProblem, has_scores: bool = False, seed: int = 0) -> Subject:
    """A kernel's Run on a CPU; with scores row + key / 100, as flash leaves them: NaN in tiles that a mask hides."""
    tile = all_kernels()[kernel].cut(problem, TileConfig(4, 4)) if all_kernels()[kernel].is_tiled else None
    run = fake_runs.cpu_run(problem, TileConfig(4, 4), f"fake-{kernel}-{seed}")
    row, key = np.mgrid[:16, :16]
    values = np.where(key // 4 > row // 4, np.nan, np.where(key > row, -np.inf, row + key / 100))
    values = values if problem.causal else row + key / 100
    assert run.softmax is not None
    kept = replace(run.softmax, scores=PackedArray.pack(values.astype(np.float32))) if has_scores else None
    work = replace(run.workload, kernel=kernel, tile=tile, trace=run.workload.trace if has_scores else None, seed=seed)
    return Subject(
        kernel, kernel, problem, tile or TileConfig(4, 4), replace(run, workload=work, softmax=kept), run.device
    )


CAUSAL_16 = replace(ARTICLE, causal=True)


@pytest.mark.parametrize("kernel", ["row_streaming", "query_tiled"])
def test_a_kernel_that_keeps_no_scores_shows_those_that_another_recorded(kernel: str) -> None:
    """Of the causal 16 × 16, query_tiled's one KV tile of all keys is visited everywhere: masked scores are −∞."""
    one, flash = scored(kernel, CAUSAL_16), scored("flash", CAUSAL_16, has_scores=True)
    assert one.schedule.walk is not None
    moment = Moment(one.schedule.walk, 1)
    shown = shown_scores(one, (one, flash), moment)
    assert shown is not None
    picture = matrix(one, moment, LIGHT, scores=shown)
    printed = next(trace for trace in picture.chart.data if trace.type == "scatter" and trace.mode == "text")
    assert list(printed.text[16:19]) == ["1.00", "1.01", "−∞"]
    assert printed.text[4] == ("−∞" if kernel == "query_tiled" else ""), "skipped by a kernel with tiles of 4 keys"
    words = "Numbers: the scaled scores as recorded by flash, of the same problem, seed and device. −∞ is masked."
    assert picture.caption.endswith(words) and "interpreter" in picture.sources


def test_scores_of_another_draw_are_not_shown() -> None:
    one, other = scored("row_streaming", ARTICLE), scored("flash", ARTICLE, has_scores=True, seed=1)
    assert one.schedule.walk is not None and other.run is not None
    moment = Moment(one.schedule.walk)
    assert shown_scores(one, (one, other), moment) is None
    elsewhere = replace(other, run=replace(other.run, device=replace(other.run.device, name="Another CPU")))
    assert shown_scores(one, (one, elsewhere), moment) is None
    unrun = replace(one, run=None)
    shown = shown_scores(unrun, (unrun, other), moment)
    assert shown is not None
    assert "as recorded by flash, of the same problem." in matrix(unrun, moment, LIGHT, scores=shown).caption


def test_naive_holds_the_whole_matrix_of_scores() -> None:
    naive, flash = scored("naive", CAUSAL_16), scored("flash", CAUSAL_16, has_scores=True)
    picture = whole_scores(naive, (naive, flash), LIGHT)
    assert picture is not None and "as recorded by flash" in picture.caption
    tint, _, printed = picture.chart.data
    assert (printed.text[0], printed.text[1], printed.text[255]) == ("0.00", "−∞", "15.15")
    assert tint.z.sum() == 16 * 15 / 2, "the masked ones"
    assert whole_scores(naive, (naive,), LIGHT) is None
    cudnn = replace(naive, name="cudnn", kernel="cudnn")
    assert whole_scores(cudnn, (cudnn, flash), LIGHT) is None, "no scores in HBM"
