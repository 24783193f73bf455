"""The Content-Security-Policy of what is sent on: a file's own scripts and styles by their hashes, and nothing else."""

import base64
import hashlib
import re
from collections.abc import Sequence

# plotly.js brings the style sheet of its maps, unless an element of that name is there already.
_STYLE_ID = re.compile(r'if\(!document\.getElementById\("([0-9a-f]{64})"\)\)')


def policy(scripts: Sequence[str], style: str) -> str:
    """For a document that runs these scripts alone, as they stand in it, and has this style sheet.

    Nothing is loaded, sent or framed. Charts set style attributes and draw maps of values as data: images. plotly.js
    makes a style element that is empty and gets its rules from the script. Browsers from before 2022 know no
    style-src-elem and take style-src in its place.
    """
    parts = {
        "default-src": "'none'",
        "base-uri": "'none'",
        "form-action": "'none'",
        "script-src": " ".join(map(_hashed, scripts)),
        "script-src-attr": "'none'",
        "style-src": "'unsafe-inline'",
        "style-src-elem": f"{_hashed(style)} {_hashed('')}",
        "style-src-attr": "'unsafe-inline'",
        "img-src": "data:",
    }
    return "; ".join(f"{name} {value}" for name, value in parts.items())


def styles_of_its_own(plotly: str) -> str:
    """Empty style elements in the place of those that this plotly.js would make; the policy would refuse them."""
    return "".join(f'<style id="{name}"></style>' for name in dict.fromkeys(_STYLE_ID.findall(plotly)))


def _hashed(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode('ascii')}'"
