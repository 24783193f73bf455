"""What the counts of a pass must obey, whatever source they come from: no more of a drain than there was, and no less
than must have moved."""

from collections.abc import Mapping, Sequence
from statistics import median

from profiler.bench import Load

READ, WRITE, CROSSED = "hbm_read_bytes", "hbm_write_bytes", "l2_sm_bytes"
NOISE_BYTES = 4e6  # HBM is never quite idle
LEAST = 0.5  # of what must move; where less is counted, the counters do not count

Counts = dict[str, tuple[float, ...]]


def checked(
    load: Load, counted: Mapping[str, Sequence[float]], drained: Sequence[float], drains: Sequence[float]
) -> tuple[Counts, dict[str, str]]:
    """The counts of several passes by quantity, in bytes, and for those that cannot be true the reason instead.

    Of a drained Load its writes are those of passes until the end of a drain after each, `drained`, less what `drains`
    alone wrote.
    """
    counts = {quantity: tuple(values) for quantity, values in counted.items()}
    reasons: dict[str, str] = {}
    if load.drain:
        alone, both = median(drains), median(drained)
        counts[WRITE] = tuple(max(0.0, each - alone) for each in drained)
        if alone > both + NOISE_BYTES:
            reasons[WRITE] = (
                f"a drain alone wrote {alone:,.0f} B, and a pass with its drain {both:,.0f} B: something else wrote to "
                "HBM meanwhile; repeat on an idle GPU"
            )
    for whole in ((READ, WRITE), (CROSSED,)):
        moved = sum(median(counts[quantity]) for quantity in whole)
        # Dirty lines that stay in L2 count only with the drain, and lines that are there are not read.
        if load.drain and load.l2 == "cold" and moved < LEAST * load.compulsory_bytes and not reasons.keys() & {*whole}:
            words = (
                f"{moved:,.0f} B were counted of {load.compulsory_bytes:,} B that a pass must move with a cold L2, so "
                "the counters do not count here; repeat, or name another source with --counters"
            )
            reasons |= dict.fromkeys(whole, words)
    return {quantity: values for quantity, values in counts.items() if quantity not in reasons}, reasons
