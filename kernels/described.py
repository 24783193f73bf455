"""Tensors as the Tensor Memory Accelerator sees them: described once on the host, read and written by whole tiles."""

import torch
from triton.tools.tensor_descriptor import TensorDescriptor

from kernels.described_limits import DESCRIBED_BYTES
from kernels.launching import NAMES


def require_describable(*tensors: torch.Tensor) -> None:
    """Raise ValueError for one of q, k, v, and do if given, whose address or strides no descriptor can hold."""
    for name, tensor in zip(NAMES, tensors, strict=False):
        if tensor.data_ptr() % DESCRIBED_BYTES:
            raise ValueError(
                f"{name} begins at an address that is no multiple of {DESCRIBED_BYTES} bytes, and this kernel reads "
                f"whole tiles by descriptors, which want that; make {name} contiguous, or choose flash."
            )
        for dimension, stride in zip(("batch", "heads", "seq_len"), tensor.stride()[:3], strict=True):
            if stride * tensor.element_size() % DESCRIBED_BYTES:
                raise ValueError(
                    f"{name} has a stride of {stride * tensor.element_size()} bytes along {dimension}, and this kernel "
                    f"reads whole tiles by descriptors, whose strides are multiples of {DESCRIBED_BYTES} bytes; "
                    f"make {name} contiguous, or choose flash."
                )


def described(tensor: torch.Tensor, rows: int, head_dim: int) -> TensorDescriptor:
    """A tensor [batch, heads, seq_len, head_dim] in tiles [1, 1, rows, head_dim]; what lies outside reads as 0."""
    return TensorDescriptor.from_tensor(tensor, [1, 1, rows, head_dim])
