"""A kernel of one's own with a mask that Bytescope does not know: FlexAttention over documents packed into one row.

    python -m profiler run --kernel examples.own_flex:documents --seq-len 512 --causal

It computes something else than attention, so it says in `reference` what it is to be held against.
"""

from functools import cache
from typing import Any

import torch
from torch.nn.attention.flex_attention import BlockMask, create_block_mask, flex_attention

DOCUMENT = 192  # tokens of each document


def documents(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool) -> torch.Tensor:
    """Attention within documents of DOCUMENT tokens; with `causal`, to earlier tokens only."""
    mask = block_mask(causal, q.shape[2], k.shape[2], str(q.device))
    return attend(q.is_cuda)(q, k, v, block_mask=mask, enable_gqa=q.shape[1] != k.shape[1])


@cache
def attend(is_compiled: bool) -> Any:
    """FlexAttention: one fused Triton kernel once it is compiled, which is for GPUs; eager otherwise."""
    return torch.compile(flex_attention, dynamic=False) if is_compiled else flex_attention


@cache
def block_mask(causal: bool, seq_len_q: int, seq_len_kv: int, device: str) -> BlockMask:
    """Which blocks of the score matrix are to be computed, worked out once for each shape."""

    def visible(batch: Any, head: Any, query: Any, key: Any) -> Any:
        position = query + seq_len_kv - seq_len_q
        same = position // DOCUMENT == key // DOCUMENT
        return same & (key <= position) if causal else same

    return create_block_mask(visible, None, None, seq_len_q, seq_len_kv, device=device)


def reference(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool) -> torch.Tensor:
    """The same, eager; q, k, v come in float64."""
    group = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
    position = torch.arange(q.shape[2], device=q.device)[:, None] + k.shape[2] - q.shape[2]
    key = torch.arange(k.shape[2], device=q.device)
    visible = position // DOCUMENT == key // DOCUMENT
    visible = visible & (key <= position) if causal else visible
    s = (q @ k.mT * q.shape[-1] ** -0.5).masked_fill(~visible, float("-inf"))
    return s.softmax(-1).nan_to_num() @ v  # a query that sees no key gives 0


documents.reference = reference
