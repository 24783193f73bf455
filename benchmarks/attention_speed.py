"""Prints how fast the rungs of flash are against torch's cuDNN, each problem's kernels in turn in one run.

python -m benchmarks.attention_speed [--rounds 50] [--save FOLDER]     needs a GPU

Forward passes, then backward passes alone. Random inputs, cold L2, medians. Of one query over a long K and V the tile
of split K/V that is fastest here is taken, which the last table shows. --save measures each kernel's forward pass once
more with every counter, and keeps the Runs there.
"""

import os
import sys
from pathlib import Path
from typing import Annotated

import torch
import typer
from rich.console import Console
from rich.table import Table

from benchmarks import backward_speed
from benchmarks.in_turn import fast_orders, in_turn
from kernels.base import all_kernels
from kernels.problem import AttentionProblem, Refused, TileConfig
from profiler.bench import Bench
from profiler.child import admit_all, describe
from profiler.counters.copy_bandwidth import COUNTER as COPY
from profiler.measure import environment
from profiler.run import DeviceInfo
from profiler.worker import Worker
from profiler.workload import Workload, workloads

DEVICE = "cuda:0"
REFERENCE = "cudnn"
WARM_UP = 10
TILES = {
    "flash": TileConfig(128, 128, 8, 3),
    "flash_tma": TileConfig(64, 64, 4, 3),
    "flash_ws": TileConfig(128, 128, 8, 2),  # the kernel sets its own
}
RUNGS = (REFERENCE, "flash", "flash_tma", "flash_ws")
DECODER = "split_kv"
DECODE = AttentionProblem(1, 32, 8, 1, 65536, 128, "bfloat16")
DECODE_TILES = tuple(
    TileConfig(16, block_n, num_warps, num_stages)
    for block_n in (64, 128, 256)
    for num_warps in (4, 8)
    for num_stages in (2, 3, 4)
)


def _self_attention(seq_len: int, head_dim: int, causal: bool) -> AttentionProblem:
    return AttentionProblem(1, 16, 16, seq_len, seq_len, head_dim, "bfloat16", causal)


PROBLEMS = (
    *(_self_attention(seq_len, 128, causal) for causal in (False, True) for seq_len in (8192, 16384)),
    *(_self_attention(seq_len, 64, causal) for causal in (False, True) for seq_len in (8192, 16384)),
    *(_self_attention(8192, 256, causal) for causal in (False, True)),
)


def main(
    rounds: Annotated[int, typer.Option(help="Launches of each kernel, in turn, after a warm-up.")] = 50,
    save: Annotated[Path | None, typer.Option(help="Folder for Runs of the same Workloads, with all counters.")] = None,
) -> None:
    """Every problem by cuDNN and by each rung that this GPU can run."""
    if not torch.cuda.is_available():
        sys.exit("This benchmark needs an NVIDIA GPU.")
    device = describe(DEVICE)
    table = Table("problem", "kernel", "ms", "TFLOP/s", "cuDNN's time / its")
    clocks: list[int] = []
    for problem in PROBLEMS:
        works = _runnable(problem, RUNGS)
        times = in_turn({work: Bench(work, device) for work in works}, DEVICE, rounds, WARM_UP, clocks)
        reference = next((times[work] for work in works if work.kernel == REFERENCE), None)
        for work, seconds in times.items():
            ratio = f"{reference / seconds:.3f}" if reference is not None else "–"
            table.add_row(
                problem.label, _name(work), f"{seconds * 1e3:.3f}", f"{problem.flops / seconds / 1e12:.0f}", ratio
            )
    for problem in backward_speed.PROBLEMS:
        works = _runnable(problem, backward_speed.RUNGS, backward_speed.TILE)
        times = in_turn(backward_speed.loads(works, device), DEVICE, rounds, WARM_UP, clocks)
        for row in backward_speed.rows(problem, times):
            table.add_row(*row)
    print(f"{device.name}, driver {device.driver}, {environment()}")
    print(
        f"{rounds} launches of each kernel in turn after {WARM_UP}, medians; "
        f"SM clock {min(clocks)} to {max(clocks)} MHz"
    )
    Console(width=120).print(table)
    tile = _best_decode_tile(device, rounds, clocks)
    works = [*_runnable(DECODE, (DECODER,), tile), *_runnable(DECODE, (REFERENCE,))]
    print(_decode(works, device, rounds, clocks))
    if save is not None:
        _save(save, works)


def _runnable(problem: AttentionProblem, kernels: tuple[str, ...], given: TileConfig | None = None) -> list[Workload]:
    """Workloads of each kernel that takes the problem here, in its orders that may be fast.

    The tile is the given one, or the kernel's own of TILES.
    """
    found = []
    for name in kernels:
        kernel = all_kernels().get(name)
        if kernel is None:
            continue
        tile = given or TILES.get(name, TileConfig())
        try:
            works = workloads((name,), problem, tile, DEVICE, trace=None, orders=fast_orders(kernel, problem))
            admit_all(works)
        except Refused as reason:
            print(f"{problem.label}: {name} is left out. {reason}")
            continue
        found += works
    return found


def _best_decode_tile(device: DeviceInfo, rounds: int, clocks: list[int]) -> TileConfig:
    """The tile of DECODE_TILES with which split K/V is fastest; prints all that fit."""
    works = [work for tile in DECODE_TILES for work in _runnable(DECODE, (DECODER,), tile)]
    times = in_turn({work: Bench(work, device) for work in works}, DEVICE, rounds, WARM_UP, clocks)
    table = Table("BLOCK_N", "num_warps", "num_stages", "programs at once", "ms", title=f"{DECODE.label}, {DECODER}")
    for work, seconds in sorted(times.items(), key=lambda item: item[1]):
        tile = _tile(work)
        at_once = work.attention_kernel.programs_at_once(work.problem, tile)
        table.add_row(
            f"{tile.BLOCK_N}", f"{tile.num_warps}", f"{tile.num_stages}", f"{at_once}", f"{seconds * 1e3:.4f}"
        )
    Console(width=120).print(table)
    return _tile(min(times, key=lambda work: times[work]))


def _tile(work: Workload) -> TileConfig:
    return work.tile or TileConfig()


def _decode(works: list[Workload], device: DeviceInfo, rounds: int, clocks: list[int]) -> str:
    """What share of the copy bandwidth one query reaches over a long cache of K and V."""
    times = in_turn({work: Bench(work, device) for work in works}, DEVICE, rounds, WARM_UP, clocks)
    reading = COPY.measure(Bench(works[0], device))
    copied = next(m.value for m in reading.measurements if m.name == "copy_bytes_per_second")
    if copied is None:
        return f"{DECODE.label}: no copy bandwidth to compare with."
    lines = []
    for work, seconds in times.items():
        reached = DECODE.compulsory_bytes / seconds
        lines.append(
            f"{DECODE.label}: {_name(work)} {seconds * 1e3:.3f} ms, {reached / 1e12:.2f} TB/s of Q, K, V and O, "
            f"{reached / copied:.2f} of a copy's {copied / 1e12:.2f} TB/s"
        )
    return "\n".join(lines)


def _save(folder: Path, decode: list[Workload]) -> None:
    """Measure each kernel of each problem with every counter."""
    os.environ["BYTESCOPE_RUNS"] = str(folder)
    worker = Worker(DEVICE)
    for works in (*(_runnable(problem, RUNGS) for problem in PROBLEMS), decode):
        status = worker.submit(tuple(works)).wait()
        print(works[0].problem.label, status.state, status.error)
    worker.stop()


def _name(work: Workload) -> str:
    if work.tile is None:
        return work.kernel
    tile = work.attention_kernel.cut(work.problem, work.tile)
    shape = f"{work.kernel} {tile.BLOCK_M}×{tile.BLOCK_N}"
    if work.kernel == DECODER:
        return f"{shape}, {tile.num_warps} warps, {tile.num_stages} stages"
    return f"{shape}, {tile.order}"


if __name__ == "__main__":
    typer.run(main)
