"""Roofline: every Run against what its GPU's memory and compute allow, in words and as points under roofs."""

from collections.abc import Sequence

import streamlit as st

from app import page
from app.picture import Picture, Sheet
from app.roofline_chart import roofline
from app.roofline_tables import limits, roof_table
from app.roofline_words import figures, headline, spoken
from app.roofline_work import Work, works
from app.roofs import Machine, machines
from app.style import Theme
from profiler.run import Run

TITLE = "Roofline"
ICON = ":material/roofing:"
ORDER = 70
EMPTY = "Press Run, or open a recorded H200 run on the Runs page."
NO_GPU = "A roofline needs a GPU: run on one, or open a recorded H200 run on the Runs page."
MOST_RUNS = 12
CAPTION = (
    "Filled: at the intensity of HBM bytes; open diamond: the same Run at that of L2↔SM bytes; small: a launch. Solid "
    "roofs are measured, dashed ones the vendor's."
)


def sheet(runs: tuple[Run, ...], theme: Theme) -> Sheet:
    """A roofline for each GPU, with tables of what limits what; the Runs' problems may differ."""
    if not runs:
        return Sheet(missing=EMPTY)
    every = sorted(dict.fromkeys(runs), key=lambda run: run.created)
    on_gpu = [run for run in every if run.device.compute_capability is not None]
    if not on_gpu:
        return Sheet(missing=NO_GPU)
    shown = on_gpu[-MOST_RUNS:]
    gpus = machines(shown)
    found = [(gpu, works(gpu)) for gpu in gpus]
    items: list[Picture] = []
    tables = []
    for gpu, work in found:
        of = f", {gpu.title}" if len(gpus) > 1 else ""
        items.append(_picture(gpu, work, of, theme))
        tables += [limits(work, f"Which roof limits what{of}"), roof_table(gpu.roofs, gpu.runs, f"Roofs{of}")]
    said = spoken(shown, found)
    note = _left_out(len(every), len(on_gpu), len(shown))
    return Sheet(headline(said, gpus, note), figures(said, gpus), (*items, *tables))


def render(runs: tuple[Run, ...]) -> None:
    """Draw the page, and where to look next."""
    page.sheet(sheet(runs, page.theme()), "roofline")
    with st.container(horizontal=True):
        page.link("hbm_traffic", "Where the bytes go")
        page.link("block_sizes", "Which tile moves fewer bytes")


def _picture(gpu: Machine, found: Sequence[Work], of: str, theme: Theme) -> Picture:
    sources = [roof.source for roof in gpu.roofs if roof.rate is not None]
    sources += [part.source for work in found for part in work.moved.values() if part.value is not None]
    sources += [source for work in found for source in (work.seconds_source, work.flops_source) if source]
    return Picture(f"Roofline{of}", CAPTION, roofline(found, gpu.roofs, theme), tuple(dict.fromkeys(sources)))


def _left_out(every: int, on_gpu: int, shown: int) -> str:
    notes = []
    if on_gpu < every:
        notes.append("Runs on a CPU are left out: they have no roof.")
    if shown < on_gpu:
        notes.append(f"The newest {shown} of {on_gpu} Runs are shown.")
    return " ".join(notes)
