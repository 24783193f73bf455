"""Which commit the measured code stands at, so that Runs of two commits can be told apart."""

import os
import subprocess
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VARIABLE = "BYTESCOPE_COMMIT"  # says it where the code is a copy without its repository, as on a cluster's nodes
MOST_LETTERS = 80
SECONDS = 5.0  # git on a large tree with a cold disk
# No program that a repository's own settings name is started.
DESCRIBE = ("-c", "core.fsmonitor=false", "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*")


def commits(project: Path) -> dict[str, str]:
    """Bytescope's commit, and that of the project it is started in where this is another; none that is not known.

    With -dirty behind it where files differ from the commit.
    """
    found = {"commit": bytescopes()}
    if ROOT not in (project, *project.parents):
        found["project commit"] = commit_of(project)
    return {name: commit for name, commit in found.items() if commit}


@cache
def bytescopes() -> str:
    """Bytescope's commit when this process first asked: what it runs was read before. Empty where it is not known."""
    told = os.environ.get(VARIABLE, "")
    return told if _is_plain(told) and told else commit_of(ROOT)


def commit_of(folder: Path) -> str:
    """A folder's commit as git describes it; empty where it is none of a repository, or there is no git."""
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *DESCRIBE], capture_output=True, text=True, timeout=SECONDS, check=False
        )
    except (OSError, subprocess.SubprocessError, UnicodeError):
        return ""
    words = done.stdout.strip()
    return words if done.returncode == 0 and _is_plain(words) else ""


def _is_plain(words: str) -> bool:
    return words.isascii() and words.isprintable() and len(words) <= MOST_LETTERS
