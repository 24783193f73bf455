"""The card that opens Run files from the browser: shown, not saved; what is none is said by name."""

import streamlit as st

from app import page, session
from profiler.codec import NotARun
from profiler.run import Run
from profiler.run_document import MAX_FILE_BYTES, distinct, from_json

NO_RUN_IN_CSV = (
    "a CSV holds no Run. Of Bytescope's Runs open the JSON; what Nsight Compute profiled becomes a Run by `python -m "
    "profiler import FILE.csv --heads H --seq-len S --head-dim D --dtype bfloat16`, since the file does not tell the "
    "problem."
)


def draw() -> None:
    """The card."""
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
            if file.name.lower().endswith(".csv"):
                raise NotARun(NO_RUN_IN_CSV)
            runs = [*distinct([*runs, *from_json(file.getvalue())])]
        except NotARun as fault:
            faults.append(f"{file.name}: {fault}")
    if runs:
        session.select(runs)
    if faults:
        session.notify("error", " ".join(faults))
    elif runs:
        session.dismiss()  # what was said of files before would be taken for these
    # A new key empties the box, so that the same file can be opened again.
    st.session_state["upload-generation"] += 1
