"""Entry point: `python -m streamlit run app/main.py`.

Streamlit reads this file twice: as a module of its server, for the doors around it, and as the script of each session.
"""

import logging

import streamlit as st
from starlette.middleware import Middleware

from app import listening, sign_in
from app.doors import Doors
from app.ending import ends_by_itself
from app.frame import show

if __name__ == "__main__":
    show()
else:
    server = st.App(__file__, middleware=[Middleware(Doors)], lifespan=ends_by_itself)
    asked = sign_in.gate()
    if warning := listening.warning(not asked.is_open):
        logging.getLogger("bytescope").warning("%s", warning)
    if asked.fault:
        logging.getLogger("bytescope").error("Nobody can sign in: %s", asked.fault)
