"""Who waits for a GPU that another process of this host measures on is told which one; a dead one is not waited for."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PATIENCE = 120.0
SCRIPT = """
import sys, time
from types import SimpleNamespace
import torch
from profiler import child
torch.cuda.get_device_properties = lambda device: SimpleNamespace(uuid="held-" + sys.argv[1])
child.describe = lambda device: None
child.lock("cuda:0", sys.argv[2])
print("held", flush=True)
time.sleep(float(sys.argv[3]))
"""


def taker(name: str, progress: Path, seconds: str) -> "subprocess.Popen[str]":
    here = {**os.environ, "TMPDIR": str(progress.parent)}
    words = [sys.executable, "-c", SCRIPT, name, str(progress), seconds]
    return subprocess.Popen(words, cwd=ROOT, env=here, stdout=subprocess.PIPE, text=True)


def test_the_holder_is_named_and_its_death_frees_the_gpu(tmp_path: Path) -> None:
    first = taker(tmp_path.name, tmp_path / "first.json", "600")
    assert first.stdout is not None and first.stdout.readline() == "held\n"
    second = taker(tmp_path.name, tmp_path / "second.json", "0")
    wanted = f"wait for the GPU, on which process {first.pid} of this host measures"
    end = time.monotonic() + PATIENCE
    told = ""
    while told != wanted and time.monotonic() < end:
        if (tmp_path / "second.json").exists():
            told = json.loads((tmp_path / "second.json").read_text())["phase"]
        time.sleep(0.05)
    first.kill()
    assert second.communicate(timeout=PATIENCE)[0] == "held\n" and second.returncode == 0
    first.wait(20)
    first.stdout.close()
    assert told == wanted
