"""Scales of the HBM panels: one for all Runs, and one of its own for a Run that would be a flat line on it."""

from collections.abc import Sequence
from dataclasses import dataclass

from app.sampled import Sampled, drawn

HEADROOM = 1.22  # of the peak, for its label
OWN_HEADROOM = 1.3  # of the highest sample, for the note on the peak
LOW = 0.1  # share of the common scale below which a Run gets one of its own


@dataclass(frozen=True)
class Scale:
    """The unit of an axis, its size in B/s, and where the axis ends, in that unit.

    `magnified` is how many times the common scale's end lies above this one's; None for the common scale.
    """

    unit: str
    factor: float
    top: float
    magnified: float | None = None

    @classmethod
    def up_to(cls, rate: float, headroom: float, magnified: float | None = None) -> "Scale":
        """The scale on which `rate` B/s is the largest to be drawn."""
        unit, factor = next((s for s in (("TB/s", 1e12), ("GB/s", 1e9)) if rate >= 0.5 * s[1]), ("MB/s", 1e6))
        return cls(unit, factor, headroom * rate / factor or 1.0, magnified)

    @property
    def rate(self) -> float:
        """Where the axis ends, B/s."""
        return self.top * self.factor


def hbm_scales(found: Sequence[Sampled]) -> list[Scale]:
    """The scale of each Run's HBM panel; the common one reaches to the highest peak or sample."""
    common = Scale.up_to(max(max(one.peak or 0.0, float(drawn(one).highest.max())) for one in found), HEADROOM)
    scales = []
    for one in found:
        highest = _highest_in_launches(one)
        is_low = 0 < highest < LOW * common.rate
        own = OWN_HEADROOM * highest
        scales.append(Scale.up_to(highest, OWN_HEADROOM, common.rate / own) if is_low else common)
    return scales


def _highest_in_launches(found: Sampled) -> float:
    """The highest sample of the pass that can be true and holds nothing of the drain, B/s; 0 without one.

    Where launches are not marked, nothing tells the pass from the rest: the highest of all.
    """
    start, end = found.one_pass or found.extent
    inside = (found.seconds + found.lasting > start) & (found.seconds < end) & ~found.is_impossible
    if found.drain is not None:
        inside &= found.seconds + found.lasting <= found.drain.start
    return float(found.hbm[inside].max(initial=0.0))
