"""Files as large as they may be, and small ones that unpack into large ones: read or refused in time and memory."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from tests.hostile import require_sentence
from tests.large_inputs import MOST_CELLS, NCU_FILES, RUN_FILES

ROOT = Path(__file__).parents[1]
# Of this process's time. On the machine of docs/reliability.md the longest takes a third of it; others are slower.
MOST_SECONDS = 15.0
MOST_MIB = 1_100
GOOD = {
    "a good file": " Runs",
    "one number": "1 Runs",
    "ncu: lines after": "Run",
    MOST_CELLS: "Run",
    "a project of 1 TiB": "Project",
}


# Those that took gigabytes or minutes once; `make test-long` tries all.
FEW = ["small objects", "one name many times", "measurements", "bombs", "a good file", "ncu: columns", MOST_CELLS]
FILES = FEW if settings().max_examples < 1_000 else [*RUN_FILES, *NCU_FILES]
NAMES = [*FILES, *(f"{name}, our own" for name in FILES if name in NCU_FILES)]
TOO_LARGE = ["a file of 1 TiB", "a plan of 1 TiB", "a project of 1 TiB"]


@pytest.fixture(scope="module")
def answers() -> dict[str, dict[str, Any]]:
    """What became of each, in one process that may take a gigabyte beside what it begins with."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.large_inputs", *FILES],
        cwd=ROOT,
        env=os.environ | {"TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2_000:]
    return {answer["name"]: answer for answer in map(json.loads, done.stdout.splitlines())}


@pytest.mark.parametrize("name", [*NAMES, *TOO_LARGE])
def test_a_large_file_is_read_or_refused_in_time_and_memory(answers: dict[str, dict[str, Any]], name: str) -> None:
    answer = answers[name]
    assert answer["seconds"] < MOST_SECONDS, answer
    assert answer["peak"] < MOST_MIB, answer
    if name in GOOD:
        assert answer["said"].endswith(GOOD[name]), answer
    else:
        require_sentence(answer["said"])
