"""What the online softmax page shows of one traced Run: words and pictures, no Streamlit."""

import numpy as np

from app.answer import where
from app.picture import Figure, Headline, Picture
from app.softmax_chart import accumulator, over_rows, row_panels
from app.softmax_state import Difference, RowState, rescale_factors, unpacked
from app.style import Theme, error
from app.subject import schedule_of
from profiler.run import Run, SoftmaxTrace

# The source of a state that the running kernel itself wrote.
TRACE = "interpreter"
SYMBOL = {"m": "m", "l": "l", "acc_norm": "|acc|"}


def headline(run: Run, trace: SoftmaxTrace, state: RowState) -> Headline:
    """How far the chosen row's l is from the exact value, and how often its maximum moved."""
    worst, moves = state.difference("l"), len(state.moves)
    times = "once" if moves == 1 else "not once" if moves == 0 else f"{moves} times"
    if worst is None:
        sentence = f"Row {state.row:,}: the mask hides every key from it, so its O is 0."
    else:
        sentence = (
            f"Row {state.row:,}: the running kernel's l differs from the exact prefix by at most "
            f"{error(worst.relative)}; the maximum moved {times}."
        )
    detail = (
        f"Rows {trace.row_start:,} to {trace.row_stop - 1:,} of batch {trace.batch}, head {trace.head} were recorded "
        f"after every KV tile of {trace.BLOCK_N} keys. {run.workload.problem.label}, {where(run)}."
    )
    return Headline(sentence, detail)


def figures(run: Run, state: RowState) -> tuple[Figure, ...]:
    """The largest differences from the exact prefix values along the row, and what was rescaled."""
    dtype = run.workload.problem.dtype
    # Flash multiplies P and V in the inputs' dtype; m and l never leave float32.
    rounded = "" if dtype == "float32" else f"; P is rounded to {dtype}"
    row = [
        _difference(symbol, state.difference(name), rounded if name == "acc_norm" else "")
        for name, symbol in SYMBOL.items()
    ]
    visited, moves = len(state.visited), len(state.moves)
    row.append(Figure("rescaled", f"{moves} of {max(0, visited - 1)}", TRACE, "tiles that raised the maximum"))
    return tuple(row)


def _difference(symbol: str, found: Difference | None, because: str) -> Figure:
    label = f"{symbol}, largest difference"
    if found is None:
        return Figure(label, "–", TRACE, reason="the mask hides every key from this row")
    return Figure(label, error(found.relative), TRACE, f"of its value; {error(found.absolute)} absolute{because}")


def along_row(state: RowState, kv_tile: int | None, theme: Theme) -> Picture:
    """m, l, alpha and |acc| of one row, tile by tile."""
    caption = (
        "Points: written by the running kernel after each KV tile. Thin line: exact float64 value over the same keys, "
        "l = Σ exp(s − m). Strong bars: a new maximum, so l and acc are multiplied by α < 1."
    )
    return Picture(f"Row {state.row:,}, tile by tile", caption, row_panels(state, kv_tile, theme), (TRACE,))


def all_rows(trace: SoftmaxTrace, name: str, row: int, kv_tile: int | None, theme: Theme) -> Picture:
    """alpha or m of all recorded rows."""
    values = unpacked(trace.m)
    if name == "alpha":
        values = rescale_factors(unpacked(trace.alpha), values)
    said = "the smaller α, the more was rescaled" if name == "alpha" else "the running maximum"
    caption = f"Strong: {said}. Blank: skipped by the mask, or nothing to rescale yet. Dotted: the chosen row and tile."
    title = f"{'α' if name == 'alpha' else name} of all recorded rows"
    return Picture(title, caption, over_rows(values, name, trace.row_start, (row, kv_tile), theme), (TRACE,))


def recorded_tiles(trace: SoftmaxTrace) -> tuple[int, ...]:
    """KV tiles after which the whole acc was kept; those that the mask skips are left out."""
    seen = np.isfinite(unpacked(trace.acc)).any(axis=(1, 2))
    return tuple(trace.acc_start + trace.acc_stride * int(step) for step in np.flatnonzero(seen))


def whole_acc(run: Run, trace: SoftmaxTrace, kv_tile: int, row: int, theme: Theme) -> Picture:
    """The accumulator of the traced Q tile after one of the recorded tiles."""
    rows = run.workload.tile.BLOCK_M if run.workload.tile else 1
    first = trace.acc_tile * rows
    kept = "every tile" if trace.acc_stride == 1 else f"every {trace.acc_stride:,} tiles"
    grid = schedule_of(run).tiles
    is_last = grid is not None and trace.acc_tile < grid.q_tiles and kv_tile == grid.last[trace.acc_tile] - 1
    caption = (
        f"acc of Q tile {trace.acc_tile:,} after KV tile {kv_tile:,}, rows × head_dim; kept {kept}. "
        f"{'This is the last tile: divided' if is_last else 'After the last tile, divided'} by l, it is O."
    )
    if row // rows != trace.acc_tile:
        caption += f" Row {row:,} lies in Q tile {row // rows:,}, whose acc was not kept."
    chart = accumulator(unpacked(trace.acc)[(kv_tile - trace.acc_start) // trace.acc_stride], first, row, theme)
    return Picture("The accumulator", caption, chart, (TRACE,))
