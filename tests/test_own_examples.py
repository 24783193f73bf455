"""The kernels in examples/ that stand for a user's own: right at odd lengths, and asking for what they say."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from examples import own_flex
from kernels.base import all_kernels
from kernels.own_forward import forward_of
from kernels.own_import import imported, permit
from kernels.problem import AttentionProblem, TileConfig
from kernels.reference import reference
from kernels.run import Output
from profiler.device import cpu_device
from profiler.measure import measure
from profiler.run import Run
from profiler.workload import CPU, Workload
from tests.attention_cases import check, draw

TWO_PASS, STREAMED, DOCUMENTS = NAMES = (
    "examples.own_triton:two_pass",
    "examples.own_tiled:streamed",
    "examples.own_flex:documents",
)
TILE = TileConfig(16, 32, num_stages=2)
PROBLEMS = {
    "one": AttentionProblem(1, 1, 1, 1, 1, 16),
    "seq_63": AttentionProblem(1, 1, 1, 63, 63, 32, "float32"),
    "seq_100": AttentionProblem(2, 2, 1, 100, 100, 24, causal=True),
    "head_dim_63": AttentionProblem(1, 1, 1, 33, 65, 63),
    "causal_2_over_5": AttentionProblem(1, 1, 1, 2, 5, 16, "float32", causal=True),
    "causal_70_over_40": AttentionProblem(1, 2, 2, 70, 40, 16, "float32", causal=True),
    "gqa_6_over_2": AttentionProblem(1, 6, 2, 37, 50, 16, causal=True),
}


@pytest.fixture(autouse=True)
def permitted() -> Iterator[None]:
    permit(NAMES, str(Path(__file__).parents[1]))
    yield
    permit((), "")


def run_of(name: str, problem: AttentionProblem, tile: TileConfig = TILE) -> Run:
    return measure(Workload(name, problem, tile, CPU), cpu_device(), "request")


@pytest.mark.usefixtures("poisoned")
@pytest.mark.parametrize("problem", PROBLEMS.values(), ids=PROBLEMS)
@pytest.mark.parametrize("name", [TWO_PASS, STREAMED])
def test_against_float64(name: str, problem: AttentionProblem) -> None:
    check(forward_of(imported(name)), problem, TILE, draw(problem))


@pytest.mark.parametrize("problem", PROBLEMS.values(), ids=PROBLEMS)
def test_the_schedule_that_it_names_is_what_the_interpreter_sees(problem: AttentionProblem) -> None:
    run = run_of(STREAMED, problem)
    assert (run.workload.like, run.workload.tile) == ("flash", TILE)
    flash = all_kernels()["flash"].schedule(problem, TILE)
    for way, expected in (("read", flash.requested_read_bytes), ("write", flash.requested_write_bytes)):
        for source in ("schedule", "interpreter"):
            told = run.find(f"requested_{way}_bytes", source=source)
            assert told is not None and told.value == expected, (way, source)
    walk = run.workload.attention_kernel.schedule(problem, TILE).walk
    assert walk is not None and walk.grid.BLOCK_M == 16


@pytest.mark.parametrize(
    ("causal", "keys"),
    [(False, 4 * 100), (True, 32 + 64 + 96 + 100)],  # that four Q tiles of 32 look at
)
def test_two_passes_read_k_twice(causal: bool, keys: int) -> None:
    run = run_of(TWO_PASS, AttentionProblem(1, 2, 2, 100, 100, 64, "float32", causal))
    row = 64 * 4
    assert run.value("requested_read_bytes") == 2 * (100 + 2 * keys + keys) * row
    assert run.value("requested_write_bytes") == 2 * 100 * row
    assert run.workload.tile is None


@pytest.mark.parametrize("causal", [False, True])
def test_documents_are_attention_of_each_document(causal: bool) -> None:
    whole = AttentionProblem(1, 2, 1, 500, 500, 16, "float32", causal)
    q, k, v = draw(whole)
    o = forward_of(imported(DOCUMENTS))(q, k, v, whole, TileConfig()).o
    for start in range(0, 500, own_flex.DOCUMENT):
        part = slice(start, min(start + own_flex.DOCUMENT, 500))
        rows = part.stop - part.start
        exact, _ = reference(
            q[:, :, part], k[:, :, part], v[:, :, part], replace(whole, seq_len_q=rows, seq_len_kv=rows)
        )
        torch.testing.assert_close(o[:, :, part].double(), exact, rtol=2e-6, atol=2e-6)
    run = run_of(DOCUMENTS, whole)
    told = run.find("relative_error")
    assert told is not None and 0 < (told.value or 0) < 1e-6
    assert told.note.startswith("against the kernel's own reference")


@pytest.mark.gpu
@pytest.mark.parametrize("problem", PROBLEMS.values(), ids=PROBLEMS)
@pytest.mark.parametrize("name", [TWO_PASS, STREAMED])
def test_against_float64_on_a_gpu(name: str, problem: AttentionProblem) -> None:
    inputs = draw(problem, "cuda:0")

    def forward(*arguments: object, **options: object) -> Output:
        return forward_of(imported(name))(*arguments, **options)  # type: ignore[arg-type]

    check(forward, problem, TILE, inputs)
