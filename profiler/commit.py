"""Which commit the measured code stands at, so that Runs of two commits can be told apart."""

import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SECONDS = 5.0  # git on a large tree with a cold disk
# No program that a repository's own settings name is started.
DESCRIBE = ("-c", "core.fsmonitor=false", "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*")


def commits(project: Path) -> dict[str, str]:
    """Bytescope's commit, and that of the project it is started in where this is another; none that is not known.

    With -dirty behind it where files differ from the commit.
    """
    found = {"commit": commit_of(ROOT)}
    if ROOT not in (project, *project.parents):
        found["project commit"] = commit_of(project)
    return {name: commit for name, commit in found.items() if commit}


def commit_of(folder: Path) -> str:
    """A folder's commit as git describes it; empty where it is none of a repository, or there is no git."""
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *DESCRIBE], capture_output=True, text=True, timeout=SECONDS, check=False
        )
    except (OSError, subprocess.SubprocessError, UnicodeError):
        return ""
    words = done.stdout.strip()
    return words if done.returncode == 0 and words.isascii() and words.isprintable() and len(words) <= 80 else ""
