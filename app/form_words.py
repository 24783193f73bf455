"""What the form says: the labels of its fields, what an empty one means, and the help beside them."""

from app import asked

LABELS = {
    **{name: name for name in ("batch", "heads", "window", "head_dim", "seed")},
    "kv_heads": "kv heads",
    "seq_len_q": "seq_len",
    "seq_len_kv": "kv seq_len",
    "timeout": "time-out of one kernel, s",
    "repeats": asked.PASSES,
    "trace_head": "traced head",
    "trace_row": "traced row",
}
EMPTY = {"seq_len_kv": "same", "window": "none", "trace_row": "last"}
CAUSAL = "Each query sees the keys up to its own position; masks are aligned bottom-right."
L2 = "Cold: L2 is flushed before each pass, outside what is measured. Warm: it keeps what the pass before left."
COUNTERS = "auto: every quick source, the best one first; a name: that source alone."
DRAIN = "Writes are counted until L2 holds no dirty line; without it, until the pass ends."
DETAIL = "Tensor-core FLOPs, spills, L2 hit rate, energy: more passes, counted after the rest."
HELP = {
    "repeats": "How often the whole work is timed; a pass makes one launch or more.",
    "kv_heads": "K/V heads; fewer than heads is GQA, one is MQA. Must divide heads.",
    "seq_len_kv": "Keys and values; empty: as many as queries.",
    "window": "Each query sees only keys less than this many positions away; empty: no window.",
    "BLOCK_M": "Queries of one tile: what one program keeps on chip.",
    "BLOCK_N": "Keys and values of one tile: what streams past.",
    "order": "Of programs and of their KV tiles, for the flash kernels. linear: programs rising. sawtooth: every "
    "second wave scans K and V the other way. longest_first, for causal: programs in falling length. persistent, for "
    "warp-specialised flash: programs that stay, each with one Q tile of every wave.",
    "trace_head": "The head whose m, l, alpha and |acc| are recorded.",
    "trace_row": "The query whose rows are recorded; empty: the last.",
}
