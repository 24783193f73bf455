"""Make the table that `auto` goes by, for the GPU here: python -m benchmarks.auto_table.

Every kernel and tile that may be the fastest is measured at every problem of problems().
Each problem's candidates are launched in turn, so that they share the GPU's clock; cold L2, random data, medians.
"""

import json
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import torch
import typer
from rich.console import Console
from rich.table import Table as Printed

from benchmarks.in_turn import fast_orders, in_turn
from kernels.base import AttentionKernel, all_kernels
from kernels.problem import AttentionProblem, Refused, TileConfig
from profiler.auto import FOLDER, Choice, Table
from profiler.bench import Bench
from profiler.child import admit_all, describe
from profiler.codec import encode
from profiler.compile_pool import compile_all
from profiler.measure import environment
from profiler.resources import Configuration
from profiler.store import write_atomically
from profiler.workload import Workload, workloads

DEVICE = "cuda:0"
WARM_UP = 3
TILES = {
    "flash": (
        TileConfig(128, 128, 8, 3), TileConfig(128, 64, 8, 3), TileConfig(128, 64, 4, 3),
        TileConfig(64, 64, 4, 3), TileConfig(64, 32, 4, 3),
    ),
    "flash_tma": (TileConfig(128, 128, 8, 2), TileConfig(128, 64, 8, 3), TileConfig(64, 64, 4, 3)),
    "flash_ws": (TileConfig(),),
    "split_kv": (
        TileConfig(16, 64, 4, 3), TileConfig(16, 128, 4, 3), TileConfig(16, 128, 8, 2), TileConfig(64, 64, 4, 3),
    ),
}  # fmt: skip


def problems() -> tuple[AttentionProblem, ...]:
    """Self-attention by width, mask and length, and one query over long keys; 16 heads, bfloat16, and float32 once."""
    found = [
        AttentionProblem(1, 16, 16, seq_len, seq_len, head_dim, "bfloat16", causal)
        for head_dim in (64, 128, 256)
        for causal in (False, True)
        for seq_len in (512, 2048, 8192, 32_768)
    ]
    found += [AttentionProblem(1, 32, 8, 1, keys, 128, "bfloat16") for keys in (2048, 16_384, 131_072)]
    found += [AttentionProblem(1, 16, 16, 2048, 2048, 128, "bfloat16", window=256)]
    found += [AttentionProblem(1, 16, 16, 2048, 2048, head_dim, "float32") for head_dim in (64, 128)]
    return tuple(found)


def candidates(problem: AttentionProblem) -> list[Workload]:
    """What may be fastest: each kernel with each of its tiles, in its orders that may be fast."""
    found: list[Workload] = []
    for name, tiles in TILES.items():
        kernel: AttentionKernel = all_kernels()[name]
        for tile in tiles:
            try:
                found += workloads((name,), problem, tile, DEVICE, trace=None, orders=fast_orders(kernel, problem))
            except Refused:
                continue
    return list(dict.fromkeys(found))


def main(
    rounds: Annotated[int, typer.Option(help="Launches of each candidate, in turn, after a warm-up.")] = 20,
    out: Annotated[Path, typer.Option(help="Folder of the table.")] = FOLDER,
) -> None:
    """Measure, print every candidate's time, and write the table of this GPU."""
    if not torch.cuda.is_available():
        sys.exit("This benchmark needs an NVIDIA GPU.")
    device = describe(DEVICE)
    assert device.compute_capability is not None
    works = {problem: candidates(problem) for problem in problems()}
    ahead = [
        Configuration(one.kernel, one.problem, one.tile, device.compute_capability)
        for many in works.values()
        for one in many
        if one.tile is not None
    ]
    compiled = sum(not found.is_refused for found in compile_all(ahead))
    print(f"{compiled} of {len(ahead)} kernels compiled ahead")
    clocks: list[int] = []
    choices, printed = [], Printed("problem", "kernel", "tile", "ms")
    for problem, many in works.items():
        loads = {one: Bench(one, device) for one in many if fits(one)}
        times = in_turn(loads, DEVICE, rounds, WARM_UP, clocks)
        for one, seconds in sorted(times.items(), key=lambda item: item[1]):
            printed.add_row(problem.label, one.kernel, str(one.tile), f"{seconds * 1e3:.3f}")
        fastest = min(times, key=times.__getitem__)
        choices.append(Choice(problem, fastest.kernel, fastest.tile, times[fastest], len(times)))
    Console(width=140).print(printed)
    print(f"SM clock {min(clocks)} to {max(clocks)} MHz")
    versions = environment()
    made = (
        f"python -m benchmarks.auto_table, {datetime.now(UTC):%Y-%m-%d}, driver {device.driver}, "
        f"torch {versions['torch']}, triton {versions['triton']}"
    )
    out.mkdir(exist_ok=True)
    path = out / f"{device.name.lower().replace(' ', '_')}.json"
    write_atomically(path, json.dumps(encode(Table(device.name, made, tuple(choices))), indent=1) + "\n")
    print(f"{path}: {len(choices)} problems")


def fits(work: Workload) -> bool:
    """Whether it runs here, as far as that is known before it does."""
    try:
        admit_all((work,))
    except Refused:
        return False
    return True


if __name__ == "__main__":
    typer.run(main)
