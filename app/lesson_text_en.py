"""The walk-through in English."""

from app.lesson_words import StepWords, Words

STEPS = (
    StepWords(
        "The score matrix",
        "Attention holds every query against every key, so each head makes S × S scores, and the caller never sees "
        "them: what comes back is O, S × head_dim. At S = 8,192 and head_dim 128 that is {article_scores} scores "
        "behind an O that is {article_ratio} smaller. Twice the sequence means twice the O and four times the scores.",
        "The score matrix as tiles",
    ),
    StepWords(
        "The round trips",
        "Launched step by step, attention parks its scores in HBM: one launch writes S, the next fetches it, changes "
        "it and writes it back, until P meets V. Here S or P is read or written {trips} times in full, and none of "
        "that is arithmetic. FlashAttention still computes every score; what it drops is storing them.",
        "Where the bytes go, launch by launch",
    ),
    StepWords(
        "One row at a time",
        "A query needs no scores but its own. Score one query against all keys, normalise, mix the values, write one "
        "row of O, forget the scores: a program never holds more than {row_scores} of them. The bill comes from the "
        "other side: every query asks for its K and V anew, {row_times} passes over both for each head.",
        "What this asks for, by tensor",
    ),
    StepWords(
        "Query tiles",
        "Queries do not wait for each other, so BLOCK_M = {BLOCK_M} of them can share one pass over K and V. Requests "
        "for K and V then fall to {tile_times} passes a head, and many small matrix-vector products become one matrix "
        "product, the shape that tensor cores are made for. A tile holds whole rows of scores, so its softmax is final "
        "in one go.",
        "One Q tile after another",
    ),
    StepWords(
        "Key tiles",
        "Cutting the keys too saves no bytes: each Q tile reads all of K and V once, in one piece or in four. At "
        "S = 16, tiles of 4 × 4 ask for the same {small_kv} as tiles of 4 × 16, and add {small_extra} steps that may "
        "have to rescale. On a matrix this small 4 × 16 is the better schedule; 4 × 4 is only easier to draw.",
        "Step through the KV tiles",
    ),
    StepWords(
        "What fits on chip",
        "Keys are cut because rows grow: 64 queries against 8,192 keys are {row_block} of float32 scores, and an SM "
        "has {registers} of registers: from S = {fill_keys} on, those scores alone fill them. Shared memory is no way "
        "out: an A100 SM has {a100_sm}, of which one block may use {a100_block}. (The article says 228 KB; that is "
        "the H100's figure.) A 64 × 64 tile takes {tile_scores} at any S.",
        "What is on chip at each step",
    ),
    StepWords(
        "The softmax that breaks",
        "A softmax divides by a sum over its whole row, and a block of keys knows only its own part. Normalise each "
        "block by itself and glue the pieces: every piece sums to 1, so the row sums to the number of blocks, "
        "{glued_sum} here. In tiles of BLOCK_N = {BLOCK_N}, a row of {row_scores} scores would sum to {kv_tiles}.",
        "m, l and acc, tile by tile",
    ),
    StepWords(
        "m and l",
        "Two numbers a row repair it: m, the largest score so far, and l, the sum of exp(s − m). If a block brings a "
        "larger maximum, l times α = exp(m_old − m_new) is what l would be had that maximum been known from the "
        "start, so no earlier score is needed again. After the last block they are the m and l of the whole row. They "
        "give the denominator only: a probability still needs its own score.",
        "m and l from the running kernel",
    ),
    StepWords(
        "acc",
        "O is a weighted sum of rows of V, so its numerator grows block by block too: acc is multiplied by the same α, "
        "then the block's exp(s − m) · V is added. Score and V are on chip at that moment, which makes this free of "
        "HBM traffic, and the block's scores can go. After the last block O = acc / l.",
        "acc after every KV tile",
    ),
    StepWords(
        "Algorithm against Schedule",
        "Halide writes down what is computed apart from how: a schedule cuts, moves, fuses and places loops, and the "
        "value stays the same by construction. The kernel makes five such moves, at the lines shown. No schedule could "
        "make them on the textbook softmax, which needs its whole row first; the online form is a change of algorithm "
        "with an equal value, and it is what lets the schedule begin.",
        "The schedule, step by step",
    ),
    StepWords(
        "What was saved",
        "No arithmetic was saved: the scores that count need {flops} either way, and O is the same up to rounding. "
        "What went is the traffic of S and P, and the memory to hold them. {saved}",
        "All four kinds of bytes",
    ),
)
NOTES = {
    "numbers": "One head unless it says otherwise; closed forms. "
    "The article takes S = 8,192, head_dim 128 and 32 heads.",
    "trips_counted": "HBM bytes of each naive launch, counted on {device}. Blue: read, orange: written.",
    "trips_in_l2": "S of {label} is {scores} and L2 holds {l2}: much of it never leaves L2.",
    "trips_schedule": "Requested by the naive schedule for {label}. Blue: read, orange: written. "
    "Run naive on a GPU to count its HBM bytes.",
    "requested": "{label}. Hatched: requested, from the schedule.",
    "crossed": "Solid: L2↔SM, counted.",
    "run_these": "Run {kernels} to measure this.",
    "cannot_run": "{kernel} cannot be measured on {device}: {reason}",
    "small": "S = 16, head_dim 16, float32; from flash's schedule. A number is a tile's place in its program.",
    "chip": "Registers and shared memory of one SM, by NVIDIA's datasheets and Hopper tuning guide, "
    "which write KB for KiB. Scores are float32; "
    "a kernel may spread them over registers and shared memory, but not over more than both.",
    "breaks": "Scores 0, 0, ln 2, ln 2 in two blocks; computed here.",
    "state": "The same row; computed here. α of the first block has nothing to rescale.",
    "acc": "Points: |acc| of row {row} as the running kernel wrote it, on {device}. Line: exact, float64. "
    "Largest difference {apart} of the value.",
    "no_trace": "No Run that is shown recorded its softmax state.",
    "source": "Read from this installation's kernels.",
    "recorded": "Recorded, not made here: {label}.",
    "live_here": "Measured on {device}.",
    "live_recorded": "Recorded on {device}, {date}, for {label}.",
    "s_and_p": "S and P alone, in {dtype}: {bytes}.",
    "moved": "{percent}% of all traced steps with BLOCK_N = {BLOCK_N}; in the others α was 1.",
    "moved_row": "Row {row}, {tiles} KV tiles.",
    "glued_run": "{scores} scores of row {row} from the running kernel, glued here in tiles of BLOCK_N = {BLOCK_N}.",
    "no_scores": "No Run that is shown kept the scores of a row.",
    "saved_here": "On {device}, naive moved {naive} through HBM and flash {flash}: {ratio}.",
    "saved_recorded": "As recorded on {device} for {label}, naive moved {naive} through HBM and flash "
    "{flash}: {ratio}.",
    "saved_unknown": "How much, no Run here tells.",
    "saved": "{label}. Last column: naive / flash.",
}
LABELS = {
    "quantity": "",
    "shown": "shown",
    "article": "article",
    "scores": "scores",
    "s_fp32": "S in float32",
    "s_16": "S in 16 bits",
    "heads": "batch × heads",
    "s_all": "S in float32, all heads",
    "o_fp32": "O in float32",
    "s_over_o": "S / O",
    "hbm_axis": "HBM bytes",
    "requested_axis": "requested bytes",
    "bytes_axis": "bytes, log axis",
    "requested": "requested",
    "compulsory": "compulsory",
    "kv_bytes": "K and V {bytes}",
    "tile_steps": "{steps} steps, {rescales} may rescale",
    "keys": "key",
    "queries": "query",
    "row_block": "scores {rows} × {keys}",
    "registers": "registers",
    "shared": "shared memory, {gpu}",
    "chip_axis": "KiB",
    "whole_row": "whole row",
    "glued": "by block, glued",
    "sum": "sum",
    "block": "block",
    "block_scores": "scores",
    "probabilities": "exp(s − m) / l",
    "kv_tile": "KV tile",
    "halide": "Halide",
    "here": "in the kernel",
    "where": "where",
    "code": "line",
    "tiling": "tiling: split, tile",
    "tiling_here": "BLOCK_M queries, BLOCK_N keys a step",
    "order": "reorder",
    "order_here": "queries outside, keys inside",
    "compute_at": "compute_at",
    "compute_at_here": "scores are made where they are used",
    "fusion": "producer–consumer fusion",
    "fusion_here": "P meets V at once and is never stored",
    "locality": "storage: store_in",
    "locality_here": "acc stays in registers for all steps",
    "algebra": "none: algorithm",
    "algebra_here": "online softmax: α rescales l and acc",
    "hbm": "HBM bytes",
    "hbm_shown": "HBM bytes, Runs shown",
    "l2_sm": "L2↔SM bytes",
    "time": "GPU time",
    "peak": "peak memory",
    "spills": "spills read",
    "launched": "kernels launched",
    "moved": "steps that moved the maximum",
    "glued_run": "a row's sum, glued",
    "of_kernel": "{kernel}: {what}",
    "of": "{part} of {whole}",
    "missing_line": "This line was not found in the kernels' source.",
    "missing_kernel": "This installation has no kernel {kernel} for this problem.",
    "missing_run": "No {kernel} Run of this problem is shown.",
}
ENGLISH = Words(
    "English",
    "en",
    "Why attention needs no score matrix: eleven steps, and a number at each.",
    "{about}. Numbers are computed or measured here, or say where they were recorded.",
    STEPS,
    NOTES,
    LABELS,
    space=" ",
)
