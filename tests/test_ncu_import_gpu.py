"""What Nsight Compute writes by itself, at its own settings, read as a Run and held against what must have moved."""

import subprocess
import sys
from pathlib import Path

import pytest

from kernels.problem import AttentionProblem
from profiler.counters import ncu as counter_file
from profiler.ncu_csv import NcuError
from profiler.ncu_import import Asked, imported
from profiler.ncu_page import read
from profiler.ncu_program import find, metrics_of
from profiler.run import Run

pytestmark = pytest.mark.gpu

PROBLEM = AttentionProblem(1, 16, 16, 4096, 4096, 128, "bfloat16")
PROGRAM = """
import torch
q, k, v = torch.randn(3, 1, 16, 4096, 128, device="cuda", dtype=torch.bfloat16)
o = torch.empty_like(q)
def attend():
    for head in range(2):
        s = q[0, head] @ k[0, head].T
        torch.matmul(s.softmax(-1), v[0, head], out=o[0, head])
attend()
torch.cuda.synchronize()
torch.cuda.profiler.start()
attend()
attend()
torch.cuda.synchronize()
torch.cuda.profiler.stop()
print("the program prints, too")
"""


def profiled(folder: Path, *options: str, passes: int) -> Run:
    """Two heads' attention in torch, twice, as ncu prints it with these options to its own stdout."""
    try:
        ncu = find()
    except NcuError as reason:
        pytest.skip(str(reason))
    program = folder / "program.py"
    program.write_text(PROGRAM)
    metrics = ",".join((*metrics_of(ncu, None).names, "launch__registers_per_thread"))
    words = [ncu.path, "--profile-from-start", "off", "--csv", "--page", "raw", "--metrics", metrics, *options]
    done = subprocess.run([*words, sys.executable, str(program)], capture_output=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return imported(read(done.stdout), Asked(PROBLEM, name="two_heads", passes=passes))


def test_units_as_ncu_prints_them_and_base_units_tell_the_same(tmp_path: Path) -> None:
    from profiler import child

    device = child.describe("cuda:0")
    if reason := counter_file.COUNTER.unavailable(device):
        pytest.skip(reason)
    scaled = profiled(tmp_path, passes=2)
    base = profiled(tmp_path, "--print-units", "base", passes=2)
    assert scaled.device.compute_capability == device.compute_capability
    assert scaled.workload.kernel == "ncu:two_heads" and len(scaled.kernels) >= 6
    # S in bfloat16, 4096 · 4096 · 2 B of each head, is written once and read twice, P the same but once.
    scores = 2 * 4096 * 4096 * 2
    for run in (scaled, base):
        read_bytes, crossed, seconds = (
            run.value(name) for name in ("hbm_read_bytes", "l2_sm_bytes", "gpu_time_seconds")
        )
        assert read_bytes is not None and crossed is not None and seconds is not None
        assert scores < crossed < 20 * scores and 0 < read_bytes < 20 * scores
        assert 1e-6 < seconds < 1e-1
    for name in ("l2_sm_bytes", "gpu_time_seconds"):
        assert scaled.value(name) == pytest.approx(base.value(name), rel=0.2)
