"""Stop while a kernel is compiled: within two seconds, with the processes."""

import time

from kernels.problem import AttentionProblem, TileConfig
from profiler.compile_job import CompileJob
from profiler.resources import Configuration
from profiler.store import runs_folder

LARGE = AttentionProblem(1, 1, 1, 1024, 1024, 128)


def test_stop_ends_a_compilation_within_two_seconds() -> None:
    """Two configurations that take seconds each; nothing of them is done when it is stopped."""
    assert not runs_folder().exists(), "an empty cache of this test's own"
    chosen = [Configuration("flash", LARGE, TileConfig(128, block, 8, 3), (9, 0)) for block in (64, 128)]
    job = CompileJob(chosen, processes=1)
    while job.status().done == 0 and job.status().seconds < 2:
        time.sleep(0.05)
    assert not job.status().is_over
    begun = time.monotonic()
    job.stop("Nobody wants it.")
    status = job.wait(30)
    assert status.is_over and status.error == "Nobody wants it." and status.done < 2
    assert time.monotonic() - begun < 2
