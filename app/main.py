"""Entry point: `python -m streamlit run app/main.py`."""

# A spawned worker imports this file again as __mp_main__: it must find nothing to do.
if __name__ == "__main__":
    from app.frame import show

    show()
