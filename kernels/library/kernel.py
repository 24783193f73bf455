"""cuDNN, FlashAttention-2, memory-efficient attention and FlexAttention, as torch offers them.

The first three are torch's scaled_dot_product_attention with one backend forced: where that cannot run there is an
error, never another backend. FlexAttention is a Triton template that torch compiles for the problem and its mask. On
the CPU it is eager, not fused, and holds all scores in float32, several times over; temporaries() counts none of them.

Grid      the library's
Tiles     the library's
State     the library's
HBM       requested read q + k + v; written o, and lse by FlashAttention-2 and FlexAttention: each operand once (equals
          schedule(); a test checks it). Not counted: FlexAttention's lists of blocks, and the small second kernel
          in which it turns its LSE from base 2 to base e
Numerics  float16 and bfloat16 accumulate in float32; of float32, memory-efficient attention makes three TF32 products
          each, FlexAttention ieee float32. LSE is a natural logarithm. A hidden score is −inf and its weight 0, but
          0 · NaN is NaN: without `finite`, values that are not finite are looked for, and kept out by further passes
Paper     Dao 2023 (FlashAttention-2); Rabe and Staats 2021 (memory-efficient); Dong et al. 2024 (FlexAttention)
"""

from torch.nn.attention import SDPBackend

from kernels.library.flex import flex, prepare_flex
from kernels.library.limits import CUDNN, FLASH_ATTENTION_2, MEM_EFFICIENT
from kernels.library.sdpa import asked, forced

__all__ = ["flex", "prepare_flex"]

cudnn = forced(SDPBackend.CUDNN_ATTENTION)
flash_attention_2 = forced(SDPBackend.FLASH_ATTENTION)
mem_efficient = forced(SDPBackend.EFFICIENT_ATTENTION, takes_far_rows=False)
prepare_cudnn = asked(CUDNN, cudnn)
prepare_flash_attention_2 = asked(FLASH_ATTENTION_2, flash_attention_2)
prepare_mem_efficient = asked(MEM_EFFICIENT, mem_efficient)
