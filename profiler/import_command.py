"""`import` on the command line: Nsight Compute's raw page as a Run, saved like those that are measured here."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from kernels.problem import Refused
from profiler.codec import NotARun
from profiler.ncu_import import Asked, imported
from profiler.ncu_page import MAX_BYTES, read
from profiler.output import put, require_place
from profiler.problem_options import Causal, KvHeads, SeqLenKv, Window, problem_of
from profiler.run_document import to_json
from profiler.show import runs_table
from profiler.store import StoreError, save, shown_path

MUST = "must be said: the file does not tell it"


def import_ncu(
    file: Annotated[Path, typer.Argument(help="What `ncu --csv --page raw` wrote.")],
    name: Annotated[str, typer.Option(help="What the kernel is called; else as the one that took longest.")] = "",
    batch: Annotated[int, typer.Option(help="Batch size.")] = 1,
    heads: Annotated[int | None, typer.Option(help=f"Query heads; {MUST}.", show_default=False)] = None,
    kv_heads: KvHeads = None,
    seq_len: Annotated[int | None, typer.Option(help=f"Queries; {MUST}.", show_default=False)] = None,
    seq_len_kv: SeqLenKv = None,
    head_dim: Annotated[int | None, typer.Option(help=f"Width of a head; {MUST}.", show_default=False)] = None,
    dtype: Annotated[
        str | None, typer.Option(help=f"float16, bfloat16 or float32; {MUST}.", show_default=False)
    ] = None,
    causal: Causal = False,
    window: Window = None,
    only: Annotated[
        list[str] | None, typer.Option(help="Take kernels whose name holds this text; may be given several times.")
    ] = None,
    passes: Annotated[int, typer.Option(min=1, help="How often the file holds the work; the median is taken.")] = 1,
    l2: Annotated[
        str, typer.Option(help="cold, as ncu leaves L2 before each kernel; warm with --cache-control none.")
    ] = ("cold"),
    device_name: Annotated[str, typer.Option(help="The GPU's name, where the file does not tell it.")] = "",
    out: Annotated[Path | None, typer.Option(help="Write the Run to this file as well.")] = None,
) -> None:
    """Import kernels that Nsight Compute profiled elsewhere as a Run of source ncu, to be compared with others."""
    if heads is None or seq_len is None or head_dim is None or dtype is None:
        raise Refused(
            "An ncu file does not tell which problem was run, and without it nothing can be compared: give --heads, "
            "--seq-len, --head-dim and --dtype (and --batch, --kv-heads, --seq-len-kv, --causal or --window if needed)."
        )
    problem = problem_of(batch, heads, kv_heads, seq_len, seq_len_kv, head_dim, dtype, causal, window)
    require_place(out)
    asked = Asked(problem, name, tuple(only or ()), passes, l2, device_name)
    try:
        run = imported(read(_bytes(file)), asked)
    except NotARun as fault:
        raise NotARun(f"{shown_path(file)}: {fault}") from fault
    path = save(run)
    console = Console(highlight=False)
    console.print(runs_table([run]))
    count = f"{len(run.kernels)} kernel{'' if len(run.kernels) == 1 else 's'} of a pass"
    console.print(f"{count}. Saved as {path}", soft_wrap=True)
    if out is not None:
        put(to_json([run]), out)


def _bytes(file: Path) -> bytes:
    if not file.is_file():
        raise StoreError(f"{shown_path(file)} is not a file.")
    try:
        with file.open("rb") as opened:
            return opened.read(MAX_BYTES + 1)
    except OSError as fault:
        raise StoreError(f"{shown_path(file)} could not be read: {fault.strerror or fault}.") from fault
