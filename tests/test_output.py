"""Text that a command writes: whole or not at all, and never an exit code of Python's own."""

import subprocess
import sys
from pathlib import Path

import pytest

from profiler import output
from profiler.store import StoreError

ROOT = Path(__file__).resolve().parents[1]
EXAMPLE = str(ROOT / "examples" / "full_8k.json")


def test_a_file_is_replaced_as_a_whole_or_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "report.html"
    output.put("first", out)
    assert out.read_text() == "first"

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("profiler.store.os.fsync", full)
    with pytest.raises(StoreError, match=r"report\.html could not be written: No space left on device\.$"):
        output.put(b"second", out)
    assert out.read_text() == "first" and list(tmp_path.iterdir()) == [out]


@pytest.mark.parametrize(
    "words",
    [
        ("profiler", "compare", EXAMPLE),
        ("profiler", "compare", EXAMPLE, "--format", "md"),
        ("app.report", EXAMPLE, "--format", "md"),
    ],
    ids=" ".join,
)
def test_a_full_output_is_a_sentence_and_exit_code_2(words: tuple[str, ...]) -> None:
    """1 would say that the second Run is worse."""
    with open("/dev/full", "w") as full:
        command = [sys.executable, "-m", *words]
        done = subprocess.run(command, cwd=ROOT, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stderr) == (2, "The output could not be written: No space left on device.\n")
