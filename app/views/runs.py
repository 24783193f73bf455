"""Runs: what is shown now and how to send it on, the history, files and recorded Runs to open."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path

import streamlit as st

from app import page, recorded, session
from app.asked import asked
from app.command import command
from app.history import MOST_FILES, Entry, Folder, read_folder
from app.picture import Headline, Table
from app.selection import names
from app.style import SOURCE_BADGE, error, seconds, traffic
from kernels.problem import LINEAR, TileConfig
from profiler.codec import NotARun
from profiler.plausible import printable
from profiler.run import MAX_FILE_BYTES, Run, from_json, to_json
from profiler.store import runs_folder

TITLE = "Runs"
ICON = ":material/history:"
ORDER = 90


def render(runs: tuple[Run, ...]) -> None:
    """Draw the page."""
    saved = read_folder(runs_folder())
    page.headline(_headline(runs, saved))
    if runs:
        left, right = st.columns([2, 1])
        with left:
            _shown(runs)
        with right:
            _open_file()
    else:
        _open_file()
    recorded.draw()
    _history(saved)


def _headline(runs: Sequence[Run], saved: Folder) -> Headline:
    count = len(saved.entries)
    kept = f"{count} saved Run{'' if count == 1 else 's'}" if count else "No Run is saved yet"
    shown = f", {len(runs)} shown on every page" if runs else ""
    place = printable(str(runs_folder()))
    return Headline(f"{kept}{shown}.", f"Saved in {place}, the newest {MOST_FILES} files are listed.")


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
            st.download_button("Download report (HTML)", _report(runs), f"{stem}.html", "text/html", key="report")
            st.download_button(
                "Download Runs (JSON)", lambda: to_json(runs), f"{stem}.json", "application/json", key="json"
            )


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


def _history(saved: Folder) -> None:
    with page.card("History", "Newest first, times in UTC. Select rows, then show them on every page."):
        for fault in saved.faults:
            page.message("error", fault)
        if not saved.entries:
            page.empty("Runs made here are kept and listed here.")
            return
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
        picked = st.dataframe(rows, hide_index=True, on_select="rerun", selection_mode="multi-row", key="history")
        chosen = [entries[index] for index in picked["selection"]["rows"] if index < len(entries)]
        label = f"Show {len(chosen)} selected" if chosen else "Show selected"
        st.button(label, disabled=not chosen, on_click=session.open_entries, args=(chosen,), key="open-history")


def _tile(entry: Entry) -> str:
    tile = entry.workload.tile
    if tile is None:
        return "–"
    parts = [f"{count} {word}{'' if count == 1 else 's'}" for count, word in _counts(tile)]
    order = [tile.order] if tile.order != LINEAR else []
    return ", ".join([f"{tile.BLOCK_M}×{tile.BLOCK_N}", *order, *parts])


def _counts(tile: TileConfig) -> tuple[tuple[int, str], ...]:
    return ((tile.num_warps, "warp"), (tile.num_stages, "stage"))


def _open_file() -> None:
    caption = f"JSON written by Bytescope, up to {MAX_FILE_BYTES >> 20} MiB. It is shown, not saved."
    with page.card("Open a file", caption):
        generation = st.session_state.setdefault("upload-generation", 0)
        key = f"upload-{generation}"
        st.file_uploader(
            "Run files",
            accept_multiple_files=True,
            label_visibility="collapsed",
            max_upload_size=MAX_FILE_BYTES >> 20,
            key=key,
            on_change=_take_files,
            args=(key,),
        )


def _take_files(key: str) -> None:
    """Select the Runs of all files that are good; say what is wrong with each of the others."""
    runs: list[Run] = []
    faults: list[str] = []
    for file in st.session_state[key] or ():
        try:
            runs += from_json(file.getvalue())
        except NotARun as fault:
            faults.append(f"{file.name}: {fault}")
    if runs:
        session.select(list(dict.fromkeys(runs)))
    if faults:
        session.notify("error", " ".join(faults))
    # A new key empties the box, so that the same file can be opened again.
    st.session_state["upload-generation"] += 1
