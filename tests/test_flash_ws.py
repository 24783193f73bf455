"""Flash, warp-specialised, without a GPU: its order of work against the schedule, its bytes, what it refuses."""

import importlib.metadata
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app import own_kernels
from kernels.base import AttentionKernel, GpuLimits, all_kernels
from kernels.on_chip import REGISTERS, SHARED
from kernels.problem import LONGEST_FIRST, PERSISTENT, SAWTOOTH, AttentionProblem, Refused, TileConfig
from kernels.row_walk import RowWalk
from profiler import list_command
from profiler.device import GPUS, cpu_device
from tests.attention_cases import T16
from tests.seen_rows import walk_of

pytestmark = pytest.mark.computes

KERNEL: AttentionKernel = all_kernels()["flash_ws"]
LONG = AttentionProblem(1, 16, 16, 8192, 8192, 128, "bfloat16")
H200, A100, B200 = (GPUS[name].limits for name in ("h200", "a100", "b200"))


@st.composite
def works(draw_: st.DrawFn) -> tuple[AttentionProblem, TileConfig]:
    causal = draw_(st.booleans())
    batch, heads, kv_heads = draw_(st.sampled_from([(1, 1, 1), (2, 3, 1), (1, 8, 2), (3, 5, 5)]))
    queries, keys = draw_(st.integers(1, 700)), draw_(st.integers(1, 700))
    problem = AttentionProblem(batch, heads, kv_heads, queries, max(keys, queries - 127), 64, causal=causal)
    orders = [order for order in KERNEL.orders if causal or order != LONGEST_FIRST]
    return problem, TileConfig(order=draw_(st.sampled_from(orders)))


@settings(max_examples=60)
@given(works())
def test_the_kernels_own_arithmetic_gives_the_schedules_work(work: tuple[AttentionProblem, TileConfig]) -> None:
    """The Gluon functions themselves, run as Python for every Q tile in the order in which they are begun."""
    from kernels.flash_ws.kernel import items_in
    from kernels.flash_ws.schedule import BLOCK_M, begins_with_the_longest, section_of
    from kernels.flash_ws.work import place, tiles_seen

    problem, tile = work
    tile, walk = KERNEL.cut(problem, tile), walk_of(KERNEL, *work)
    section, longest = section_of(problem, tile), begins_with_the_longest(problem, tile)
    q_tiles, items = walk.grid.q_tiles, items_in(problem)
    launched = [place.fn(item, problem.heads, problem.group, q_tiles, section, longest) for item in range(items)]
    assert [number for *_, number in launched] == walk.launch_order().tolist()
    for batch, head, kv_head, q_tile, number in launched:
        assert (batch * problem.heads + head, kv_head) == (number // walk.programs, head // problem.group)
        n_tiles = tiles_seen.fn(q_tile, problem.seq_len_q, problem.seq_len_kv, BLOCK_M, tile.BLOCK_N, problem.causal)
        scan = list(range(n_tiles)) if not walk.is_backward(number) else list(range(n_tiles - 1, -1, -1))
        visits = [walk.tile_of(number, step) for step in range(int(walk.steps[number % walk.programs]))]
        assert visits == [(q_tile, kv_tile) for kv_tile in scan]


def dealt(items: int, programs: int, causal: bool) -> list[list[int]]:
    """The items of each program of a persistent grid, as the kernel counts them."""
    from kernels.flash_ws.work import items_of, nth_item

    with pytest.MonkeyPatch.context() as patch:
        # One calls the other, which outside of a kernel is Python's to call only so.
        patch.setattr("kernels.flash_ws.work.nth_item", nth_item.fn)
        shares = [items_of.fn(program, programs, items, causal) for program in range(programs)]
    return [[nth_item.fn(n, program, programs, causal) for n in range(shares[program])] for program in range(programs)]


@given(st.integers(1, 2000), st.integers(1, 300), st.booleans())
def test_a_persistent_grid_has_every_item_once(items: int, most: int, causal: bool) -> None:
    """And each program one of each wave, so that the shares differ by one at most."""
    programs = min(items, most)
    shares = dealt(items, programs, causal)
    assert sorted(item for share in shares for item in share) == list(range(items))
    assert all([item // programs for item in share] == list(range(len(share))) for share in shares)


def test_a_persistent_grid_by_hand() -> None:
    """Behind a causal mask every second wave is dealt out the other way round."""
    assert dealt(11, 4, False) == [[0, 4, 8], [1, 5, 9], [2, 6, 10], [3, 7]]
    assert dealt(11, 4, True) == [[0, 7, 8], [1, 6, 9], [2, 5, 10], [3, 4]]
    assert dealt(7, 4, True) == [[0], [1, 6], [2, 5], [3, 4]]


def test_a_persistent_grid_is_no_larger_than_the_gpu() -> None:
    from kernels.flash_ws.kernel import grid, launches, prepare

    stays, goes = (TileConfig(order=order) for order in (PERSISTENT, SAWTOOTH))
    few = replace(LONG, seq_len_q=300)
    assert [grid(LONG, tile, 132) for tile in (stays, goes)] == [(132,), (1024,)]
    assert grid(few, stays, 132) == (48,) == launches(few, stays)[0].grid
    assert prepare(LONG, stays, "cpu") == 1


def test_shares_of_a_persistent_grid_are_equal_behind_a_causal_mask() -> None:
    """16 heads of 64 Q tiles with 1 to 64 KV tiles, on 132 programs: 252 KV tiles each, within 3 %."""
    from kernels.flash_ws.schedule import section_of
    from kernels.flash_ws.work import place

    section = section_of(replace(LONG, causal=True), TileConfig(order=PERSISTENT))
    visits = [
        sum(place.fn(item, 16, 1, 64, section, True)[3] + 1 for item in share) for share in dealt(1024, 132, True)
    ]
    assert sum(visits) == 16 * 64 * 65 // 2 and max(visits) <= 1.03 * sum(visits) / 132, max(visits)


def test_persistent_begins_the_longest_first_behind_a_causal_mask_alone() -> None:
    causal = replace(LONG, causal=True)
    walks = [walk_of(KERNEL, problem, TileConfig(order=PERSISTENT)) for problem in (LONG, causal)]
    assert [walk.section for walk in walks] == [1, 16] and not any(walk.wave for walk in walks)
    assert [walk.launch_order()[[0, 1, 2, 16]].tolist() for walk in walks] == [[0, 1, 2, 16], [0, 64, 128, 1]]
    assert [walk.tile_of(0, 0) for walk in walks] == [(0, 63), (63, 63)]
    assert [walk.tile_of(walk.programs - 1, 0) for walk in walks] == [(63, 63), (0, 0)]


@settings(max_examples=60)
@given(works(), st.integers(0, 1))
def test_tiles_without_a_mask_are_the_schedules_full_ones(
    work: tuple[AttentionProblem, TileConfig], consumer: int
) -> None:
    """Of each group's 64 rows: what is called clear holds no hidden score, and the next tile does."""
    from kernels.flash_ws.schedule import ROWS
    from kernels.flash_ws.work import tiles_clear, tiles_seen

    problem, tile = work[0], KERNEL.cut(*work)
    lo, hi = problem.visible_keys()
    for q_tile in range(-(-problem.seq_len_q // (2 * ROWS))):
        row = (2 * q_tile + consumer) * ROWS
        n_tiles = tiles_seen.fn(q_tile, problem.seq_len_q, problem.seq_len_kv, 2 * ROWS, tile.BLOCK_N, problem.causal)
        clear = tiles_clear.fn(row, problem.seq_len_q, problem.seq_len_kv, n_tiles, tile.BLOCK_N, problem.causal)
        rows = slice(row, row + ROWS)
        if row < problem.seq_len_q:
            assert clear == min(int(hi[rows].min()) // tile.BLOCK_N, n_tiles) and not lo.any()


def test_longest_first_by_hand() -> None:
    """Six heads of three Q tiles, in sections of three: the last Q tile of heads 0, 1, 2 first."""
    problem = AttentionProblem(2, 3, 3, 384, 384, 128, causal=True)
    walk = walk_of(KERNEL, problem, TileConfig(order=LONGEST_FIRST))
    assert walk.section == 3
    order = walk.launch_order().tolist()
    assert order[:9] == [0, 3, 6, 1, 4, 7, 2, 5, 8] and order[9] == 9
    assert [walk.tile_of(number, 0) for number in order[:4]] == [(2, 2), (2, 2), (2, 2), (1, 1)]


@pytest.mark.parametrize(
    ("heads", "kv_heads", "keys", "head_dim", "section"),
    [
        (16, 16, 16_384, 128, 4),
        (16, 16, 32_768, 128, 2),
        (6, 6, 32_768, 64, 3),
        (2, 2, 131_072, 128, 1),
        (3, 1, 8, 64, 3),
    ],
)
def test_a_section_is_of_heads_whose_k_and_v_stay_in_l2(
    heads: int, kv_heads: int, keys: int, head_dim: int, section: int
) -> None:
    """K and V of 16,384 keys of 128 are 8 MiB in bfloat16, and 32 MiB are allowed."""
    problem = AttentionProblem(1, heads, kv_heads, keys, keys, head_dim, "bfloat16", causal=True)
    assert walk_of(KERNEL, problem, TileConfig(order=LONGEST_FIRST)).section == section


def test_sawtooth_by_hand() -> None:
    """Four Q tiles in waves of two: programs 0 and 1 fall, 2 and 3 rise."""
    plan = KERNEL.schedule(AttentionProblem(1, 1, 1, 512, 384, 128), TileConfig(order=SAWTOOTH)).with_wave(2)
    walk = plan.walk
    assert isinstance(walk, RowWalk)
    paths = [[walk.tile_of(program, step)[1] for step in range(3)] for program in range(4)]
    assert paths == [[2, 1, 0], [2, 1, 0], [0, 1, 2], [0, 1, 2]]


def test_a_walk_that_falls_reads_its_last_tile_first() -> None:
    """600 keys are tiles of 256, 256 and 88 rows of 128 B."""
    walk = walk_of(KERNEL, AttentionProblem(1, 1, 1, 100, 600, 64), T16)
    reads = [int(walk.bytes_until(0, np.array([done]))["k"][0][0]) for done in range(4)]
    assert reads == [0, 88 * 128, 344 * 128, 600 * 128]
    assert [step.kv_range for step in walk.program_steps("flash_ws", 0)] == [(512, 600), (256, 512), (0, 256)]


def test_by_hand() -> None:
    """1,024 programs of 128 queries; each streams K and V of its head, 2,097,152 B each."""
    plan = KERNEL.schedule(LONG, T16)
    assert plan.by_tensor == {
        "q": {"read": 33_554_432, "write": 0},
        "k": {"read": 1024 * 2_097_152, "write": 0},
        "v": {"read": 1024 * 2_097_152, "write": 0},
        "o": {"read": 0, "write": 33_554_432},
        "lse": {"read": 0, "write": 524_288},
    }
    assert KERNEL.l2_sm_bounds is not None
    assert KERNEL.l2_sm_bounds(LONG, T16) == (LONG.compulsory_bytes, 1024 * 2 * 2_097_152 + 2 * 33_554_432 + 524_288)


@pytest.mark.parametrize(("head_dim", "tile"), [(16, (256, 2)), (64, (256, 2)), (96, (128, 2)), (256, (64, 2))])
def test_the_tile_is_the_kernels_own(head_dim: int, tile: tuple[int, int]) -> None:
    cut = KERNEL.cut(replace(LONG, head_dim=head_dim), TileConfig(32, 32, 2, 5, SAWTOOTH))
    assert cut == TileConfig(128, tile[0], 8, tile[1], SAWTOOTH)
    with pytest.raises(Refused, match=r"^longest_first launches the programs with most KV tiles first"):
        KERNEL.cut(LONG, TileConfig(order=LONGEST_FIRST))


def test_where_p_waits_for_its_product() -> None:
    """Where a tile has 256 keys: S of 64 × 256 beside P would be 256 registers a thread, and there are 240."""
    for head_dim, place in ((64, ("float16", SHARED)), (128, ("float32", REGISTERS)), (256, ("float32", REGISTERS))):
        plan = KERNEL.schedule(AttentionProblem(1, 1, 1, 512, 512, head_dim), T16)
        (p,) = (held for held in plan.launches[0].on_chip if held.name == "P")
        assert (p.dtype, p.place) == place


@pytest.mark.parametrize(("head_dim", "room"), [(64, 128 * 64 * 2), (100, 128 * 128 * 2), (256, None)])
def test_o_has_room_beside_the_next_q_where_a_program_stays(head_dim: int, room: int | None) -> None:
    """At head_dim 256 Q, two tiles of K and two of V take 192 KiB, and O would take 64 more."""
    problem = replace(LONG, head_dim=head_dim)
    for order, expected in ((PERSISTENT, room), (SAWTOOTH, None)):
        plan = KERNEL.schedule(problem, replace(T16, order=order))
        found = [held.size for held in plan.launches[0].on_chip if held.name == "O"]
        assert found == ([] if expected is None else [expected]), order


@pytest.mark.parametrize(
    ("problem", "gpu", "words"),
    [
        (
            LONG,
            None,
            "is written in Gluon, for which Triton has no interpreter, .* choose flash_tma or flash, which are",
        ),
        (LONG, A100, r"is written for the warp groups of compute capability 9.0 .* not for 8.0 \(.*\): choose"),
        (LONG, B200, r"is written for the warp groups of compute capability 9.0 .* not for 10.0 \(.*\): choose"),
        (replace(LONG, dtype="float32"), H200, "multiplies 16-bit operands; choose float16 or bfloat16, or flash"),
        (replace(LONG, window=9), H200, "has no window; choose none, or"),
        (replace(LONG, head_dim=63), H200, "reads tiles by tensor descriptors, .* choose 64, or flash"),
        (replace(LONG, causal=True, seq_len_kv=8064), H200, "the first 128 queries see none; choose flash_tma or"),
    ],
    ids=str,
)
def test_what_it_does_not_run(problem: AttentionProblem, gpu: GpuLimits | None, words: str) -> None:
    with pytest.raises(Refused, match=f"^Flash, warp-specialised .*{words}"):
        KERNEL.refuse(problem, KERNEL.cut(problem, T16), gpu)


def test_what_it_runs() -> None:
    for problem in (LONG, replace(LONG, causal=True, seq_len_kv=8065), replace(LONG, head_dim=8, dtype="float16")):
        KERNEL.refuse(problem, KERNEL.cut(problem, T16), H200)


@pytest.mark.parametrize(("installed", "runs"), [("3.5.1", False), ("3.6.0", True), ("3.7.1", True), ("3.8.0", False)])
def test_a_triton_whose_gluon_is_another_is_named(monkeypatch: pytest.MonkeyPatch, installed: str, runs: bool) -> None:
    monkeypatch.setattr("kernels.flash_ws.limits.version", lambda name: installed)
    found = KERNEL.why_not_on(H200)
    assert (found == "") is runs and (runs or f"Triton {installed} is installed" in found)


def test_without_triton_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> str:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr("kernels.flash_ws.limits.version", missing)
    assert "needs Triton, which is not installed" in KERNEL.why_not_on(H200)


def test_it_is_offered_only_where_something_of_it_runs() -> None:
    gpu = replace(cpu_device(), device="cuda:0", name="NVIDIA H200", compute_capability=(9, 0))
    gpu = replace(gpu, shared_memory_per_block=H200.shared_memory_per_block)
    offered = {device: "flash_ws" in own_kernels.run_on(info) for device, info in (("cpu", cpu_device()), ("gpu", gpu))}
    assert offered == {"cpu": False, "gpu": True}
    assert "flash_tma" in own_kernels.run_on(cpu_device())
    older = replace(gpu, compute_capability=(8, 0))
    assert "flash_ws" not in own_kernels.run_on(older)
    unknown = replace(gpu, compute_capability=None)
    assert "flash_ws" in own_kernels.run_on(unknown)


@pytest.mark.parametrize(("capability", "here"), [(None, False), ((8, 0), False), ((9, 0), True)])
def test_the_list_offers_it_where_it_runs(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    capability: tuple[int, int] | None,
    here: bool,
) -> None:
    gpu = replace(cpu_device(), device="cuda:0", name="a GPU", compute_capability=capability)
    gpu = replace(gpu, shared_memory_per_block=H200.shared_memory_per_block)
    monkeypatch.setattr(list_command, "detect", lambda: () if capability is None else (gpu,))
    list_command.list_saved([tmp_path])
    said = " ".join(capsys.readouterr().out.split())
    offered = said.split("Kernels: ")[1].split(" Not here: ")[0]
    assert ("flash_ws" in offered, "Not here: flash_ws. " in said) == (here, not here)
    assert here or ("for which Triton has no interpreter" if capability is None else "not for 8.0 (a GPU)") in said
