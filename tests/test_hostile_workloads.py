"""Problems, tiles and Workloads of any values: refused in one sentence, or measured as the float64 reference has it."""

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from kernels.base import all_kernels
from kernels.problem import ELEMENT_BYTES, ORDERS, AttentionProblem, Refused, TileConfig
from profiler.admission import admit, needs
from profiler.codec import NotARun, decode, encode
from profiler.device import GPUS, cpu_device
from profiler.measure import measure
from profiler.run_document import from_json, to_json
from profiler.workload import LADDER, TraceRequest, Workload
from tests.attention_cases import ALLOWED
from tests.hostile import ANYTHING, HOSTILE_TEXTS, often, quickly, require_sentence, spelled

pytestmark = pytest.mark.computes

SIZES = st.sampled_from(
    [1, 2, 3, 8, 16, 63, 64, 100, 1024, 1025, 2**20, 2**24, 2**24 + 1, 2**31, 2**63, 10**30, 10**5_000]
)
# Whatever somebody may pass in Python, whom no parser checks.
ANY = SIZES | ANYTHING | st.sampled_from([b"x", (), {1}, 1j, Ellipsis, int, object])
KERNELS = st.sampled_from(list(all_kernels()))


def fields_of(kind: Any, plausible: dict[str, st.SearchStrategy[Any]]) -> st.SearchStrategy[dict[str, Any]]:
    """Values for some fields: one or two of any kind, the others plausible."""
    whole = st.fixed_dictionaries({}, optional=plausible)
    spoiled = st.dictionaries(st.sampled_from(list(kind.__dataclass_fields__)), ANY, max_size=2)
    return st.builds(lambda good, bad: good | bad, whole, spoiled)


DTYPES = st.sampled_from(list(ELEMENT_BYTES)) | HOSTILE_TEXTS
PROBLEMS = fields_of(
    AttentionProblem,
    {
        **dict.fromkeys(("batch", "heads", "kv_heads", "seq_len_q", "seq_len_kv", "head_dim"), SIZES),
        "dtype": DTYPES,
        "causal": st.booleans(),
        "window": st.none() | SIZES,
    },
)
POWERS = st.integers(0, 12).map(lambda power: 2**power)
TILES = fields_of(
    TileConfig,
    {
        **dict.fromkeys(("BLOCK_M", "BLOCK_N", "num_warps"), POWERS),
        "num_stages": st.integers(1, 9),
        "order": st.sampled_from(ORDERS),
    },
)


def made(kind: Any, fields: dict[str, Any]) -> Any:
    """What the fields make; None where they are refused in a sentence."""
    try:
        with quickly():
            return kind(**fields)
    except Refused as refusal:
        require_sentence(str(refusal))
        return None


@often
@given(PROBLEMS, TILES)
def test_a_problem_and_a_tile_of_any_values_are_taken_or_refused(problem: dict[str, Any], tile: dict[str, Any]) -> None:
    for kind, fields in ((AttentionProblem, problem), (TileConfig, tile)):
        found = made(kind, fields)
        if found is not None:
            assert hash(found) == hash(kind(**fields))
            assert decode(kind, json.loads(json.dumps(encode(found)))) == found


@often
@given(KERNELS, PROBLEMS, TILES, st.sampled_from([None, *GPUS.values()]))
def test_what_is_taken_has_a_schedule_or_a_refusal_at_once(
    name: str, problem: dict[str, Any], tile: dict[str, Any], gpu: Any
) -> None:
    """Also where it would run for years: what a page shows of it takes no longer than a page may."""
    asked, cut = made(AttentionProblem, problem), made(TileConfig, tile)
    assume(asked is not None and cut is not None)
    try:
        with quickly():
            kernel = all_kernels()[name]
            used = kernel.cut(asked, cut) if kernel.is_tiled else None
            workload = Workload(name, asked, used, device="cuda:0" if gpu else "cpu")
            need = needs(workload)
            assert all(size >= 0 for size in need.tensors.values())
            assert asked.compulsory_bytes >= 0 and 0 <= asked.visible_pairs <= asked.seq_len_q * asked.seq_len_kv
            device = cpu_device() if gpu is None else replace(cpu_device(), device="cuda:0", compute_capability=(9, 0))
            admit(workload, device, gpu and gpu.limits, 2**37)
    except Refused as refusal:
        require_sentence(str(refusal))


def workload_documents() -> st.SearchStrategy[Any]:
    """A Workload as a file spells it, one or two of its values of any kind."""
    plausible = encode(Workload("flash", AttentionProblem(), TileConfig(), trace=TraceRequest()))
    names = [
        *plausible,
        *(f"problem.{name}" for name in plausible["problem"]),
        *(f"tile.{name}" for name in plausible["tile"]),
    ]

    def spoil(changes: dict[str, Any]) -> Any:
        document = json.loads(json.dumps(plausible))
        for name, value in changes.items():
            part, _, inner = name.partition(".")
            if inner and isinstance(document[part], dict):
                document[part][inner] = value
            else:
                document[part] = value
        return document

    words = KERNELS | st.sampled_from([*LADDER, "warm", "auto", "cuda:0", "cuda:99999", "cuda:٣", "a.b:c", "x:y:z"])
    return st.dictionaries(st.sampled_from(names), words | ANYTHING, max_size=3).map(spoil)


@often
@given(workload_documents())
def test_a_workload_from_a_file_is_taken_or_refused(document: Any) -> None:
    try:
        with quickly():
            found = decode(Workload, json.loads(spelled(document)), "workload")
    except NotARun as fault:
        require_sentence(str(fault))
    except (ValueError, RecursionError):
        assert "raw-token" in json.dumps(document)  # no JSON, which is for its reader
    else:
        assert decode(Workload, json.loads(json.dumps(encode(found))), "workload") == found


@st.composite
def small_workloads(draw: st.DrawFn) -> Workload:
    """Workloads that the interpreter goes through in a fraction of a second, of every kernel."""
    name = draw(KERNELS)
    kv_heads = draw(st.integers(1, 2))
    problem = AttentionProblem(
        draw(st.integers(1, 2)),
        kv_heads * draw(st.integers(1, 2)),
        kv_heads,
        draw(st.sampled_from([1, 2, 7, 16, 17, 33])),
        draw(st.sampled_from([1, 2, 7, 16, 17, 33])),
        draw(st.sampled_from([1, 3, 16, 17, 64])),
        draw(st.sampled_from(list(ELEMENT_BYTES))),
        draw(st.booleans()),
        draw(st.none() | st.integers(1, 40)),
    )
    kernel = all_kernels()[name]
    block, order = st.sampled_from([16, 32]), draw(st.sampled_from(kernel.orders))
    try:
        tile = kernel.cut(problem, TileConfig(draw(block), draw(block), order=order)) if kernel.is_tiled else None
        trace = TraceRequest(0, problem.heads - 1, draw(st.none() | st.integers(0, problem.seq_len_q - 1)))
        workload = Workload(
            name, problem, tile, seed=draw(st.integers(0, 2**63 - 1)), trace=trace if kernel.records else None
        )
        admit(workload, cpu_device(), None, 2**32)
    except Refused as refusal:
        require_sentence(str(refusal))
        assume(False)
        raise
    return workload


@settings(max_examples=max(15, settings().max_examples // 10))
@given(small_workloads())
def test_what_is_admitted_is_measured_as_the_reference_has_it(workload: Workload) -> None:
    run = measure(workload, cpu_device(), "request")
    assert from_json(to_json([run])) == (run,)
    error = run.find("relative_error")
    blind = workload.problem.blind_queries == workload.problem.seq_len_q
    assert error is not None and (error.value is not None or blind), error
    assert (error.value or 0.0) <= ALLOWED[workload.problem.dtype], error
    for name in ("requested_read_bytes", "requested_write_bytes"):
        seen, planned = (run.find(name, source=source) for source in ("interpreter", "schedule"))
        assert seen is None or planned is None or seen.value == planned.value, (name, seen, planned)
