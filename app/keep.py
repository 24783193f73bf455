"""Choices that outlive their widgets, which Streamlit forgets while another page is shown."""

from typing import Any

import streamlit as st


def kept(name: str, default: Any) -> Any:
    """What was chosen last under a name; `default` until something is."""
    return st.session_state.get(f"kept.{name}", default)


def keep(name: str) -> None:
    """Keep what the widget of that name, as its key, holds now; as its on_change, with the name in args."""
    st.session_state[f"kept.{name}"] = st.session_state[name]
