"""Which Runs are compared, under which names; the four kinds of bytes of each."""

from dataclasses import replace

from app.four_kinds import compulsory, hbm, l2_sm, requested
from app.selection import MAX_COMPARED, compare, names
from kernels.problem import TileConfig
from profiler.run import Measurement
from tests.fake_runs import NO_COUNTERS, PROBLEM, cpu_run, flash_run, naive_run


def test_only_runs_of_the_newest_problem_are_compared() -> None:
    found = compare((naive_run(), cpu_run(), flash_run()))
    assert found.names == ("flash",)  # the CPU Run is the newest
    assert found.note == "2 selected Runs compute another problem and are not compared here."


def test_no_runs() -> None:
    assert compare(()).runs == ()


def test_a_run_selected_twice_counts_once_and_too_many_are_cut() -> None:
    run = flash_run()
    assert len(compare((run, run)).runs) == 1
    many = tuple(replace(run, id=f"run-{i}", created=f"2026-11-29T12:00:{i:02}Z") for i in range(MAX_COMPARED + 2))
    found = compare(many)
    assert [one.id for one in found.runs] == [f"run-{i}" for i in range(2, MAX_COMPARED + 2)]
    assert found.note == "The newest 8 of 10 Runs are shown."


def test_names_say_what_differs_and_no_more() -> None:
    wide, tall = flash_run(), flash_run(tile=TileConfig(64, 64, 8, 3), run_id="tall")
    assert names((naive_run(), wide, tall)) == ("naive", "flash 128×64", "flash 64×64")
    warm = replace(wide, id="warm", workload=replace(wide.workload, l2="warm"))
    assert names((wide, warm)) == ("flash cold L2", "flash warm L2")
    assert len(set(names((wide, replace(wide, id="again"))))) == 2


def test_hbm_bytes_prefer_the_split_and_fall_back_to_the_estimate() -> None:
    run = flash_run()
    assert (hbm(run).value, hbm(run).source) == (0.135e9, "cupti-range")
    estimated = replace(run, measurements=tuple(m for m in run.measurements if m.name != "hbm_write_bytes"))
    assert (hbm(estimated).value, hbm(estimated).source) == (0.1345e9, "nvml-gpm")
    # The qk launch read 0.105 GB and wrote 2.118 GB.
    launch = hbm(naive_run(), "qk").value
    assert launch is not None and round(launch) == 2_223_000_000


def test_a_missing_value_brings_its_reason() -> None:
    assert (hbm(cpu_run()).value, hbm(cpu_run()).reason) == (None, NO_COUNTERS)
    assert l2_sm(cpu_run()).reason == NO_COUNTERS
    bare = replace(cpu_run(), measurements=())
    assert compulsory(bare).reason == "This Run holds no compulsory_bytes."


def test_requested_bytes_as_traced_before_those_of_the_schedule() -> None:
    run = cpu_run()
    traced = [m for m in run.measurements if m.source == "interpreter"]
    assert requested(run).is_measured and requested(run).value == sum(m.value or 0 for m in traced)
    planned = (
        Measurement("requested_read_bytes", 10.0, "B", "interpreter"),
        Measurement("requested_write_bytes", 5.0, "B", "schedule"),
    )
    mixed = replace(run, measurements=planned)
    assert (requested(mixed).value, requested(mixed).is_measured) == (15.0, False)


def test_compulsory_bytes() -> None:
    assert compulsory(flash_run()).value == PROBLEM.compulsory_bytes == 134_217_728
