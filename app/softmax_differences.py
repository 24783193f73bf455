"""Kernel against exact prefix over all recorded rows: the largest differences, and where they are."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from app.picture import Table
from app.softmax_recording import Recording
from app.softmax_state import Floats, RowState, differences, unpacked
from app.style import error

TRACE = "interpreter"
SYMBOL = {"m": "m", "l": "l", "acc_norm": "|acc|"}
KINDS = ("relative", "absolute")
BLIND = "The mask hides every key: there is nothing to compare."
WHOLE = "Of the whole row: its states joined."


@dataclass(frozen=True)
class Largest:
    """A largest difference and where it is; no KV tile where it is of a whole row."""

    value: float
    row: int
    kv_tile: int | None


def largest(found: Recording) -> Mapping[tuple[str, str], Largest | None]:
    """The largest difference by (quantity, kind) over all recorded rows; None where no finite pair exists."""
    table: dict[tuple[str, str], Largest | None] = {}
    for name in SYMBOL:
        apart, relative = _pair(found, name)
        for kind, values in zip(KINDS, (relative, apart), strict=True):
            table[SYMBOL[name], kind] = _largest(values, found.trace.row_start)
    if found.shares > 1:
        for name, values, exact in zip(("m", "l"), found.totals(False), found.totals(True), strict=True):
            apart, relative = differences(values[:, None], exact[:, None])
            for kind, column in zip(KINDS, (relative, apart), strict=True):
                one = _largest(column, found.trace.row_start)
                table[f"merged {name}", kind] = None if one is None else replace(one, kv_tile=None)
    return table


def _pair(found: Recording, name: str) -> tuple[Floats, Floats]:
    return differences(unpacked(getattr(found.trace, name)), unpacked(getattr(found.trace, f"exact_{name}")))


def _largest(values: Floats, row_start: int) -> Largest | None:
    if np.isnan(values).all():
        return None
    row, tile = np.unravel_index(int(np.nanargmax(values)), values.shape)
    return Largest(float(values[row, tile]), row_start + int(row), int(tile))


def table(found: Recording, state: RowState) -> Table:
    """Quantity by quantity: the largest difference of all recorded rows, where it is, and that of the chosen row."""
    trace = found.trace
    caption = (
        f"Largest over rows {trace.row_start:,} to {trace.row_stop - 1:,} and all their KV tiles, against the float64 "
        "value over the same keys. That is kept as float32: below 6e-8 of a value nothing can be told."
    )
    if found.shares > 1:
        caption += " merged: the states of a row joined, m = max m_i and l = Σ l_i · exp(m_i − m)."
    rows, reasons = [], []
    for (symbol, kind), worst in largest(found).items():
        own = _of_row(state, symbol, kind)
        rows.append((f"{symbol}, {kind}", *_told(worst), error(own)))
        reasons.append(("", *_reasons(worst), BLIND if own is None else ""))
    columns = ("difference", "all rows", "row", "KV tile", f"row {state.row:,}")
    return Table("Against the exact prefix", caption, columns, tuple(rows), tuple(reasons))


def _told(worst: Largest | None) -> tuple[str, str, str]:
    if worst is None:
        return "–", "–", "–"
    return error(worst.value), f"{worst.row:,}", "–" if worst.kv_tile is None else f"{worst.kv_tile:,}"


def _reasons(worst: Largest | None) -> tuple[str, str, str]:
    if worst is None:
        return BLIND, BLIND, BLIND
    return "", "", WHOLE if worst.kv_tile is None else ""


def _of_row(state: RowState, symbol: str, kind: str) -> float | None:
    """The same of the chosen row."""
    if symbol.startswith("merged"):
        at = ("m", "l").index(symbol[-1])
        pair = np.array([state.total[at]]), np.array([state.exact_total[at]])
    else:
        name = next(name for name, known in SYMBOL.items() if known == symbol)
        pair = getattr(state, name), getattr(state, f"exact_{name}")
    apart, relative = differences(*pair)
    worst = _largest((relative if kind == "relative" else apart)[None, :], state.row)
    return None if worst is None else worst.value


def places(found: Recording) -> dict[str, Largest]:
    """Where to look, by symbol: the largest relative difference of each quantity, but where there is none at all."""
    seen = {symbol: one for (symbol, kind), one in largest(found).items() if kind == "relative"}
    return {symbol: one for symbol, one in seen.items() if one is not None and one.value > 0}
