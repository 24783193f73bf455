"""What an audit measures: its grid, operations of known size, cuDNN, and how sources and the referee are asked."""

import json
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import pytest
import torch

from kernels.problem import AttentionProblem, Refused
from kernels.reference import reference
from profiler import audit_measure
from profiler.admission import MAX_INTERPRETED_STEPS, admit, needs
from profiler.audit_grid import KnownWork, LibraryWork, Subject, gpu_subjects, interpreted_subjects
from profiler.audit_limits import SOURCES
from profiler.audit_measure import by_referee, by_sources
from profiler.bench import Load, draw_inputs
from profiler.codec import NotARun
from profiler.counter import Counter, Reading, Unavailable
from profiler.device import cpu_device, limits
from profiler.known_loads import KnownLoad, LibraryLoad
from profiler.loads import build
from profiler.run import Measurement
from profiler.workload import CPU, Workload
from tests.fake_runs import H200

COPY = Subject(KnownWork("copy", 2**20))
FLASH = next(subject for subject in gpu_subjects("cuda:0") if subject.kernel == "flash")


def told(name: str, value: float | None, source: str, note: str = "why", launch: str | None = None) -> Measurement:
    return Measurement(name, value, "s" if name.endswith("seconds") else "B", source, note, launch=launch)


def test_the_grid_covers_what_is_asked() -> None:
    subjects = gpu_subjects("cuda:0")
    pairs = {(subject.label, subject.kernel) for subject in subjects}
    assert len(pairs) == len(subjects)
    assert [subject.kernel for subject in subjects[:3]] == ["copy", "fill", "sum"]
    attention = [subject for subject in subjects if not isinstance(subject.work, KnownWork)]
    assert len(attention) >= 24 and {subject.kernel for subject in attention} == {"naive", "flash", "cudnn"}
    for kernel in ("flash", "cudnn"):
        problems = [problem_of(subject) for subject in attention if subject.kernel == kernel]
        assert {problem.head_dim for problem in problems} == {64, 128, 256}
        assert {problem.causal for problem in problems} == {False, True}
        assert {min(p.seq_len_q for p in problems), max(p.seq_len_q for p in problems)} == {1024, 128 * 1024}
        assert any(problem.group > 1 for problem in problems)
        assert {problem.dtype for problem in problems} == {"bfloat16"}
    assert max(problem_of(s).seq_len_q for s in attention if s.kernel == "naive") == 8192
    quick = gpu_subjects("cuda:0", quick=True)
    assert len(quick) == 3 + 6 and set(quick) < set(subjects)


def problem_of(subject: Subject) -> AttentionProblem:
    assert not isinstance(subject.work, KnownWork)
    return subject.work.problem


def test_an_h200_admits_the_whole_grid() -> None:
    for subject in gpu_subjects("cuda:0"):
        if isinstance(subject.work, Workload):
            admit(subject.work, H200, limits(H200), free_bytes=140 * 10**9)


def test_the_interpreted_shapes_are_many_small_and_odd() -> None:
    subjects = interpreted_subjects()
    assert len(set(subjects)) == len(subjects) >= 24
    works = [subject.work for subject in subjects]
    assert all(isinstance(work, Workload) and not work.on_gpu for work in works)
    steps = [needs(work).tile_steps for work in works if isinstance(work, Workload)]
    assert sum(steps) < MAX_INTERPRETED_STEPS / 4, "well under a minute in all"
    problems = [problem_of(subject) for subject in subjects]
    assert {problem.dtype for problem in problems} == {"float16", "bfloat16", "float32"}
    assert any(problem.window for problem in problems) and any(problem.blind_queries for problem in problems)
    assert len(interpreted_subjects(quick=True)) == 6


@pytest.mark.parametrize(
    ("operation", "known"),
    [("copy", (4096, 4096)), ("fill", (0, 4096)), ("sum", (4096, 0))],
    ids=lambda value: str(value),
)
def test_known_loads_do_what_they_say(operation: str, known: tuple[int, int]) -> None:
    made = build(Subject(KnownWork(operation, 4096)).spec, cpu_device())
    assert isinstance(made, KnownLoad)
    assert (made.known["hbm_read_bytes"], made.known["hbm_write_bytes"]) == known
    assert made.compulsory_bytes == sum(known) and made.launch_names == (operation,)
    assert [(m.name, m.value, m.source) for m in made.measurements()] == [
        ("hbm_read_bytes", known[0], "model"),
        ("hbm_write_bytes", known[1], "model"),
    ]
    for _ in range(2):
        result = made.launch()
        expected = {"copy": torch.full((1024,), -1.0), "fill": torch.ones(1024), "sum": torch.tensor(1024.0)}[operation]
        assert torch.equal(result, expected)
    again = build(json.loads(json.dumps(made.spec)), cpu_device())
    assert again.spec == made.spec and again.compulsory_bytes == made.compulsory_bytes


def test_loads_refuse_what_they_do_not_know() -> None:
    with pytest.raises(Refused, match="Operation 'move' is not known; choose copy, fill, sum"):
        build({"known": {"operation": "move", "size": 4}}, cpu_device())
    for spec in ({}, {"unknown": {}}, {"known": {"operation": "copy"}}, {"known": 3}, {"library": {"problem": {}}}):
        with pytest.raises(NotARun):
            build(spec, cpu_device())


def test_a_load_is_made_anew_from_the_spec_of_every_subject() -> None:
    for subject in interpreted_subjects()[:2]:
        assert build(json.loads(json.dumps(subject.spec)), cpu_device()).spec == subject.spec


@pytest.mark.parametrize(
    ("problem", "sentence"),
    [
        (AttentionProblem(1, 1, 1, 8, 8, 16, window=3), "has no window"),
        (AttentionProblem(1, 1, 1, 8, 16, 16, causal=True), "wants seq_len_q = seq_len_kv"),
        (AttentionProblem(1, 1, 1, 8, 8, 16), "cuDNN's attention does not take this problem: No viable backend"),
    ],
)
def test_cudnn_refuses_with_a_reason(problem: AttentionProblem, sentence: str) -> None:
    with pytest.raises(Refused, match=sentence):
        LibraryLoad(LibraryWork(problem), cpu_device())


def test_cudnn_is_asked_for_the_same_attention(monkeypatch: pytest.MonkeyPatch) -> None:
    """With torch's own choice in place of cuDNN, a CPU shows that inputs, scale, mask and GQA are the problem's."""
    monkeypatch.setattr("kernels.library.sdpa.sdpa_kernel", lambda _: nullcontext())
    problem = AttentionProblem(1, 4, 2, 33, 33, 16, "float32", causal=True)
    made = build(Subject(LibraryWork(problem, seed=3)).spec, cpu_device())
    assert made.spec == Subject(LibraryWork(problem, 3)).spec and made.compulsory_bytes == problem.compulsory_bytes
    exact, _ = reference(*draw_inputs(problem, 3, CPU), problem)
    assert (made.launch().double() - exact).norm() < 1e-6 * exact.norm()


def test_an_error_of_cudnn_that_is_no_refusal_comes_through(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("CUDNN_STATUS_EXECUTION_FAILED")

    monkeypatch.setattr("kernels.library.sdpa.F.scaled_dot_product_attention", fail)
    with pytest.raises(RuntimeError, match="EXECUTION_FAILED"):
        LibraryLoad(LibraryWork(AttentionProblem(1, 1, 1, 8, 8, 16)), cpu_device())


def counter(name: str, source: str, **parts: Any) -> Counter:
    """A source that reads 1 B, unless `parts` say otherwise."""
    quantities = (("hbm_read_bytes", "B", source),)
    fake = {"measure": lambda load: Reading((told("hbm_read_bytes", 1.0, source),), {"hbm_read_bytes": (1.0,)})}
    return Counter(name, name, 1, name, quantities, lambda device: None, **(fake | parts))


def unable(load: Load) -> Reading:
    raise Unavailable("the run is too short")


def test_every_source_that_a_limit_names_is_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    counters = (
        counter("range", "cupti-range"),
        counter("sampling", "cupti-sampling", measure=unable, is_slow=True),
        counter("gpm", "nvml-gpm"),
        counter("allocator", "torch"),
        counter("detail", "cupti-range", is_detail=True),
        counter("ncu", "ncu"),
    )
    counters = tuple(
        replace(one, unavailable=lambda device: f"{device.device} has none") if one.name == "gpm" else one
        for one in counters
    )
    monkeypatch.setattr(audit_measure, "all_counters", lambda: counters)
    times = (told("gpu_time_seconds", 0.4, "cuda-event"), told("gpu_time_seconds", 0.5, "cupti-range"))
    monkeypatch.setattr(audit_measure, "counted_times", lambda load: times)
    seen: list[str] = []
    found = by_sources(COPY, cpu_device(), SOURCES, lambda phase, done, total: seen.append(f"{phase} {done}/{total}"))
    assert seen == ["range 0/3", "sampling 1/3", "gpm 2/3"]
    assert [(m.source, m.value, m.note) for m in found.measurements] == [
        ("model", 2.0**20, "copy of 1,048,576 B: each byte once"),
        ("model", 2.0**20, "copy of 1,048,576 B: each byte once"),
        ("cupti-range", 1.0, "why"),
        ("cupti-sampling", None, "the run is too short"),
        ("nvml-gpm", None, "cpu has none"),
        ("cuda-event", 0.4, "why"),
        ("cupti-range", 0.5, "why"),
    ]
    assert {m.name for m in found.measurements[-2:]} == {"gpu_time_seconds"}, "a pass's time, alone and counted"
    assert found.samples == {"hbm_read_bytes": (1.0,)} and set(found.phases) == {"range", "sampling", "gpm"}


def test_the_referee_gets_all_specs_at_once_and_answers_in_order() -> None:
    asked: list[Any] = []

    def referee(specs: Any) -> list[Reading]:
        asked.append(specs)
        return [Reading((told("hbm_read_bytes", float(index), "ncu"),)) for index, _ in enumerate(specs)]

    answered = by_referee((COPY, FLASH), H200, referee)
    assert asked == [[COPY.spec, FLASH.spec]]
    assert [(one.subject, one.measurements[0].value) for one in answered] == [(COPY, 0.0), (FLASH, 1.0)]
    with pytest.raises(ValueError, match="shorter"):
        by_referee((COPY, FLASH), H200, lambda specs: [])


def test_a_referee_that_cannot_measure_says_why_of_every_subject(monkeypatch: pytest.MonkeyPatch) -> None:
    def referee(specs: Any) -> list[Reading]:
        raise Unavailable("ncu is too old")

    for answered in by_referee((COPY, FLASH), H200, referee):
        assert [(m.name, m.value, m.note) for m in answered.measurements] == [
            (name, None, "ncu is too old")
            for name in ("hbm_read_bytes", "l2_sm_bytes", "l2_to_sm_bytes", "hbm_write_bytes")
        ]
    monkeypatch.setattr(audit_measure, "all_counters", lambda: (counter("range", "cupti-range"),))
    (answered,) = by_referee((COPY,), H200)
    assert {m.note for m in answered.measurements} == {"this Bytescope cannot ask ncu"}
    silent = replace(counter("ncu", "ncu"), unavailable=lambda device: "ncu is not installed")
    monkeypatch.setattr(audit_measure, "all_counters", lambda: (silent,))
    (answered,) = by_referee((COPY,), H200)
    assert {m.note for m in answered.measurements} == {"ncu is not installed"}


def test_ncu_measures_all_loads_from_one_start(monkeypatch: pytest.MonkeyPatch) -> None:
    starts: list[Any] = []

    def measure_loads(specs: Any, device: Any) -> tuple[Reading, ...]:
        starts.append(device)
        return tuple(Reading((told("hbm_read_bytes", spec["known"]["size"], "ncu"),)) for spec in specs)

    monkeypatch.setattr(audit_measure, "all_counters", lambda: (counter("ncu", "ncu"),))
    monkeypatch.setattr(audit_measure, "measure_loads", measure_loads)
    fill = Subject(KnownWork("fill", 64))
    assert [one.measurements[0].value for one in by_referee((COPY, fill), H200)] == [COPY.work.size, 64]
    assert starts == [H200]
