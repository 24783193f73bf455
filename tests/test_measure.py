"""measure() on the CPU, where kernels are interpreted: what a Run holds, from where, and why the rest is missing."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime

import pytest
import torch
import triton

from kernels.problem import AttentionProblem, TileConfig
from profiler import measure as measure_module
from profiler.bench import Bench, draw_inputs
from profiler.counter import Counter, Reading, Unavailable, all_counters
from profiler.device import cpu_device
from profiler.measure import measure
from profiler.memory_trace import MemoryEvent, MemoryTrace
from profiler.run import Measurement, Run
from profiler.run_document import from_json, to_json
from profiler.tile_trace import traced_accesses
from profiler.workload import TraceRequest, Workload

PROBLEM = AttentionProblem(1, 2, 1, 33, 40, 16, causal=True)
TILE = TileConfig(16, 16)
FLASH = Workload("flash", PROBLEM, TILE, trace=TraceRequest())
NAIVE = Workload("naive", PROBLEM, None, trace=None)


@pytest.fixture(scope="module")
def flash() -> Run:
    return measure(FLASH, cpu_device(), "request")


@pytest.fixture(scope="module")
def naive() -> Run:
    return measure(NAIVE, cpu_device(), "request")


def test_a_run_knows_its_origin(flash: Run) -> None:
    assert (flash.workload, flash.device, flash.request) == (FLASH, cpu_device(), "request")
    assert flash.environment["torch"] == torch.__version__ and flash.environment["triton"] == triton.__version__
    assert {"python", "cuda", "platform"} < set(flash.environment)
    age = datetime.now().astimezone() - datetime.fromisoformat(flash.created)
    assert -2 < age.total_seconds() < 600
    assert flash.id != measure(FLASH, cpu_device(), "request").id
    assert flash.recorded == ""


@pytest.mark.parametrize("name", ["flash", "naive"])
def test_a_run_comes_back_from_its_file(name: str, request: pytest.FixtureRequest) -> None:
    run = request.getfixturevalue(name)
    assert from_json(to_json([run])) == (run,)


def test_what_was_modelled(flash: Run) -> None:
    """8 visible keys for query 0, 40 for query 32: 33 · 24 pairs; 5 KV tiles of 16 rows for 3 Q tiles and 2 heads."""
    expected = {
        "flops": 4 * 2 * (33 * 24) * 16,
        "compulsory_bytes": 2 * (2 * 33 * 16) * 2 + 2 * (40 * 16) * 2,
        "requested_read_bytes": 2 * 33 * 32 + 2 * 2 * (32 + 40 + 40) * 32,
        "requested_write_bytes": 2 * 33 * 32 + 2 * 33 * 4,
        "predicted_peak_bytes": 2 * (2 * 33 * 32) + 2 * (40 * 32) + 2 * 33 * 4,
    }
    for name, value in expected.items():
        found = [m for m in flash.measurements if m.name == name and not m.is_measured]
        assert [m.value for m in found] == [value], name


def test_what_the_interpreter_saw_equals_the_schedule(flash: Run) -> None:
    for name in ("requested_read_bytes", "requested_write_bytes"):
        seen, planned = (flash.find(name, source=source) for source in ("interpreter", "schedule"))
        assert seen is not None and planned is not None and seen.value == planned.value
        assert flash.find(name) is seen


def test_naive_has_its_launches_and_no_trace(naive: Run) -> None:
    names = [m.launch for m in naive.launches("requested_read_bytes")]
    assert names == ["qk", "scale", "mask", "softmax", "pv"]
    assert sum(m.value or 0 for m in naive.launches("requested_read_bytes")) == naive.value("requested_read_bytes")
    assert naive.softmax is None and naive.timeline is None
    assert naive.find("requested_read_bytes", source="interpreter") is None


@pytest.mark.parametrize("name", ["flash", "naive"])
def test_what_a_cpu_cannot_tell_is_none_with_a_reason(name: str, request: pytest.FixtureRequest) -> None:
    run: Run = request.getfixturevalue(name)
    for counter in (each for each in all_counters() if each.is_asked(run.workload) and not each.is_slow):
        for quantity, unit, source in counter.quantities:
            found = run.find(quantity, source=source)
            assert found is not None and found.value is None and "no GPU" in found.note
            assert found.unit == unit
    assert all(m.value is not None or m.note for m in run.measurements)


@pytest.mark.parametrize("name", ["flash", "naive"])
def test_errors_are_those_of_float16(name: str, request: pytest.FixtureRequest) -> None:
    run: Run = request.getfixturevalue(name)
    assert 1e-5 < (run.value("relative_error") or 0) < 2e-3
    assert 0 < (run.value("max_abs_error") or 0) < 1e-2


def test_softmax_state_only_where_asked() -> None:
    asked = measure(replace(FLASH, trace=TraceRequest(head=1, row=3)), cpu_device(), "")
    assert asked.softmax is not None and (asked.softmax.head, asked.softmax.acc_tile) == (1, 0)
    assert measure(replace(FLASH, trace=None), cpu_device(), "").softmax is None


def test_progress_counts_phases_up_to_the_last() -> None:
    told: list[tuple[str, int, int]] = []
    run = measure(FLASH, cpu_device(), "", lambda *where: told.append(where))
    assert [done for _, done, _ in told] == list(range(len(told)))
    totals = [total for *_, total in told]
    assert totals == sorted(totals, reverse=True), "spare sources drop out"
    assert totals[-1] == len(told)
    assert told[0][0] == "interpret" and {phase for phase, *_ in told} == set(run.phases)
    assert all(seconds >= 0 for seconds in run.phases.values())


def test_an_error_of_the_kernel_is_not_swallowed(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: Bench, *_: object, **__: object) -> None:
        raise RuntimeError("broken")

    monkeypatch.setattr(Bench, "launch", fail)
    with pytest.raises(RuntimeError, match="broken"):
        measure(NAIVE, cpu_device(), "")


def counter(name: str, **parts: object) -> Counter:
    """A source of one quantity, available everywhere unless `parts` say otherwise."""
    whole: dict[str, object] = {
        "name": name,
        "title": name,
        "order": 1,
        "phase": name,
        "quantities": (("energy_joules", "J", "nvml"),),
        "unavailable": lambda device: None,
    }
    return Counter(**whole | parts)  # type: ignore[arg-type]


def one_joule(_: Bench) -> Reading:
    return Reading((Measurement("energy_joules", 1.0, "J", "nvml"),), {"energy_joules": (1.0, 1.0)})


def unable(_: Bench) -> Reading:
    raise Unavailable("the meter is broken")


def measured_with(monkeypatch: pytest.MonkeyPatch, *counters: Counter) -> Run:
    monkeypatch.setattr(measure_module, "all_counters", lambda: counters)
    return measure(NAIVE, cpu_device(), "")


def test_a_source_that_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    run = measured_with(monkeypatch, counter("meter", measure=one_joule))
    assert run.value("energy_joules") == 1.0
    assert run.samples == {"energy_joules": (1.0, 1.0)}


def test_a_source_that_has_the_allocators_history(monkeypatch: pytest.MonkeyPatch) -> None:
    trace = MemoryTrace((), (MemoryEvent("alloc", 512, 8, 0.0, 0, "qk", "s"),))
    run = measured_with(
        monkeypatch, counter("meter", measure=one_joule), counter("a", order=2, measure=lambda _: Reading(memory=trace))
    )
    assert run.memory == trace and run.value("energy_joules") == 1.0
    assert measured_with(monkeypatch, counter("meter", measure=one_joule)).memory is None


@pytest.mark.parametrize(
    ("parts", "reason"),
    [
        ({"measure": unable}, "the meter is broken"),
        ({"measure": one_joule, "unavailable": lambda device: f"{device.device} has no meter"}, "cpu has no meter"),
    ],
)
def test_a_source_that_cannot_answer_leaves_its_reason(
    monkeypatch: pytest.MonkeyPatch, parts: dict[str, object], reason: str
) -> None:
    found = measured_with(monkeypatch, counter("meter", **parts)).find("energy_joules")
    assert found == Measurement("energy_joules", None, "J", "nvml", reason)


def test_a_fault_of_a_source_is_its_reason_and_costs_no_other_its_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_: Bench) -> Reading:
        raise KeyError("dram\x1b")

    run = measured_with(monkeypatch, counter("meter", measure=broken), on_ladder("ncu", 2.0))
    found = run.find("energy_joules")
    assert found is not None and found.value is None
    assert found.note == "meter failed (KeyError: 'dram\\x1b'); report this line"
    assert run.value("hbm_bytes") == 2.0


@pytest.mark.parametrize("fault", [torch.OutOfMemoryError("full"), RuntimeError("illegal address")])
def test_what_the_gpu_itself_reports_ends_the_run(monkeypatch: pytest.MonkeyPatch, fault: RuntimeError) -> None:
    def broken(_: Bench) -> Reading:
        raise fault

    def synchronize(_: Bench) -> None:
        raise fault

    monkeypatch.setattr(Bench, "synchronize", synchronize)
    with pytest.raises(type(fault), match=str(fault)):
        measured_with(monkeypatch, counter("meter", measure=broken))


def on_ladder(source: str, value: float | None, **parts: object) -> Counter:
    """A source of hbm_bytes on the ladder."""

    def answer(_: Bench) -> Reading:
        return Reading((Measurement("hbm_bytes", value, "B", source, "" if value else "it cannot tell"),))

    return counter(source, quantities=(("hbm_bytes", "B", source),), measure=answer, **parts)


@pytest.mark.parametrize(
    ("counters", "quick", "asked"),
    [
        ("auto", 1.0, {"nvml-gpm": 1.0}),
        ("auto", None, {"nvml-gpm": None, "ncu": 2.0}),
        ("nvml-gpm", None, {"nvml-gpm": None}),
        ("ncu", 1.0, {"ncu": 2.0}),
        ("cupti-sampling", 1.0, {}),
    ],
)
def test_the_ladder(
    monkeypatch: pytest.MonkeyPatch, counters: str, quick: float | None, asked: dict[str, float | None]
) -> None:
    """A slow source answers where it is named, or where no quick one could; what is no counter of bytes always does."""
    sources = (on_ladder("nvml-gpm", quick), on_ladder("ncu", 2.0, is_slow=True), counter("meter", measure=one_joule))
    monkeypatch.setattr(measure_module, "all_counters", lambda: sources)
    told: list[tuple[str, int, int]] = []
    run = measure(replace(NAIVE, counters=counters), cpu_device(), "", lambda *where: told.append(where))
    assert {m.source: m.value for m in run.measurements if m.name == "hbm_bytes"} == asked
    assert run.value("energy_joules") == 1.0
    assert told[-1][1] + 1 == told[-1][2], "the last phase is told as the last"


def test_a_slow_source_that_is_not_here_says_so_only_where_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    absent = on_ladder("ncu", 2.0, is_slow=True, unavailable=lambda device: "ncu is not installed")
    monkeypatch.setattr(measure_module, "all_counters", lambda: (on_ladder("nvml-gpm", None), absent))
    assert [m.source for m in measure(NAIVE, cpu_device(), "").measurements if m.name == "hbm_bytes"] == ["nvml-gpm"]
    (named,) = [m for m in measure(replace(NAIVE, counters="ncu"), cpu_device(), "").measurements if m.source == "ncu"]
    assert (named.value, named.note) == (None, "ncu is not installed")


@pytest.mark.parametrize("detail", [True, False])
def test_detail_counters_only_where_asked(monkeypatch: pytest.MonkeyPatch, detail: bool) -> None:
    monkeypatch.setattr(measure_module, "all_counters", lambda: (counter("m", measure=one_joule, is_detail=True),))
    run = measure(replace(NAIVE, detail=detail), cpu_device(), "")
    assert run.value("energy_joules") == (1.0 if detail else None)


@pytest.mark.parametrize(("ending", "value"), [(one_joule, 1.0), (unable, None)])
def test_a_watching_source_listens_while_others_measure(
    monkeypatch: pytest.MonkeyPatch, ending: Callable[[Bench], Reading], value: float | None
) -> None:
    order: list[str] = []

    @contextmanager
    def watch(bench: Bench) -> Iterator[Callable[[], Reading]]:
        order.append("begin")
        yield lambda: order.append("end") or ending(bench)  # type: ignore[func-returns-value]
        order.append("closed")

    def load(_: Bench) -> Reading:
        order.append("load")
        return Reading()

    run = measured_with(monkeypatch, counter("watcher", watch=watch), counter("load", measure=load, quantities=()))
    assert order == ["begin", "load", "end", "closed"]
    found = run.find("energy_joules")
    assert found is not None and found.value == value


def test_inputs_depend_on_the_seed_alone() -> None:
    first = [t.clone() for t in draw_inputs(PROBLEM, 1, "cpu")]
    other = draw_inputs(PROBLEM, 2, "cpu")
    again = draw_inputs(PROBLEM, 1, "cpu")
    assert all(a.equal(b) for a, b in zip(first, again, strict=True))
    assert not any(a.equal(b) for a, b in zip(first, other, strict=True))
    assert [tuple(t.shape) for t in first] == [(1, 2, 33, 16), (1, 1, 40, 16), (1, 1, 40, 16)]
    assert {t.dtype for t in first} == {torch.float16}


def test_the_interpreter_is_left_as_it_was() -> None:
    from triton.runtime.interpreter import InterpreterBuilder

    before = InterpreterBuilder.create_masked_load, InterpreterBuilder.create_masked_store
    with pytest.raises(KeyError), traced_accesses():
        raise KeyError
    assert before == (InterpreterBuilder.create_masked_load, InterpreterBuilder.create_masked_store)


def test_tracing_without_the_interpreter_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(os.environ, "TRITON_INTERPRET")
    with pytest.raises(RuntimeError, match=r"set TRITON_INTERPRET=1 first\.$"), traced_accesses():
        pass
