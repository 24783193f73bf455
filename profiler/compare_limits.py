"""Limits on how much worse a Run may be than another, for the CI of a kernel project."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches

from kernels.problem import Refused
from profiler.compare import Compared
from profiler.compare_row import MORE, Row
from profiler.show import spell

NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*(:.+)?")
LARGEST = 1e6
MOST_NAMES = 100


@dataclass(frozen=True)
class Limit:
    """How many times worse the second Run may be in the named quantities; `name` or `name:launch`."""

    ratio: float
    names: tuple[str, ...]


@dataclass(frozen=True)
class Check:
    """One quantity held against its Limit; the sentence says how it ended, and why."""

    name: str
    limit: float
    passed: bool
    sentence: str


def limit(ratio: str, names: Sequence[str]) -> Limit:
    """A Limit as it is written. Raises Refused."""
    try:
        value = float(ratio)
    except ValueError:
        value = math.nan
    if not 0 < value <= LARGEST:
        raise Refused(f"--fail-above is {ratio[:40]!r}; give a ratio such as 1.05, then the names it is for.")
    if not names:
        raise Refused(f"--fail-above {ratio} names no measurement; name one or more, such as hbm_read_bytes.")
    if len(names) > MOST_NAMES:
        raise Refused(f"--fail-above {ratio} names {len(names)} measurements; {MOST_NAMES} are the most.")
    return Limit(value, tuple(names))


def check(compared: Compared, limits: Sequence[Limit]) -> tuple[Check, ...]:
    """Each named quantity against its limit, in order.

    A quantity that is worse by more, or of which that cannot be told, does not pass. Raises Refused for a name that
    neither Run holds.
    """
    return tuple(_check(compared, name, one.ratio) for one in limits for name in one.names)


def _check(compared: Compared, name: str, limit: float) -> Check:
    quantity, _, launch = name.partition(":")
    row = compared.find(quantity, launch or None)
    if row is None:
        known = dict.fromkeys(f"{row.name}:{row.launch}" if row.launch else row.name for row in compared.rows)
        near = get_close_matches(name, known, 3) or [row.name for row in compared.rows if row.launch is None][:12]
        raise Refused(f"Neither Run holds {name[:80]!r}; near it are {', '.join(dict.fromkeys(near))}.")
    values = f"{spell(row.before)} to {spell(row.after)}"
    if row.worsening is None:
        return _without_ratio(row, name, limit, values)
    how = "times worse" if row.better == MORE else "times"
    passed = row.worsening <= limit
    sentence = (
        f"{name} went from {values} by {' against '.join(row.sources)}: {row.worsening:.4g} {how}, "
        f"{'within' if passed else 'above'} the limit of {limit:g}; {row.verdict}."
    )
    return Check(name, limit, passed, sentence)


def _without_ratio(row: Row, name: str, limit: float, values: str) -> Check:
    """Where there is no ratio, what was and stayed 0 passes, and so does less where less is better."""
    before, after = (None if side is None else side.value for side in (row.before, row.after))
    if row.is_told and before == after == 0:
        return Check(name, limit, True, f"{name} is 0 in both Runs.")
    if row.is_told and 0 in (before, after) and row.ratio is None and "ratio to 0" in row.reason:
        is_better = (after == 0) != (row.better == MORE)
        return Check(name, limit, is_better, f"{name} went from {values}, which has no ratio.")
    return Check(name, limit, False, f"{name} cannot be held against {limit:g}: {row.reason}.")
