"""Where labels go beside the points of a logarithmic chart, so that none covers another or a point."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

LETTER, LINE, REACH = 6.8, 15.0, 7.0  # pixels: of a letter, of a line, from a point's middle to its label
PLACES = (
    *("middle right", "top center", "bottom center", "middle left"),
    *("top right", "bottom right", "top left", "bottom left"),
)


@dataclass(frozen=True)
class Frame:
    """The plotted part of a chart: exponents of its ends, and its size in pixels."""

    x: tuple[float, float]
    y: tuple[float, float]
    width: float
    height: float

    def pixels(self, x: float, y: float) -> tuple[float, float]:
        """From the left and from the bottom, of a point in the chart's own units."""
        across = (math.log10(x) - self.x[0]) / (self.x[1] - self.x[0])
        up = (math.log10(y) - self.y[0]) / (self.y[1] - self.y[0])
        return across * self.width, up * self.height


Box = tuple[float, float, float, float]  # left, right, bottom, top


def places(points: Sequence[tuple[float, float]], texts: Sequence[str], frame: Frame) -> list[str]:
    """A textposition for each point, "" where there is room for none; earlier points choose first.

    An empty text needs no room, but its point is not covered either.
    """
    middles = [frame.pixels(*point) for point in points]
    taken: list[Box] = [(x - REACH, x + REACH, y - REACH, y + REACH) for x, y in middles]
    found = []
    for (x, y), text in zip(middles, texts, strict=True):
        boxes = [(place, _box(x, y, text, place)) for place in PLACES] if text else []
        own = (x - REACH, x + REACH, y - REACH, y + REACH)
        free = [
            (place, box)
            for place, box in boxes
            if _is_inside(box, frame) and not any(_meet(box, other) for other in taken if other != own)
        ]
        found.append(free[0][0] if free else "")
        taken += [box for _, box in free[:1]]
    return found


def _box(x: float, y: float, text: str, place: str) -> Box:
    width = LETTER * len(text)
    vertical, horizontal = place.split()
    bottom = {"middle": y - LINE / 2, "top": y + REACH, "bottom": y - REACH - LINE}[vertical]
    left = {"right": x + REACH, "left": x - REACH - width, "center": x - width / 2}[horizontal]
    return left, left + width, bottom, bottom + LINE


def _is_inside(box: Box, frame: Frame) -> bool:
    left, right, bottom, top = box
    return left >= 0 and right <= frame.width and bottom >= 0 and top <= frame.height


def _meet(one: Box, other: Box) -> bool:
    return one[0] < other[1] and other[0] < one[1] and one[2] < other[3] and other[2] < one[3]
