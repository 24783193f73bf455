"""The command line that repeats Workloads exactly."""

import shlex
from collections.abc import Sequence

from kernels.problem import LINEAR
from profiler.ncu_import import is_imported
from profiler.workload import AUTO, Workload


def command(workloads: Sequence[Workload]) -> str:
    """One `python -m profiler run` for all Workloads that one call can measure; further calls on further lines.

    What was imported cannot be run here; a line for the reader says so.
    """
    groups: list[list[Workload]] = []
    elsewhere = dict.fromkeys(workload.kernel for workload in workloads if is_imported(workload.kernel))
    for workload in dict.fromkeys(workload for workload in workloads if workload.kernel not in elsewhere):
        home = next((group for group in groups if all(_fit(workload, other) for other in group)), None)
        if home is None:
            groups.append([workload])
        else:
            home.append(workload)
    told = (f"# {kernel} was profiled elsewhere; import its file anew" for kernel in elsewhere)
    return "\n".join((*(shlex.join(_call(group)) for group in groups), *told))


def _fit(one: Workload, other: Workload) -> bool:
    def common(workload: Workload) -> tuple[object, ...]:
        how = workload.l2, workload.counters, workload.drain, workload.detail
        return workload.problem, workload.device, workload.seed, workload.repeats, *how

    return (
        common(one) == common(other)
        and one.kernel != other.kernel
        and (one.tile is None or other.tile is None or one.tile == other.tile)
        and (not _records(one) or not _records(other) or one.trace == other.trace)
    )


def _records(workload: Workload) -> bool:
    return workload.attention_kernel.records


def _call(group: Sequence[Workload]) -> list[str]:
    first, problem = group[0], group[0].problem
    words = ["python", "-m", "profiler", "run"]
    for workload in group:
        words += ["--kernel", workload.kernel]
    options: list[tuple[str, object]] = [
        ("--batch", problem.batch),
        ("--heads", problem.heads),
        ("--kv-heads", problem.kv_heads),
        ("--seq-len", problem.seq_len_q),
        ("--seq-len-kv", problem.seq_len_kv if problem.seq_len_kv != problem.seq_len_q else None),
        ("--head-dim", problem.head_dim),
        ("--dtype", problem.dtype),
        ("--window", problem.window),
    ]
    tile = next((workload.tile for workload in group if workload.tile is not None), None)
    if tile is not None:
        options += [("--block-m", tile.BLOCK_M), ("--block-n", tile.BLOCK_N)]
        options += [("--num-warps", tile.num_warps), ("--num-stages", tile.num_stages)]
        options += [("--order", tile.order if tile.order != LINEAR else None)]
    options += [("--device", first.device), ("--l2", first.l2), ("--passes", first.repeats), ("--seed", first.seed)]
    options += [("--counters", first.counters if first.counters != AUTO else None)]
    traced = next((workload for workload in group if _records(workload)), None)
    if traced is not None and traced.trace is not None:
        options += [("--trace-batch", traced.trace.batch or None), ("--trace-head", traced.trace.head or None)]
        options += [("--trace-row", traced.trace.row)]
    for name, value in options:
        if value is not None:
            words += [name, str(value)]
    words += ["--causal"] if problem.causal else []
    words += ["--backward"] if problem.backward else []
    words += [] if first.drain else ["--no-drain"]
    words += ["--detail"] if first.detail else []
    words += ["--no-trace"] if traced is not None and traced.trace is None else []
    return words
