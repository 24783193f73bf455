"""Tensors described so that their tiles lie in shared memory as warpgroup products read them."""

import torch
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor


def described(tensor: torch.Tensor, rows: int, width: int) -> TensorDescriptor:
    """A tensor [batch, heads, seq_len, head_dim] in tiles [1, 1, rows, width], laid out as products want them."""
    layout = gl.NVMMASharedLayout(swizzle_byte_width=128, element_bitwidth=16, rank=4)
    return TensorDescriptor.from_tensor(tensor, [1, 1, rows, width], layout)
