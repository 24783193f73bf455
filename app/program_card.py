"""The program that was chosen in the timeline: its tiles and bytes, when and where it ran, its softmax state."""

import math

from app.lanes import CLOCK
from app.packed_rows import head_title
from app.picture import Table
from app.program_work import Work, walk_of
from app.softmax_recording import recording
from app.softmax_state import unpacked
from app.style import seconds, significant, traffic
from app.timeline_pages import Timed
from kernels.walk import Walk

TRACE = "interpreter"  # the source of what the running kernel wrote of its own state
STATE = {"m": "m", "l": "l", "|acc|": "acc_norm"}


def chosen(one: Timed, program: int) -> Table:
    """What the chosen program worked on, when and where, and the state that it left."""
    found, walk = one.found, walk_of(one.run, one.found)
    rows: list[tuple[str, str, str]] = []
    if walk is not None:
        work = Work.of(walk, program)
        rows += [
            (f"batch, {head_title(walk.grid)}", f"{work.batch}, {work.head}", "schedule"),
            *((("query heads", _span(heads), "schedule"),) if (heads := work.query_heads(walk)) else ()),
            ("Q tile", _span(work.q_tiles), "schedule"),
            ("KV tiles", "none, all are masked" if work.kv_tiles is None else _span(work.kv_tiles), "schedule"),
            ("steps", f"{work.steps:,}", "schedule"),
            ("requested", traffic(work.requested_bytes), "schedule"),
        ]
    start, took = int(found.start[program]), int(found.took[program])
    rows += [
        ("SM", f"{found.sm[program]}", CLOCK),
        ("before it in its lane", f"{found.wave[program]:,}", CLOCK),
        ("start", seconds(start * 1e-9), CLOCK),
        ("took", seconds(took * 1e-9), CLOCK),
    ]
    reasons = [("", "", "")] * len(rows)
    row, state, why = ("", {}, "") if walk is None else _state(one, walk, program)
    if walk is not None:
        rows += [(name, state.get(name, "–"), TRACE if name in state else "") for name in STATE]
        reasons += [("", "" if name in state else why, "") for name in STATE]
    caption = "Click a bar or type a number to choose another."
    if row:
        caption += f" m, l and |acc|{row}, after its last tile."
    elif why:
        caption += f" m, l, |acc|: {why}."
    return Table(f"Program {program:,}", caption, ("", "value", "source"), tuple(rows), tuple(reasons))


def _state(one: Timed, walk: Walk, program: int) -> tuple[str, dict[str, str], str]:
    """(" of row …", m, l and |acc| after the program's last tile, "") of its first recorded row; or ("", {}, why)."""
    kept = recording(one.run)
    if kept is None:
        return "", {}, "this Run recorded no softmax state"
    trace, work, block = kept.trace, Work.of(walk, program), walk.grid.BLOCK_M
    row = max(trace.row_start, work.q_tiles[0] * block - kept.offset)
    stop = min(trace.row_stop, (work.q_tiles[1] + 1) * block - kept.offset)
    if kept.batch_head != program // walk.programs or row >= stop:
        rows = f"rows {trace.row_start:,} to {trace.row_stop - 1:,}"
        return "", {}, f"recorded: {rows} of batch {trace.batch}, head {trace.head}"
    met = [order for order in walk.states_of(kept.batch_head, kept.q_tile(row)) if len(order)]
    # Of the states that programs with shares keep of this row, the one that met this program's first tile.
    first = walk.tile_of(program, 0)[1]
    own = next((order for order in met if first in order), met[0] if met else None)
    if own is None:
        return "", {}, "the mask hides all keys from it"
    values = {
        shown: float(unpacked(getattr(trace, name))[row - trace.row_start, own[-1]]) for shown, name in STATE.items()
    }
    if not all(map(math.isfinite, values.values())):
        return "", {}, f"row {row:,} has no number after KV tile {own[-1]:,}"
    head = f" of query head {trace.head:,}" if walk.grid.packs > 1 else ""
    return f" of row {row:,}{head}", {shown: significant(value, 4) for shown, value in values.items()}, ""


def _span(ends: tuple[int, int]) -> str:
    first, last = ends
    return f"{first:,}" if first == last else f"{first:,} to {last:,}"
