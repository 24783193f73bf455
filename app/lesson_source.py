"""Where the kernels' source does what the walk-through says: file, line, function and the line itself, read as text."""

import ast
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import kernels

ROOT = Path(kernels.__file__).parent
# What flash runs first; the code that tiled kernels share stands beside the kernels' folders.
FIRST = "flash/kernel.py"
LINES = {
    "tiling": r"offs_m = .*BLOCK_M",
    "order": r"for at in tl\.range\(",
    "compute_at": r"\bs = tl\.dot\(q, ",
    "fusion": r"tl\.dot\(p, v, acc",
    "locality": r"acc = tl\.zeros\(",
    "algebra": r"alpha = tl\.exp2?\(",
}


@dataclass(frozen=True)
class Place:
    """A line of the kernels' source; `path` starts at the project's root, `function` holds the line."""

    path: str
    line: int
    function: str
    code: str


@cache
def places() -> dict[str, Place | None]:
    """For each of LINES the first line that matches, in flash first; None where there is none."""
    files = sorted(ROOT.rglob("*.py"), key=lambda path: (path != ROOT / FIRST, len(path.parts), path))
    # naive and the library do not work on tiles, and other kernels only repeat what flash does.
    shared = [path for path in files if path == ROOT / FIRST or path.parent == ROOT]
    return {name: next(filter(None, (_find(path, line) for path in shared)), None) for name, line in LINES.items()}


def _find(path: Path, pattern: str) -> Place | None:
    text = path.read_text(encoding="utf-8")
    for number, line in enumerate(text.splitlines(), 1):
        if re.search(pattern, line):
            where = path.relative_to(ROOT.parent).as_posix()
            return Place(where, number, _function(text, number), line.partition("  #")[0].strip())
    return None


def _function(text: str, line: int) -> str:
    """The name of the innermost function around a line; empty outside of any."""
    around = [
        node
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.FunctionDef) and node.lineno <= line <= (node.end_lineno or node.lineno)
    ]
    return max(around, key=lambda node: node.lineno).name if around else ""
