"""Merging the states that shares of a row left in HBM: the second launch of split K/V, see kernel.py."""

import torch
import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_wait

from kernels.launching import mask_constants, may_overlap, strides
from kernels.online_tile import LOG2_E, divided
from kernels.problem import AttentionProblem, TileConfig
from kernels.split_kv.schedule import merged_at_once, splits_of

MERGED_BY_A_THREAD = 16  # values of acc


@triton.jit
def merge_forward(
    o_ptr, lse_ptr, m_ptr, l_ptr, acc_ptr, stride_ob, stride_oh, stride_os,
    heads, seq_len_q, head_dim, sm_scale, splits,
    ROWS: tl.constexpr, HEAD_DIM: tl.constexpr, SHARES: tl.constexpr, UPCAST: tl.constexpr, OVERLAP: tl.constexpr,
):  # fmt: skip
    """O and LSE of ROWS queries from the states of their shares."""
    if OVERLAP:
        gdc_wait()
    parts = tl.cdiv(seq_len_q, ROWS)
    bh = tl.program_id(0) // parts
    offs_m = tl.program_id(0) % parts * ROWS + tl.arange(0, ROWS)
    offs_d = tl.arange(0, HEAD_DIM)
    mask_m = offs_m < seq_len_q
    mask_d = offs_d < head_dim

    m_i = tl.full([ROWS], float("-inf"), tl.float32)
    l_i = tl.zeros([ROWS], tl.float32)
    acc = tl.zeros([ROWS, HEAD_DIM], tl.float32)
    for start in tl.range(0, splits, SHARES):
        share = start + tl.arange(0, SHARES)
        row = (bh.to(tl.int64) * splits + share)[:, None] * seq_len_q + offs_m[None, :]  # [SHARES, ROWS]
        mask = (share < splits)[:, None] & mask_m[None, :]
        m = tl.load(m_ptr + row, mask=mask, other=float("-inf"))
        l = tl.load(l_ptr + row, mask=mask, other=0.0)  # noqa: E741 - the name in the papers
        place = row[:, :, None] * head_dim + offs_d[None, None, :]  # [SHARES, ROWS, HEAD_DIM]
        part = tl.load(acc_ptr + place, mask=mask[:, :, None] & mask_d[None, None, :], other=0.0)
        m_new = tl.maximum(m_i, tl.max(m, 0))
        # Where no share so far has seen anything m is −inf; −inf − (−inf) would be NaN.
        m_safe = tl.where(m_new == float("-inf"), 0.0, m_new)
        weight = tl.exp2((m - m_safe[None, :]) * (sm_scale * LOG2_E))
        alpha = tl.exp2((m_i - m_safe) * (sm_scale * LOG2_E))
        l_i = l_i * alpha + tl.sum(l * weight, 0)
        acc = acc * alpha[:, None] + tl.sum(part * weight[:, :, None], 0)
        m_i = m_new

    o, lse = divided(acc, m_i, l_i, sm_scale, UPCAST)
    batch = (bh // heads).to(tl.int64)
    head = (bh % heads).to(tl.int64)
    o_rows = o_ptr + batch * stride_ob + head * stride_oh + offs_m.to(tl.int64)[:, None] * stride_os + offs_d[None, :]
    tl.store(o_rows, o.to(o_ptr.dtype.element_ty), mask=mask_m[:, None] & mask_d[None, :])
    tl.store(lse_ptr + bh.to(tl.int64) * seq_len_q + offs_m, lse, mask=mask_m)


def merge_arguments(
    outputs: tuple[torch.Tensor, ...], state: tuple[torch.Tensor, ...], problem: AttentionProblem, tile: TileConfig
) -> tuple[tuple[object, ...], dict[str, object]]:
    """What merge_forward is launched or compiled with, for o, lse and states(): arguments and constexprs."""
    o, lse = outputs
    (splits, _), (rows, shares) = splits_of(problem, tile), merged_at_once(problem, tile)
    arguments = (
        o, lse, *state, *strides(o),
        problem.heads, problem.seq_len_q, problem.head_dim, problem.sm_scale, splits,
    )  # fmt: skip
    follows = may_overlap()
    constants: dict[str, object] = {
        "ROWS": rows,
        "HEAD_DIM": problem.padded_head_dim,
        "SHARES": shares,
        "UPCAST": mask_constants(problem, True)["UPCAST"],
        # It waits and hardly computes: many threads with few values each have all their loads under way at once.
        "num_warps": max(1, rows * shares * problem.padded_head_dim // (32 * MERGED_BY_A_THREAD)),
        "OVERLAP": follows,
    }
    return arguments, constants | ({"launch_pdl": True} if follows else {})
