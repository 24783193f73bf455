"""From the form's fields to Workloads or a sentence, and what they will cost."""

import pytest

from app.cost import cost, refusal
from app.form import OTHERS, cost_html, request, shows_others
from app.presets import CUSTOM, PRESETS, fill, preset_of
from kernels.problem import AttentionProblem, Refused, TileConfig
from profiler.admission import INTERPRETED_STEP_SECONDS
from profiler.run import DeviceInfo
from profiler.workload import workloads
from tests.fake_runs import H200, cpu_run

SMALL = fill("Small, for a CPU", "cpu") | OTHERS
CPU = DeviceInfo("cpu", "Two-core CPU")


def test_the_small_preset_is_what_a_cpu_runs_by_default() -> None:
    naive, flash = request(SMALL)
    assert (naive.kernel, naive.tile, flash.kernel, flash.tile) == ("naive", None, "flash", TileConfig(64, 64, 4, 3))
    assert flash.problem == AttentionProblem(1, 2, 2, 512, 512, 64, "float16")
    assert refusal((naive, flash), CPU, 2**33) == ""


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_can_be_built_and_is_recognised(name: str) -> None:
    filled = fill(name, "cuda:0")
    assert request(filled | OTHERS)
    assert preset_of(filled, "cuda:0") == name
    assert preset_of(filled | {"batch": 3}, "cuda:0") == CUSTOM


@pytest.mark.parametrize("name", [name for name in PRESETS if "CPU" not in name])
def test_gpu_presets_run_on_an_h200(name: str) -> None:
    wanted = request(fill(name, "cuda:0") | OTHERS)
    assert refusal(wanted, H200, 149 * 10**9) == ""


def test_the_article_runs_in_4_by_4_tiles_through_the_interpreter() -> None:
    wanted = request(fill("Article, 16×16 in 4×4 tiles (CPU)", "cuda:0") | OTHERS)
    assert {workload.device for workload in wanted} == {"cpu"}
    assert refusal(wanted, CPU, 2**30) == ""


def test_keys_follow_queries_unless_asked_otherwise() -> None:
    assert request(SMALL | {"seq_len_q": 100})[0].problem.seq_len_kv == 100
    assert request(SMALL | {"seq_len_q": 100, "seq_len_kv": 7})[0].problem.seq_len_kv == 7


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"BLOCK_M": "48"}, "BLOCK_M is 48; it must be a power of two up to 1024, such as 32."),
        ({"BLOCK_N": "many"}, "BLOCK_N is 'many'; it must be a whole number."),
        ({"BLOCK_N": "6.5"}, "BLOCK_N is '6.5'; it must be a whole number."),
        ({"batch": None}, "batch is empty; give a whole number."),
        ({"batch": 0}, "batch is 0; it must be at least 1."),
        ({"seq_len_q": -5}, "seq_len_q is -5; it must be at least 1."),
        ({"heads": 32, "kv_heads": 5}, "kv_heads 5 does not divide heads 32; choose one of 1, 2, 4, 8, 16, 32."),
        ({"head_dim": 257}, "head_dim 257 is above 256; choose 1 to 256."),
        ({"num_stages": 9}, "num_stages is 9; choose 1 to 8."),
        ({"window": 0}, "window is 0; it must be at least 1."),
        ({"kernels": []}, "No kernel is chosen; choose at least one."),
        ({"timeout": 0}, "The time-out must be 1 to 86,400 seconds."),
        ({"trace_row": 512}, "The traced row is 512; this problem has 0 to 511."),
    ],
)
def test_what_cannot_be_is_refused_with_a_sentence(change: dict[str, object], sentence: str) -> None:
    with pytest.raises(Refused) as refused:
        request(SMALL | change)
    assert str(refused.value) == sentence


def test_cost_by_hand() -> None:
    problem = AttentionProblem(1, 2, 2, 512, 512, 64, "float16")
    found = cost(workloads(("naive", "flash"), problem, TileConfig(64, 64), "cpu"))
    tensor = 2 * 512 * 64 * 2  # 131,072 B each of Q, K, V, O
    scores = 2 * 512 * 512 * 2  # 1,048,576 B
    assert (found.compulsory_bytes, found.score_bytes) == (4 * tensor, scores)
    assert found.requested_bytes["Naive"] == 6 * scores + 4 * tensor
    # Q and O once, K and V once for each of 8 Q tiles, LSE 4 B a row.
    assert found.requested_bytes["Flash"] == 2 * tensor + 8 * 2 * tensor + 2 * 512 * 4
    assert found.memory_bytes["Naive"] == 4 * tensor + 2 * scores
    assert found.memory_bytes["Flash"] == 4 * tensor + 2 * 512 * 4
    assert found.interpreted_seconds == pytest.approx(2 * 8 * 8 * INTERPRETED_STEP_SECONDS)


def test_a_gpu_has_no_interpreted_time() -> None:
    assert cost(workloads(("flash",), AttentionProblem(), TileConfig(), "cuda:0")).interpreted_seconds is None


def test_naive_that_does_not_fit_is_refused_with_need_and_free_bytes() -> None:
    wanted = request(fill("Long 64K, flash only", "cuda:0") | OTHERS | {"kernels": ["naive"]})
    # S and P: 2 · 4 heads · 65,536² · 2 B = 64 GiB; Q, K, V, O: 0.25 GiB.
    sentence = refusal(wanted, H200, 40 * 2**30)
    assert sentence.startswith("Naive needs 64.2 GiB (S alone 32.0) but NVIDIA H200 has 40.0 GiB free;")


def test_the_form_says_when_the_runs_shown_have_other_settings() -> None:
    run = cpu_run()
    assert shows_others((run.workload,), (run,)) == ""
    assert shows_others((run.workload,), ()) == ""
    assert shows_others(request(SMALL), (run,)) == "The Runs shown have other settings."


def test_cost_in_the_form_names_every_source() -> None:
    html = cost_html(cost(workloads(("naive", "flash"), AttentionProblem(), TileConfig(), "cpu")), "cpu")
    assert html.count('class="bs-badge derived"') == 3
    assert "score matrix 2.10 MB" in html and "roughly" in html
