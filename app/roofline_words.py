"""What a roofline says in words: which roof limits the two Runs that matter, where their time goes, what is missing."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from app.answer import pair, where
from app.asked import conditions
from app.level_table import percent
from app.picture import Figure, Headline
from app.roofline_tables import BEYOND, energy, joules
from app.roofline_work import Work
from app.roofs import HBM, L2, Machine
from app.selection import compare, title
from app.style import bandwidth, flop_rate
from profiler.run import Run

FAR_BELOW = 1 / 3  # of the lowest roof: what reaches less is held back by something else


@dataclass(frozen=True)
class Spoken:
    """A Run that the words are about: its name as a sentence begins with it, its Work, and that of its launches.

    `rank` says what it is among several.
    """

    title: str
    work: Work
    launches: tuple[Work, ...]
    machine: Machine
    rank: str = ""


def spoken(runs: Sequence[Run], found: Sequence[tuple[Machine, tuple[Work, ...]]]) -> tuple[Spoken, ...]:
    """Of more than two Runs, or of several problems, those nearest to and furthest from their roofs, as far as known.

    Else the subject and what it is held against, as the Overview chooses them.
    """
    is_many = len(runs) > 2 or len({run.workload.problem for run in runs}) > 1
    if is_many and (extremes := _extremes(found)):
        return extremes
    two = pair(compare(runs))
    chosen = [(two.name, two.subject)]
    if two.baseline is not None:
        chosen.append((two.baseline_name, two.baseline))
    said = []
    for name, run in chosen:
        for machine, works in found:
            own = [work for work in works if work.run is run]
            if own:
                said.append(Spoken(title(run, name), own[0], tuple(own[1:]), machine))
    return tuple(said)


def _extremes(found: Sequence[tuple[Machine, tuple[Work, ...]]]) -> tuple[Spoken, ...]:
    """Empty where fewer than two can be held against all their roofs."""
    ranked = []
    for machine, works in found:
        on = f" on {machine.title}" if len(found) > 1 else ""
        for work in works:
            if work.launch is None and work.limited is not None and work.flops is not None:
                launches = tuple(one for one in works if one.run is work.run and one.launch is not None)
                ranked.append((work.limited[1], Spoken(f"{title(work.run, work.name)}{on}", work, launches, machine)))
    if len(ranked) < 2:
        return ()
    ranked.sort(key=lambda one: -one[0])
    (_, nearest), *_, (_, furthest) = ranked
    return replace(nearest, rank="is nearest to its roof"), replace(furthest, rank="is furthest from its roof")


def headline(said: Sequence[Spoken], machines: Sequence[Machine], note: str) -> Headline:
    """Which roof limits which Run; below it of what, where its time goes, and which roofs are not known."""
    run = said[0].work.run
    problems = " and ".join(dict.fromkeys(one.work.run.workload.problem.label for one in said))
    about = ", ".join(filter(None, (problems, conditions(run.workload), where(run))))
    launches = [words for one in said if (words := _longest_launch(one))]
    detail = " ".join(filter(None, (*launches, f"{about}.", _unknown(machines), note)))
    return Headline(" ".join(_sentence(one) for one in said), detail)


def _sentence(one: Spoken) -> str:
    if one.work.limited is None:
        why = "no roof of its GPU is known" if one.work.seconds else "its time is not known"
        return f"{one.title} cannot be held against a roof: {why}."
    roof, share = one.work.limited
    if one.rank:
        return f"{one.title} {one.rank}: {percent(share)} of {roof.in_words}."
    if share > BEYOND:
        return f"{one.title} passes {roof.in_words}: {percent(share)} of it."
    if one.work.flops is None:
        return f"{one.title} reaches {percent(share)} of {roof.in_words}; how near it is to compute is not known."
    if share < FAR_BELOW:
        return f"{one.title} stays far below every roof: {percent(share)} of the lowest, {roof.in_words}."
    return f"{one.title} is limited by {roof.level}: {percent(share)} of {roof.in_words}."


def _longest_launch(one: Spoken) -> str:
    """Where the time of a Run of several launches goes, and how near its roof that launch is."""
    timed = [work for work in one.launches if work.seconds]
    longest = max(timed, key=lambda work: work.seconds or 0.0, default=None)
    if longest is None or longest.limited is None:
        return ""
    roof, share = longest.limited
    part = (longest.seconds or 0.0) / sum(work.seconds or 0.0 for work in timed)
    return f"{one.title} spends {percent(part)} of its time in {longest.title}, at {percent(share)} of {roof.in_words}."


def _unknown(machines: Sequence[Machine]) -> str:
    """Which roofs are missing, and what stands in for them."""
    missing = {roof.name for machine in machines for roof in machine.roofs if roof.rate is None}
    if not missing:
        return ""
    instead = " HBM is held against its peak." if "HBM copy" in missing and "HBM peak" not in missing else ""
    return f"Not known: {', '.join(sorted(missing))}; why is below.{instead}"


def figures(said: Sequence[Spoken], machines: Sequence[Machine]) -> tuple[Figure, ...]:
    """FLOP/s of each, the bandwidths of the first one's GPU, by name where there are several, and energy."""
    machine = said[0].machine
    of = f", {machine.title}" if len(machines) > 1 else ""
    return (*map(_reached, said), *(_bandwidth(machine, level, of) for level in (HBM, L2)), _energy(said))


def _reached(one: Spoken) -> Figure:
    work, time = one.work, one.work.run.find("gpu_time_seconds")
    detail = "" if work.limited is None else f"{percent(work.limited[1])} of {work.limited[0].in_words}"
    missing = "This Run holds no time." if time is None else time.note
    reason = "" if work.reached is not None else work.doubt or (missing if not work.seconds else work.why_no_flops)
    return Figure(f"reached, {work.name}", flop_rate(work.reached), "" if time is None else time.source, detail, reason)


def _bandwidth(machine: Machine, level: str, of: str) -> Figure:
    """The measured roof of a level that counts, beside the level's other ones."""
    first, *others = [roof for roof in machine.roofs if roof.level == level]
    known = [roof for roof in others if roof.rate]
    beside = ", ".join(f"{roof.name.removeprefix(level).strip()} {bandwidth(roof.rate)}" for roof in known)
    if first.rate is None:
        told = f"{first.told[:1].upper()}{first.told[1:]}"
        return Figure(f"{first.name}{of}", "–", first.source, reason=f"{told}{beside and f'; {beside}'}.")
    shares = [f"{percent(first.rate / roof.rate)} of the " for roof in known if roof.rate and not roof.is_measured]
    return Figure(f"{first.name}{of}", bandwidth(first.rate), first.source, "".join(shares) + beside)


def _energy(said: Sequence[Spoken]) -> Figure:
    """Joules of the first one's pass, and of the others beside it."""
    value, reason = energy(said[0].work.run)
    others = [f"{one.work.name} {joules(energy(one.work.run)[0])}" for one in said[1:]]
    detail = ", ".join(("of a pass", *others))
    return Figure(f"energy, {said[0].work.name}", joules(value), "nvml", detail, reason)
