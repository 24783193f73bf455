"""What the online softmax page shows of one traced Run: words and pictures, no Streamlit."""

import numpy as np

from app import softmax_moves, softmax_scores
from app.answer import where
from app.picture import Figure, Headline, Picture
from app.softmax_chart import accumulator, over_rows, row_panels
from app.softmax_differences import SYMBOL
from app.softmax_recording import Recording
from app.softmax_state import Difference, RowState, unpacked
from app.style import Theme, error
from profiler.run import Run, SoftmaxTrace

# The source of a state that the running kernel itself wrote.
TRACE = "interpreter"


def headline(run: Run, found: Recording, state: RowState) -> Headline:
    """How far the chosen row's l is from the exact value, and how often its maximum moved."""
    worst, moves = state.difference("l"), len(state.moves)
    times = ("never moved", "moved once", "moved twice")[moves] if moves < 3 else f"moved {moves} times"
    if worst is None:
        sentence = f"Row {state.row:,}: the mask hides every key from it, so its O is 0."
    else:
        apart = f"differs from the exact prefix by at most {error(worst.relative)}"
        found_so = apart if worst.relative else "equals the exact prefix at every tile"
        sentence = f"Row {state.row:,}: the running kernel's l {found_so}; the maximum {times}."
    return Headline(sentence, f"{_kept(run, found)} {run.workload.problem.label}, {where(run)}.")


def _kept(run: Run, found: Recording) -> str:
    """What the trace holds, and that it is of one head where there are several."""
    trace, problem = found.trace, run.workload.problem
    others = problem.batch * problem.heads
    one = f" (1 of {others:,} kept)" if others > 1 else ""
    rows = (
        f"Rows {trace.row_start:,} to {trace.row_stop - 1:,} of batch {trace.batch}, head {trace.head}{one} were "
        f"recorded after every KV tile of {trace.BLOCK_N} keys"
    )
    scores = softmax_scores.kept_rows(found)
    return f"{rows}; scores of {scores}." if scores else f"{rows}."


def figures(run: Run, found: Recording, state: RowState) -> tuple[Figure, ...]:
    """The largest differences from the exact prefix values along the row, and what was rescaled in it and in all."""
    dtype = run.workload.problem.dtype
    # Flash multiplies P and V in the inputs' dtype; m and l never leave float32.
    rounded = "" if dtype == "float32" else f"; P is rounded to {dtype}"
    row = [
        _difference(symbol, state.difference(name), rounded if name == "acc_norm" else "")
        for name, symbol in SYMBOL.items()
    ]
    rescaled = f"{len(state.moves)} of {state.rescalable}"
    row.append(Figure("rescaled", rescaled, TRACE, "steps that raised the row's maximum"))
    return (*row, softmax_moves.figure(softmax_moves.moves(found)))


def _difference(symbol: str, found: Difference | None, because: str) -> Figure:
    label = f"{symbol}, largest difference"
    if found is None:
        return Figure(label, "–", TRACE, reason="the mask hides every key from this row")
    return Figure(label, error(found.relative), TRACE, f"of its value; {error(found.absolute)} absolute{because}")


def along_row(state: RowState, kv_tile: int | None, theme: Theme) -> Picture:
    """m, l, alpha and |acc| of one row, tile by tile."""
    caption = (
        "Points: written by the running kernel after each KV tile. Thin line: exact float64 value over the same keys, "
        f"l = Σ exp(s − m). Strong bars: a new maximum, so l and acc are multiplied by α < 1.{_way(state)}"
    )
    return Picture(f"Row {state.row:,}, tile by tile", caption, row_panels(state, kv_tile, theme), (TRACE,))


def _way(state: RowState) -> str:
    """What is unlike a single scan from the first tile to the last."""
    said = ""
    if state.is_backward:
        said += " This row's tiles were scanned backwards: read from right to left."
    if len(state.states) > 1:
        total, exact = state.total, state.exact_total
        said += (
            f" {len(state.states)} programs share the row: at each upright line m, l and acc start afresh. The merge "
            f"joins them: m = max m_i = {total.m:.6g}, l = Σ l_i · exp(m_i − m) = {total.l:.6g}; exactly {exact.l:.6g}."
        )
    return said


def all_rows(found: Recording, name: str, row: int, kv_tile: int | None, theme: Theme) -> Picture:
    """alpha or m of all recorded rows."""
    values = found.rescale if name == "alpha" else unpacked(found.trace.m)
    said = "the smaller α, the more was rescaled" if name == "alpha" else "the running maximum"
    caption = f"Strong: {said}. Blank: skipped by the mask, or nothing to rescale yet. Dotted: the chosen row and tile."
    if name == "alpha" and not np.isfinite(values).any():
        caption = "No recorded state meets a second tile with something summed before: there is nothing to rescale."
    title = f"{'α' if name == 'alpha' else name} of all recorded rows"
    return Picture(title, caption, over_rows(values, name, found.trace.row_start, (row, kv_tile), theme), (TRACE,))


def recorded_tiles(trace: SoftmaxTrace) -> tuple[int, ...]:
    """KV tiles after which the whole acc was kept; those that the mask skips are left out."""
    seen = np.isfinite(unpacked(trace.acc)).any(axis=(1, 2))
    return tuple(trace.acc_start + trace.acc_stride * int(step) for step in np.flatnonzero(seen))


def last_recorded(found: Recording) -> int:
    """Of recorded_tiles, of which there must be one, that at which a running state ends; else the last."""
    tiles = recorded_tiles(found.trace)
    return next((tile for tile in reversed(found.last_tiles) if tile in tiles), tiles[-1])


def whole_acc(found: Recording, kv_tile: int, row: int, theme: Theme) -> Picture:
    """The accumulator of the traced Q tile after one of the recorded tiles."""
    trace, rows = found.trace, found.walk.grid.BLOCK_M
    first = trace.acc_tile * rows
    kept = "every tile" if trace.acc_stride == 1 else f"every {trace.acc_stride:,} tiles"
    # Where query heads are rows, the others of the Q tile are of heads that were not asked for.
    whose = f"head {trace.head:,}" if found.walk.grid.packs > 1 else f"Q tile {trace.acc_tile:,}"
    caption = f"acc of {whose} after KV tile {kv_tile:,}, rows × head_dim; kept {kept}. "
    ends = found.last_tiles
    if len(ends) > 1:
        caption += "Each share of the KV tiles has an acc of its own; merged and divided by the merged l, they are O."
    else:
        caption += (
            f"{'This is the last tile: divided' if kv_tile in ends else 'After the last tile, divided'} by l, it is O."
        )
    if row // rows != trace.acc_tile:
        caption += f" Row {row:,} lies in Q tile {row // rows:,}, whose acc was not kept."
    chart = accumulator(unpacked(trace.acc)[(kv_tile - trace.acc_start) // trace.acc_stride], first, row, theme)
    return Picture("The accumulator", caption, chart, (TRACE,))
