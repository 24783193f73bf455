"""The warp-specialised backward pass without a GPU: its order of work, its sums, its bytes, and when another runs."""

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.base import AttentionKernel, GpuLimits, all_kernels
from kernels.column_walk import ColumnWalk
from kernels.flash_ws import backward as host
from kernels.flash_ws import gradient_schedule
from kernels.flash_ws.gradient_schedule import BLOCK_N, backward_launches, block_m_of, section_of, width_of
from kernels.flash_ws.gradient_work import place_keys, q_tile_of, sum_place, tiles_seeing
from kernels.on_chip import REGISTERS, SHARED, bytes_in
from kernels.problem import AttentionProblem, Refused, TileConfig
from kernels.run import Gradients, Output
from kernels.tile_grid import TileGrid
from profiler.bench import draw_do
from profiler.device import GPUS
from profiler.tile_trace import AccessTrace
from tests.attention_cases import draw
from tests.seen_accesses import into
from tests.test_backward import ALLOWED, exact

pytestmark = [pytest.mark.computes, pytest.mark.usefixtures("poisoned")]

KERNEL: AttentionKernel = all_kernels()["flash_ws"]
FLASH = all_kernels()["flash"]
LONG = AttentionProblem(1, 16, 16, 8192, 8192, 128, "bfloat16", backward=True)
SMALL = AttentionProblem(2, 4, 2, 100, 150, 72, causal=True, backward=True)
H200: GpuLimits = GPUS["h200"].limits
T16 = TileConfig(16, 16)


@st.composite
def problems(draw_: st.DrawFn) -> AttentionProblem:
    causal = draw_(st.booleans())
    batch, heads, kv_heads = draw_(st.sampled_from([(1, 1, 1), (2, 3, 1), (1, 8, 2), (3, 5, 5)]))
    queries, keys = draw_(st.integers(1, 700)), draw_(st.integers(1, 700))
    keys = max(keys, queries - 127) if causal else keys
    return AttentionProblem(
        batch, heads, kv_heads, queries, keys, draw_(st.sampled_from([40, 128])), causal=causal, backward=True
    )


@settings(max_examples=100)
@given(problems())
def test_a_program_has_the_q_tiles_that_see_its_keys(problem: AttentionProblem) -> None:
    """The Gluon functions themselves, run as Python, beside the schedule's walk and the mask of every pair."""
    block_m = block_m_of(problem)
    walk = ColumnWalk(TileGrid(problem, block_m, BLOCK_N))
    _, end = problem.visible_keys()
    for tile in range(walk.grid.kv_tiles):
        first, clear, last = tiles_seeing.fn(
            tile, problem.seq_len_q, problem.seq_len_kv, block_m, BLOCK_N, problem.causal
        )
        assert (first, last) == (walk.q_first[tile], walk.q_last[tile]) and first < last and first <= clear <= last
        # Clear is what sees all 128 keys, and only that.
        sees_all = [int(end[j * block_m : (j + 1) * block_m].min()) >= (tile + 1) * BLOCK_N for j in range(first, last)]
        assert sees_all == [j >= clear for j in range(first, last)]
        turn = tile * (BLOCK_N // block_m) % walk.grid.q_tiles
        rounds = [q_tile_of.fn(i, turn, last, problem.causal) for i in range(first, last)]
        assert sorted(rounds) == list(range(first, last)) and (problem.causal or rounds[0] == turn)


@settings(max_examples=100)
@given(problems())
def test_every_tile_of_keys_has_one_program(problem: AttentionProblem) -> None:
    kv_tiles, section = -(-problem.seq_len_kv // BLOCK_N), section_of(problem)
    placed = [
        place_keys.fn(p, kv_tiles, problem.kv_heads, section, section > 1)
        for p in range(gradient_schedule.programs(problem))
    ]
    everything = np.ndindex(problem.batch, problem.kv_heads, kv_tiles)
    assert sorted(placed) == sorted(everything)
    # The longest first, of the heads of a section side by side.
    assert [tile for *_, tile in placed[: section * kv_tiles]] == [t for t in range(kv_tiles) for _ in range(section)]


@pytest.mark.parametrize(
    ("problem", "section"),
    [
        (replace(LONG, causal=True), 4),
        (replace(LONG, causal=True, seq_len_q=16_384, seq_len_kv=16_384), 2),
        (replace(LONG, causal=True, seq_len_q=131_072, seq_len_kv=131_072), 1),
        (replace(LONG, causal=True, kv_heads=2), 1),
        (replace(LONG, causal=True, heads=6, kv_heads=6), 3),
        (LONG, 1),
    ],
)
def test_a_section_is_of_heads_whose_queries_stay_in_l2(problem: AttentionProblem, section: int) -> None:
    """Q, dO and the sums of dQ of 8,192 queries of 128 are 8 MiB in bfloat16, and 32 MiB are allowed."""
    assert section_of(problem) == section


def register_order(width: int) -> torch.Tensor:
    """Of the sums of a tile, int64 [block_m, width]: where each element stands.

    By warpgroup products: thread t of 128, in warp w and lane l, has of each 8 columns the two at 2 (l mod 4), of rows
    16 w + l / 4 and 8 further on. A group, which has 64 columns, or 64 queries where there are 64 columns in all, puts
    the four of a thread side by side, the 128 threads one after the other, and then the next 8 columns.
    """
    order = torch.full((8192 // width, width), -1)
    for group in range(2):
        for eight in range(8):
            for thread in range(128):
                warp, lane = divmod(thread, 32)
                for four in range(4):
                    row = 64 * group * (width == 64) + 16 * warp + lane // 4 + 8 * (four // 2)
                    col = 64 * group * (width == 128) + 8 * eight + 2 * (lane % 4) + four % 2
                    order[row, col] = group * 4096 + eight * 512 + thread * 4 + four
    return order


@pytest.mark.parametrize(("width", "half"), [(64, (64, 0)), (128, (0, 64))])
def test_four_of_a_thread_have_one_place(width: int, half: tuple[int, int]) -> None:
    """What a thread's add is given as its address is the place of the first of its four."""
    order = register_order(width)
    assert order.flatten().sort().values.equal(torch.arange(8192))
    for row, col in np.ndindex(64, 64):
        other = int(order[row + half[0], col + half[1]])
        assert sum_place.fn(row, col) == int(order[row, col]) // 4 * 4 == other // 4 * 4 - 4096


class GradientsOnTheHost:
    """In place of the Gluon kernel: what it is to do, tile by tile in float32, with the arguments it is given."""

    def __init__(self, problem: AttentionProblem) -> None:
        self.causal, self.width, self.block_m = problem.causal, width_of(problem), block_m_of(problem)
        self.order = register_order(self.width)

    def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., None]:
        def run(*arguments: Any, **constants: object) -> None:
            for program in range(grid[0]):
                self.program(program, *arguments, **constants)

        return run

    def program(
        self, program: int, q: Any, k: Any, v: Any, do: Any, rows: Any, dk: Any, dv: Any, *more: Any, **c: Any
    ) -> None:
        sums, heads, kv_heads, group, section, kv_tiles, q_tiles, seq_len_q, seq_len_kv, sm_scale, scale = more
        block_m = self.block_m
        assert c["CAUSAL"] == self.causal and (c["BLOCK_M"], 2 * c["ROWS"], c["WIDTH"]) == (
            block_m,
            BLOCK_N,
            self.width,
        )
        batch, kv_head, tile = place_keys.fn(program, kv_tiles, kv_heads, section, c["SECTIONS"])
        first, clear, last = tiles_seeing.fn(tile, seq_len_q, seq_len_kv, block_m, BLOCK_N, self.causal)
        assert c["PARTIAL"] or clear == first
        keys = slice(tile * BLOCK_N, (tile + 1) * BLOCK_N)
        kt, vt = (t.base[batch, kv_head, keys].float() for t in (k, v))
        dkt, dvt = torch.zeros_like(kt), torch.zeros_like(vt)
        for member in range(group):
            head = kv_head * group + member
            for j in range(first, last):
                here = (batch * heads + head) * q_tiles + j
                queries = slice(j * block_m, (j + 1) * block_m)
                qt, dot = (t.base[batch, head, queries].float() for t in (q, do))
                count, (lse, delta) = len(qt), rows.base[2 * here : 2 * here + 2]
                assert lse[count:].isposinf().all() and delta[count:].eq(0).all()
                p = (kt @ qt.mT * scale - lse[:count]).exp2()
                if j < clear and self.causal:
                    ends = torch.arange(count) + j * block_m + seq_len_kv - seq_len_q + 1
                    p = p.where((torch.arange(len(kt)) + tile * BLOCK_N)[:, None] < ends, 0)
                ds = p * (vt @ dot.mT - delta[:count])
                dvt += p @ dot
                dkt += ds @ qt
                dq = torch.zeros(block_m, self.width)
                dq[:count, : kt.shape[1]] = ds.mT @ kt
                tile_of_sums = sums[here * 8192 :][:8192]
                tile_of_sums[self.order.flatten()] += dq.flatten()
        dk.base[batch, kv_head, keys] = (dkt * sm_scale).to(dk.base.dtype)
        dv.base[batch, kv_head, keys] = dvt.to(dv.base.dtype)


def found(problem: AttentionProblem, hook: Any, monkeypatch: pytest.MonkeyPatch) -> dict[str, tuple[torch.Tensor, ...]]:
    """Each gradient of the launches around GradientsOnTheHost, and as it is in float64."""
    monkeypatch.setattr(host, "flash_ws_gradients", GradientsOnTheHost(problem))
    inputs, do = draw(problem), draw_do(problem, 0, "cpu")
    # As a projection layer leaves it: heads side by side.
    do = do.transpose(1, 2).contiguous().transpose(1, 2)
    output = FLASH.forward(*inputs, problem, T16)
    gradients = host.backward(*inputs, output, do, problem, TileConfig(), hook, finite=True)
    return {name: (vars(gradients)[name], right) for name, right in exact(problem, inputs, do).items()}


@pytest.mark.parametrize(
    "problem",
    [
        SMALL,
        AttentionProblem(1, 1, 1, 1, 129, 128, causal=True, backward=True),
        AttentionProblem(1, 2, 2, 65, 64, 96, backward=True),
        AttentionProblem(1, 2, 1, 200, 170, 40, causal=True, backward=True),
        AttentionProblem(1, 1, 1, 65, 300, 64, backward=True),
        AttentionProblem(1, 8, 1, 70, 30, 80, causal=True, backward=True),
    ],
    ids=str,
)
def test_what_comes_before_and_after_the_gradients(problem: AttentionProblem, monkeypatch: pytest.MonkeyPatch) -> None:
    """delta and dq interpreted, padding, descriptors' tensors, sums in the order of registers: against float64."""
    names: list[str] = []

    def hook(name: str) -> Any:
        names.append(name)
        return torch.no_grad()

    for name, (ours, right) in found(problem, hook, monkeypatch).items():
        assert ours.dtype == torch.float16 and ours.shape == right.shape
        scale = float(right.norm()) if right.abs().max() > 1e-9 else math.sqrt(right.numel())
        assert float((ours.double() - right).norm()) <= ALLOWED["float16"] * scale, name
    assert names == ["delta", "gradients", "dq"]


@pytest.mark.parametrize("problem", [SMALL, replace(SMALL, seq_len_q=1, head_dim=40)], ids=str)
def test_what_comes_before_and_after_asks_for_what_is_told(
    problem: AttentionProblem, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: dict[str, AccessTrace] = {}

    found(problem, into(seen), monkeypatch)
    told = {launch.name: launch for launch in backward_launches(problem)}
    assert list(told) == list(seen) == ["delta", "gradients", "dq"]
    for name in ("delta", "dq"):
        assert seen[name].total("read") == sum(told[name].reads.values())
        assert seen[name].total("write") == sum(told[name].writes.values())


def test_bytes_by_hand() -> None:
    """65 queries over 150 keys of 72 float16, full: two Q tiles, two tiles of keys, so each head is streamed twice."""
    problem = AttentionProblem(2, 4, 2, 65, 150, 72, backward=True)
    delta, gradients, dq = backward_launches(problem)
    q, kv, lse = 8 * 65 * 144, 4 * 150 * 144, 8 * 65 * 4
    rows, sums = 8 * 2 * 2 * 64 * 4, 8 * 2 * 64 * 128 * 4
    assert delta.reads == {"o": q, "do": q, "lse": lse}
    assert delta.writes == {"lse_delta": rows, "dq_sum": sums}
    assert gradients.reads == {"k": kv, "v": kv, "q": 2 * q, "do": 2 * q, "lse_delta": 2 * rows}
    assert gradients.writes == {"dq_sum": 2 * sums, "dk": kv, "dv": kv}
    assert (dq.reads, dq.writes) == ({"dq_sum": 8 * 65 * 72 * 4}, {"dq": q})
    assert gradients.visits == 8 * 4 and gradients.flops == 10 * 8 * 65 * 150 * 72
    assert KERNEL.temporaries(problem, T16) == {"lse": lse, "lse_delta": rows, "dq_sum": sums}
    assert KERNEL.schedule(problem, TileConfig()).launches[1:] == (delta, gradients, dq)
    assert backward_launches(replace(problem, backward=False)) == ()


def test_narrow_bytes_by_hand() -> None:
    """130 queries over 128 keys of 40 float16, one head: two Q tiles of 128, one of keys."""
    delta, gradients, dq = backward_launches(AttentionProblem(1, 1, 1, 130, 128, 40, backward=True))
    assert delta.writes == {"lse_delta": 2 * 2 * 128 * 4, "dq_sum": 2 * 128 * 64 * 4}
    assert gradients.visits == 2 and gradients.reads["q"] == 130 * 80 and gradients.reads["lse_delta"] == 2 * 1024
    assert gradients.writes["dq_sum"] == 2 * 32_768 and dq.reads == {"dq_sum": 130 * 40 * 4}


def test_causal_bytes_by_hand() -> None:
    """256 keys and queries: keys from 128 on are seen by Q tiles 2 and 3 alone, so of 8 visits 6 are made."""
    _, gradients, _ = backward_launches(AttentionProblem(1, 1, 1, 256, 256, 128, causal=True, backward=True))
    assert gradients.visits == 6 and gradients.reads["q"] == gradients.reads["do"] == 6 * 64 * 256
    assert gradients.reads["lse_delta"] == 6 * 512 and gradients.writes["dq_sum"] == 6 * 64 * 512


def test_what_a_program_holds() -> None:
    """K and V [128, 128]; a stage of Q, dO and their rows; dS. In registers S, dP, dQ, and dK, dV [128, 128].

    Half as wide, Q and dO are as large, their rows and dS twice as large.
    """
    (gradients,) = (launch for launch in backward_launches(LONG) if launch.on_chip)
    assert bytes_in(SHARED, gradients.on_chip) == 2 * 32_768 + 2 * 16_384 + 512 + 16_384
    assert bytes_in(REGISTERS, gradients.on_chip) == 3 * 32_768 + 2 * 65_536
    (gradients,) = (launch for launch in backward_launches(replace(LONG, head_dim=64)) if launch.on_chip)
    assert bytes_in(SHARED, gradients.on_chip) == 2 * 16_384 + 2 * 16_384 + 1024 + 32_768
    assert bytes_in(REGISTERS, gradients.on_chip) == 3 * 32_768 + 2 * 32_768


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[object, ...]]]:
    """What the Triton backward pass was called with; the Gluon one computes nothing."""
    called: list[tuple[object, ...]] = []

    def by_descriptor(*arguments: object) -> Gradients:
        called.append(arguments)
        return Gradients(*arguments[:3])  # type: ignore[arg-type]

    class Nothing:
        def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., None]:
            return lambda *arguments, **constants: None

    monkeypatch.setattr(host.backward_pass, "by_descriptor", by_descriptor)
    for name in ("flash_ws_delta", "flash_ws_gradients", "flash_ws_dq"):
        monkeypatch.setattr(host, name, Nothing())
    yield called


@pytest.mark.parametrize("spoiled", range(3))
@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_what_is_not_finite_and_may_be_hidden_is_left_to_another(
    elsewhere: list[tuple[object, ...]], spoiled: int, bad: float
) -> None:
    inputs, do = draw(SMALL), draw_do(SMALL, 0, "cpu")
    output = Output(inputs[0], torch.zeros(2, 4, 100))
    host.backward(*inputs, output, do, SMALL, TileConfig())
    inputs[spoiled][1, 1, 7, 3] = bad
    host.backward(*inputs, output, do, SMALL, TileConfig(), finite=True)
    # The last of a hundred queries sees all 150 keys, so without a causal mask nothing is hidden.
    host.backward(*inputs, output, do, replace(SMALL, causal=False), TileConfig())
    assert not elsewhere
    host.backward(*inputs, output, do, SMALL, TileConfig())
    ((*_, tile, _, finite),) = elsewhere
    assert tile == TileConfig(128, 128, 8, 3) and finite is False


@pytest.mark.parametrize(("head_dim", "is_its_own"), [(8, True), (64, True), (72, True), (128, True), (136, False)])
def test_for_which_head_dim_it_is_written(elsewhere: list[tuple[object, ...]], head_dim: int, is_its_own: bool) -> None:
    """Elsewhere Triton's is launched, and told; launches and schedule have the same names and programs."""
    problem = replace(SMALL, head_dim=head_dim)
    inputs, do = draw(problem), draw_do(problem, 0, "cpu")
    host.backward(*inputs, Output(inputs[0], torch.zeros(2, 4, 100)), do, problem, TileConfig())
    assert (not elsewhere) is is_its_own
    plan = KERNEL.schedule(problem, TileConfig())
    assert ("lse_delta" in plan.launches[1].writes) is ("lse_delta" in KERNEL.temporaries(problem, T16)) is is_its_own
    launched = KERNEL.launches(problem, KERNEL.cut(problem, TileConfig()))
    assert [one.name for one in launched] == [one.name for one in plan.launches]
    if is_its_own:
        q_tiles = 2 if head_dim > 64 else 1
        assert [one.programs for one in launched[1:]] == [8 * q_tiles, 4 * 2, 8 * q_tiles]


def test_it_wants_lse_and_rows_that_are_contiguous() -> None:
    inputs, do = draw(SMALL), draw_do(SMALL, 0, "cpu")
    with pytest.raises(ValueError, match="left no LSE"):
        host.backward(*inputs, Output(inputs[0]), do, SMALL, TileConfig(), finite=True)
    output = Output(inputs[0], torch.zeros(2, 4, 100))
    with pytest.raises(ValueError, match=r"^do has stride 100 along head_dim"):
        host.backward(*inputs, output, do.mT.contiguous().mT, SMALL, TileConfig(), finite=True)
    with pytest.raises(ValueError, match=r"^k has a stride of 43800 bytes along batch"):
        odd = torch.zeros(2, 2, 150, 73, dtype=torch.float16)[..., :72]
        host.backward(inputs[0], odd, inputs[2], output, do, SMALL, TileConfig(), finite=True)


def test_more_programs_than_a_grid_has_are_refused() -> None:
    """2^20 heads of 2^17 queries: 2^30 programs forward, 2^31 of delta."""
    problem = AttentionProblem(1, 2**20, 2**20, 2**17, 2**17, 128, backward=True)
    KERNEL.refuse(replace(problem, backward=False), TileConfig(), H200)
    with pytest.raises(Refused, match=r"2,147,483,648 programs.*choose fewer heads"):
        KERNEL.refuse(problem, TileConfig(), H200)
