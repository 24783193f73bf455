"""Fuzzes a parser, guided by coverage, and stops at the first input that it neither reads nor refuses in one sentence.

python -m benchmarks.fuzz run|ncu [SECONDS] [FOLDER]

`run` is the JSON of Runs, `ncu` both readers of Nsight Compute's CSV. Seeds are the recorded Runs and the logs of the
tests; what they grow to is kept in FOLDER, if one is given; an input that fails is written there, or here, as crash-*.
It needs Atheris (requirements-fuzz.txt), which has wheels for Linux and macOS.
"""

import contextlib
import json
import random
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import atheris

with atheris.instrument_imports(include=["profiler", "kernels.problem", "kernels.own"]):
    from kernels.problem import AttentionProblem, Refused
    from profiler.codec import NotARun
    from profiler.cupti.host import TrafficMetrics
    from profiler.ncu_csv import NcuError, parse
    from profiler.ncu_import import Asked, imported
    from profiler.ncu_page import read
    from profiler.run_document import from_json, to_document, to_json

from tests.hostile import NUMBERS, PRINTABLE, RAW, UNPRINTABLE, originals, require_sentence

ROOT = Path(__file__).resolve().parent.parent
DATA = ROOT / "tests" / "data"
SECONDS = 600
LONGEST = 64 * 1024  # bytes of an input
MOST_SECONDS, MOST_MEMORY = 5, 2_048  # of one input, and MiB of all
ASKED = Asked(AttentionProblem(1, 16, 16, 8192, 8192, 128, "bfloat16"))
METRICS = tuple(
    TrafficMetrics(
        f"dram__bytes{op}_read.sum",
        f"dram__bytes{op}_write.sum",
        "lts__t_sectors_srcunit_tex.sum",
        "gpu__time_duration.sum",
    )
    for op in ("", "_op")
)
INSIDE = "--inside"
Try = Callable[[bytes], None]
Mutator = Callable[[bytes, int, int], bytes]
VALUES = (None, True, False, [], {}, *NUMBERS, *PRINTABLE, *UNPRINTABLE)
CELLS = (
    "n/a", "(!) n/a", "-1", "0", "1", "1e5", "1e400", "1.5", "1,5", "1.234", "1,234", "1.234,5", "1,234.5", "9" * 400,
    "byte", "Kbyte", "Gbyte", "ns", "us", "sector", "Ksector", "%", "", "ID", "Kernel Name", "dram__bytes_read.sum",
    *PRINTABLE, *(text for text in UNPRINTABLE if len(text) < 100 and text.isascii()),
)  # fmt: skip


def one_run(data: bytes) -> None:
    """Read it as Runs."""
    try:
        runs = from_json(data)
    except NotARun as fault:
        require_sentence(str(fault))
    else:
        assert from_json(to_json(runs)) == runs


def one_log(data: bytes) -> None:
    """Read it as what ncu wrote, for somebody or for Bytescope."""
    try:
        run = imported(read(data), ASKED)
    except (NotARun, Refused) as fault:
        require_sentence(str(fault), 1_000)
    else:
        assert from_json(to_json([run])) == (run,)
    for metrics in METRICS:
        try:
            parse(data.decode("utf-8", "replace"), metrics)
        except NcuError as fault:
            require_sentence(str(fault))


def other_document(data: bytes, size: int, seed: int) -> bytes:
    """Half of the time another value in a place of the document, which stays JSON; else other bytes."""
    draw = random.Random(seed)
    if draw.random() < 0.5:
        with contextlib.suppress(ValueError, RecursionError, OverflowError):
            document = json.loads(data)
            for _ in range(draw.randint(1, 3)):
                _change(document, draw)
            changed = json.dumps(document).replace('"RAW"', draw.choice(RAW[:18])).encode("utf-8", "surrogatepass")
            if len(changed) <= size:
                return changed
    mutated: bytes = atheris.Mutate(data, size)
    return mutated


def other_log(data: bytes, size: int, seed: int) -> bytes:
    """Half of the time other cells in the table; else other bytes."""
    draw = random.Random(seed)
    if draw.random() < 0.5:
        lines = data.decode("utf-8", "surrogateescape").split("\n")
        for _ in range(draw.randint(1, 4)):
            place = draw.randrange(len(lines))
            cells = lines[place].split('","')
            match draw.randrange(5):
                case 0:
                    lines.insert(place, lines[draw.randrange(len(lines))])
                case 1 if len(lines) > 1:
                    del lines[place]
                case 2:
                    del cells[draw.randrange(len(cells))]
                    lines[place] = '","'.join(cells)
                case _:
                    cells[draw.randrange(len(cells))] = draw.choice(CELLS)
                    lines[place] = '","'.join(cells)
        changed = "\n".join(lines).encode("utf-8", "surrogateescape")
        if len(changed) <= size:
            return changed
    mutated: bytes = atheris.Mutate(data, size)
    return mutated


def _change(document: Any, draw: random.Random) -> None:
    at, path = document, []
    while isinstance(at, dict | list) and at:
        key = draw.choice(list(at)) if isinstance(at, dict) else draw.randrange(len(at))
        path.append((at, key))
        at = at[key]
    if not path:
        return
    at, key = draw.choice(path[1:] or path)
    match draw.randrange(6):
        case 0:
            del at[key]
        case 1 if isinstance(at, list):
            at.insert(key, at[key])
        case 1:
            at[draw.choice(PRINTABLE)] = at[key]
        case 2 if isinstance(at[key], int | float):
            at[key] = at[key] * draw.choice((-1, 0, 0.5, 2, 1e3, 1e-9)) + draw.choice((-1, 0, 1))
        case 3:
            other, place = draw.choice(path)
            at[key] = json.loads(json.dumps(other[place]))
        case 4:
            at[key] = "RAW"
        case _:
            at[key] = json.loads(json.dumps(draw.choice(VALUES)))


def _documents() -> Iterator[bytes]:
    for text in originals():
        yield text.encode()
    for path in sorted((ROOT / "examples").glob("*.json")):
        for run in from_json(path.read_bytes()):
            yield json.dumps(to_document([run])).encode()


def _logs() -> Iterator[bytes]:
    for path in sorted(DATA.glob("ncu_*.csv")):
        yield path.read_bytes()


def _words(seeds: list[bytes]) -> set[str]:
    """The texts of the seeds, for the fuzzer's dictionary."""
    texts = {part for seed in seeds for part in seed.decode().split('"') if 2 < len(part) < 60}
    return {text for text in texts if text.isascii() and text.isprintable() and "\\" not in text}


# How an input is tried, changed, and where the first ones come from.
TARGETS: dict[str, tuple[Try, Mutator, Callable[[], Iterator[bytes]]]] = {
    "run": (one_run, other_document, _documents),
    "ncu": (one_log, other_log, _logs),
}


def main() -> None:
    """Fuzz until the time is over or an input fails, in a process of its own: the fuzzer ends its process."""
    words = sys.argv[1:]
    if INSIDE in words:
        atheris.Setup([sys.argv[0], *words[2:]], TARGETS[words[1]][0], custom_mutator=TARGETS[words[1]][1])
        atheris.Fuzz()
        return
    if not words or words[0] not in TARGETS:
        sys.exit(str(__doc__))
    name, seconds = words[0], int(words[1]) if len(words) > 1 else SECONDS
    with tempfile.TemporaryDirectory(prefix="bytescope-fuzz-") as scratch:
        kept = Path(words[2] if len(words) > 2 else scratch) / name
        seeds, dictionary = Path(scratch) / "seeds", Path(scratch) / "words"
        for folder in (kept, seeds):
            folder.mkdir(parents=True, exist_ok=True)
        found = [seed for seed in TARGETS[name][2]() if len(seed) <= LONGEST]
        for i, seed in enumerate(found):
            (seeds / f"{i}").write_bytes(seed)
        dictionary.write_text("".join(f'"{text}"\n' for text in sorted(_words(found))), encoding="utf-8")
        options = {
            "max_total_time": seconds,
            "max_len": LONGEST,
            "timeout": MOST_SECONDS,
            "rss_limit_mb": MOST_MEMORY,
            "dict": dictionary,
            "print_final_stats": 1,
            "artifact_prefix": f"{kept}/" if len(words) > 2 else "./",
        }
        spelled = [f"-{option}={value}" for option, value in options.items()]
        print(f"{name}: {len(found)} seeds, {seconds} s", flush=True)
        command = [sys.executable, "-m", "benchmarks.fuzz", INSIDE, name, *spelled, str(kept), str(seeds)]
        sys.exit(subprocess.run(command, cwd=ROOT, check=False).returncode)


if __name__ == "__main__":
    main()
