"""The one table of colours, the plotly template and the spelling of numbers; the pages and the report share it."""

import math
from dataclasses import dataclass

import plotly.graph_objects as go

from kernels.own import is_own

# Safe for colour-blind readers (Okabe and Ito's hues), the same on every page and in the report.
TENSOR = {
    "q": "#0072B2",
    "k": "#E69F00",
    "v": "#009E73",
    "s": "#CC79A7",
    "p": "#D55E00",
    "o": "#56B4E9",
    "lse": "#7B8794",
    "mask": "#B0B7C0",
    # A gradient has the colour of its tensor, paler; dQ and dO would be one, so dQ leans to violet.
    "dq": "#7F93D8",
    "dk": "#F2C76B",
    "dv": "#6CC7AB",
    "ds": "#E3B8CF",
    "dp": "#EC9F6B",
    "dp_p": "#B9835C",
    "do": "#A9D7F2",
}
# Memory that is no tensor's.
MEMORY = {
    "workspace": "#829AB1",
    "other": "#5B3FB6",
    "rounding": "#CBD2D9",
    "cached": "#B0B7C0",
    "context": "#7B8794",
}
STATE = {"m": "#5B3FB6", "l": "#0B7A75", "alpha": "#D55E00", "acc": "#56B4E9", "exact": "#7B8794"}
KERNEL = {
    "naive": "#C4622D",
    "row_streaming": "#9A6A1F",
    "query_tiled": "#7B5EA7",
    "flash_kv_outer": "#4D7F3A",
    "flash": "#0B7A75",
    "flash_tma": "#147A4B",
    "flash_ws": "#B0476A",
    "split_kv": "#2C6DA3",
}
LIBRARY = "#829AB1"
OWN = "#52606D"  # kernels of the user's own
DIRECTION = {"read": "#3B6FB6", "write": "#C4622D"}

# The same hues, lighter where a dark background would swallow them (below 3:1, or hatched).
_ON_DARK = {
    "#5B3FB6": "#9B87E8",
    "#0B7A75": "#2BA39B",
    "#9A6A1F": "#C79440",
    "#7B5EA7": "#A98BD6",
    "#4D7F3A": "#7BB264",
    "#147A4B": "#4FB485",
    "#B0476A": "#D6819D",
    "#2C6DA3": "#5C9DD3",
    "#52606D": "#B8C4CE",
}


@dataclass(frozen=True)
class Theme:
    """Colours that depend on the page's background."""

    name: str
    paper: str
    card: str
    ink: str
    muted: str
    grid: str


LIGHT = Theme("light", "#F5F7FA", "#FFFFFF", "#1F2933", "#5F6C7B", "#E4E7EB")
DARK = Theme("dark", "#11161C", "#1A2129", "#E4E7EB", "#9AA5B1", "#323F4B")

# Streamlit ships Source Sans; a report that opens elsewhere falls through to what is there.
FONT = "'Source Sans', Inter, system-ui, sans-serif"

SOURCE_BADGE = {
    "cupti-range": "counter",
    "cupti-sampling": "sampled",
    "cupti-callback": "callback",
    "ncu": "ncu",
    "nvml-gpm": "GPM, estimate",
    "nvml": "NVML",
    "torch": "torch",
    "cuda-event": "events",
    "globaltimer": "kernel clock",
    "interpreter": "trace",
    "schedule": "schedule",
    "model": "model",
    "datasheet": "datasheet",
}


def shade(colour: str, theme: Theme) -> str:
    """A colour of the table as it is drawn on a theme's background."""
    return _ON_DARK.get(colour, colour) if theme is DARK else colour


def kernel_colour(name: str, theme: Theme = LIGHT) -> str:
    """The colour of a kernel on a theme's background; library kernels share one, and so do the user's own."""
    return shade(KERNEL.get(name, OWN if is_own(name) else LIBRARY), theme)


def ink_on(colour: str) -> str:
    """Black or white, whichever is easier to read on a colour."""
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    luminance = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
    return "#FFFFFF" if luminance < 0.179 else "#000000"


def tensor_colour(name: str) -> str:
    """The colour of a tensor; temporaries without a colour of their own share one."""
    return TENSOR.get(name) or STATE.get(name, LIBRARY)


def significant(value: float, digits: int = 3) -> str:
    """A plain decimal with `digits` significant digits, such as 13.1, 0.135 or 6,480."""
    if value == 0:
        return "0"
    magnitude = math.floor(math.log10(abs(value)))
    rounded = round(value, digits - 1 - magnitude)
    magnitude = math.floor(math.log10(abs(rounded)))
    return f"{rounded:,.{max(0, digits - 1 - magnitude)}f}"


def _scaled(value: float, steps: tuple[tuple[float, str], ...], digits: int = 3) -> str:
    for factor, unit in steps[:-1]:
        # 999.6 MB would print as 1,000 MB: the next unit takes over half a last digit early.
        if abs(value) >= factor * (1 - 0.5 * 10.0**-digits):
            return f"{significant(value / factor, digits)} {unit}"
    factor, unit = steps[-1]
    # What cannot be divided further is counted: 32 B and 96 ns have no decimals unless they are averages.
    whole = round(value / factor)
    return f"{whole if abs(value / factor - whole) < 1e-6 else significant(value / factor, digits)} {unit}"


def traffic(value: float | None) -> str:
    """Bytes that moved, in powers of 1000: 13.1 GB."""
    return "–" if value is None else _scaled(value, ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1, "B")))


def bandwidth(value: float | None) -> str:
    """Bytes per second, in powers of 1000: 4.81 TB/s."""
    return "–" if value is None else f"{traffic(value)}/s"


def capacity(value: float | None) -> str:
    """Memory that is held, in powers of 1024: 4.14 GiB."""
    steps = ((2.0**40, "TiB"), (2.0**30, "GiB"), (2.0**20, "MiB"), (2.0**10, "KiB"), (1.0, "B"))
    return "–" if value is None else _scaled(value, steps)


def seconds(value: float | None) -> str:
    """A duration: 1.28 ms."""
    return "–" if value is None else _scaled(value, ((1, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns")))


def roughly(value: float) -> str:
    """An estimated duration with one significant digit: 20 s, 2 min."""
    for factor, unit in ((3600.0, "h"), (60.0, "min"), (1.0, "s")):
        if value >= 1.5 * factor:
            return f"{significant(value / factor, 1)} {unit}"
    return "1 s"


def flop_rate(value: float | None) -> str:
    """FLOP per second: 430 TFLOP/s."""
    steps = ((1e15, "PFLOP/s"), (1e12, "TFLOP/s"), (1e9, "GFLOP/s"), (1e6, "MFLOP/s"))
    return "–" if value is None else _scaled(value, steps)


def ratio(value: float | None) -> str:
    """A ratio: 97× from ten on, 5.0× below."""
    if value is None:
        return "–"
    return f"{value:,.0f}×" if value >= 9.95 else f"{value:.2g}×" if value < 1 else f"{value:.1f}×"


def error(value: float | None) -> str:
    """A small number in scientific spelling: 2.3e-3."""
    if value is None:
        return "–"
    if value == 0:
        return "0"
    mantissa, exponent = f"{value:.1e}".split("e")
    return f"{mantissa}e{int(exponent)}"


def template(theme: Theme) -> go.layout.Template:
    """The plotly template of a theme: no background of its own, light grid, Inter or the system's sans."""
    axis = {
        "gridcolor": theme.grid,
        "linecolor": theme.grid,
        "zerolinecolor": theme.grid,
        "tickfont": {"color": theme.muted, "size": 12},
        "title": {"font": {"color": theme.muted, "size": 12}},
        "automargin": True,
    }
    return go.layout.Template(
        layout={
            "paper_bgcolor": "rgba(0,0,0,0)",
            "plot_bgcolor": "rgba(0,0,0,0)",
            "font": {"family": FONT, "color": theme.ink, "size": 13},
            "margin": {"l": 8, "r": 16, "t": 8, "b": 8},
            # A chart of one bar is low: without this Plotly would take the room for its axis title from the title.
            "minreducedheight": 2,
            "xaxis": axis,
            "yaxis": axis,
            "bargap": 0.25,
            "legend": {"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0, "font": {"color": theme.muted}},
            "hoverlabel": {"font": {"family": FONT}},
        }
    )
