"""Runs: what is shown now and how to send it on, the history, files and recorded Runs to open."""

import hashlib
import os
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import streamlit as st

from app import block_jobs, block_progress, form_values, open_file, page, recorded, session
from app.asked import asked
from app.command import command
from app.history import MOST_RUNS, Entry, Folder, Wanted, read_folder, table_of
from app.picture import Headline, Table
from app.saved_sweeps import SavedSweep, newest_entries, read_sweeps
from app.selection import MAX_COMPARED, names
from app.style import SOURCE_BADGE, error, seconds, traffic
from kernels.problem import LINEAR, AttentionProblem, TileConfig
from profiler.plausible import printable
from profiler.run import Run
from profiler.run_document import to_json
from profiler.store import runs_folder

TITLE = "Runs"
ICON = ":material/history:"
ORDER = 90

TEXT = "history-text"
MOST_FAULTS = 5
COLUMNS = 3


def render(runs: tuple[Run, ...]) -> None:
    """Draw the page."""
    wanted = _wanted()
    saved = read_folder(runs_folder(), wanted=wanted)
    page.headline(_headline(runs, saved))
    if runs:
        left, right = st.columns([2, 1])
        with left:
            _shown(runs)
        with right:
            open_file.draw()
    else:
        open_file.draw()
    _history(saved, wanted)
    _sweeps()
    recorded.draw()


def _headline(runs: Sequence[Run], saved: Folder) -> Headline:
    kept = f"{saved.count:,} saved Run{'' if saved.count == 1 else 's'}" if saved.count else "No Run is saved yet"
    shown = f", {len(runs)} shown on every page" if runs else ""
    place = printable(str(runs_folder()))
    return Headline(f"{kept}{shown}.", f"Saved in {place}, the newest {MOST_RUNS} are listed.")


def _shown(runs: tuple[Run, ...]) -> None:
    with page.card("Shown on every page", "The exact command that repeats them is below; the report opens offline."):
        columns = ("run", "problem", "device", "made", "HBM", "time", "error")
        entries = [Entry.of(run, Path()) for run in runs]
        rows = tuple(map(_row, names(runs), entries))
        sources = tuple(("", "", "", "", *entry.sources) for entry in entries)
        st.html(page.table_html(Table("", "", columns, rows, sources=sources)))
        st.code(command([run.workload for run in runs]), language="bash", wrap_lines=True)
        with st.container(horizontal=True):
            stem = f"bytescope-{runs[-1].id}"
            # A run of the page would take back the file that the browser is about to fetch.
            st.download_button(
                "Download report (HTML)", _report(runs), f"{stem}.html", "text/html", key="report", on_click="ignore"
            )
            st.download_button(
                "Download Runs (JSON)", lambda: to_json(runs), f"{stem}.json", "application/json", key="json",
                on_click="ignore",
            )  # fmt: skip
            if len(runs) > 1:
                page.link("compare", "Compare two of them")


def _report(runs: tuple[Run, ...]) -> Callable[[], str]:
    """Makes the report once it is asked for; the report's modules are not needed to draw this page."""

    def make() -> str:
        from app.report_html import html

        return html(runs)

    return make


def _row(name: str, entry: Entry) -> tuple[str, ...]:
    return (name, entry.workload.problem.label, _device(entry), _when(entry.created), *_numbers(entry))


def _numbers(entry: Entry) -> tuple[str, str, str]:
    return traffic(entry.hbm_bytes), seconds(entry.gpu_time_seconds), error(entry.relative_error)


def _badged(number: str, source: str) -> str:
    """A number and its badge's word, for a table that draws no badges."""
    return f"{number} · {SOURCE_BADGE[source]}" if source else number


def _device(entry: Entry) -> str:
    return f"{entry.device} (recorded)" if entry.recorded else entry.device


def _when(created: str) -> str:
    """A Run's UTC time as it stands in the file, shortened; as it is where it is no time."""
    try:
        return f"{datetime.fromisoformat(created).astimezone(UTC):%Y-%m-%d %H:%M}"
    except ValueError:
        return created


def _sweeps() -> None:
    sweeps, faults = read_sweeps(runs_folder() / "sweeps")
    if not sweeps and not faults:
        return
    caption = f"Newest first, times in UTC. Show puts a sweep's newest Runs, at most {MAX_COMPARED}, on every page."
    with page.card("Sweeps", caption, stretch=False):
        _faults(faults)
        block_progress.draw()
        for row in (sweeps[start : start + COLUMNS] for start in range(0, len(sweeps), COLUMNS)):
            for column, sweep in zip(st.columns(COLUMNS), row, strict=False):
                with column.container(horizontal=True, vertical_alignment="center"):
                    with st.container():
                        st.html(page.item_html(sweep.name, _progress(sweep)))
                    key = f"show-{hashlib.sha256(os.fsencode(sweep.folder.name)).hexdigest()[:16]}"
                    st.button("Show", disabled=not sweep.done, on_click=_show_sweep, args=(sweep,), key=key)
                    if sweep.done + sweep.failed < sweep.planned and block_jobs.sweeping() is None:
                        device = str(form_values.values()["device"])
                        st.button(
                            "Go on", on_click=block_jobs.go_on, args=(sweep.folder, device), key=f"go-on-{key}",
                            help=f"Measure the cells that are left, on {device}; nothing is repeated.",
                        )  # fmt: skip


def _progress(sweep: SavedSweep) -> str:
    failed = f", {sweep.failed:,} failed" if sweep.failed else ""
    cells = f"{sweep.done:,} of {sweep.planned:,} cells done{failed}"
    return ", ".join(filter(None, (", ".join(sweep.kernels), cells, _when(sweep.created))))


def _show_sweep(sweep: SavedSweep) -> None:
    session.open_entries(newest_entries(sweep))


def _faults(faults: Sequence[str]) -> None:
    for fault in faults[:MOST_FAULTS]:
        page.message("error", fault)
    if len(faults) > MOST_FAULTS:
        page.message("error", f"{len(faults) - MOST_FAULTS:,} more files hold no Run that can be read.")


def _wanted() -> Wanted:
    """What the filters above the list ask for; they are drawn further down, but the headline knows already."""
    state = st.session_state
    kernel, device, problem = (state.get(f"history-{name}") for name in ("kernel", "device", "problem"))
    return Wanted(kernel, device, problem, state.get(TEXT) or "")


def _history(saved: Folder, wanted: Wanted) -> None:
    with page.card(
        "History", "Newest first, times in UTC. Select rows to show them on every page, or two to compare them."
    ):
        _faults(saved.faults)
        if not saved.count:
            page.empty("Runs made here are kept and listed here.")
            return
        _filters(saved)
        if not saved.entries:
            page.empty("No saved Run fits these filters; clear one of them.")
            return
        if saved.wanted > len(saved.entries):
            st.html(f'<p class="bs-caption">The newest {len(saved.entries)} of {saved.wanted:,} Runs.</p>')
        entries = saved.entries
        rows = {
            "made": [_when(entry.created) for entry in entries],
            "kernel": [entry.workload.kernel for entry in entries],
            "problem": [entry.workload.problem.label for entry in entries],
            "tile": [_tile(entry) for entry in entries],
            "device": [_device(entry) for entry in entries],
        }
        for index, column in enumerate(("HBM", "time", "error")):
            rows[column] = [_badged(_numbers(entry)[index], entry.sources[index]) for entry in entries]
        how = [asked(entry.workload) for entry in entries]
        rows |= {name: [one[name] for one in how] for name in how[0]}
        # Another list is another table: what was selected in this one has no row there.
        key = f"history-{hash(wanted)}"
        picked = st.dataframe(rows, hide_index=True, on_select="rerun", selection_mode="multi-row", key=key)
        chosen = [entries[index] for index in picked["selection"]["rows"] if index < len(entries)]
        label = f"Show {len(chosen)} selected" if chosen else "Show selected"
        with st.container(horizontal=True):
            st.button(label, disabled=not chosen, on_click=session.open_entries, args=(chosen,), key="open-history")
            if len(chosen) == 2:
                page.go_button("compare", "Compare these two", partial(session.open_entries, chosen))
            _downloads(saved, wanted)


def _filters(saved: Folder) -> None:
    kernel, device, problem, text = st.columns([1, 1, 2, 2])
    kernel.selectbox("Kernel", saved.kernels, index=None, placeholder="all", key="history-kernel")
    device.selectbox("Device", saved.devices, index=None, placeholder="all", key="history-device")
    label = "Problem"
    problem.selectbox(label, saved.problems, index=None, placeholder="all", format_func=_label, key="history-problem")
    text.text_input("Search", placeholder="sizes, tile, id, date, driver …", key=TEXT)


def _label(problem: AttentionProblem) -> str:
    return problem.label


def _downloads(saved: Folder, wanted: Wanted) -> None:
    for format, name in (("csv", "CSV"), ("parquet", "Parquet")):
        st.download_button(
            f"Export {saved.wanted:,} as {name}",
            partial(table_of, runs_folder(), wanted, format),
            f"bytescope-runs.{format}",
            {"csv": "text/csv", "parquet": "application/vnd.apache.parquet"}[format],
            key=f"export-{format}",
            on_click="ignore",
        )


def _tile(entry: Entry) -> str:
    tile = entry.workload.tile
    if tile is None:
        return "–"
    parts = [f"{count} {word}{'' if count == 1 else 's'}" for count, word in _counts(tile)]
    order = [tile.order] if tile.order != LINEAR else []
    return ", ".join([f"{tile.BLOCK_M}×{tile.BLOCK_N}", *order, *parts])


def _counts(tile: TileConfig) -> tuple[tuple[int, str], ...]:
    return ((tile.num_warps, "warp"), (tile.num_stages, "stage"))
