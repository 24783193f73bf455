"""Problems worth starting from, by name; each fills the whole form."""

from collections.abc import Mapping

from kernels.problem import LINEAR, LONGEST_FIRST, SAWTOOTH
from profiler.workload import CPU

Values = Mapping[str, object]

# From the materialised score matrix to FlashAttention, rung by rung.
LADDER = ("naive", "row_streaming", "query_tiled", "flash_kv_outer", "flash", "split_kv")

_COMMON: dict[str, object] = {
    "kernels": ["flash", "naive"],
    "batch": 1,
    "order": [LINEAR],
    "seq_len_kv": None,
    "causal": False,
    "backward": False,
    "window": None,
    "l2": "cold",
    "device": None,  # the first GPU if there is one
}

PRESETS: Mapping[str, Values] = {
    "Small, for a CPU": _COMMON
    | {"heads": 2, "kv_heads": 2, "seq_len_q": 512, "head_dim": 64, "dtype": "float16"}
    | {"BLOCK_M": 64, "BLOCK_N": 64, "num_warps": 4, "num_stages": 3},
    "Article, 16×16 in 4×4 tiles (CPU)": _COMMON
    | {
        "kernels": list(LADDER),
        "heads": 1,
        "kv_heads": 1,
        "seq_len_q": 16,
        "head_dim": 16,
        "dtype": "float32",
        "device": CPU,
    }
    | {"BLOCK_M": 4, "BLOCK_N": 4, "num_warps": 1, "num_stages": 1},
    "16 heads, 8K": _COMMON
    | {"heads": 16, "kv_heads": 16, "seq_len_q": 8192, "head_dim": 128, "dtype": "bfloat16"}
    | {"BLOCK_M": 128, "BLOCK_N": 64, "num_warps": 8, "num_stages": 3},
    "GPT-2 medium": _COMMON
    | {"heads": 16, "kv_heads": 16, "seq_len_q": 1024, "head_dim": 64, "dtype": "float16", "causal": True}
    | {"BLOCK_M": 64, "BLOCK_N": 64, "num_warps": 4, "num_stages": 3},
    "FlashAttention, Fig. 2": _COMMON
    | {"batch": 64, "heads": 16, "kv_heads": 16, "seq_len_q": 1024, "head_dim": 64, "dtype": "float16"}
    | {"backward": True, "BLOCK_M": 128, "BLOCK_N": 64, "num_warps": 8, "num_stages": 3},
    "Llama-style 8K": _COMMON
    | {"heads": 32, "kv_heads": 8, "seq_len_q": 8192, "head_dim": 128, "dtype": "bfloat16", "causal": True}
    | {"BLOCK_M": 128, "BLOCK_N": 64, "num_warps": 8, "num_stages": 3},
    "Long 64K, flash only": _COMMON
    | {"kernels": ["flash"], "heads": 4, "kv_heads": 4, "seq_len_q": 65536, "head_dim": 128, "dtype": "bfloat16"}
    | {"BLOCK_M": 128, "BLOCK_N": 128, "num_warps": 8, "num_stages": 3},
    "Long 64K, sawtooth against linear": _COMMON
    | {"kernels": ["flash", "cudnn"], "order": [LINEAR, SAWTOOTH], "heads": 4, "kv_heads": 4, "seq_len_q": 65536}
    | {"head_dim": 128, "dtype": "bfloat16", "BLOCK_M": 128, "BLOCK_N": 128, "num_warps": 8, "num_stages": 3},
    "Long causal 128K": _COMMON
    | {"kernels": ["flash", "cudnn"], "order": [LINEAR, LONGEST_FIRST], "heads": 2, "kv_heads": 2, "seq_len_q": 131072}
    | {"head_dim": 128, "dtype": "bfloat16", "causal": True}
    | {"BLOCK_M": 128, "BLOCK_N": 128, "num_warps": 8, "num_stages": 3},
    "Long causal 256K": _COMMON
    | {"kernels": ["flash", "cudnn"], "order": [LINEAR, LONGEST_FIRST], "heads": 1, "kv_heads": 1, "seq_len_q": 262144}
    | {"head_dim": 128, "dtype": "bfloat16", "causal": True}
    | {"BLOCK_M": 128, "BLOCK_N": 128, "num_warps": 8, "num_stages": 3},
}
FOR_CPU, FOR_GPU = "Small, for a CPU", "16 heads, 8K"
CUSTOM = "Custom"


def preset_of(values: Values, default_device: str) -> str:
    """The name of the preset that the form's values are, or CUSTOM."""
    for name, preset in PRESETS.items():
        filled = fill(name, default_device)
        if all(plain(values.get(field)) == plain(filled[field]) for field in preset):
            return name
    return CUSTOM


def fill(name: str, default_device: str) -> dict[str, object]:
    """The form's values under a preset."""
    preset = PRESETS[name]
    return {**preset, "device": preset["device"] or default_device}


def plain(value: object) -> object:
    """A field's value, so that two which mean the same are equal."""
    return sorted(value) if isinstance(value, list | tuple) else value
