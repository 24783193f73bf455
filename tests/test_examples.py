"""The Runs that ship with Bytescope: what an H200 counted, against theory and against one another."""

import pytest

from app.recorded import EXAMPLES
from kernels.problem import LINEAR, LONGEST_FIRST, SAWTOOTH
from profiler.run import Run
from profiler.store import load


def recorded(name: str) -> tuple[Run, ...]:
    return load(EXAMPLES / f"{name}.json")


def one(name: str, kernel: str, order: str = LINEAR) -> Run:
    (found,) = (
        run
        for run in recorded(name)
        if run.workload.kernel == kernel and (run.workload.tile is None or run.workload.tile.order == order)
    )
    return found


def value(run: Run, name: str) -> float:
    found = run.value(name)
    assert found is not None, name
    return found


def times_once(run: Run) -> float:
    """HBM reads as a multiple of Q + K + V."""
    size = run.workload.problem.tensor_bytes
    return value(run, "hbm_read_bytes") / (size["q"] + size["k"] + size["v"])


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.json")), ids=lambda path: path.stem)
def test_every_recording_says_where_it_was_made(path: object) -> None:
    for run in load(path):  # type: ignore[arg-type]
        assert run.recorded.startswith("Recorded on an NVIDIA H200, driver ")
        assert run.value("hbm_read_bytes") is not None and run.value("l2_sm_bytes") is not None
        assert (run.value("relative_error") or 1) < 1e-2
        assert run.kernels


Q = 16 * 8192 * 128 * 2  # bytes of one tensor of all heads
KV = 8192 * 128 * 2  # bytes of K, or of V, of one head
ACC, ROW = 2 * Q, 16 * 8192 * 4  # acc in float32, and m or l


@pytest.mark.parametrize(
    ("kernel", "asked"),
    [
        ("row_streaming", Q + 16 * 8192 * 2 * KV),  # all of K and V for each of 8,192 queries
        ("flash_kv_outer", 128 * Q + 16 * 2 * KV + 129 * (ACC + 2 * ROW)),  # 128 KV tiles, then the last sweep
        ("flash", Q + 16 * 64 * 2 * KV),  # all of K and V for each of 64 Q tiles
    ],
)
def test_what_was_asked_for_arrived_at_the_sms(kernel: str, asked: int) -> None:
    """(1, 16, 8192, 128): the schedule is the formula exactly, and the counter of bytes at L1 within 1% of it."""
    run = one("ladder_8k", kernel)
    assert value(run, "requested_read_bytes") == asked
    assert value(run, "l2_to_sm_bytes") == pytest.approx(asked, rel=0.01)


def test_query_tiled_spills_and_flash_does_not() -> None:
    assert value(one("ladder_512", "query_tiled"), "spill_read_bytes") > 0
    assert value(one("ladder_512", "flash"), "spill_read_bytes") == 0


def test_sawtooth_reads_less_than_linear_and_cudnn() -> None:
    others = times_once(one("long_64k", "flash")), times_once(one("long_64k", "cudnn"))
    assert times_once(one("long_64k", "flash", SAWTOOTH)) <= 0.62 * min(others)


def test_longest_first_keeps_causal_programs_in_step() -> None:
    assert times_once(one("long_causal_128k", "flash", LONGEST_FIRST)) <= 3.5
    assert times_once(one("long_causal_128k", "flash")) > 40
    assert times_once(one("long_causal_128k", "cudnn")) > 30
    assert times_once(one("long_causal_256k", "flash", LONGEST_FIRST)) <= 7
    assert min(times_once(one("long_causal_256k", name)) for name in ("flash", "cudnn")) > 200


def test_the_rungs_differ_in_time_not_in_bytes_from_hbm() -> None:
    rungs = {name: one("rungs_8k", name) for name in ("cudnn", "flash", "flash_tma", "flash_ws")}
    for run in rungs.values():
        assert times_once(run) == pytest.approx(1, abs=0.02)
        assert value(run, "l2_to_sm_bytes") == pytest.approx(Q + 16 * 64 * 2 * KV, rel=0.01)
    seconds = {name: value(run, "gpu_time_seconds") for name, run in rungs.items()}
    assert min(seconds, key=seconds.__getitem__) == "flash_ws"
    assert max(value(run, "relative_error") for run in rungs.values()) < 0.0025


def test_the_fastest_rung_reads_least_behind_a_long_causal_mask() -> None:
    longest_first, cudnn = one("long_rungs", "flash_ws", LONGEST_FIRST), one("long_rungs", "cudnn")
    assert times_once(longest_first) <= 3.2
    assert min(times_once(one("long_rungs", "flash_ws")), times_once(cudnn)) > 30
    assert value(longest_first, "gpu_time_seconds") < 0.9 * value(cudnn, "gpu_time_seconds")


def test_each_library_run_names_another_kernel() -> None:
    names = {run.workload.kernel: {kernel.kernel for kernel in run.kernels} for run in recorded("library_8k")}
    assert any("cudnn" in name for name in names["cudnn"])
    assert any("flash_fwd" in name for name in names["flash_attention_2"])
    assert any("fmha_cutlass" in name for name in names["mem_efficient"])
    assert any("triton" in name for name in names["flex"])
