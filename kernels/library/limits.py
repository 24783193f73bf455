"""What the library kernels cannot run, as far as it is known before torch is asked; see kernel.py for its own words.

Limits are those of torch 2.11 to 2.13: aten/src/ATen/native/transformers/cuda/sdp_utils.cpp, and for FlexAttention
torch/_inductor/kernel/flex/flex_attention.py.
"""

from kernels.base import GpuLimits
from kernels.gpu_limits import refuse_bfloat16
from kernels.problem import AttentionProblem, Refused, TileConfig

CUDNN, FLASH_ATTENTION_2, MEM_EFFICIENT = "cuDNN's attention", "FlashAttention-2", "Memory-efficient attention"
AMPERE, ANY_GPU = (8, 0), (0, 0)  # the least compute capability
MAX_GRID_SIDE = 65_535  # batch and heads stand along y and z of the grid
OFFSETS_END = 2**31  # elements of a head that are counted in 32 bits
VECTOR_BYTES = 16  # what one load of a row takes
SMALLEST_FLEX_HEAD_DIM = 16
MAX_EAGER_SCORE_BYTES = 2**30


def why_not_on(title: str, least: tuple[int, int], gpu: GpuLimits | None) -> str:
    """Why a backend of torch's attention runs nothing on a GPU, or on the CPU for None; empty where it may."""
    if gpu is None:
        return f"{title} runs only on a GPU: choose a cuda device, or flash, which is interpreted."
    if gpu.compute_capability < least:
        major, minor = gpu.compute_capability
        return (
            f"{title} wants compute capability {least[0]}.{least[1]}; {gpu.name} has {major}.{minor}: "
            "choose mem_efficient or flash."
        )
    return ""


def refuse_cudnn(problem: AttentionProblem, tile: TileConfig, gpu: GpuLimits | None) -> None:
    """Raise Refused for what cuDNN does not take. `gpu` None means the CPU."""
    _on_gpu(CUDNN, AMPERE, problem, gpu)
    _refuse_float32_and_ragged_rows(CUDNN, problem)
    if problem.seq_len_kv == 1:
        raise Refused(f"{CUDNN} takes no single key; choose seq_len_kv 2 or more, or another kernel.")


def refuse_flash_attention_2(problem: AttentionProblem, tile: TileConfig, gpu: GpuLimits | None) -> None:
    """Raise Refused for what FlashAttention-2 does not take as it is. `gpu` None means the CPU."""
    _on_gpu(FLASH_ATTENTION_2, AMPERE, problem, gpu)
    _refuse_float32_and_ragged_rows(FLASH_ATTENTION_2, problem)


def refuse_mem_efficient(problem: AttentionProblem, tile: TileConfig, gpu: GpuLimits | None) -> None:
    """Raise Refused for what memory-efficient attention does not take. `gpu` None means the CPU."""
    gpu = _on_gpu(MEM_EFFICIENT, ANY_GPU, problem, gpu)
    refuse_bfloat16(problem, gpu)
    if problem.group > 1:
        raise Refused(
            f"{MEM_EFFICIENT} takes no GQA: kv_heads is {problem.kv_heads}; "
            f"choose kv_heads {problem.heads}, or another kernel."
        )
    _refuse_large_heads(MEM_EFFICIENT, problem)
    if problem.dtype != "float32" or gpu.compute_capability >= (8, 0):
        _refuse_ragged_rows(MEM_EFFICIENT, problem, "its rows are loaded 16 bytes at a time")


def refuse_flex(problem: AttentionProblem, tile: TileConfig, gpu: GpuLimits | None) -> None:
    """Raise Refused for what FlexAttention does not take; `gpu` None means the CPU, where it holds all scores."""
    if gpu is None:
        scores = 4 * problem.batch * problem.heads * problem.seq_len_q * problem.seq_len_kv
        if scores > MAX_EAGER_SCORE_BYTES:
            raise Refused(
                f"FlexAttention is not fused on the CPU, and its float32 scores would take {scores / 2**30:,.1f} GiB, "
                f"several times over; stay below {MAX_EAGER_SCORE_BYTES // 2**30} GiB: "
                "choose a shorter sequence or fewer heads."
            )
        return
    _refuse_tall_grid("FlexAttention", problem)
    _refuse_large_heads("FlexAttention", problem)
    refuse_bfloat16(problem, gpu)
    if problem.head_dim < SMALLEST_FLEX_HEAD_DIM:
        raise Refused(
            f"FlexAttention wants a head_dim of at least {SMALLEST_FLEX_HEAD_DIM} on a GPU; "
            f"head_dim is {problem.head_dim}: choose {SMALLEST_FLEX_HEAD_DIM} or more, or flash."
        )


def _on_gpu(title: str, least: tuple[int, int], problem: AttentionProblem, gpu: GpuLimits | None) -> GpuLimits:
    """The GPU. Raises Refused by why_not_on, and for masks and grids that no backend of torch's attention has."""
    reason = why_not_on(title, least, gpu)
    if gpu is None or reason:
        raise Refused(reason)
    if problem.window is not None:
        raise Refused(f"{title} is run through torch's attention, which has no window; choose none, or flex or flash.")
    if problem.causal and problem.seq_len_q != problem.seq_len_kv:
        raise Refused(
            f"torch's attention aligns a causal mask top-left, not bottom-right, so {title} is run only where both are "
            f"the same; choose seq_len_kv {problem.seq_len_q}, or flex or flash."
        )
    _refuse_tall_grid(title, problem)
    return gpu


def _refuse_float32_and_ragged_rows(title: str, problem: AttentionProblem) -> None:
    """What cuDNN and FlashAttention-2 have in common."""
    if problem.dtype == "float32":
        raise Refused(f"{title} takes no float32; choose float16 or bfloat16, or mem_efficient, flex or flash.")
    _refuse_ragged_rows(title, problem, "others would be padded by copies that are not the kernel's own")


def _refuse_ragged_rows(title: str, problem: AttentionProblem, why: str) -> None:
    multiple = VECTOR_BYTES // problem.element_bytes
    if problem.head_dim % multiple:
        near = -(-problem.head_dim // multiple) * multiple
        raise Refused(
            f"{title} wants a head_dim that is a multiple of {multiple} ({why}); "
            f"head_dim is {problem.head_dim}: choose {near}, or flash."
        )


def _refuse_large_heads(title: str, problem: AttentionProblem) -> None:
    if (elements := max(problem.seq_len_q, problem.seq_len_kv) * problem.head_dim) >= OFFSETS_END:
        raise Refused(
            f"{title} counts the elements of a head in 32 bits, and one has {elements:,}; "
            "choose a shorter sequence, or flash."
        )


def _refuse_tall_grid(title: str, problem: AttentionProblem) -> None:
    for name in ("batch", "heads"):
        if getattr(problem, name) > MAX_GRID_SIDE:
            raise Refused(
                f"{title} puts {name} along a side of its grid that ends at {MAX_GRID_SIDE:,}; "
                f"{name} is {getattr(problem, name):,}: choose fewer, or flash."
            )
