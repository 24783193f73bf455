"""The program that ncu starts, `python -m profiler.ncu_target SPEC.json`: for each Load a drain, a pass, and its drain.

ncu's table has one row for each kernel and nothing that says whose it is. So a kernel of its own, bytescope_mark,
stands before each part and around each launch, and a file tells what follows each mark.
"""

import json
import os
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import triton

from kernels.own_fault import KernelFault
from kernels.own_import import permit
from kernels.problem import Refused
from profiler.bench import Load
from profiler.codec import decode, encode
from profiler.loads import build
from profiler.ncu_csv import DRAIN, DRAINED, PASS, LoadMarks, Section
from profiler.run import DeviceInfo

WARM_UP_PASSES = 2
POLL_SECONDS = 0.5
NO_MEMORY = (
    "under ncu the work runs in a process of its own, and the GPU has too little free memory for its tensors a second "
    "time; choose a smaller problem"
)


@triton.jit  # type: ignore[untyped-decorator]
def bytescope_mark() -> None:
    """Does nothing; ncu_csv.MARK is its name."""


def main(file: str) -> None:
    """Profile the Loads of a spec file, and write LoadMarks for each to the file that it names.

    The spec is {"loads": specs of Loads, "device": DeviceInfo, "answer": path, "asker": process id, "own": names of
    own kernels that the asker may import, and the folder that it looks in}.
    """
    spec = json.loads(Path(file).read_text(encoding="utf-8"))
    threading.Thread(target=_end_with, args=(spec["asker"],), daemon=True).start()
    device: DeviceInfo = decode(DeviceInfo, spec["device"], "spec.device")
    permit(*spec["own"])
    torch.cuda.set_device(device.device)
    with torch.inference_mode():
        marks = [profile(load, device) for load in spec["loads"]]
    Path(spec["answer"]).write_text(json.dumps(encode(marks)), encoding="utf-8")


def profile(spec: Mapping[str, Any], device: DeviceInfo) -> LoadMarks:
    """Launch a Load as ncu shall see it, or say why not."""
    sections: list[Section] = []
    l2 = ""
    try:
        load = build(spec, device)
        l2 = load.l2
        launch_marked(load, sections)
    except (Refused, KernelFault) as error:
        return LoadMarks(l2, tuple(sections), str(error))
    except torch.OutOfMemoryError:
        torch.cuda.empty_cache()
        return LoadMarks(l2, tuple(sections), NO_MEMORY)
    return LoadMarks(l2, tuple(sections))


def launch_marked(load: Load, sections: list[Section]) -> None:
    """Warm up, then launch what ncu shall see; adds to `sections` whenever it launches a mark."""

    def mark(part: str, launch: str | None = None) -> None:
        bytescope_mark[(1,)]()
        sections.append(Section(part, launch))

    @contextmanager
    def marked(launch: str) -> Iterator[None]:
        mark(PASS, launch)
        yield
        mark(PASS)

    for _ in range(WARM_UP_PASSES):
        load.launch()
    bytescope_mark[(1,)]()
    if load.drain:
        load.evict_l2()  # makes the scratch buffer
        load.prepare_l2()
        with _profiling(load):
            mark(DRAIN)
            load.evict_l2()
    load.prepare_l2()
    with _profiling(load):
        mark(PASS)
        load.launch(hook=marked)
        if load.drain:
            mark(DRAINED)
            load.evict_l2()


@contextmanager
def _profiling(load: Load) -> Iterator[None]:
    """ncu profiles what is launched inside."""
    load.synchronize()
    torch.cuda.profiler.start()
    try:
        yield
        load.synchronize()
    finally:
        torch.cuda.profiler.stop()


def _end_with(asker: int) -> None:
    """Where the worker that asked was killed, nobody is left to stop ncu; it ends with its program."""
    while True:
        try:
            os.kill(asker, 0)
        except ProcessLookupError:
            os._exit(1)
        time.sleep(POLL_SECONDS)


if __name__ == "__main__":
    main(sys.argv[1])
