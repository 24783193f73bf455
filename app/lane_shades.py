"""By what the bars of a timeline are coloured: by wave, by head, or by how long each program took."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from app.lanes import Lanes
from app.packed_rows import head_title
from app.style import DARK, Theme, seconds
from kernels.problem import Int64Array
from kernels.walk import Walk

ALTERNATING, STEPS = 3, 5
# Red, green and blue of the shade nearest to the background, of the middle one and of the furthest.
ON_DARK = (46, 112, 114), (43, 163, 155), (214, 245, 241)
ON_LIGHT = (184, 215, 214), (63, 154, 149), (7, 63, 60)


@dataclass(frozen=True)
class Shades:
    """A shade for each program, int64 [programs] from 0 to `count` − 1, and in words how to read them."""

    shade: Int64Array
    count: int
    words: str


def ramp(theme: Theme, count: int) -> list[str]:
    """So many colours, from near the background to far from it."""
    ends = ON_DARK if theme is DARK else ON_LIGHT
    at = np.linspace(0, 1, count) if count > 1 else np.zeros(1)
    channels = [np.interp(at, (0, 0.5, 1), [end[channel] for end in ends]) for channel in range(3)]
    return [f"#{''.join(f'{round(part):02X}' for part in colour)}" for colour in zip(*channels, strict=True)]


def by_wave(found: Lanes, walk: Walk | None) -> Shades:
    """Programs before it in its lane, three shades in turn."""
    return Shades(found.wave % ALTERNATING, ALTERNATING, "three shades in turn from wave to wave")


def by_head(found: Lanes, walk: Walk | None) -> Shades:
    """The (batch, head) that it belongs to; more than STEPS of them take turns. All alike where that is not known."""
    if walk is None:
        return Shades(np.zeros_like(found.sm), 1, "heads are not known")
    count = min(walk.copies, STEPS)
    # Neighbouring heads run side by side: of five shades the next but one is the next head's.
    turn = np.array([0, 2, 4, 1, 3]) if count == STEPS else np.arange(count)
    shade = turn[np.arange(len(found.sm)) // walk.programs % count]
    head = head_title(walk.grid)
    words = f"one {head}" if walk.copies == 1 else f"a shade for each of {count} {head}s"
    many = f"{walk.copies:,} {head}s take turns in {STEPS} shades"
    return Shades(shade, count, words if walk.copies <= STEPS else many)


def by_time(found: Lanes, walk: Walk | None) -> Shades:
    """How long it ran, in STEPS equal steps from the shortest to the longest."""
    low, high = int(found.took.min()), int(found.took.max())
    shade = (found.took - low) * STEPS // max(high - low + 1, 1)
    ends = f"from {seconds(low * 1e-9)} to {seconds(high * 1e-9)}"
    return Shades(shade, STEPS, f"{ends}, the longer the further from the background")


SHADES: Mapping[str, Callable[[Lanes, Walk | None], Shades]] = {"wave": by_wave, "head": by_head, "time": by_time}
