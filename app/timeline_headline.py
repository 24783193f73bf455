"""What decides how often K and V come from HBM, in one sentence: the span of programs, or the re-read distance."""

from app.answer import where
from app.peak_check import possible_hbm
from app.picture import Headline
from app.reread import Reread, reread
from app.spread import Spread, spread
from app.style import capacity, ratio
from app.timeline_pages import Timed, waves


def headline(one: Timed, others: list[Timed]) -> Headline:
    """The span of running programs where it tells Runs apart, else the re-read distance; of this Run and of another."""
    run = one.run
    detail = (
        f"{_hbm_reads((one, *others))}{one.name}, {run.workload.problem.label}, {where(run)}. "
        "Times by the running kernel's clock"
    )
    derived = f"{detail}; positions on K and V are derived from them."
    spans = [(timed.name, found) for timed in (one, *others) if (found := spread(timed.run)) and found.parts]
    rereads = [(timed.name, far) for timed in (one, *others) if (far := _median(timed)) is not None]
    l2 = "" if run.device.l2_bytes is None else f"; L2 holds {capacity(run.device.l2_bytes)}"
    is_first = bool(rereads) and rereads[0][0] == one.name
    if is_first and not span_decides([found for _, found in spans], run.device.l2_bytes):
        told = ", ".join(f"{capacity(far)} with {name}" for name, far in rereads[:2])
        return Headline(f"Half of the re-reads of K and V come within {told}{l2}.", derived)
    if not spans or spans[0][0] != one.name:
        ran = f"{len(one.found.sm):,} programs ran in {waves(one.found)} on {one.found.sms} SMs."
        return Headline(ran, f"{detail}.")
    shown, also = spans[0][1], "".join(f", {capacity(found.median)} with {name}" for name, found in spans[1:2])
    told = f"with {one.name}{also}" if also else f"and {capacity(shown.largest)} at most"
    sentence = f"In the median moment the running programs spanned {capacity(shown.median)} of K and V {told}{l2}."
    return Headline(sentence, derived)


def span_decides(spans: list[Spread], l2_bytes: int | None) -> bool:
    """Whether median spans differ by more than a factor of 2 and one of them is more than a quarter of L2."""
    medians = [found.median for found in spans]
    return bool(medians) and l2_bytes is not None and max(medians) > max(2 * min(medians), l2_bytes / 4)


def _hbm_reads(all_timed: tuple[Timed, ...]) -> str:
    """What each Run read from HBM, where it was counted: the effect beside its cause."""
    told = []
    for timed in all_timed:
        size, found = timed.run.workload.problem.tensor_bytes, possible_hbm(timed.run)
        read = timed.run.value("hbm_read_bytes")
        if read is not None and found.value is not None:
            told.append(f"{ratio(read / (size['q'] + size['k'] + size['v']))} Q + K + V with {timed.name}")
    return f"HBM reads: {', '.join(told)}. " if told else ""


def _median(one: Timed) -> float | None:
    found = reread(one.run)
    return found.median if isinstance(found, Reread) else None
