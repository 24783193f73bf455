"""Files of 64 MiB, and small ones that become large, each read in this process with a gigabyte to spare.

Prints a JSON line for each: what became of it, in how many seconds of this process, and how much it took. A process of
its own (see tests/test_hostile_sizes.py), for the limit on its memory cannot be lifted again.
"""

import base64
import json
import resource
import sys
import tempfile
import time
import zlib
from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from kernels.problem import AttentionProblem, Refused
from profiler.codec import NotARun
from profiler.cupti.host import TrafficMetrics
from profiler.ncu_csv import NcuError, parse
from profiler.ncu_import import Asked, imported
from profiler.ncu_page import read
from profiler.project import FILE, read_project
from profiler.run_document import MAX_FILE_BYTES, from_json, to_document
from profiler.store import StoreError, load
from profiler.sweep import PLAN, read_plan
from tests.fake_runs import SMALL, SMALL_TILE, flash_run, naive_run

MOST_CELLS, PASSES = "ncu: as many cells as may be", 980
SPARE = 2**30
LARGE = MAX_FILE_BYTES - 1024
ASKED = Asked(AttentionProblem(1, 16, 16, 8192, 8192, 128, "bfloat16"))
READ, WRITE = "dram__bytes_read.sum", "dram__bytes_write.sum"
METRICS = TrafficMetrics(READ, WRITE, "lts__t_sectors_srcunit_tex.sum", "gpu__time_duration.sum")


def filled(begin: str, part: str, end: str) -> str:
    """`part` as often as a file may be large."""
    return begin + part * ((LARGE - len(begin) - len(end)) // len(part)) + end


def document(**changes: Any) -> str:
    """One Run with other fields."""
    whole = to_document([naive_run()])
    whole["runs"][0].update(changes)
    return json.dumps(whole)


def inside(field: str, begin: str, part: str, end: str) -> str:
    """One Run of which one field is filled."""
    before, after = document(**{field: "HERE"}).split('"HERE"')
    return filled(before + begin, part, end + after)


def bombs() -> str:
    """Runs whose arrays are 4 MiB each, of a few KiB of text, as many as a file holds."""
    run = to_document([flash_run(SMALL, SMALL_TILE)])["runs"][0]
    run["workload"]["problem"].update(seq_len_q=8192, seq_len_kv=8192)
    run["timeline"] = None
    softmax = run["softmax"]
    zeros = {"dtype": "float32", "data": base64.b64encode(zlib.compress(bytes(2048 * 512 * 4), 9)).decode()}
    for name in ("m", "l", "alpha", "acc_norm", "exact_m", "exact_l", "exact_acc_norm"):
        softmax[name] = {"shape": [2048, 512], **zeros}
    softmax.update(row_start=0, row_stop=2048, acc_stride=512, acc_start=0, acc_tile=0)
    acc = base64.b64encode(zlib.compress(bytes(16 * 16 * 4))).decode()
    softmax["acc"] = {"shape": [1, 16, 16], "dtype": "float32", "data": acc}
    text = json.dumps(run)
    runs = [text.replace('"fake-flash"', f'"bomb-{i}"', 1) for i in range(LARGE // (len(text) + 16))]
    return f'{{"format_version": 1, "runs": [{", ".join(runs)}]}}'


def many_runs() -> str:
    """A good file that is as large as one may be."""
    text = json.dumps(to_document([naive_run()])["runs"][0])
    text = text.replace('"note": ""', f'"note": "{"a" * 90}"')
    runs = [text.replace('"fake-naive"', f'"good-{i}"', 1) for i in range(LARGE // (len(text) + 16))]
    return f'{{"format_version": 1, "runs": [{", ".join(runs)}]}}'


def samples() -> str:
    """A Run of more samples than one may have."""
    return inside("samples", '{"gpu_time_seconds": [', "0.00123456789, ", "0.001]}")


def nonsense() -> str:
    """An array of 40 MiB that is no zlib stream."""
    return json.dumps(to_document([flash_run()])).replace('"data": "', '"data": "' + "A" * (40 << 20), 1)


def rows(columns: str, units: str, row: Callable[[int], str], count: int) -> str:
    """A table of ncu."""
    return "\n".join([columns, units, *(row(i) for i in range(count))]) + "\n"


WIDE = "".join(f',"a__{i}"' for i in range(1_000))
NCU_UNITS = '"","","byte","byte"'
NCU_HEAD = f'"ID","Kernel Name","{READ}","{WRITE}"'
RUN_FILES: dict[str, Callable[[], str]] = {
    "lists in lists": lambda: "[" * LARGE,
    "objects in objects": lambda: filled("", '{"a":', ""),
    "empty objects": lambda: filled('{"format_version": 1, "runs": [', "{},", "{}]}"),
    "small objects": lambda: filled('{"format_version": 1, "runs": [', '{"":0},', "{}]}"),
    "whole numbers": lambda: filled('{"format_version": 1, "runs": [', "1,", "1]}"),
    "one text": lambda: inside("recorded", '"', "a", '"'),
    "one text of escapes": lambda: inside("recorded", '"', "\\u0041", '"'),
    "one number": lambda: inside("phases", '{"time": 1.', "1", "}"),
    "one name many times": lambda: inside("environment", "{", '"a": "", ', '"b": ""}'),
    "measurements": lambda: inside("measurements", "[", '{"name": "a", "value": 1.0, "unit": "1", "source": "torch", '
    '"note": "", "spread": null, "launch": null}, ', "{}]"),
    "samples": samples,
    "an array of nonsense": nonsense,
    "bombs": bombs,
    "a good file": many_runs,
}  # fmt: skip
NCU_FILES: dict[str, Callable[[], str]] = {
    "ncu: no table": lambda: "\n" * LARGE,
    "ncu: columns": lambda: filled('"ID","Kernel Name"', ',"a"', "\n"),
    "ncu: one cell": lambda: filled(f'{NCU_HEAD}\n"","","byte","byte"\n"0","k","', "1", '","1"\n'),
    "ncu: kernels": lambda: rows(NCU_HEAD, NCU_UNITS, lambda i: f'"{i}","kernel_{i:09}","123456","7"', 1_500_000),
    "ncu: cells": lambda: rows(
        f"{NCU_HEAD}{WIDE}", f"{NCU_UNITS}{WIDE}", lambda i: f'"{i}","k","1","2"' + '"1,234",' * 1_000, 8_000
    ),
    MOST_CELLS: lambda: rows(
        f"{NCU_HEAD}{WIDE}",
        f"{NCU_UNITS}{WIDE}",
        lambda i: f'"{i}","k","1","2"' + "".join(f',"{1 + (i + j) % 999},{i % 1000:03}"' for j in range(1_000)),
        PASSES,
    ),
    "ncu: lines after": lambda: filled(f'{NCU_HEAD}\n{NCU_UNITS}\n"0","k","1","2"', "\n", "\n"),
    "ncu: returns": lambda: filled("", "\r", "\n"),
    "ncu: quotes": lambda: filled(f"{NCU_HEAD}\n", '"', "\n"),
}  # fmt: skip


def tried(name: str, work: Callable[[], object]) -> dict[str, Any]:
    """What became of it."""
    begun = time.process_time()
    try:
        found = work()
        said = f"{len(found)} Runs" if isinstance(found, tuple) else type(found).__name__
    except (NotARun, Refused, StoreError, NcuError) as fault:
        said = str(fault)
    seconds = time.process_time() - begun
    return {"name": name, "said": said, "seconds": round(seconds, 2), "peak": peak_mib()}


def peak_mib() -> int:
    """Most memory of this process so far; ru_maxrss begins at what the process that started it held."""
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) >> 10


def cases(folder: Path, wanted: Collection[str]) -> Iterator[tuple[str, Callable[[], object]]]:
    """Each with its name, those alone whose files are wanted; what it reads is made and forgotten before the next."""
    for name, make in RUN_FILES.items():
        if name not in wanted:
            continue
        text = make().encode()
        assert len(text) <= MAX_FILE_BYTES, name
        yield name, lambda text=text: from_json(text)  # type: ignore[misc]
    for name, make in NCU_FILES.items():
        if name not in wanted:
            continue
        text = make().encode()
        asked = replace(ASKED, passes=PASSES) if name == MOST_CELLS else ASKED
        yield name, lambda text=text, asked=asked: imported(read(text), asked)  # type: ignore[misc]
        yield f"{name}, our own", lambda text=text: parse(text.decode(), METRICS)  # type: ignore[misc]
    for name in ("sparse.json", PLAN, FILE):
        with (folder / name).open("wb") as file:
            file.truncate(2**40)
    yield "a file of 1 TiB", lambda: load(folder / "sparse.json")
    yield "a plan of 1 TiB", lambda: read_plan(folder)
    yield "a project of 1 TiB", lambda: read_project(folder)


def main() -> None:
    """Try all, or those files whose names are given, and what is larger than any file."""
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + SPARE, used + SPARE))
    with tempfile.TemporaryDirectory() as folder:
        for name, work in cases(Path(folder), sys.argv[1:] or [*RUN_FILES, *NCU_FILES]):
            print(json.dumps(tried(name, work)), flush=True)


if __name__ == "__main__":
    main()
