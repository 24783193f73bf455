"""The file for pytorch.org/memory_viz: what torch's own reader of snapshots makes of it, and what it may hold."""

import io
import pickle
import pickletools
from pathlib import Path
from typing import Any

from torch.cuda import _memory_viz
from typer.testing import CliRunner

from app.report import main
from profiler.memory_snapshot import pickled, snapshot
from profiler.store import save
from tests import fake_memory, fake_runs

# The opcodes of torch/utils/viz/MemoryViz.js, which reads the file in the browser.
KNOWN_TO_MEMORY_VIZ = {
    "PROTO",
    "FRAME",
    "STOP",
    "MARK",
    "EMPTY_DICT",
    "EMPTY_LIST",
    "EMPTY_TUPLE",
    "APPEND",
    "APPENDS",
    "SETITEM",
    "SETITEMS",
    "BININT",
    "BININT1",
    "BININT2",
    "LONG1",
    "BINUNICODE",
    "SHORT_BINUNICODE",
    "MEMOIZE",
    "BINGET",
    "LONG_BINGET",
    "BINPUT",
    "LONG_BINPUT",
    "NEWTRUE",
    "NEWFALSE",
    "NONE",
    "BINFLOAT",
    "TUPLE",
    "TUPLE1",
    "TUPLE2",
    "TUPLE3",
}


class Refusing(pickle.Unpickler):
    """Reads plain values and nothing else."""

    def find_class(self, module: str, name: str) -> object:
        raise AssertionError(f"{module}.{name} in the file")


def unpickled(data: bytes) -> Any:
    """What a file of plain values holds."""
    return Refusing(io.BytesIO(data)).load()


def test_torch_reads_it_as_its_own() -> None:
    """Q, K and V of 32 MiB were there before; naive makes S, its workspace, P and O, and frees S and P."""
    trace = fake_memory.naive_run().memory
    assert trace is not None
    found = unpickled(pickled(trace))
    assert found == snapshot(trace)
    lines = _memory_viz.trace(found).splitlines()
    assert lines[:2] == ["Device 0 ----------------", "12 entries"]
    made = [line.partition("= ")[2] for line in lines if " = " in line and "cudaMalloc" not in line]
    assert [words.partition(":")[2] for words in made] == ["2.0GiB]", "32.0MiB]", "2.0GiB]", "32.0MiB]"]
    assert sum(line.startswith("# free completed") for line in lines) == 2
    assert _memory_viz.segsum(found).count("128.0MiB") == 0 and "4.2GiB" in _memory_viz.segsum(found)


def test_memory_viz_knows_every_opcode() -> None:
    trace = fake_memory.naive_run().memory
    assert trace is not None
    assert {opcode.name for opcode, *_ in pickletools.genops(pickled(trace))} <= KNOWN_TO_MEMORY_VIZ


def test_names_are_the_innermost_frames() -> None:
    trace = fake_memory.flash_run().memory
    assert trace is not None
    found = snapshot(trace)
    made = [entry["frames"][0]["name"] for entry in found["device_traces"][0] if entry["action"] == "alloc"]
    assert made == ["o", "lse"]
    blocks = [block for segment in found["segments"] for block in segment["blocks"]]
    assert [block["frames"][0]["name"] for block in blocks] == ["q", "k", "v", "o", "lse"]
    assert blocks[3]["frames"][1:] == found["device_traces"][0][1]["frames"][1:], "and where it was made"


def test_the_command_line_writes_it(tmp_path: Path) -> None:
    run = fake_memory.naive_run()
    out = tmp_path / "naive.pickle"
    file = save(run, tmp_path)
    done = CliRunner().invoke(_app(), [str(file), "--format", "memory", "--out", str(out)])
    assert done.exit_code == 0, done.output
    assert run.memory is not None
    assert unpickled(out.read_bytes()) == snapshot(run.memory)


def test_it_is_of_one_run_that_has_a_history(tmp_path: Path) -> None:
    both = [str(save(run, tmp_path)) for run in (fake_memory.naive_run(), fake_memory.flash_run())]
    without = str(save(fake_runs.cpu_run(), tmp_path))
    for files, words in ((both, "2 of these Runs have one"), ([without], "None of these Runs has one")):
        done = CliRunner().invoke(_app(), [*files, "--format", "memory", "--out", str(tmp_path / "x")])
        assert done.exit_code == 2 and words in done.output


def _app() -> object:
    import typer

    app = typer.Typer()
    app.command()(main)
    return app
