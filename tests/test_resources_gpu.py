"""What is compiled ahead, against what the launched kernel reports on the GPU; and the launch finds it in the cache."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from kernels.base import all_kernels
from kernels.problem import LONGEST_FIRST, PERSISTENT, SAWTOOTH, AttentionProblem, TileConfig
from profiler.child import describe
from profiler.compile_pool import compile_all
from profiler.device import find_spec
from profiler.resources import Configuration, on_gpu, why_not
from profiler.target import target_of

pytestmark = pytest.mark.gpu
GPU = "cuda:0"
ROOT = Path(__file__).parents[1]
LONG = AttentionProblem(1, 4, 4, 1024, 1024, 128, "bfloat16")
MANY = AttentionProblem(1, 16, 16, 2048, 2048, 128, "bfloat16", causal=True)  # 256 Q tiles, of which 132 at once
CAUSAL = AttentionProblem(2, 4, 2, 1000, 1000, 64, "float16", causal=True)
DECODE = AttentionProblem(1, 32, 8, 1, 65_536, 128, "bfloat16")
SHORT = AttentionProblem(1, 2, 2, 256, 256, 64, "float32")
CASES = [
    ("flash", LONG, TileConfig(64, 64, 4, 3)),
    ("flash", LONG, TileConfig(128, 64, 8, 3)),
    ("flash", LONG, TileConfig(128, 64, 4, 2)),
    ("flash", LONG, TileConfig(128, 128, 8, 3, SAWTOOTH)),
    ("flash", CAUSAL, TileConfig(64, 32, 4, 2)),
    ("flash", CAUSAL, TileConfig(64, 32, 4, 2, LONGEST_FIRST)),
    ("flash", SHORT, TileConfig(64, 64, 4, 2)),
    ("flash_kv_outer", LONG, TileConfig(32, 64, 4, 2)),
    ("flash_tma", LONG, TileConfig(128, 64, 8, 3)),
    ("flash_tma", CAUSAL, TileConfig(64, 128, 4, 2, LONGEST_FIRST)),
    ("flash_ws", LONG, TileConfig(128, 128, 8, 2)),
    ("flash_ws", CAUSAL, TileConfig(128, 256, 8, 2, LONGEST_FIRST)),
    ("flash_ws", LONG, TileConfig(128, 128, 8, 2, PERSISTENT)),
    ("flash_ws", MANY, TileConfig(128, 128, 8, 2, PERSISTENT)),
    ("flash_ws", replace(LONG, backward=True), TileConfig(128, 128, 8, 2)),
    ("flash_ws", replace(CAUSAL, head_dim=128, backward=True), TileConfig(128, 128, 8, 2, LONGEST_FIRST)),
    ("flash_ws", replace(CAUSAL, backward=True), TileConfig(128, 256, 8, 2, LONGEST_FIRST)),
    ("query_tiled", SHORT, TileConfig(16, 256, 4, 1)),
    ("row_streaming", LONG, TileConfig(1, 64, 4, 1)),
    ("split_kv", LONG, TileConfig(16, 64, 4, 3)),
    ("split_kv", DECODE, TileConfig(16, 64, 4, 2)),
]
# In a process of its own, so that nothing is compiled in it before; what it launches it takes from Triton's cache.
LAUNCHED = """
import json, sys
import torch, triton
from kernels.base import all_kernels
from kernels.problem import *

found = []
run = triton.JITFunction.run
def note(self, *arguments, grid, warmup, **constants):
    kernel = run(self, *arguments, grid=grid, warmup=warmup, **constants)
    if not warmup:
        kernel._init_handles()
        found.append([kernel.n_regs, 4 * kernel.n_spills, kernel.metadata.shared, grid[0]])
    return kernel
triton.JITFunction.run = note
compiled = []
triton.knobs.compilation.listener = lambda *, cache_hit, **facts: compiled.append(cache_hit)
kernel, problem, tile = all_kernels()[sys.argv[1]], eval(sys.argv[2]), eval(sys.argv[3])
dtype = getattr(torch, problem.dtype)
q = torch.randn(problem.batch, problem.heads, problem.seq_len_q, problem.head_dim, device="cuda").to(dtype)
k, v = (torch.randn(problem.batch, problem.kv_heads, problem.seq_len_kv, problem.head_dim, device="cuda").to(dtype)
        for _ in range(2))
output = kernel.forward(q, k, v, problem, tile, finite=True)
if problem.backward:
    kernel.backward(q, k, v, output, torch.randn_like(q), problem, tile, finite=True)
torch.cuda.synchronize()
print(json.dumps({"launches": found, "hits": compiled, "at_once": kernel.programs_at_once(problem, tile)}))
"""


@pytest.mark.parametrize(("kernel", "problem", "tile"), CASES, ids=lambda value: str(value)[:60])
def test_the_launched_kernel_reports_the_same(
    kernel: str, problem: AttentionProblem, tile: TileConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Registers, local memory, shared memory, programs; CUDA's occupancy; and nothing is compiled a second time."""
    monkeypatch.setenv("BYTESCOPE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "triton"))
    target, reason = target_of(describe(GPU))
    assert target is not None, reason
    assert all_kernels()[kernel].cut(problem, tile) == tile
    (found,) = compile_all([Configuration(kernel, problem, tile, target.compute_capability)])
    if sentence := why_not(found, target):
        pytest.skip(sentence)
    words = [sys.executable, "-c", LAUNCHED, kernel, repr(problem), repr(tile)]
    done = subprocess.run(words, cwd=ROOT, env=os.environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout.splitlines()[-1])
    launches = [one.resources for one in on_gpu(found, target)]
    ours = [[one.registers, one.spill_bytes, one.shared_memory, one.programs] for one in launches]
    assert ours == told["launches"]
    assert told["hits"] and all(told["hits"])
    waves = on_gpu(found, target)[0].waves
    assert waves is not None and waves.programs_at_once == told["at_once"]


def test_the_facts_that_torch_tells_are_those_of_the_table() -> None:
    device = describe(GPU)
    target, _ = target_of(device)
    spec = find_spec(device.name)
    if target is None or spec is None:
        pytest.skip(f"{device.name} is not in the table")
    assert device.shared_memory_per_sm is not None and device.warps_per_sm is not None
    assert target.sm == spec.architecture
