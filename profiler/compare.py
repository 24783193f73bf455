"""What changed from one Run to another: their circumstances first, then every Measurement of either; pure."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from profiler.compare_row import Row, row
from profiler.differences import Difference, differences
from profiler.own_kernel import has_own_reference
from profiler.run import HALVES, TRUST, Measurement, Run

Key = tuple[str, str | None]
Pair = tuple[Measurement | None, Measurement | None]


@dataclass(frozen=True)
class Compared:
    """Two Runs, what differs between them besides their numbers, and a Row for every Measurement of either.

    `warnings` are sentences to be read before the rows; `names` tell the Runs apart.
    """

    before: Run
    after: Run
    names: tuple[str, str]
    differences: tuple[Difference, ...]
    warnings: tuple[str, ...]
    rows: tuple[Row, ...]

    @property
    def is_one_problem(self) -> bool:
        """Whether both Runs compute the same."""
        return self.before.workload.problem == self.after.workload.problem

    def find(self, name: str, launch: str | None = None) -> Row | None:
        """The row of that name: one with both values first, then by TRUST; None where neither Run holds any."""
        found = self._rows_of.get((name, launch), [])
        return min(found, key=lambda one: (not one.is_told, *map(TRUST.index, one.sources)), default=None)

    @cached_property
    def _rows_of(self) -> dict[tuple[str, str | None], list[Row]]:
        found: dict[tuple[str, str | None], list[Row]] = {}
        for one in self.rows:
            found.setdefault((one.name, one.launch), []).append(one)
        return found


def compare(before: Run, after: Run) -> Compared:
    """What changed from the first Run to the second. Never refuses: what cannot be compared has a reason instead."""
    is_one_problem = before.workload.problem == after.workload.problem
    held: dict[Key, tuple[list[Measurement], list[Measurement]]] = {}
    for side, run in enumerate((before, after)):
        for measurement in _with_sums(run):
            held.setdefault((measurement.name, measurement.launch), ([], []))[side].append(measurement)
    _add_reasons_of_halves(held, (before, after))
    rows = [row(*key, *pair, is_one_problem) for key, sides in held.items() for pair in _pairs(*sides)]
    circumstances = differences(before, after), _warnings(before, after)
    return Compared(before, after, _names(before, after), *circumstances, tuple(rows))


def _add_reasons_of_halves(held: dict[Key, tuple[list[Measurement], list[Measurement]]], both: Sequence[Run]) -> None:
    """To a whole that one Run tells, the other's reasons for having no halves of it."""
    for whole, halves in HALVES.items():
        for side, run in zip(held.get((whole, None), ()), both, strict=False):
            if not side:
                untold = (m for m in run.measurements if m.name in halves and m.launch is None and m.value is None)
                side.extend(replace(m, name=whole) for m in untold)


def _with_sums(run: Run) -> list[Measurement]:
    """A Run's Measurements, and before the first half of each whole the sums that a source tells in two halves only."""
    known = {(m.name, m.source): m for m in run.measurements if m.launch is None and m.value is not None}
    wholes = {read: (whole, written) for whole, (read, written) in HALVES.items()}
    found: list[Measurement] = []
    for one in run.measurements:
        whole, written = wholes.get(one.name, ("", ""))
        other = known.get((written, one.source))
        if one is known.get((one.name, one.source)) and other is not None and (whole, one.source) not in known:
            found.append(_sum(whole, one, other))
        found.append(one)
    return found


def _sum(whole: str, one: Measurement, other: Measurement) -> Measurement:
    spread, note = None, f"{one.name} + {other.name}"
    if one.spread is not None and other.spread is not None:
        # No narrower than the sum's own would be, so that a change is not called one too soon.
        spread = one.spread[0] + other.spread[0], one.spread[1] + other.spread[1]
        note += ", and so its spread"
    return Measurement(whole, (one.value or 0.0) + (other.value or 0.0), one.unit, one.source, note, spread)


def _pairs(before: Sequence[Measurement], after: Sequence[Measurement]) -> list[Pair]:
    """One quantity's Measurements two by two: of the same source; where no source told both, the best of each.

    What only one side told follows, against the other side's reason; where neither told anything, one pair does.
    """
    told = [{m.source: m for m in side if m.value is not None} for side in (before, after)]
    ordered = sorted({*told[0], *told[1]}, key=TRUST.index)
    pairs: list[Pair] = [(told[0][source], told[1][source]) for source in ordered if source in told[0].keys() & told[1]]
    if not pairs and told[0] and told[1]:
        pairs = [(_best(told[0].values()), _best(told[1].values()))]
    used = [m for pair in pairs for m in pair]
    for source in ordered:
        one, other = (side.get(source) for side in told)
        if one is not None and one not in used:
            pairs.append((one, _reason_of(after, source)))
        if other is not None and other not in used:
            pairs.append((_reason_of(before, source), other))
    return pairs or [(_reason_of(before), _reason_of(after))]


def _best(told: Iterable[Measurement]) -> Measurement:
    return min(told, key=lambda m: TRUST.index(m.source))


def _reason_of(side: Sequence[Measurement], source: str = "") -> Measurement | None:
    """Why that source told nothing, else why the most trusted did; None where the Run does not hold the quantity."""
    reasons = [m for m in side if m.value is None]
    return min(reasons, key=lambda m: (m.source != source, TRUST.index(m.source)), default=None)


def _warnings(before: Run, after: Run) -> tuple[str, ...]:
    found = []
    one, other = before.workload, after.workload
    if one.problem != other.problem:
        found.append(
            f"Two problems: {one.problem.label} and {other.problem.label}. Bytes, times and operations grow with the "
            "problem, so their ratios are not computed; compare Runs of one problem for those."
        )
    if before == after:
        found.append("Both are the same Run.")
    if any(map(has_own_reference, (before, after))):
        found.append("An error is against what a kernel of your own says that it computes, and not against attention.")
    if one.on_gpu != other.on_gpu:
        found.append("One ran on a GPU and the other on a CPU: what only a GPU has is missing on one side.")
    return tuple(found)


def _names(before: Run, after: Run) -> tuple[str, str]:
    """The kernels; where they are the same, with the first thing that tells the Runs apart."""
    one, other = before.workload.kernel, after.workload.kernel
    if one != other:
        return one, other
    for of in _TELLING:
        words = of(before), of(after)
        if words[0] != words[1]:
            return f"{one} {words[0]}".rstrip(), f"{other} {words[1]}".rstrip()
    return f"{one}, first", f"{other}, second"


_TELLING: tuple[Callable[[Run], str], ...] = (
    lambda run: f"seq_len {run.workload.problem.seq_len_q}",
    lambda run: f"seq_len_kv {run.workload.problem.seq_len_kv}",
    lambda run: "causal" if run.workload.problem.causal else "not causal",
    lambda run: "forward + backward" if run.workload.problem.backward else "forward",
    lambda run: run.workload.problem.label,
    lambda run: f"{run.workload.tile.BLOCK_M}×{run.workload.tile.BLOCK_N}" if run.workload.tile else "",
    lambda run: run.workload.tile.order if run.workload.tile else "",
    lambda run: f"{run.workload.tile.num_warps} warps" if run.workload.tile else "",
    lambda run: f"{run.workload.tile.num_stages} stages" if run.workload.tile else "",
    lambda run: run.device.name,
    lambda run: run.environment.get("project commit", ""),
    lambda run: run.environment.get("commit", ""),
    lambda run: f"{run.workload.l2} L2",
    lambda run: run.created[5:19].replace("T", " "),
    lambda run: run.created,
    lambda run: run.id,
)
