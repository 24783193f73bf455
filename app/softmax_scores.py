"""What one row's recorded scores say: which key moved the maximum, what each tile weighs, or why none were kept."""

from dataclasses import dataclass

import numpy as np

from app.picture import Picture, Table
from app.softmax_recording import Recording
from app.softmax_scores_chart import score_panels
from app.softmax_state import Floats, RowState
from app.style import Theme, significant
from profiler.trace_plan import LONGEST_SCORES

TRACE = "interpreter"
MOST_PRINTED = 16  # scores in a table


@dataclass(frozen=True)
class RowScores:
    """A row's scaled scores [seq_len_kv] beside its states; −inf where masked, NaN where no tile was visited."""

    state: RowState
    scores: Floats
    BLOCK_N: int

    @property
    def visible(self) -> Floats:
        """The scores that count; NaN elsewhere."""
        return np.where(np.isfinite(self.scores), self.scores, np.nan)

    @property
    def weights(self) -> Floats:
        """exp(s − m), with the m of the whole row; 0 for hidden keys."""
        return np.nan_to_num(np.exp(self.visible - self.state.total.m), nan=0.0)

    @property
    def probabilities(self) -> Floats:
        """exp(s − m) / l, with m and l as the running kernel left them; 0 for hidden keys."""
        return self.weights / (self.state.total.l or 1.0)

    @property
    def movers(self) -> list[int]:
        """The key of the largest score of each tile that moved the maximum."""
        visible, size = self.visible, self.BLOCK_N
        tiles = ((int(tile), visible[tile * size : (tile + 1) * size]) for tile in self.state.moves)
        return [tile * size + int(np.nanargmax(part)) for tile, part in tiles if np.isfinite(part).any()]


def row_scores(found: Recording, state: RowState) -> RowScores | None:
    """The scores of the state's row; None where they were not kept, or where it sees none."""
    kept = found.scores(state.row)
    if kept is None or not np.isfinite(kept).any() or not len(state.states):
        return None
    return RowScores(state, kept, found.trace.BLOCK_N)


def why_none(found: Recording, state: RowState) -> str:
    """Why there are no scores to show for a row, and how to get them."""
    trace, keys = found.trace, found.walk.grid.problem.seq_len_kv
    if trace.scores is None and keys > LONGEST_SCORES:
        return f"A row of {keys:,} scores is above the {LONGEST_SCORES:,} that a Run keeps; choose a shorter sequence."
    if trace.scores is None:
        return f"This Run was made without keeping scores; run it again with traced row {state.row} to see them."
    if found.scores(state.row) is not None:
        return f"The mask hides every key from row {state.row:,}: it has no scores."
    return f"Scores were kept of {kept_rows(found)} only; choose one of them, or run again with traced row {state.row}."


def kept_rows(found: Recording) -> str:
    """The rows whose scores were kept, in words; empty where there are none."""
    trace = found.trace
    if trace.scores is None:
        return ""
    first, last = trace.score_start, trace.score_start + trace.scores.shape[0] - 1
    return f"row {first:,}" if first == last else f"rows {first:,} to {last:,}"


def nearest_kept(found: Recording, row: int) -> int | None:
    """The row nearest to `row` whose scores were kept; None where there is none, or `row` is it."""
    trace = found.trace
    if trace.scores is None:
        return None
    nearest = min(max(row, trace.score_start), trace.score_start + trace.scores.shape[0] - 1)
    return None if nearest == row else nearest


def picture(one: RowScores, kv_tile: int | None, theme: Theme) -> Picture:
    """The scores along the keys with the running maximum over them, and how much of the softmax each tile holds."""
    way = " Read it from right to left: this row's tiles were visited backwards." if one.state.is_backward else ""
    caption = (
        "Scaled scores as the kernel had them; hidden keys are blank. Bars: smallest to largest of a KV tile, and "
        f"the mean. Line: m after each tile; it moves at the ringed scores.{way} Below: the share of the softmax that "
        f"each tile holds, Σ exp(s − m) / l with the row's last m and l, together {one.probabilities.sum():.6f}."
    )
    title = f"Scores of row {one.state.row:,}"
    chart = score_panels(one.visible, one.probabilities, one.state, one.BLOCK_N, one.movers, kv_tile, theme)
    return Picture(title, caption, chart, (TRACE,))


def table(one: RowScores) -> Table | None:
    """Every score of a short row; None for longer ones."""
    if len(one.scores) > MOST_PRINTED:
        return None
    rows, reasons = [], []
    for key, (score, weight, share) in enumerate(zip(one.scores, one.weights, one.probabilities, strict=True)):
        hidden = "" if np.isfinite(score) else "the mask hides this key"
        cells = ("−∞", "0", "0") if hidden else (_signed(score), significant(weight), significant(share))
        rows.append((f"{key}", f"{key // one.BLOCK_N}", *cells))
        reasons.append(("", "", hidden, "", ""))
    columns = ("key", "KV tile", "s", "exp(s − m)", "exp(s − m) / l")
    caption = f"m = {_signed(one.state.total.m)}, l = {significant(one.state.total.l, 6)}"
    return Table("Every score", caption, columns, tuple(rows), tuple(reasons))


def _signed(value: float) -> str:
    return significant(value, 4).replace("-", "−")
