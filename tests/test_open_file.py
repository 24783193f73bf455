"""Files opened from the browser: the good ones are shown, the others named, and nothing is said of those before."""

from io import BytesIO

from streamlit.testing.v1 import AppTest

from profiler.run_document import to_json
from tests.fake_runs import flash_run


def _opened() -> None:
    import streamlit as st

    from app import open_file, session

    files = st.session_state.pop("files", None)
    if files is not None:
        st.session_state["box"] = files
        open_file._take_files("box")
    said = session.notice()
    st.text("" if said is None else said.text)
    st.text(f"{len(session.current())} shown")


def _file(name: str, text: str) -> BytesIO:
    file = BytesIO(text.encode())
    file.name = name
    return file


def test_a_good_file_takes_away_what_was_said_of_a_bad_one() -> None:
    app = AppTest.from_function(_opened, default_timeout=30)
    app.session_state["upload-generation"] = 0
    app.session_state["files"] = [_file("half.json", '{"runs": ['), _file("table.csv", "a,b")]
    app.run()
    assert not app.exception
    said = app.text[0].value
    assert said.startswith("half.json: This is not a Run file") and "table.csv: a CSV holds no Run." in said
    app.session_state["files"] = [_file("good.json", to_json([flash_run()]))]
    app.run()
    assert not app.exception and [text.value for text in app.text] == ["", "1 shown"]
    app.session_state["files"] = [_file("good.json", to_json([flash_run()])), _file("b.csv", "")]
    app.run()
    assert app.text[0].value.startswith("b.csv: a CSV") and app.text[1].value == "1 shown"
