"""The walk-through's tables: the matrix in numbers, the softmax of two blocks, the lines of code, what was saved."""

from collections.abc import Callable, Mapping

import numpy as np

from app.four_kinds import Bytes, compulsory, l2_sm, requested
from app.lesson_numbers import ROW, ROW_BLOCK, as_known, count, last_state
from app.lesson_source import places
from app.lesson_subject import ARTICLE, Shown
from app.lesson_words import Words
from app.peak_check import possible_hbm
from app.picture import Table
from app.style import capacity, ratio, seconds, traffic
from kernels.online_softmax import glued_local_softmax, prefix_states, softmax
from kernels.problem import FLOAT32_BYTES, AttentionProblem
from profiler.run import Run


def score_matrix(shown: Shown, words: Words) -> Table:
    """S and O in numbers: of the shown problem, beside the article's."""
    columns = [(words.labels["article"], ARTICLE)]
    if not shown.is_article:
        columns.insert(0, (words.labels["shown"], shown.problem))
    found = [_sizes(problem, words) for _, problem in columns]
    rows = tuple((name, *(sizes[name] for sizes in found)) for name in found[0])
    return Table("", "", (words.labels["quantity"], *(name for name, _ in columns)), rows)


def _sizes(problem: AttentionProblem, words: Words) -> dict[str, str]:
    scores = problem.seq_len_q * problem.seq_len_kv
    heads = problem.batch * problem.heads
    out = problem.seq_len_q * problem.head_dim
    label = words.labels
    return {
        label["scores"]: count(scores),
        label["s_fp32"]: capacity(scores * FLOAT32_BYTES),
        label["s_16"]: capacity(scores * 2),
        label["o_fp32"]: capacity(out * 4),
        label["s_over_o"]: ratio(scores / out),
        label["heads"]: f"{heads:,}",
        label["s_all"]: capacity(scores * FLOAT32_BYTES * heads),
    }


def broken_softmax(words: Words) -> Table:
    """The whole row's probabilities, and those of two blocks glued, with their sums."""
    lines = ((words.labels["whole_row"], softmax(ROW)), (words.labels["glued"], glued_local_softmax(ROW, ROW_BLOCK)))
    rows = tuple((name, *map(as_known, line.tolist()), as_known(float(line.sum()))) for name, line in lines)
    return Table("", "", ("s", *map(as_known, ROW), words.labels["sum"]), rows)


def row_state(words: Words) -> Table:
    """m, alpha and l after each block, and the probabilities that the last of them give."""
    rows = []
    for index, state in enumerate(prefix_states(ROW, ROW_BLOCK)):
        part = ROW[index * ROW_BLOCK : (index + 1) * ROW_BLOCK]
        alpha = as_known(state.alpha) if index else "–"
        rows.append((f"{index + 1}", ", ".join(map(as_known, part)), as_known(state.m), alpha, as_known(state.l)))
    label, (m, total) = words.labels, last_state()
    found = (np.exp(np.array(ROW) - m) / total).tolist()
    rows.append((label["probabilities"], ", ".join(map(as_known, found)), "", "", ""))
    return Table("", "", (label["block"], label["block_scores"], "m", "α", "l"), tuple(rows))


def moves_of_the_schedule(words: Words) -> Table:
    """What Halide calls it, what the kernel does, and the line where it does."""
    rows, reasons = [], []
    for name, place in places().items():
        where = f"{place.function}, {place.path}:{place.line}" if place else "–"
        code = place.code if place else "–"
        reason = "" if place else words.labels["missing_line"]
        rows.append((words.labels[name], words.labels[f"{name}_here"], code, where))
        reasons.append(("", "", reason, reason))
    head = tuple(words.labels[name] for name in ("halide", "here", "code", "where"))
    return Table("", "", head, tuple(rows), tuple(reasons))


def saved(naive: Run | None, flash: Run | None, words: Words, shown: Mapping[str, Run] | None = None) -> Table:
    """Bytes of each kind, time and memory of naive and flash, and how they relate.

    `shown` are the Runs that could not tell, where others stand in for them: their HBM bytes come first.
    """
    rows, reasons, sources = [], [], []
    told = {"naive": naive, "flash": flash}
    lines = [(name, read, spell, told) for name, read, spell in _KINDS]
    if shown is not None:
        lines.insert(0, ("hbm_shown", possible_hbm, traffic, {kernel: shown.get(kernel) for kernel in told}))
    for name, read, spell, runs in lines:
        found = [_read(run, kernel, read, words) for kernel, run in runs.items()]
        before, after = (part.value for part in found)
        factor = ratio(before / after) if before is not None and after else "–"
        rows.append((words.labels[name], *(spell(part.value) for part in found), factor))
        reasons.append(("", *("" if part.value is not None else part.reason for part in found), ""))
        sources.append(("", *(part.source if part.value is not None else "" for part in found), ""))
    return Table("", "", ("", "naive", "flash", "÷"), tuple(rows), tuple(reasons), tuple(sources))


def _read(run: Run | None, kernel: str, read: Callable[[Run], Bytes], words: Words) -> Bytes:
    if run is None:
        return Bytes(None, "", words.labels["missing_run"].format(kernel=kernel))
    found = read(run)
    return found if found.value is not None else Bytes(None, found.source, words.quoted(found.reason))


def measured(name: str) -> Callable[[Run], Bytes]:
    """What reads a Run's measurement by its name."""

    def read(run: Run) -> Bytes:
        found = run.find(name)
        if found is None:
            return Bytes(None, "", f"This Run holds no {name}.")
        return Bytes(found.value, found.source, found.note)

    return read


_KINDS: tuple[tuple[str, Callable[[Run], Bytes], Callable[[float | None], str]], ...] = (
    ("hbm", possible_hbm, traffic),
    ("l2_sm", l2_sm, traffic),
    ("requested", requested, traffic),
    ("compulsory", compulsory, traffic),
    ("time", measured("gpu_time_seconds"), seconds),
    ("peak", measured("peak_allocated_bytes"), capacity),
)
