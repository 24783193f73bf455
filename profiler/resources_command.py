"""Resources on the command line: compile what is asked for, show what each GPU makes of it, save the code."""

import json
import sys
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from kernels.problem import LINEAR, ORDERS, Refused, TileConfig
from profiler import axes
from profiler.auto import require_named
from profiler.compile_pool import DEFAULT_TIMEOUT, compile_all
from profiler.compiled_code import KINDS, NoCode, code_of
from profiler.device import GPUS
from profiler.present import present_gpus
from profiler.problem_options import (
    Backward,
    Batch,
    Causal,
    Dtype,
    HeadDim,
    Heads,
    KvHeads,
    SeqLen,
    SeqLenKv,
    Window,
    problem_of,
)
from profiler.resources import Configuration, Resources, configurations
from profiler.resources_table import Answer, document, tables
from profiler.store import StoreError, require_writable, write_atomically
from profiler.target import GpuTarget, gpu_target, target_of
from profiler.timeout import require_possible_timeout

LIST = "several with commas, or a range such as 16:128:*2"


def resources(
    kernel: Annotated[list[str], typer.Option("--kernel", help="Kernel; may be given several times.")] = ["flash"],  # noqa: B006 - Typer copies it
    gpu: Annotated[
        list[str] | None,
        typer.Option("--gpu", help=f"{', '.join(GPUS)}; several times for several. The present one if left out."),
    ] = None,
    batch: Batch = 1,
    heads: Heads = 2,
    kv_heads: KvHeads = None,
    seq_len: SeqLen = 512,
    seq_len_kv: SeqLenKv = None,
    head_dim: HeadDim = 64,
    dtype: Dtype = "float16",
    causal: Causal = False,
    window: Window = None,
    backward: Backward = False,
    block_m: Annotated[str, typer.Option("--block-m", help=f"Queries of one tile; {LIST}.")] = "64",
    block_n: Annotated[str, typer.Option("--block-n", help=f"Keys of one tile; {LIST}.")] = "64",
    num_warps: Annotated[str, typer.Option(help=f"Warps of one program; {LIST}.")] = "4",
    num_stages: Annotated[str, typer.Option(help=f"Stages of the software pipeline; {LIST}.")] = "3",
    order: Annotated[str, typer.Option(help=f"{', '.join(ORDERS)}; several with commas.")] = LINEAR,
    timeout: Annotated[float, typer.Option(help="Seconds one configuration may take.")] = DEFAULT_TIMEOUT,
    save_code: Annotated[Path | None, typer.Option(help="Write PTX, TTGIR and SASS into this folder.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON on stdout's last line.")] = False,
) -> None:
    """Registers, spills, shared memory, occupancy and waves on any GPU, compiled here; needs no GPU."""
    require_named(kernel, "resources")
    problem = problem_of(batch, heads, kv_heads, seq_len, seq_len_kv, head_dim, dtype, causal, window, backward)
    targets = [gpu_target(name) for name in dict.fromkeys(gpu)] if gpu else [_present()]
    tiles = _tiles(block_m, block_n, num_warps, num_stages, order)
    require_possible_timeout(timeout)
    capabilities = tuple(dict.fromkeys(target.compute_capability for target in targets))
    chosen = [one for name in dict.fromkeys(kernel) for one in configurations(name, problem, tiles, capabilities)]
    if save_code is not None:
        require_writable(save_code)
    found = _follow(chosen, timeout)
    answers = [
        Answer(gpu, found[one])
        for one in chosen
        if one in found
        for gpu in targets
        if gpu.compute_capability == one.compute_capability
    ]
    console = Console(stderr=as_json, highlight=False)
    if any(answer.launches for answer in answers):
        for part in tables(problem, answers):
            console.print(part)
    if save_code is not None and any(one.launches for one in found.values()):
        _save(save_code, [one for one in found.values() if one.launches])
        console.print(f"Saved in {save_code}", soft_wrap=True)
    if as_json:
        print(json.dumps(document(problem, answers)))
    raise typer.Exit(_tell(list(found.values()), len(chosen)))


def _present() -> GpuTarget:
    """The first GPU of this machine. Raises Refused where there is none, or its facts do not suffice."""
    devices, why_none = present_gpus()
    if not devices:
        raise Refused(f"There is no GPU here to take ({why_none.rstrip('.')}); name one: --gpu {', '.join(GPUS)}.")
    target, reason = target_of(devices[0])
    if target is None:
        raise Refused(f"Occupancy on the GPU here is not known: {reason}; name another with --gpu.")
    return target


def _tiles(block_m: str, block_n: str, num_warps: str, num_stages: str, order: str) -> list[TileConfig]:
    """Every combination. Raises Refused."""
    words = {"--block-m": block_m, "--block-n": block_n, "--num-warps": num_warps, "--num-stages": num_stages}
    m, n, warps, stages = (axes.values(name, text, axes.whole) for name, text in words.items())
    return [TileConfig(*cut) for cut in product(m, n, warps, stages, axes.values("--order", order, axes.word))]


def _follow(chosen: Sequence[Configuration], timeout: float) -> dict[Configuration, Resources]:
    """Compile all and show how far it is; Ctrl-C ends it, and what is done by then is shown."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    errors, found = Console(stderr=True), {}
    with Progress(*columns, console=errors, transient=True, disable=not errors.is_terminal) as progress:
        bar = progress.add_task("compile", total=len(chosen))
        compiling = compile_all(chosen, timeout)
        try:
            for one in compiling:
                found[one.configuration] = one
                progress.update(bar, completed=len(found))
        except KeyboardInterrupt:
            pass
        finally:
            compiling.close()
    return found


def _save(folder: Path, found: Sequence[Resources]) -> None:
    """Write the code of every launch. Raises StoreError."""
    for one in found:
        tile, capability = one.configuration.tile, "{}{}".format(*one.configuration.compute_capability)
        cut = f"{tile.BLOCK_M}x{tile.BLOCK_N}-w{tile.num_warps}-s{tile.num_stages}-{tile.order}"
        for launch in one.launches:
            for kind in KINDS:
                path = folder / f"{one.configuration.kernel}-{launch.launch}-{cut}-sm{capability}.{kind}"
                try:
                    write_atomically(path, code_of(one, launch, kind), durable=False)
                except OSError as fault:
                    raise StoreError(f"{path} could not be written: {fault.strerror or fault}.") from fault
                except NoCode as reason:
                    raise StoreError(f"{path} could not be written: {reason}") from reason


def _tell(found: Sequence[Resources], chosen: int) -> int:
    """Say on stderr what was not compiled, and give the exit code: 0, 1 if compiling failed, 2 if all was refused."""
    missing = chosen - len(found)
    if missing:
        print(f"Stopped; {missing} of {chosen} configurations are not compiled.", file=sys.stderr)
        return 130
    if not any(one.launches for one in found):
        for reason in dict.fromkeys(one.reason for one in found):
            print(reason, file=sys.stderr)
        return 2 if all(one.is_refused for one in found) else 1
    failed = [one for one in found if not one.launches and not one.is_refused]
    if failed:
        print(f"{len(failed)} of {chosen} configurations could not be compiled.", file=sys.stderr)
    return 1 if failed else 0
