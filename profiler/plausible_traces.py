"""Whether what a kernel recorded, read from a file, fits its Workload: its softmax state, and its programs' times."""

from typing import TYPE_CHECKING

import numpy as np

from kernels.problem import TileConfig
from profiler.codec import NotARun, PackedArray
from profiler.same_schedule import has_schedule

if TYPE_CHECKING:
    from profiler.run import ProgramTrace, Run, SoftmaxTrace

MAX_ARRAY_BYTES = 32 * 2**20  # of one Run; a Run's file stays below half of it
MAX_PROGRAMS, MAX_SMS, MAX_CTAS_OF_AN_SM, MAX_NANOSECONDS = 2**16, 4_096, 32, 3_600 * 10**9


def require_fitting_state(softmax: "SoftmaxTrace", run: "Run", place: str) -> None:
    """Raise NotARun for a state of rows, tiles or sizes that the Run's Workload does not have."""
    problem, tile = run.workload.problem, run.workload.tile or TileConfig()
    kv_tiles = -(-problem.seq_len_kv // tile.BLOCK_N)
    rows = softmax.row_stop - softmax.row_start
    inside = 0 <= softmax.row_start < softmax.row_stop <= problem.seq_len_q
    inside &= 0 <= softmax.batch < problem.batch and 0 <= softmax.head < problem.heads
    if not inside or softmax.BLOCK_N != tile.BLOCK_N:
        raise NotARun(f"{place} is of rows, heads or tiles that its problem does not have.")
    states = [
        getattr(softmax, name) for name in ("m", "l", "alpha", "acc_norm", "exact_m", "exact_l", "exact_acc_norm")
    ]
    if any(state.shape != (rows, kv_tiles) for state in states):
        raise NotARun(f"{place} should hold {rows} rows of {kv_tiles} KV tiles.")
    acc_rows = min(tile.BLOCK_M, problem.seq_len_q - softmax.acc_tile * tile.BLOCK_M)
    fits = softmax.acc_stride >= 1 and 0 <= softmax.acc_start < softmax.acc_stride and acc_rows >= 1
    steps = -(-kv_tiles // max(softmax.acc_stride, 1))
    if not fits or softmax.acc_tile < 0 or softmax.acc.shape != (steps, acc_rows, problem.head_dim):
        raise NotARun(f"{place}.acc does not fit its problem and tile.")
    scores = () if softmax.scores is None else (softmax.scores,)
    for kept in scores:
        columns_fit = len(kept.shape) == 2 and kept.shape[1] == problem.seq_len_kv and kept.shape[0] >= 1
        last = softmax.score_start + (kept.shape[0] if columns_fit else 0)
        if not columns_fit or not softmax.row_start <= softmax.score_start < last <= softmax.row_stop:
            raise NotARun(f"{place}.scores are of rows or keys that it does not have.")
    _require_unpacked((*states, softmax.acc, *scores), "float32", place)


def require_fitting_timeline(timeline: "ProgramTrace", run: "Run", place: str) -> None:
    """Raise NotARun for programs that the Run's Workload does not have, or times and SMs that no GPU gives.

    How many programs another version of its kernel had is not known.
    """
    kernel, tile = run.workload.attention_kernel, run.workload.tile or TileConfig()
    plan = kernel.schedule(run.workload.problem, tile)
    unknown = f"{place} is of a kernel whose programs are not known, or of more than {MAX_PROGRAMS:,}."
    if plan.walk is None or not timeline.sm.shape:
        raise NotARun(unknown)
    programs = plan.walk.total_programs if has_schedule(run, plan) else timeline.sm.shape[0]
    if not 0 < programs <= MAX_PROGRAMS:
        raise NotARun(unknown)
    arrays = (timeline.sm, timeline.start_ns, timeline.end_ns)
    if any(array.shape != (programs,) for array in arrays) or timeline.timer_step_ns < 1:
        raise NotARun(f"{place} should hold {programs:,} programs and the step of their clock.")
    _require_unpacked((timeline.sm,), "int32", place)
    _require_unpacked((timeline.start_ns, timeline.end_ns), "int64", place)
    sm, start, end = (array.numpy() for array in arrays)
    if sm.min() < 0 or sm.max() >= MAX_SMS or start.min() < 0 or bool((end < start).any()):
        raise NotARun(f"{place} has an SM or a time that no GPU gives.")
    if int(end.max()) > MAX_NANOSECONDS:
        raise NotARun(f"{place} lasts longer than an hour.")
    # +1 at each start, −1 at each end, ends first: the running sum over an SM is what it holds at once.
    change = np.repeat([1, -1], programs)
    order = np.lexsort((change, np.concatenate([start, end]), np.concatenate([sm, sm])))
    if int(change[order].cumsum().max()) > MAX_CTAS_OF_AN_SM:
        raise NotARun(f"{place} has more than {MAX_CTAS_OF_AN_SM} programs on one SM at once.")


def _require_unpacked(arrays: tuple[PackedArray, ...], dtype: str, place: str) -> None:
    if any(array.dtype != dtype for array in arrays) or sum(array.nbytes for array in arrays) > MAX_ARRAY_BYTES:
        raise NotARun(f"{place} has an array that is not {dtype}, or arrays above {MAX_ARRAY_BYTES >> 20} MiB.")
    try:
        for array in arrays:
            array.numpy()
    except NotARun as fault:
        raise NotARun(f"{place}: {fault}") from fault
