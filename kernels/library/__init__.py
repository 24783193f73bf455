"""Library kernels: torch's attention with one backend forced at a time, and FlexAttention."""

from functools import partial

from kernels.base import AttentionKernel
from kernels.library.limits import (
    AMPERE,
    ANY_GPU,
    CUDNN,
    FLASH_ATTENTION_2,
    MEM_EFFICIENT,
    refuse_cudnn,
    refuse_flash_attention_2,
    refuse_flex,
    refuse_mem_efficient,
    why_not_on,
)
from kernels.library.schedule import FLEX, SDPA, block_list_bytes, schedule

_library = partial(AttentionKernel, is_tiled=False, is_triton=False, tells_requests=False, folder="library")

KERNELS = (
    _library(
        name="cudnn",
        title="cuDNN",
        rung=70,
        schedule=partial(schedule, "cudnn", SDPA, writes_lse=False),
        temporaries=lambda problem, tile: {},
        refuse=refuse_cudnn,
        why_not_on=partial(why_not_on, CUDNN, AMPERE),
        entry="cudnn",
    ),
    _library(
        name="flash_attention_2",
        title="FlashAttention-2",
        rung=71,
        schedule=partial(schedule, "flash_attention_2", SDPA, writes_lse=True),
        temporaries=lambda problem, tile: {"lse": problem.tensor_bytes["lse"]},
        refuse=refuse_flash_attention_2,
        why_not_on=partial(why_not_on, FLASH_ATTENTION_2, AMPERE),
        entry="flash_attention_2",
    ),
    _library(
        name="mem_efficient",
        title="Memory-efficient",
        rung=72,
        schedule=partial(schedule, "mem_efficient", SDPA, writes_lse=False),
        temporaries=lambda problem, tile: {},
        refuse=refuse_mem_efficient,
        why_not_on=partial(why_not_on, MEM_EFFICIENT, ANY_GPU),
        entry="mem_efficient",
    ),
    _library(
        name="flex",
        title="FlexAttention",
        rung=73,
        schedule=partial(schedule, "flex", FLEX, writes_lse=True),
        temporaries=lambda problem, tile: {"lse": problem.tensor_bytes["lse"]} | block_list_bytes(problem),
        refuse=refuse_flex,
        entry="flex",
    ),
)
