"""The options of a problem on the command line, and the problem that they ask for."""

from typing import Annotated

import typer

from kernels.problem import AttentionProblem

Batch = Annotated[int, typer.Option(help="Batch size.")]
Heads = Annotated[int, typer.Option(help="Query heads.")]
KvHeads = Annotated[int | None, typer.Option(help="Key/value heads; as many as --heads if left out.")]
SeqLen = Annotated[int, typer.Option(help="Queries, and keys unless --seq-len-kv says otherwise.")]
SeqLenKv = Annotated[int | None, typer.Option(help="Keys and values.")]
HeadDim = Annotated[int, typer.Option(help="Width of a head.")]
Dtype = Annotated[str, typer.Option(help="float16, bfloat16 or float32.")]
Causal = Annotated[bool, typer.Option("--causal", help="Hide keys after the query, aligned bottom-right.")]
Backward = Annotated[bool, typer.Option("--backward", help="The backward pass too: dQ, dK, dV after O.")]
Window = Annotated[int | None, typer.Option(help="Keep only keys less than this many positions away.")]
BlockM = Annotated[int, typer.Option("--block-m", help="Queries of one tile.")]
BlockN = Annotated[int, typer.Option("--block-n", help="Keys of one tile.")]


def problem_of(
    batch: int,
    heads: int,
    kv_heads: int | None,
    seq_len: int,
    seq_len_kv: int | None,
    head_dim: int,
    dtype: str,
    causal: bool,
    window: int | None,
    backward: bool = False,
) -> AttentionProblem:
    """The problem that these options ask for. Raises Refused."""
    keys = seq_len if seq_len_kv is None else seq_len_kv
    shared = heads if kv_heads is None else kv_heads
    return AttentionProblem(batch, heads, shared, seq_len, keys, head_dim, dtype, causal, window, backward)
