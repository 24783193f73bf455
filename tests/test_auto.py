"""auto: what it chooses from a table of measurements, what it refuses, and where it is offered."""

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from app import form
from benchmarks.auto_table import problems
from kernels.problem import LINEAR, LONGEST_FIRST, AttentionProblem, Refused, TileConfig
from profiler import auto
from profiler.codec import NotARun, encode
from profiler.device import GPUS, cpu_device
from profiler.run import DeviceInfo
from profiler.workload import TraceRequest, workloads
from tests.command_line import answer_to
from tests.test_app_form import SMALL as SMALL_FORM

pytestmark = pytest.mark.computes

LONG = AttentionProblem(1, 16, 16, 8192, 8192, 128, "bfloat16")
SHORT = replace(LONG, seq_len_q=1024, seq_len_kv=1024)
DECODE = replace(LONG, heads=32, kv_heads=8, seq_len_q=1, seq_len_kv=65536)
CAUSAL, NARROW = replace(LONG, causal=True), replace(LONG, head_dim=64)
WIDE, SMALL, SPLIT = TileConfig(128, 128, 8, 2), TileConfig(64, 64, 4, 3), TileConfig(16, 64, 4, 3)
CHOICES = (
    auto.Choice(LONG, "flash_ws", WIDE, 8e-4, 7),
    auto.Choice(SHORT, "flash_tma", SMALL, 3e-5, 7),
    auto.Choice(DECODE, "split_kv", SPLIT, 1e-4, 4),
    auto.Choice(CAUSAL, "flash_ws", replace(WIDE, order=LONGEST_FIRST), 4e-4, 7),
    auto.Choice(NARROW, "flash", SMALL, 6e-4, 7),
    auto.Choice(replace(NARROW, dtype="float32"), "flash", SMALL, 6e-3, 2),
)
H200 = DeviceInfo("cuda:0", "NVIDIA H200", compute_capability=(9, 0), shared_memory_per_block=232_448)
HOW: auto.How = (0, "cold", 20, None, "auto", True, False)


KEPT = auto.FOLDER


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with the one table of this test."""
    table = auto.Table("NVIDIA H200", "by hand", CHOICES)
    (tmp_path / "h200.json").write_text(json.dumps(encode(table)))
    monkeypatch.setattr(auto, "FOLDER", tmp_path)
    auto.tables.cache_clear()
    yield tmp_path
    auto.tables.cache_clear()


@pytest.mark.parametrize(
    ("problem", "kernel"),
    [
        (LONG, "flash_ws"),
        (replace(LONG, seq_len_q=4096, seq_len_kv=4096), "flash_ws"),  # 1 + 1 octaves from 8192, 2 + 2 from 1024
        (replace(LONG, seq_len_q=2048, seq_len_kv=2048), "flash_tma"),
        (replace(LONG, seq_len_q=1, seq_len_kv=8192), "split_kv"),
        (replace(CAUSAL, seq_len_q=512, seq_len_kv=512), "flash_ws"),  # the mask counts more than the length
        (replace(LONG, head_dim=40), "flash"),  # held as 64
        (replace(LONG, dtype="float16"), "flash_ws"),  # as many bytes
        (replace(LONG, dtype="float32"), "flash"),
        (replace(LONG, window=100), "flash_tma"),  # flash_ws has no window, and the next in distance runs it
    ],
    ids=str,
)
def test_the_nearest_that_runs_is_chosen(problem: AttentionProblem, kernel: str) -> None:
    assert auto.choose(problem, H200).kernel == kernel


def test_distance_by_hand() -> None:
    """Mask, window, bytes of an element and width by themselves; then octaves of length, heads and group."""
    other = AttentionProblem(2, 16, 4, 1024, 1024, 100, "float32", window=5)
    assert auto.distance(LONG, other) == (0, 0, 1, 1, 0, 3 + 3 + 1 + 2)


def test_what_it_cannot_choose_is_one_sentence() -> None:
    with pytest.raises(Refused, match=r"^auto goes by what was measured on a GPU; on the CPU choose a kernel"):
        auto.choose(LONG, cpu_device())
    with pytest.raises(Refused, match=r"^auto has no measurements of NVIDIA A100-SXM4-80GB; choose a kernel by its"):
        auto.choose(LONG, replace(H200, name="NVIDIA A100-SXM4-80GB"))
    v100 = replace(H200, compute_capability=GPUS["v100"].compute_capability)
    with pytest.raises(Refused, match=r"^auto knows no kernel that runs \(1, 16, 8192, 128\) bfloat16"):
        auto.choose(LONG, v100)


def test_it_is_one_workload_of_what_it_chose() -> None:
    """Beside others, which have the tile and the orders that were asked for; the choice has its own."""
    tile = TileConfig(32, 32, 4, 2)
    chosen, said = auto.asked(
        ("auto", "naive", "flash"), CAUSAL, tile, "cuda:0", HOW, (LINEAR, LONGEST_FIRST), lambda name: H200
    )
    assert [one.kernel for one in chosen] == ["naive", "flash", "flash", "flash_ws"]
    assert [one.tile and one.tile.order for one in chosen] == [None, LINEAR, LONGEST_FIRST, LONGEST_FIRST]
    assert chosen[-1].tile == replace(WIDE, order=LONGEST_FIRST)
    assert said == (
        "auto chose flash_ws with 128×128 tiles, longest_first: the fastest forward pass of 7 at "
        "(1, 16, 8192, 128) bfloat16, causal."
    )


def test_without_it_nothing_is_chosen() -> None:
    how: auto.How = (3, "warm", 5, TraceRequest(), "ncu", False, True)
    assert auto.asked(("flash",), LONG, SMALL, "cuda:0", how, (LINEAR,)) == (
        workloads(("flash",), LONG, SMALL, "cuda:0", *how, (LINEAR,)),
        "",
    )


def test_a_table_that_is_none_is_named(folder: Path) -> None:
    (folder / "h200.json").write_text('{"gpu": 5}')
    auto.tables.cache_clear()
    with pytest.raises(NotARun, match=r"^h200\.json"):
        auto.tables()
    auto.tables.cache_clear()
    assert auto.fault().startswith("auto cannot read its table: h200.json") and not auto.has_table("NVIDIA H200")
    with pytest.raises(Refused, match=r"^auto cannot read its table: h200\.json"):
        auto.choose(LONG, H200)


def test_the_form_offers_it_on_a_gpu_with_a_table_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    found = {"cpu": cpu_device(), "cuda:0": H200, "cuda:1": replace(H200, device="cuda:1", name="NVIDIA A100")}
    monkeypatch.setattr(form, "devices", lambda: found)
    chosen: dict[str, object] = {"kernels": ["flash"], "backward": False}
    monkeypatch.setattr(form, "values", lambda: chosen)
    for device, is_offered in (("cpu", False), ("cuda:0", True), ("cuda:1", False)):
        chosen["device"] = device
        assert ("auto" in form._kernels()[0]) is is_offered
    chosen["kernels"] = ["auto"]
    assert "auto" in form._kernels()[0], "what is chosen stays to be seen; a sentence says why it cannot run"
    asked = SMALL_FORM | {"kernels": ["flash", "auto"], "device": "cuda:0", "head_dim": 64, "BLOCK_M": 32}
    assert [one.tile for one in form.request(asked)] == [TileConfig(32, 64, 4, 3), SMALL]
    assert len(form.request(asked | {"BLOCK_M": 64})) == 1, "the same twice is measured once"
    with pytest.raises(Refused, match="no measurements of NVIDIA A100"):
        form.request(asked | {"device": "cuda:1"})


def test_with_a_backward_pass_only_what_has_one_is_chosen() -> None:
    assert auto.choose(replace(DECODE, backward=True), H200).kernel == "flash_ws"


@pytest.mark.parametrize("kept", sorted(KEPT.glob("*.json")), ids=lambda path: path.stem)
def test_each_kept_table_is_of_problems_that_its_gpu_runs(kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One choice for each problem that the benchmark measures, chosen for its own problem, with the tile as cut."""
    monkeypatch.setattr(auto, "FOLDER", kept.parent)
    auto.tables.cache_clear()
    (table,) = (table for name, table in auto.tables().items() if name.lower().replace(" ", "_") == kept.stem)
    assert {choice.problem for choice in table.choices} == set(problems()) and len(table.choices) == len(problems())
    assert re.fullmatch(
        r"python -m benchmarks\.auto_table, \d{4}-\d\d-\d\d, driver [\d.]+, torch \S+, triton [\d.]+", table.made
    )
    for choice in table.choices:
        assert auto.choose(choice.problem, H200) == choice
        assert auto.tile_for(choice, choice.problem) == choice.tile
        assert 0 < choice.seconds < 1 and choice.of > 1


def test_there_is_a_table_of_an_h200() -> None:
    assert (KEPT / "nvidia_h200.json").is_file()


@pytest.mark.parametrize(
    ("command", "what"),
    [
        (("sweep", "--device", "cpu"), "a sweep"),
        (("schedule",), "schedule"),
        (("resources", "--gpu", "h200"), "resources"),
    ],
)
def test_what_chooses_no_kernel_says_so(
    command: tuple[str, ...], what: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    answer = answer_to((*command, "--kernel", "auto"), monkeypatch, capsys)
    assert answer.code == 2
    assert answer.err == (
        f"auto chooses a kernel for one problem and the GPU that measures it; {what} takes their names.\n"
    )


@pytest.mark.parametrize("head_dim", [16, 64, 128, 192])
@pytest.mark.parametrize(("queries", "causal"), [(1, False), (1, True), (4, True), (16, True)])
def test_few_queries_beside_many_keys_weigh_more_than_mask_and_width(head_dim: int, queries: int, causal: bool) -> None:
    """Of 32 programs, one for each query head, 100 SMs would see nothing."""
    problem = replace(DECODE, seq_len_q=queries, seq_len_kv=131_072, head_dim=head_dim, causal=causal)
    assert auto.choose(problem, H200).kernel == "split_kv"
    assert auto.choose(replace(problem, seq_len_q=17), H200).kernel != "split_kv"
    assert auto.choose(replace(problem, seq_len_kv=15 * queries), H200).kernel != "split_kv"


@pytest.mark.parametrize(
    ("broken", "words"),
    [
        ({"seconds": -1.0}, "7 kernels and tiles in -1.0 seconds is no measurement"),
        ({"of": 0}, "0 kernels and tiles in 0.0008 seconds is no measurement"),
        ({"tile": None}, "flash_ws needs a tile"),
        ({"kernel": "cudnn"}, "cudnn takes no tile"),
    ],
)
def test_what_no_measurement_gives_is_no_choice(folder: Path, broken: dict[str, object], words: str) -> None:
    document = json.loads((folder / "h200.json").read_text())
    document["choices"][0] |= broken
    (folder / "h200.json").write_text(json.dumps(document))
    assert words in auto.fault()


def test_a_table_that_cannot_be_opened_and_a_second_of_one_gpu_are_told(folder: Path) -> None:
    (folder / "i.json").mkdir()
    assert auto.fault().startswith("auto cannot read its table: i.json cannot be read (Is a directory).")
    auto.tables.cache_clear()
    (folder / "i.json").rmdir()
    (folder / "i.json").write_text((folder / "h200.json").read_text())
    assert "i.json is a second table of NVIDIA H200." in auto.fault()
