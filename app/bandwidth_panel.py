"""Draws bandwidths into one panel of a chart: read and written as areas on each other, L2↔SM as a line."""

from dataclasses import dataclass
from html import escape

import numpy as np
import plotly.graph_objects as go

from app.bandwidth_scale import Scale
from app.resample import FloatArray
from app.sampled import Drawn, Sampled
from app.style import DIRECTION, TENSOR, Theme, bandwidth, kernel_colour, significant

DASHES = {"solid": "—", "dot": "···", "dash": "– –", "dashdot": "–·–"}  # and how a key spells them
MS = 1e3
CUT_AT = 0.93  # of the scale, where the mark of what is cut off stands


@dataclass(frozen=True)
class Row:
    """One Run under the name that tells it apart; `peak_source` says where its peak comes from."""

    name: str
    kernel: str
    samples: Sampled
    peak_source: str = ""


@dataclass(frozen=True)
class Panel:
    """One plot of a figure: its y axis, scale and colours."""

    figure: go.Figure
    axis: str
    scale: Scale
    theme: Theme

    def hbm(self, row: Row, part: Drawn) -> None:
        """What was read as an area, what was written on top of it, pale behind both the highest samples."""
        name, factor, unit = escape(row.name), self.scale.factor, self.scale.unit
        if part.is_thinned:
            self._area(part, part.highest, pale(self.theme), name=f"{name}, highest", hoverinfo="skip")
        texts = [
            f"read {significant(read / factor)}, write {significant((hbm - read) / factor)} {unit}"
            if np.isfinite(hbm)
            else "above the peak, not drawn"
            for hbm, read in zip(part.hbm.tolist(), part.read.tolist(), strict=True)
        ]
        # What was read covers the lower part of the sum, so that what was written remains to be seen.
        self._area(part, part.hbm, DIRECTION["write"], texts, name=f"{name}, read and write", hoverinfo="x+text")
        self._area(part, part.read, DIRECTION["read"], name=f"{name}, read", hoverinfo="skip")
        self._cut_off(row, part)
        self._impossible(row, part)

    def l2_sm(self, row: Row, part: Drawn, dash: str) -> None:
        """L2↔SM as a line, thin above it the highest samples; nothing where it was not sampled."""
        if part.l2_sm is None or part.l2_sm_highest is None:
            return
        name, colour = escape(row.name), kernel_colour(row.kernel, self.theme)
        line = {"color": colour, "width": 1.5, "shape": "hv", "dash": dash}
        if part.is_thinned:
            thin = {**line, "width": 1}
            self._line(
                part, part.l2_sm_highest, line=thin, opacity=0.4, name=f"{name}, highest L2↔SM", hoverinfo="skip"
            )
        texts = [f"{name}: {significant(rate / self.scale.factor)} {self.scale.unit}" for rate in part.l2_sm.tolist()]
        self._line(part, part.l2_sm, texts, line=line, name=f"{name}, L2↔SM", hoverinfo="x+text")

    def _area(
        self, part: Drawn, heights: FloatArray, colour: str, texts: list[str] | None = None, **options: object
    ) -> None:
        # Plotly fills across a lifted pen: the outline goes down to 0 there, where an area has nothing to show.
        line = {"width": 0, "shape": "hv"}
        self._line(part, heights, texts, to_zero=True, fill="tozeroy", fillcolor=colour, line=line, **options)

    def _line(
        self,
        part: Drawn,
        heights: FloatArray,
        texts: list[str] | None = None,
        to_zero: bool = False,
        **options: object,
    ) -> None:
        x, y, index = part.bins.outline(heights)
        if texts is not None:
            options["hovertext"] = np.array(texts, dtype=object)[index].tolist()
        self.figure.add_scatter(
            x=(x * MS).astype(np.float32),
            y=((np.nan_to_num(y) if to_zero else y) / self.scale.factor).astype(np.float32),
            yaxis=self.axis,
            mode="lines",
            **options,
        )

    def _cut_off(self, row: Row, part: Drawn) -> None:
        """A mark where the highest sample lies beyond the scale; one above the peak has a mark of its own."""
        possible = np.where(np.isfinite(part.impossible), 0.0, part.highest)
        highest = int(possible.argmax())
        if self.scale.magnified is None or possible[highest] <= self.scale.rate:
            return
        self.figure.add_scatter(
            x=[float(part.bins.start[highest] + part.bins.end[highest]) / 2 * MS],
            y=[CUT_AT * self.scale.top],
            yaxis=self.axis,
            mode="markers",
            marker={"symbol": "triangle-up-open", "size": 8, "color": self.theme.ink, "line": {"width": 1.5}},
            name=f"{escape(row.name)}, cut off",
            hovertext=[f"cut off, up to {bandwidth(float(possible[highest]))}"],
            hoverinfo="text",
        )

    def _impossible(self, row: Row, part: Drawn) -> None:
        above = np.flatnonzero(np.isfinite(part.impossible))
        if row.samples.peak is None or not len(above):
            return
        self.figure.add_scatter(
            x=(part.bins.start + part.bins.end)[above] / 2 * MS,
            y=np.full(len(above), min(row.samples.peak / self.scale.factor, self.scale.top)),
            yaxis=self.axis,
            mode="markers",
            marker={"symbol": "triangle-up", "size": 9, "color": TENSOR["p"]},
            cliponaxis=False,
            name=f"{escape(row.name)}, above the peak",
            hovertext=[f"{bandwidth(rate)} sampled" for rate in part.impossible[above].tolist()],
            hoverinfo="text",
        )


def pale(theme: Theme) -> str:
    """The colour of the highest samples, behind what is drawn of their means."""
    return "#4A5866" if theme.name == "dark" else "#C3CAD2"
