"""Command lines that nobody means, drawn from the options that each command has, and run in this process."""

import io
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout
from typing import Any
from unittest import mock

import typer
from hypothesis import strategies as st

from profiler import __main__ as cli
from tests.command_line import Answer
from tests.hostile import HOSTILE_TEXTS, require_sentence

BUILT: Any = typer.main.get_command(cli.app)
COMMANDS: dict[str, Any] = dict(BUILT.commands)
WORDS = (
    "", " ", "-", "--", "-1", "0", "1", "2", "16", "64", "100", "1024", "3.5", "1e5", "1e308", "1e309", "inf", "-inf",
    "nan", "0x10",
    "1_000", "１６", "²", "9" * 30, "9" * 5_000, "true", "false", "none", "None", "null", "yes",
    "1:4", "1:", ":", "1:10:0", "4:1:1", "1:99999999:1", "1:8:*1", "1:8:*2", "0:8:*2", "1,2,,3", "1,2", "a,b",
    "1:2:3:4",
    "flash", "naive", "sdpa", "flash,naive", "nokernel", "os:system", "a.b:c", ":", "a:", "x" * 130 + ":f", "ncu:flash",
    "float16", "bfloat16", "float64", "FLOAT16", "cold", "warm", "linear", "sawtooth",
    "cpu", "cuda:0", "cuda:99999999999999999999", "cuda:", "cuda:٣", "tpu",
    "auto", "ncu", "html", "json", "csv", "md", "parquet", "perfetto", "memory", "table", "runs",
    "BLOCK_M > 16", "1=1", "); DROP TABLE runs; --", "SELECT 1", "read_csv('/etc/passwd')",
    "kernel = 'flash'", "repeat('x', 1000000000)",
    "gpu_time_seconds", "5%", "1.1", "0.9", "-5", "%",
)  # fmt: skip
TYPED: dict[Any, st.SearchStrategy[str]] = {
    int: st.sampled_from(["0", "1", "2", "16", "63", "-1", "4096", str(2**31), str(2**64)]),
    float: st.sampled_from(["0", "1", "-1", "nan", "inf", "1e300", "1e-300", "0.5"]),
}
# The system passes no NUL, and bytes that are not UTF-8 as half characters. Each may be what is written to, so none is
# a path out of the working directory.
TEXTS = HOSTILE_TEXTS.map(lambda text: re.sub("[/\0\ud800-\udc7f\udd00-\udfff]", "", text)[:5_000]) | st.just(
    "\udcff\udcfe"
)


@st.composite
def command_lines(draw: st.DrawFn, name: str, files: Sequence[str]) -> list[str]:
    """The command with some of its options, each with a word of WORDS, of its own kind, a file or a text; and files."""
    command = COMMANDS[name]
    values = st.sampled_from(WORDS) | st.sampled_from(list(files)) | TEXTS
    words = [name]
    options = [one for one in command.params if one.param_type_name == "option" and one.name != "help"]
    for option in draw(st.lists(st.sampled_from(options), max_size=4)) if options else ():
        spelled = draw(st.sampled_from([*option.opts, *option.secondary_opts]))
        words.append(spelled)
        if not option.is_flag:
            words.append(draw(TYPED.get(option.type_descriptor.annotation, values) | values))
    if any(one.param_type_name == "argument" for one in command.params):
        words += draw(st.lists(st.sampled_from(list(files)) | values, max_size=3))
    if draw(st.integers(0, 9)) == 0:
        unknown = st.sampled_from(["--nothing", "-x", "--help", "@x"])
        words.insert(draw(st.integers(0, len(words))), draw(values | unknown))
    return words


@contextmanager
def written() -> Iterator[tuple[io.TextIOWrapper, io.TextIOWrapper]]:
    """stdout and stderr as Python opens them: stdout takes no half characters."""
    out = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", errors="strict", write_through=True)
    err = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", errors="backslashreplace", write_through=True)
    with redirect_stdout(out), redirect_stderr(err), ExitStack() as stack:
        # rich asks for the terminal's own streams.
        stack.enter_context(mock.patch.object(cli.errors, "_file", err))
        yield out, err


def answer(words: Sequence[str]) -> Answer:
    """What `python -m profiler words` answers in this process. Whatever it raises but its end is raised here."""
    with (
        written() as (out, err),
        mock.patch.object(sys, "argv", ["profiler", *words]),
        # As typer makes it of the app each time, which takes longer than most of what is asked of it here.
        mock.patch.object(cli, "app", BUILT),
    ):
        try:
            cli.main()
        except SystemExit as end:
            code = end.code
        else:
            code = 0
        return Answer(int(code or 0), *(part.buffer.getvalue().decode() for part in (out, err)))  # type: ignore[attr-defined]


def require_answered(found: Answer, most: int = 3_100) -> None:
    """Fail unless it is done, or says in sentences why not."""
    assert found.code in (0, 1, 2), found.code
    assert "Traceback" not in found.err + found.out
    if found.code == 2:
        # What was refused is one sentence; files that hold no Run may be named before.
        *named, last = found.err.splitlines() or [""]
        require_sentence(last, most)
        for line in named:
            require_sentence(line, most)
    if found.code == 1:
        assert found.err.strip() or found.out.strip()
