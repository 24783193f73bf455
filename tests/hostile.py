"""What somebody may put into a file or behind an option, as hypothesis draws it, and what an answer to it must be."""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st

from profiler.run import LaunchedKernel, LaunchSpan, Run, Series
from profiler.run_document import from_json, to_document
from tests import fake_memory
from tests.fake_runs import SMALL, cpu_run, flash_run, naive_run

EXAMPLES = Path(__file__).parents[1] / "examples"
MOST_SECONDS = 5.0
# As many as the profile says, and no fewer than 200: `make test-long` tries 2,000.
often = settings(max_examples=max(200, settings().max_examples))
# What takes a tenth of a second each.
seldom = settings(max_examples=max(40, settings().max_examples // 5))
MOST_LETTERS = 700
SCRIPT = "<script>alert(1)</script>"
# Printable, so that a Run may hold them; none may become an element, an attribute, a formula or a link.
PRINTABLE = (
    SCRIPT,
    "</script><script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    '" onmouseover="alert(1)" x=\'',
    "' autofocus onfocus='alert(1)",
    "</title></style></textarea><svg onload=alert(1)>",
    "<!--",
    "]]><![CDATA[",
    "javascript:alert(1)",
    "<a href='javascript:alert(1)'>x</a>",
    "&lt;b&gt; &amp;#x3c;",
    "=1+1",
    "@SUM(A1)",
    "| a | [b](javascript:alert(1)) `c` *d* _e_ @all #1",
    "$x^2$ :red[x] ![i](http://x/y.png)",
    "../../../../etc/passwd",
    "__proto__",
    "%s %n {0} {x.__class__}",
    "[bold]rich[/bold] [link=http://x]y[/link] [/]",
    "ﷺ عربى עברית",
    "👩👧 é 中文",
    "'; DROP TABLE runs; --",
    "a" * 500,
    "nan",
    "1e999",
)
UNPRINTABLE = (
    "",
    " ",
    "\0",
    "a\nb",
    "\r\n",
    "\x1b[31m\x1b[2J",
    "\u202egnp.exe",
    "\u2028",
    "\ufeff",
    "\ud800",
    "a\udfffb",
    "\x7f\x80\x9f",
    "👩\u200d👧",
    "a" * 100_000,
    "<" * 5_000,
)
HOSTILE_TEXTS = st.sampled_from(PRINTABLE + UNPRINTABLE) | st.text(max_size=30)
NUMBERS = (
    0, 1, -1, 2, 3, 7, 16, 63, 64, 100, 255, 1024, 2**20, 2**24, 2**31, 2**53 + 1, 2**63, -(2**63), 2**64, 10**30,
    10**400, 0.0, -0.0, 0.5, 1.5, 1e-18, 1e-19, 5e-324, 1e24, 1e25, 1.7e308, -1e-9,
)  # fmt: skip
# What json.dumps does not write: it stands in for a text that json.dumps did.
RAW = (
    "NaN", "Infinity", "-Infinity", "1e999", "-1e999", "1" * 4_000, "1" * 5_000, "0." + "3" * 5_000, "1E-5000", "-0",
    "[" * 100_000, '{"a":' * 100_000, "[" * 900 + "]" * 900, '{"a":1,"a":2}', '{"name":1,"name":1}', "tru", "'x'", "01",
    '"\\ud800"', '"\\udc00\\ud800"', '"\\u0000"', '"\t"', '"\\x41"', "[,]", "{,}", "/**/1", "",
)  # fmt: skip
MARK = "raw-token-"

ANY_NUMBER = st.sampled_from(NUMBERS) | st.integers() | st.floats()
PLAIN = st.none() | st.booleans() | ANY_NUMBER | HOSTILE_TEXTS
ANYTHING = (
    PLAIN
    | st.sampled_from([f"{MARK}{i:03}" for i in range(len(RAW))])
    | st.sampled_from([[0] * 10_000, [[]] * 1_000, [{}] * 1_000, ["x"] * 1_000, {str(i): i for i in range(1_000)}]).map(
        deepcopy
    )
    | st.recursive(PLAIN, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(HOSTILE_TEXTS, inner, max_size=3))
)


def require_sentence(text: str, most: int = MOST_LETTERS) -> None:
    """Fail unless a person could read it as one line: short, printable, with a full stop."""
    assert text == text.strip() and text, repr(text)
    assert text.isprintable(), repr(text)
    assert text.endswith((".", "?")), repr(text)
    assert len(text) <= most, f"{len(text)} characters: {text!r}"


@contextmanager
def quickly(most: float = MOST_SECONDS) -> Iterator[None]:
    """Fail where what is inside takes over `most` seconds of this process's time; others may keep the machine busy."""
    begun = time.process_time()
    yield
    assert time.process_time() - begun < most


def full_run() -> Run:
    """A Run with something in every field, of a small problem."""
    run = flash_run(SMALL)
    return replace(
        run,
        series=(
            Series("hbm_read_bytes_per_second", "B/s", "cupti-sampling", (0.0, 2e-5), (1e12, 0.0), 2e-5),
            Series("power_watts", "W", "nvml", (0.0, 0.05), (120.0, 300.5)),
        ),
        spans=(LaunchSpan("flash", 1e-5, 1.3e-3), LaunchSpan("drain", 2e-3, 3e-3)),
        kernels=(LaunchedKernel("flash", "flash_kernel"),),
        samples={"gpu_time_seconds": (1e-3, 2e-3)},
        phases={"time": 0.5},
        recorded="ü",
        memory=fake_memory.flash_run().memory,
    )


@cache
def originals() -> tuple[str, ...]:
    """Documents of one Run each, as JSON: made by hand, and recorded on a GPU."""
    runs = [naive_run(), full_run(), cpu_run()]
    for name, place in (("library_8k", 0), ("library_8k", -1), ("ladder_512", -1), ("short_1k", -1)):
        runs.append(from_json((EXAMPLES / f"{name}.json").read_bytes())[place])
    return tuple(json.dumps(to_document([run])) for run in runs)


def documents() -> st.SearchStrategy[Any]:
    """One of `originals`, to be changed."""
    return st.sampled_from(originals()).map(json.loads)


def places(draw: st.DrawFn, document: Any) -> tuple[Any, Any]:
    """Some list or object in the document, and a key of it; the whole of its chain is drawn."""
    at = document
    while True:
        # Lists of samples are long, and one place in them is as good as another.
        keys = list(at) if isinstance(at, dict) else list(range(min(len(at), 12)))
        key = draw(st.sampled_from(keys))
        inner = at[key]
        if not (isinstance(inner, dict | list) and inner) or draw(st.integers(0, 5)) == 0:
            return at, key
        at = inner


def change_one(draw: st.DrawFn, document: Any, values: st.SearchStrategy[Any]) -> None:
    """Change one place of the document: another value, none, one twice, or one too many."""
    at, key = places(draw, document)
    act = draw(st.sampled_from(["set", "set", "set", "delete", "repeat", "add"]))
    if act == "set":
        at[key] = draw(values)
    elif act == "delete":
        del at[key]
    elif isinstance(at, list):
        at.insert(key, at[key] if act == "repeat" else draw(values))
    else:
        at[draw(HOSTILE_TEXTS)] = at[key] if act == "repeat" else draw(values)


class Long(str):
    """A text of which a failed test shows the beginning alone."""

    def __repr__(self) -> str:
        return f"{len(self)} characters: {self[:200]!s}"


def spelled(document: Any) -> Long:
    """The document as JSON, with RAW where a mark stands."""
    text = json.dumps(document)
    for i, raw in enumerate(RAW if MARK in text else ()):
        text = text.replace(f'"{MARK}{i:03}"', raw)
    return Long(text)


@st.composite
def changed_documents(draw: st.DrawFn, sources: st.SearchStrategy[Any]) -> str:
    """A document of `sources` with one to three changes, as JSON."""
    document = draw(sources)
    for _ in range(draw(st.integers(1, 3))):
        if document:
            change_one(draw, document, ANYTHING)
    return spelled(document)


@st.composite
def changed_bytes(draw: st.DrawFn, sources: st.SearchStrategy[bytes]) -> bytes:
    """Bytes cut, doubled, overwritten or in another encoding."""
    data = draw(sources)
    act = draw(st.sampled_from(["cut", "replace", "insert", "repeat", "flip", "encode", "prefix"]))
    begin = draw(st.integers(0, len(data)))
    end = min(len(data), begin + draw(st.integers(0, 40)))
    noise = draw(st.binary(max_size=12) | HOSTILE_TEXTS.map(lambda text: text.encode("utf-8", "surrogatepass")))
    match act:
        case "cut":
            return data[:begin]
        case "replace":
            return data[:begin] + noise + data[end:]
        case "insert":
            return data[:begin] + noise + data[begin:]
        case "repeat":
            return data[:end] + data[begin:]
        case "flip":
            bit = bytes([data[begin] ^ (1 << draw(st.integers(0, 7)))]) if begin < len(data) else b""
            return data[:begin] + bit + data[begin + 1 :]
        case "encode":
            text = data.decode("utf-8", "replace")
            return text.encode(
                draw(st.sampled_from(["utf-16", "utf-16-le", "utf-32", "utf-8-sig", "utf-7", "cp1252"])), "replace"
            )
        case _:
            return (
                draw(st.sampled_from([b"\xef\xbb\xbf", b"\xff\xfe", b"\0", b"PK\x03\x04", b"\x1f\x8b", b" \n\t", b"x"]))
                + data
            )
