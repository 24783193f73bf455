"""The mask of FlexAttention: which scores count, and which blocks of 128 × 128 hold some of them or nothing else."""

from collections.abc import Callable

import numpy as np
import torch
from torch.nn.attention.flex_attention import BlockMask

from kernels.library.schedule import FLEX_BLOCK
from kernels.problem import AttentionProblem

MaskMod = Callable[[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]


def flex_mask(problem: AttentionProblem, device: torch.device | str) -> BlockMask | None:
    """What create_block_mask gives for the problem, of heads and batches alike; None where no score is hidden.

    It is put together from the range of keys that each query sees: create_block_mask looks at each score, and at
    seq_len 131,072 those are 17 GB.
    """
    if not problem.is_masked:
        return None
    lo, hi = problem.visible_keys()
    start = np.arange(0, problem.seq_len_q, FLEX_BLOCK)

    def of_block(bound: np.ufunc, ends: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(bound.reduceat(ends, start)).to(device)[:, None]

    key = torch.arange(0, problem.seq_len_kv, FLEX_BLOCK, device=device)
    some = (key < of_block(np.maximum, hi)) & (key + FLEX_BLOCK > of_block(np.minimum, lo))
    whole = (key >= of_block(np.maximum, lo)) & (key + FLEX_BLOCK <= of_block(np.minimum, hi))
    # A row of blocks that reaches beyond the last query has no full one.
    whole[problem.seq_len_q // FLEX_BLOCK :] = False
    return BlockMask.from_kv_blocks(
        *_listed(some & ~whole), *_listed(whole), FLEX_BLOCK, _sees(problem), (problem.seq_len_q, problem.seq_len_kv)
    )


def _sees(problem: AttentionProblem) -> MaskMod:
    """A mask_mod: whether a query sees a key, both by their absolute positions, aligned bottom-right."""
    shift, window = problem.seq_len_kv - problem.seq_len_q, problem.window
    end = 1 if problem.causal or window is None else window

    def sees(batch: torch.Tensor, head: torch.Tensor, query: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
        seen = key < query + shift + end
        return seen if window is None else seen & (key > query + shift - window)

    return sees


def _listed(chosen: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """How many blocks of each row are chosen, and their columns in rising order before all others; int32."""
    columns = torch.argsort((~chosen).to(torch.int8), dim=-1, stable=True)
    return chosen.sum(-1).int()[None, None], columns.int()[None, None].contiguous()
