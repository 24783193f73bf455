"""The pages, one file each, found by scanning this folder.

A view offers TITLE, ICON (a Material symbol), ORDER, sheet(runs, theme) -> Sheet (pure; the report prints it) and
render(runs) (Streamlit). Pages without figures of Runs leave `sheet` out. A Sheet may carry translations; the
report then lets its reader switch. With FOLLOWS_FORM the page is drawn anew when the form changes.
"""
