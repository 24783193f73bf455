"""Why Runs have no timeline: one sentence each, of the Run that could come nearest to one."""

import dataclasses

from app.no_timeline import why_no_timeline
from kernels.problem import AttentionProblem, TileConfig
from profiler.workload import TraceRequest, Workload
from tests import fake_runs


def test_each_reason_has_its_sentence() -> None:
    flash = dataclasses.replace(fake_runs.flash_run(), timeline=None)
    untraced = dataclasses.replace(flash, workload=dataclasses.replace(flash.workload, trace=None))
    # 8,192 Q tiles of 16 rows in each of 16 heads.
    long = AttentionProblem(heads=16, kv_heads=16, seq_len_q=131_072, seq_len_kv=131_072, head_dim=64)
    work = Workload("flash", long, TileConfig(16, 64), "cuda:0", trace=TraceRequest())
    many = dataclasses.replace(flash, workload=work)
    naive, cpu = fake_runs.naive_run(), fake_runs.cpu_run()
    named = "row_streaming, query_tiled, flash_kv_outer, flash, flash_tma, flash_ws or split_kv"
    others = f"{named} on a GPU, or open a recorded H200 run."
    nothing_noted = "Naive has no timeline, since its programs do not note when they start and end"
    assert why_no_timeline([naive]) == f"{nothing_noted}: run {others}"
    assert why_no_timeline([naive, many, cpu]) == (
        "Flash has no timeline here, since its launch has 131,072 programs and start and end of at most 65,536 are "
        "kept: measure a smaller problem."
    )
    assert "it was not traced: run it again with tracing on." in why_no_timeline([naive, many, cpu, untraced])
    assert "through the interpreter, one program after another" in why_no_timeline([naive, cpu])
    assert why_no_timeline([]) == f"There is no Run to show the programs of: run {others}"
