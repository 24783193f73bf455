"""Where labels go beside the points of a logarithmic chart, so that none covers another or a point."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

LETTER, LINE, REACH = 6.8, 15.0, 7.0  # pixels: of a letter, of a line of text, from a point's middle to its label
ASIDE = 16.0  # pixels from a rising line to its name
SPOTS = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7)  # of a line, from its left end
STEP = 5.0  # pixels between the places of a drawn line that a label should not cover
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
Place = tuple[float, float]  # in the chart's own units
Line = tuple[Place, Place]


def places(
    points: Sequence[Place], texts: Sequence[str], frame: Frame, lines: Sequence[Line] = (), kept: Sequence[Box] = ()
) -> list[str]:
    """A textposition for each point, "" where there is room for none; earlier points choose first.

    Nothing goes into the boxes `kept`. A label crosses one of `lines` only where it has no other place. An empty text
    needs no room, but its point is not covered either.
    """
    middles = [frame.pixels(*point) for point in points]
    taken = [*(_square(x, y) for x, y in middles), *kept]
    crossed = [box for line in lines for box in _along(line, frame)]
    found = []
    for (x, y), text in zip(middles, texts, strict=True):
        own = _square(x, y)
        others = [box for box in taken if box != own]
        boxes = [(place, _box(x, y, text, place)) for place in PLACES] if text else []
        free = [(place, box) for place, box in boxes if _is_inside(box, frame) and not _meets(box, others)]
        free.sort(key=lambda one: _meets(one[1], crossed))
        found.append(free[0][0] if free else "")
        taken += [box for _, box in free[:1]]
    return found


def beside(line: Line, text: str, frame: Frame, points: Sequence[Place], lines: Sequence[Line]) -> tuple[Place, Box]:
    """Where a rising line's name begins, to the right of it: as far left as no point and no other line is in its way.

    At the line's left end where it is in the way everywhere.
    """
    (x0, y0), (x1, y1) = line
    avoided = [_square(*frame.pixels(*point)) for point in points]
    avoided += [box for other in lines for box in _along(other, frame)]
    spots = []
    for share in SPOTS:
        spot = x0 ** (1 - share) * x1**share, y0 ** (1 - share) * y1**share
        x, y = frame.pixels(*spot)
        spots.append((spot, (x + ASIDE, x + ASIDE + LETTER * len(text), y - LINE / 2, y + LINE / 2)))
    free = [(spot, box) for spot, box in spots if _is_inside(box, frame) and not _meets(box, avoided)]
    return (free or spots)[0]


def _square(x: float, y: float) -> Box:
    """What a point in pixels covers."""
    return x - REACH, x + REACH, y - REACH, y + REACH


def _along(line: Line, frame: Frame) -> Iterator[Box]:
    (x0, y0), (x1, y1) = (frame.pixels(*end) for end in line)
    count = 1 + int(math.hypot(x1 - x0, y1 - y0) / STEP)
    for index in range(count + 1):
        x, y = x0 + (x1 - x0) * index / count, y0 + (y1 - y0) * index / count
        yield x, x, y, y


def _box(x: float, y: float, text: str, place: str) -> Box:
    width = LETTER * len(text)
    vertical, horizontal = place.split()
    bottom = {"middle": y - LINE / 2, "top": y + REACH, "bottom": y - REACH - LINE}[vertical]
    left = {"right": x + REACH, "left": x - REACH - width, "center": x - width / 2}[horizontal]
    return left, left + width, bottom, bottom + LINE


def _is_inside(box: Box, frame: Frame) -> bool:
    left, right, bottom, top = box
    return left >= 0 and right <= frame.width and bottom >= 0 and top <= frame.height


def _meets(one: Box, others: Sequence[Box]) -> bool:
    return any(one[0] < box[1] and box[0] < one[1] and one[2] < box[3] and box[2] < one[3] for box in others)
