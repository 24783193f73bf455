"""Entry point: `python -m streamlit run app/main.py`."""

from app.frame import show

show()
