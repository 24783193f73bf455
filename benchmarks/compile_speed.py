"""Prints how long 96 configurations of flash take to compile for an H100, with empty caches and from the cache.

python -m benchmarks.compile_speed          needs no GPU; one process for each core
"""

import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from itertools import product
from pathlib import Path

from kernels.problem import AttentionProblem, TileConfig
from profiler.compile_pool import compile_all
from profiler.resource_cache import triton_version
from profiler.resources import configurations, on_gpu
from profiler.target import gpu_target

ROOT = Path(__file__).resolve().parent.parent
PROBLEM = AttentionProblem(1, 16, 16, 8192, 8192, 128, "bfloat16")
# BLOCK_M, BLOCK_N, num_warps, num_stages
TILES = tuple(TileConfig(*cut) for cut in product((16, 32, 64, 128), (16, 32, 64, 128), (4, 8), (1, 2, 3)))
GPU = gpu_target("h100")


def main() -> None:
    """Compile in a fresh process with empty caches, ours and Triton's, then once more in another."""
    cores = len(os.sched_getaffinity(0))
    print(f"{len(TILES)} configurations of flash, {PROBLEM.label}, for {GPU.title}")
    print(f"Triton {triton_version()}, {cores} cores")
    with tempfile.TemporaryDirectory() as ours, tempfile.TemporaryDirectory() as tritons:
        environment = os.environ | {"BYTESCOPE_CACHE": ours, "TRITON_CACHE_DIR": tritons}
        for title in ("cold", "from the cache"):
            begun, before = time.perf_counter(), os.times()
            done = subprocess.run(
                [sys.executable, "-m", "benchmarks.compile_speed", "compile"],
                cwd=ROOT,
                env=environment,
                stdout=subprocess.PIPE,
                text=True,
                check=True,
            )
            after = os.times()
            busy = after.children_user + after.children_system - before.children_user - before.children_system
            print(f"{title}: {time.perf_counter() - begun:.2f} s, of processors {busy:.1f} s; {done.stdout.strip()}")


def compile_once() -> None:
    """What the fresh process does; how many have launches, and how many of those fit, on stdout."""
    found = list(compile_all(configurations("flash", PROBLEM, TILES, [GPU.compute_capability])))
    fitting = Counter(bool(one.launches) and on_gpu(one, GPU)[0].occupancy.fits for one in found)
    print(f"{sum(bool(one.launches) for one in found)} compiled, {fitting[True]} fit")


if __name__ == "__main__":
    compile_once() if sys.argv[1:] == ["compile"] else main()
