"""The roofline model: how fast work may run under the bandwidth of each memory level and the compute peak; pure.

Williams, Waterman and Patterson 2009; with a roof for each level of memory, Yang et al. 2020 (hierarchical roofline).
"""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Limit:
    """The roof that limits some work, and the share of it that the work reaches; above 1 it is no roof."""

    roof: str
    share: float


def intensity(flops: float, moved: float) -> float:
    """Arithmetic intensity, FLOP/B, of so many operations on so many bytes moved. `moved` is above 0."""
    return flops / moved


def attainable(intensity: float, bytes_per_second: float, flops_per_second: float | None = None) -> float:
    """FLOP/s under a memory roof, and under a compute roof where there is one, at an intensity in FLOP/B."""
    under_memory = intensity * bytes_per_second
    return under_memory if flops_per_second is None else min(under_memory, flops_per_second)


def ridge(bytes_per_second: float, flops_per_second: float) -> float:
    """The intensity, FLOP/B, from which on compute is the lower one of the two roofs."""
    return flops_per_second / bytes_per_second


def limit(amounts: Mapping[str, float], seconds: float, roofs: Mapping[str, float]) -> Limit | None:
    """Which roof limits work that took `seconds`; None without a roof.

    amounts are bytes by memory level, or FLOP of compute; roofs are B/s or FLOP/s by the same names. Under roof r the
    work would take amount / rate; the roof under which it takes longest is the lowest over its intensities, and
    reached / attainable is that time / seconds.
    """
    shares = {roof: amounts[roof] / seconds / rate for roof, rate in roofs.items() if roof in amounts}
    if not shares:
        return None
    lowest = max(shares, key=shares.__getitem__)
    return Limit(lowest, shares[lowest])
