"""Rows of one head that lie further apart than a kernel can count: refused by name, for it would reach elsewhere."""

import torch

from kernels.library.limits import OFFSETS_END


def require_near_rows(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> None:
    """Raise ValueError for a tensor whose last row is OFFSETS_END elements or more after the first of its head.

    Seen on an H200 with torch 2.11: memory-efficient attention and FlexAttention end there with an illegal address,
    and the process with them.
    """
    for name, tensor in (("q", q), ("k", k), ("v", v)):
        if (last := (tensor.shape[2] - 1) * tensor.stride(2)) >= OFFSETS_END:
            raise ValueError(
                f"The last row of {name} is {last:,} elements after the first of its head, and this kernel counts them "
                f"in 32 bits; make {name} contiguous, or choose flash."
            )
