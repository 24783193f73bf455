"""The allocator's history of a pass: recorded from a fake of torch's, named, saved, and refused where it cannot be."""

import copy
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from kernels.problem import AttentionProblem, TileConfig
from kernels.run import Output
from profiler.bench import Bench, PassTensors
from profiler.codec import NotARun
from profiler.counters import torch_memory
from profiler.device import cpu_device
from profiler.memory_names import Known, named
from profiler.memory_recorder import MOST_ENTRIES, NotRecorded, read_snapshot, recording
from profiler.memory_trace import MOST_EVENTS, MemoryEvent, MemoryTrace
from profiler.run import DeviceInfo
from profiler.run_document import from_json, to_document, to_json
from profiler.store import readable
from profiler.workload import Workload
from tests import fake_memory
from tests.fake_memory import MIB, FakeAllocator

H200 = DeviceInfo("cuda:0", "NVIDIA H200", compute_capability=(9, 0))
SCORES, OUTPUT = 64 * MIB, 3 * MIB


def names_of(trace: MemoryTrace, action: str = "alloc") -> list[str]:
    return [event.name for event in trace.events if event.action == action]


@pytest.fixture
def allocator(monkeypatch: pytest.MonkeyPatch) -> FakeAllocator:
    fake = FakeAllocator()
    fake.patch(monkeypatch)
    return fake


def test_events_belong_to_the_launches_that_made_them(allocator: FakeAllocator) -> None:
    allocator.alloc(512)
    with recording("cuda:0") as recorder:
        fake_memory.naive_pass(allocator, recorder.launch, SCORES, OUTPUT)
        recorder.stop()
    assert not allocator.is_recording
    trace = recorder.trace()
    made = [(event.launch, event.size) for event in trace.events if event.action == "alloc"]
    assert made == [("qk", SCORES), ("qk", 32 * MIB), ("softmax", SCORES), ("pv", OUTPUT)]
    freed = [(event.launch, event.size) for event in trace.events if event.action == "free_requested"]
    assert freed == [("", SCORES), ("", SCORES)], "not the workspace, which was given up after the pass"
    assert {event.action for event in trace.events} == {"segment_alloc", "alloc", "free_requested", "free_completed"}
    assert [block.size for block in trace.before] == [512]
    assert len(recorder.workspaces) == 1


def test_seconds_count_from_the_first_event(allocator: FakeAllocator) -> None:
    """The fake's clock goes on by 10 µs an entry; two snapshots and an allocation's segment lie between the two."""
    with recording("cuda:0") as recorder:
        allocator.alloc(512)
        with recorder.launch("a"):
            allocator.alloc(1024)
        recorder.stop()
    times = [event.seconds for event in recorder.trace().events if event.action == "alloc"]
    assert times == pytest.approx([10e-6, 40e-6])


def test_frames_do_not_tell_where_files_lie(allocator: FakeAllocator) -> None:
    with recording("cuda:0") as recorder:
        allocator.alloc(512)
        recorder.stop()
    (event,) = [event for event in recorder.trace().events if event.action == "alloc"]
    assert [(f.file, f.line, f.function) for f in event.frames] == [
        ("torch/functional.py", 7, "softmax"),
        ("secret.py", 46, "forward"),
    ]


def test_history_is_off_after_an_error(allocator: FakeAllocator) -> None:
    with pytest.raises(ValueError, match="of the kernel"), recording("cuda:0") as recorder:
        raise ValueError("of the kernel")
    assert not allocator.is_recording
    with pytest.raises(NotRecorded, match="did not come to its end"):
        recorder.trace()


def test_an_allocator_that_cannot_record_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise RuntimeError("cudaMallocAsync does not record")

    monkeypatch.setattr(torch.cuda.memory, "_record_memory_history", refuse)
    with recording("cuda:0") as recorder:
        with recorder.launch("a"):
            pass
        recorder.stop()
    with pytest.raises(NotRecorded, match="cudaMallocAsync does not record"):
        recorder.trace()


@pytest.mark.parametrize("entries", [MOST_EVENTS + 1, MOST_ENTRIES])
def test_more_than_a_run_keeps_is_not_recorded_by_half(entries: int) -> None:
    action = "alloc" if entries <= MOST_EVENTS + 1 else "snapshot"
    entry = {"action": action, "addr": 1, "size": 1, "stream": 0}
    with pytest.raises(NotRecorded, match="more in this pass than a Run keeps"):
        read_snapshot({"segments": [], "device_traces": [[entry] * entries]}, 0, [])


def test_another_device_has_no_part_in_it() -> None:
    fake = FakeAllocator()
    fake.alloc(512)
    assert read_snapshot(fake.snapshot(), 1, []) == MemoryTrace((), ())


def test_every_tensor_of_naive_has_its_name() -> None:
    trace = fake_memory.naive_run().memory
    assert trace is not None
    assert names_of(trace) == ["s", "workspace", "p", "o"]
    assert names_of(trace, "free_completed") == ["s", "p"]
    assert sorted(block.name for block in trace.before) == ["k", "q", "v"]
    # S and P have gone back to the cache, where a block is nobody's.
    assert sorted(block.name for block in trace.blocks) == ["", "", "k", "o", "q", "v", "workspace"]


def alloc(size: int, address: int, launch: str = "") -> MemoryEvent:
    return MemoryEvent("alloc", address, size, 0.0, 0, launch)


def told(*events: MemoryEvent, outputs: dict[int, str] | None = None, **sizes: int) -> list[str]:
    writes = {"qk": frozenset({"s"}), "softmax": frozenset({"p"})}
    known = Known({}, outputs or {}, frozenset(), sizes, writes)
    return names_of(named(MemoryTrace((), events), known))


def test_a_name_is_given_only_where_it_is_certain() -> None:
    assert told(alloc(8, 1, "qk"), alloc(8, 2, "softmax"), s=8, p=8) == ["s", "p"], "the launch tells them apart"
    assert told(alloc(8, 1, "qk"), alloc(8, 2, "qk"), s=8, p=8) == ["other", "other"], "one of two is S"
    assert told(alloc(8, 1), alloc(8, 2), alloc(4, 3), m=8, l=8, acc=4) == ["m or l", "m or l", "acc"]
    assert told(alloc(8, 1), alloc(8, 2), alloc(8, 3), m=8, l=8) == ["other"] * 3
    assert told(alloc(7, 1), s=8) == ["other"], "another size"
    assert told(alloc(8, 1), alloc(8, 2), outputs={2: "lse"}, lse=8, m=8) == ["m", "lse"], (
        "an output's address is known"
    )


def test_an_address_is_named_by_who_holds_it_at_the_time() -> None:
    """Scratch is freed, and O put in its place: only the later one is O."""
    events = (alloc(8, 1), MemoryEvent("free_requested", 1, 8, 0.0, 0), alloc(6, 1))
    assert told(*events, outputs={1: "o"}) == ["other", "o"]


def test_a_bench_knows_its_tensors() -> None:
    """Masked naive: Q, K, V and the mask are there before; S and P are made by two of its launches."""
    bench = Bench(Workload("naive", AttentionProblem(1, 2, 2, 8, 8, 16, causal=True), None), cpu_device())
    assert list(bench.tensors.before) == ["q", "k", "v", "mask"]
    assert bench.tensors.sizes == {"s": 256, "p": 256}
    assert bench.tensors.writes["qk"] == {"s"} and bench.tensors.writes["softmax"] == {"p"}
    flash = Bench(Workload("flash", AttentionProblem(1, 2, 2, 8, 8, 16), TileConfig(16, 16)), cpu_device())
    assert list(flash.tensors.before) == ["q", "k", "v"] and flash.tensors.sizes == {"lse": 64}


def test_a_bench_knows_the_tensors_of_its_backward_pass() -> None:
    """dO is there before; naive has P, dP, dP∘P and dS at its peak, no dQ yet; flash has delta and the sums of dQ."""
    problem = AttentionProblem(1, 2, 2, 64, 64, 16, backward=True)
    naive = Bench(Workload("naive", problem, None), cpu_device())
    assert list(naive.tensors.before) == ["q", "k", "v", "do"]
    assert naive.tensors.sizes == dict.fromkeys(("p", "ds", "dp", "dp_p"), 2 * 64 * 64 * 2)
    assert naive.tensors.writes["dp"] == {"dp"} and naive.tensors.writes["scale_ds"] == {"ds"}
    flash = Bench(Workload("flash", problem, TileConfig(16, 16)), cpu_device())
    assert flash.tensors.sizes == {"lse": 512, "delta": 512, "dq_sum": 2 * 64 * 16 * 4}
    assert list(flash.launch().named()) == ["o", "lse", "dq", "dk", "dv"]
    assert list(naive.launch().named()) == ["o", "dq", "dk", "dv"] and naive.launch().p is None
    inputs, do = flash.inputs, flash.do
    assert do is not None and do.shape == inputs[0].shape and not do.equal(inputs[0])
    forward = Bench(Workload("flash", replace(problem, backward=False), TileConfig(16, 16)), cpu_device())
    assert all(one.equal(other) for one, other in zip(forward.inputs, inputs, strict=True)) and forward.do is None


def held_at(address: int) -> Any:
    """What a tensor tells of itself."""
    return SimpleNamespace(data_ptr=lambda: address)


class FakeLoad:
    """A pass of naive that allocates with the fake."""

    device = H200

    def __init__(self, fake: FakeAllocator) -> None:
        q, k, v = (held_at(fake.alloc(OUTPUT)) for _ in "qkv")
        self.fake = fake
        writes = {"qk": frozenset({"s"}), "softmax": frozenset({"p"})}
        self.tensors = PassTensors({"q": q, "k": k, "v": v}, {"s": SCORES, "p": SCORES}, writes)

    def synchronize(self) -> None: ...

    def launch(self, hook: Callable[[str], Any]) -> Output:
        address = fake_memory.naive_pass(self.fake, hook, SCORES, OUTPUT)
        return Output(held_at(address))


@pytest.fixture
def gpu(allocator: FakeAllocator, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeAllocator]:
    """torch's figures of a GPU, without one; NVML is not there."""
    nothing = ("empty_cache", "reset_peak_memory_stats")
    for name in nothing:
        monkeypatch.setattr(torch.cuda, name, lambda *_: None)
    figures = {"memory_allocated": 9, "max_memory_allocated": 172, "max_memory_reserved": 180, "memory_reserved": 180}
    for name, mib in figures.items():
        monkeypatch.setattr(torch.cuda, name, lambda _, mib=mib: mib * MIB)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    return allocator


def test_the_counter_gives_figures_events_and_reasons(gpu: FakeAllocator) -> None:
    reading = torch_memory.measure(FakeLoad(gpu))  # type: ignore[arg-type]
    found = {m.name: m for m in reading.measurements}
    assert set(found) == {name for name, *_ in torch_memory.COUNTER.quantities}
    assert found["peak_allocated_bytes"].value == 172 * MIB and found["baseline_allocated_bytes"].value == 9 * MIB
    assert found["context_bytes"].value is None and "NVML" in found["context_bytes"].note
    assert reading.memory is not None and names_of(reading.memory) == ["s", "workspace", "p", "o"]
    assert found["allocator_events"].value == len(reading.memory.events) == 12
    assert not gpu.is_recording


def test_figures_stay_where_history_cannot_be_had(gpu: FakeAllocator, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise RuntimeError("not with this backend")

    monkeypatch.setattr(torch.cuda.memory, "_record_memory_history", refuse)
    reading = torch_memory.measure(FakeLoad(gpu))  # type: ignore[arg-type]
    found = {m.name: m for m in reading.measurements}
    assert found["peak_allocated_bytes"].value == 172 * MIB
    assert reading.memory is None and found["allocator_events"].value is None
    assert "not with this backend" in found["allocator_events"].note


def test_a_trace_comes_back_from_its_file() -> None:
    run = fake_memory.naive_run()
    assert from_json(to_json([run])) == (run,)
    older = to_document([replace(run, memory=None)])
    del older["runs"][0]["memory"]
    assert from_json(json.dumps(older))[0].memory is None, "files from before it was recorded"


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda m: m["events"][0].update(action="explode"), "has an event 'explode'"),
        (lambda m: m["events"][0].update(size=-1), "which no GPU has"),
        (lambda m: m["events"][0].update(address=2**63), "which no GPU has"),
        (lambda m: m["events"][0].update(seconds=-1.0), "which no pass lasts"),
        (lambda m: m["events"][0].update(name="\x1b[2J"), "cannot be printed"),
        (lambda m: m["events"][0].update(name="q" * 65), "of more than 64 letters"),
        (lambda m: m["events"][1]["frames"][0].update(line=-1), "a line that no file has"),
        (lambda m: m["events"].extend(m["events"] * 400), "more than 4,000 events"),
        (lambda m: m["segments"][0]["blocks"][0].update(state="lost"), "has a block 'lost'"),
        (lambda m: m["segments"][0]["blocks"][0].update(requested=2**40), "has a block 'active_allocated'"),
        (lambda m: m["segments"][0]["blocks"].append(m["segments"][0]["blocks"][0]), "blocks that overlap"),
        (lambda m: m["segments"][0].update(size=512), "more blocks than it holds"),
        (lambda m: m["segments"][0].update(stream=2**70), "which no GPU has"),
    ],
)
def test_a_trace_that_no_allocator_made_is_refused(change: Callable[[dict[str, Any]], object], sentence: str) -> None:
    document = copy.deepcopy(to_document([fake_memory.naive_run()]))
    change(document["runs"][0]["memory"])
    with pytest.raises(NotARun, match=sentence):
        from_json(json.dumps(document))


def test_a_history_that_cannot_be_read_does_not_cost_the_run() -> None:
    run = fake_memory.naive_run()
    assert run.memory is not None
    broken = replace(run, memory=MemoryTrace((), (alloc(-1, 1),)))
    kept = readable(broken)
    assert kept.memory is None and kept.value("peak_allocated_bytes") == run.value("peak_allocated_bytes")
