"""Recorded on a GPU elsewhere and shipped in examples/: Runs, on a card from which they can be opened, and an audit."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import streamlit as st

from app import page, session
from app.history import Entry, read_folder
from kernels.base import all_kernels
from profiler.audit import Audit, load

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
AUDIT = EXAMPLES / "audits" / "nvidia_h200.json"
COLUMNS = 3


def draw() -> None:
    """The card: one line a file, with GPU, driver, versions and date of the recording."""
    found = read_folder(EXAMPLES)
    with page.card("Recorded runs", "Measured on a GPU elsewhere and shipped with Bytescope.", stretch=False):
        for fault in found.faults:
            page.message("error", fault)
        if not found.entries:
            page.empty("The folder examples holds no recorded runs.")
        files = sorted({entry.path for entry in found.entries})
        for row in (files[start : start + COLUMNS] for start in range(0, len(files), COLUMNS)):
            for column, path in zip(st.columns(COLUMNS), row, strict=False):
                with column.container(horizontal=True, vertical_alignment="center"):
                    entries = [entry for entry in found.entries if entry.path == path]
                    with st.container():
                        st.html(page.item_html(*describe(entries)))
                    st.button("Open", on_click=session.open_entries, args=(entries,), key=f"open-{path.name}")


def describe(entries: Sequence[Entry]) -> tuple[str, str]:
    """What a file's Runs computed, and where and when they were recorded."""
    first = entries[0]
    used = {entry.workload.kernel for entry in entries}
    *most, last = [*(name for name in all_kernels() if name in used), *sorted(used - {*all_kernels()})]
    kernels = f"{', '.join(most)} and {last}" if most else last
    driver = f"driver {first.driver}" if first.driver else ""
    facts = (f"{kernels}, recorded on {first.device}", driver, first.versions, first.created[:10])
    problems = dict.fromkeys(entry.workload.problem for entry in entries)
    others = ", ".join(dict.fromkeys(problem.dtype for problem in problems))
    label = first.workload.problem.label if len(problems) == 1 else f"{first.workload.problem.label}; {others}"
    return f"{first.path.stem}: {label}", ", ".join(filter(None, facts))


def recorded_audit() -> Audit:
    """The audit of a GPU, for those who have made none; its Runs do not ship. Raises NotARun or StoreError."""
    return replace(load(AUDIT), run_ids=())
