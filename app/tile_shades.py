"""The colours of a tile's order: from the background away from it, and washed out where a tile is still to come."""

import numpy as np
from numpy.typing import NDArray

from app.style import DARK, Theme

# One byte a cell: what was reached, from first to last; what is to come, the same; and what is never visited.
REACHED, TO_COME, SKIPPED = (0, 120), (128, 248), 255
VEIL = 0.6  # how much of the background a colour takes where its tile is to come


def order_scale(theme: Theme) -> list[str]:
    """First, middle and last."""
    return ["#28525C", "#2BA39B", "#A6E5DF"] if theme is DARK else ["#D3E7EA", "#6FB1AE", "#0B7A75"]


def order_shade(share: float, theme: Theme) -> str:
    """The colour at a share of the scale, 0 to 1; NaN counts as 0."""
    first, middle, last = order_scale(theme)
    place = 2 * float(np.clip(np.nan_to_num(share), 0, 1))
    return _mixed(first, middle, place) if place <= 1 else _mixed(middle, last, place - 1)


def shade_codes(share: NDArray[np.float64], is_ahead: NDArray[np.bool_]) -> NDArray[np.uint8]:
    """A byte for each cell: its share of the scale, whether it is to come, SKIPPED where the share is NaN."""
    start = np.where(is_ahead, TO_COME[0], REACHED[0])
    codes = start + np.rint(np.nan_to_num(share) * (REACHED[1] - REACHED[0]))
    return np.where(np.isnan(share), SKIPPED, codes).astype(np.uint8)


def code_scale(theme: Theme) -> list[tuple[float, str]]:
    """The colour scale of those bytes, from 0 to 255."""
    colours = order_scale(theme)
    washed = [_mixed(colour, theme.card, VEIL) for colour in colours]
    stops = [(low + (high - low) * place / 2, colour) for (low, high), part in ((REACHED, colours), (TO_COME, washed))
             for place, colour in enumerate(part)]  # fmt: skip
    clear = "rgba(0,0,0,0)"
    return [*((stop / SKIPPED, colour) for stop, colour in stops), ((SKIPPED - 1) / SKIPPED, clear), (1.0, clear)]


def scale_in_words(theme: Theme) -> str:
    """From the first tile's colour to the last's: each scale leads away from the background."""
    return "Dark to pale" if theme is DARK else "Pale to strong"


def _mixed(one: str, other: str, share: float) -> str:
    """A colour with a share of another one."""
    channels = [(int(one[i : i + 2], 16), int(other[i : i + 2], 16)) for i in (1, 3, 5)]
    return "#{:02X}{:02X}{:02X}".format(*(round(a + share * (b - a)) for a, b in channels))
