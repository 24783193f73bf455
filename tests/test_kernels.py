"""Every kernel against the float64 reference, Triton's interpreted; the reference against torch and plain loops."""

import itertools
import math
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from kernels.base import AttentionKernel, all_kernels
from kernels.flash.kernel import grid
from kernels.problem import ELEMENT_BYTES, AttentionProblem, TileConfig
from kernels.reference import reference
from kernels.run import Output
from tests.attention_cases import (
    ALLOWED,
    CASES,
    T16,
    T32,
    check,
    draw,
    here,
    in_every_dtype,
    in_time,
    is_slow,
    takers,
    takes,
)

pytestmark = [pytest.mark.computes, pytest.mark.usefixtures("poisoned")]

FLASH = all_kernels()["flash"].forward
CAUSAL = AttentionProblem(1, 1, 1, 100, 100, 16, "float32", causal=True)
NARROW = AttentionProblem(1, 1, 1, 100, 100, 16, "float32", True, 9)
TAILS = [AttentionProblem(1, 1, 1, 3, seq_len_kv, 16) for seq_len_kv in range(128, 256)]
TALL_AND_WIDE = {
    f"{queries}_over_{keys}": (AttentionProblem(1, 1, 1, queries, keys, 16, causal=True), T16)
    for queries, keys in ((5, 2), (2, 5), (100, 37))
}
ONE = AttentionProblem(1, 1, 1, 1, 1, 64, "bfloat16")
PAIR = AttentionProblem(1, 1, 1, 2, 2, 4, causal=True)
SEEN_BY_SOME = [
    CAUSAL,
    AttentionProblem(1, 1, 1, 100, 100, 16, window=20),
    AttentionProblem(2, 4, 2, 70, 100, 16, causal=True),
]
WHOLE = AttentionProblem(1, 1, 1, 20, 20, 16)
SHARED = {kv_heads: AttentionProblem(2, 4, kv_heads, 33, 33, 16, causal=True) for kv_heads in (1, 2, 4)}
LAUNCHED = (CAUSAL, AttentionProblem(1, 2, 1, 5, 2, 16, causal=True), AttentionProblem(1, 1, 1, 9, 9, 16))


@pytest.fixture
def device() -> str:
    """Where the kernels run; test_kernels_gpu runs most of these tests with another one."""
    return "cpu"


@in_every_dtype(CASES)
def test_equals_float64(device: str, kernel: AttentionKernel, problem: AttentionProblem, tile: TileConfig) -> None:
    check(kernel.forward, problem, tile, draw(problem, device))


@takers(*TAILS, tile=TileConfig(16, 64))
def test_every_ragged_tail(device: str, kernel: AttentionKernel) -> None:
    step = 21 if is_slow(kernel) else 1 if here() else 3
    for tail in TAILS[::step]:
        problem = in_time(kernel, tail, TileConfig(16, 64), most=8)
        check(kernel.forward, problem, TileConfig(16, 64), draw(problem, device))


@pytest.mark.parametrize("tile", [TileConfig(4, 4), TileConfig(1, 2), TileConfig(128, 16), TileConfig(2, 128)], ids=str)
def test_any_tile_gives_the_same(tile: TileConfig) -> None:
    problem = AttentionProblem(1, 1, 1, 16, 16, 8, causal=True)
    check(FLASH, problem, tile, draw(problem))


def test_float32_means_ieee_float32(device: str) -> None:
    """TF32 products would be off by about 3e-4."""
    problem = AttentionProblem(1, 1, 1, 128, 128, 32, "float32", causal=True)
    inputs = draw(problem, device)
    o, _ = reference(*inputs, problem)
    for kernel in all_kernels().values():
        if takes(kernel, problem, T32):
            found = kernel.forward(*inputs, problem, T32).o
            assert (found.double() - o).norm() < 5e-7 * o.norm()


def test_interpreted_bfloat16_rounds_p_and_o_to_nearest() -> None:
    """The interpreter's own cast cuts bits off, which would double the error; unrounded, P would flatter the kernel."""
    problem = AttentionProblem(1, 1, 1, 64, 64, 64, "bfloat16")
    q, k, v = draw(problem)
    s = q.double() @ k.double().mT * problem.sm_scale
    p = (s - s.amax(-1, keepdim=True)).exp()
    nearest = (p.bfloat16().double() @ v.double() / p.sum(-1, keepdim=True)).bfloat16()
    found = check(FLASH, problem, TileConfig(64, 64), (q, k, v), slack=0.4).o
    assert float((found != nearest).double().mean()) < 0.01


@in_every_dtype(TALL_AND_WIDE)
def test_causal_is_aligned_bottom_right(
    device: str, kernel: AttentionKernel, problem: AttentionProblem, tile: TileConfig
) -> None:
    """Query i sees keys 0 to i + keys - queries; a query that sees none gives O = 0 and LSE = −inf."""
    queries, blind = problem.seq_len_q, max(0, problem.seq_len_q - problem.seq_len_kv)
    q, k, v = draw(problem, device)
    output = check(kernel.forward, problem, tile, (q, k, v))
    assert bool((output.o[0, 0, :blind] == 0).all())
    assert output.o[0, 0, blind].equal(v[0, 0, 0]) if blind else True
    if output.lse is not None:
        assert output.lse[0, 0].isinf().tolist() == [True] * blind + [False] * (queries - blind)
        assert bool((output.lse[0, 0, :blind] < 0).all())


@takers(CAUSAL, NARROW, tile=TileConfig(32, 16))
@pytest.mark.parametrize("problem", [CAUSAL, NARROW], ids=str)
def test_first_tile_hidden_then_only_negative_scores(
    device: str, kernel: AttentionKernel, problem: AttentionProblem
) -> None:
    problem = in_time(kernel, problem, TileConfig(32, 16))
    q, k, v = draw(problem, device)
    q, k = torch.ones_like(q), -50 * k.abs()
    check(kernel.forward, problem, TileConfig(32, 16), (q, k, v), slack=10)


def test_logits_far_below_any_finite_minus_infinity(device: str) -> None:
    """All scores are about −2.45e5; a sentinel of −5e4 in place of −inf would win over them."""
    for causal, dtype in itertools.product((False, True), ELEMENT_BYTES):
        problem = AttentionProblem(1, 1, 1, 40, 40, 64, dtype, causal)
        _, k, v = draw(problem, device)
        q, k = torch.full_like(k, -175.0), torch.full_like(k, 175.0)
        assert problem.sm_scale * (q[0, 0, 0].double() @ k[0, 0, 0].double()) == -245_000
        output = check(FLASH, problem, T16, (q, k, v))
        assert output.lse is not None and bool((output.lse < -244_990).all())


@takers(ONE)
def test_enormous_equal_inputs(device: str, kernel: AttentionKernel) -> None:
    x = torch.full((1, 1, 1, 64), 133120.0, dtype=torch.bfloat16, device=device)
    output = check(kernel.forward, ONE, T16, (x, x, x))
    assert bool((output.o == 133120.0).all())


@takers(PAIR)
@pytest.mark.filterwarnings("ignore:invalid value encountered in:RuntimeWarning")  # what the interpreter says
@pytest.mark.parametrize("dtype", ELEMENT_BYTES)
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("spoiled", ["k", "v"])
def test_hidden_values_never_touch_the_result(
    device: str, kernel: AttentionKernel, spoiled: str, bad: float, dtype: str
) -> None:
    """(1, 1, 2, 4) causal: query 0 must not see key 1, query 1 must."""
    problem = replace(PAIR, dtype=dtype)
    q, k, v = draw(problem, device)
    q[0, 0, 1, 0], q[0, 0, 1, 1] = 1.0, -1.0  # so that an infinite key gives ∞ − ∞, never a score of one sign
    (k if spoiled == "k" else v)[0, 0, 1] = bad
    output = check(kernel.forward, problem, T16, (q, k, v))
    assert bool(output.o[0, 0, 0].isfinite().all())
    assert not bool(output.o[0, 0, 1].isfinite().any())


@takers(*SEEN_BY_SOME)
@pytest.mark.parametrize("problem", SEEN_BY_SOME, ids=str)
def test_one_nan_spoils_only_the_queries_that_see_it(
    device: str, kernel: AttentionKernel, problem: AttentionProblem
) -> None:
    problem = in_time(kernel, problem)
    q, k, v = draw(problem, device)
    v[0, 0, 50, 3] = torch.nan
    output = check(kernel.forward, problem, T16, (q, k, v))
    lo, hi = problem.visible_keys()
    seeing = (lo <= 50) & (hi > 50)
    assert output.o[0, 0].isnan().nonzero().tolist() == [[int(row), 3] for row in seeing.nonzero()[0]]


@takers(WHOLE)
def test_a_nan_without_a_mask_reaches_every_query(device: str, kernel: AttentionKernel) -> None:
    q, k, v = draw(WHOLE, device)
    k[0, 0, 7, 0] = torch.nan
    assert bool(check(kernel.forward, WHOLE, T16, (q, k, v)).o.isnan().all())


@takers(*SHARED.values())
@pytest.mark.parametrize("kv_heads", SHARED)
def test_strided_views_of_one_fused_tensor(device: str, kernel: AttentionKernel, kv_heads: int) -> None:
    """[batch, seq, heads · head_dim] side by side, as a projection layer leaves them."""
    fused = torch.randn(2, 33, 4 + 2 * kv_heads, 16, generator=torch.Generator().manual_seed(1)).half().to(device)
    q, k, v = (part.transpose(1, 2) for part in fused.split([4, kv_heads, kv_heads], dim=2))
    problem = in_time(kernel, SHARED[kv_heads])
    q = q[:, :, -problem.seq_len_q :]
    assert not any(t.is_contiguous() for t in (q, k, v))
    check(kernel.forward, problem, T16, (q, k, v))


def test_a_strided_head_dim_is_refused_by_name(device: str) -> None:
    problem = AttentionProblem(1, 1, 1, 16, 16, 16)
    q, k, v = draw(problem, device)
    with pytest.raises(ValueError, match=r"^k has stride 16 along head_dim; make that dimension contiguous\.$"):
        FLASH(q, k.mT, v, problem, T16)


def test_offsets_beyond_two_to_the_31(tmp_path: Path) -> None:
    """Rows 2^28 elements apart, views of one fused tensor in a sparse file of 4.3 GB."""
    problem = AttentionProblem(1, 1, 1, 9, 9, 16)
    row, columns = 2**28, 48
    fused = torch.from_file(str(tmp_path / "qkv"), shared=True, size=8 * row + columns, dtype=torch.float16)
    parts = [fused.as_strided((1, 1, 9, 16), (1, 1, row, 1), start) for start in (0, 16, 32)]
    for part, drawn in zip(parts, draw(problem), strict=True):
        part.copy_(drawn)
    q, k, v = parts
    assert q.stride(2) * 8 >= 2**31
    check(FLASH, problem, T16, (q, k, v))


def test_the_grid_has_one_dimension() -> None:
    """y and z end at 65,535."""
    assert grid(AttentionProblem(700, 100, 100, 17, 16, 16), T16) == (140_000,)


@takers(*LAUNCHED)
def test_launches_are_named_as_in_the_schedule(device: str, kernel: AttentionKernel) -> None:
    for launched in LAUNCHED:
        problem = in_time(kernel, launched)
        names: list[str] = []

        def hook(name: str, names: list[str] = names) -> nullcontext[None]:
            names.append(name)
            return nullcontext()

        kernel.forward(*draw(problem, device), problem, T16, launch=hook, finite=True)
        assert names == [launch.name for launch in kernel.schedule(problem, T16).launches]


@pytest.mark.parametrize("case", CASES)
def test_reference_equals_torch(case: str) -> None:
    problem, _ = CASES[case]
    q, k, v = (t.double() for t in draw(problem))
    o, lse = reference(q, k, v, problem)
    lo, hi = problem.visible_keys()
    key = torch.arange(problem.seq_len_kv)
    seen = (key >= torch.from_numpy(lo)[:, None]) & (key < torch.from_numpy(hi)[:, None])
    expected = torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=seen, enable_gqa=True)
    torch.testing.assert_close(o, expected.nan_to_num(0.0), rtol=1e-12, atol=1e-12)
    assert lse.isneginf().tolist() == (~seen.any(1)).expand_as(lse).tolist()


def test_reference_equals_three_loops() -> None:
    problem = AttentionProblem(2, 4, 2, 5, 7, 3, "float32", causal=True, window=4)
    q, k, v = draw(problem)
    o, lse = reference(q, k, v, problem)
    for b, h, i in itertools.product(range(2), range(4), range(5)):
        keys = [j for j in range(7) if i + 2 - 4 < j <= i + 2]
        weights = [math.exp(float(q[b, h, i].double() @ k[b, h // 2, j].double()) / math.sqrt(3)) for j in keys]
        expected = sum(w * v[b, h // 2, j].double() for w, j in zip(weights, keys, strict=True)) / sum(weights)
        torch.testing.assert_close(o[b, h, i], expected)
        assert float(lse[b, h, i]) == pytest.approx(math.log(sum(weights)))


def test_reference_of_chosen_rows() -> None:
    problem = AttentionProblem(1, 2, 1, 50, 40, 8, causal=True)
    rows = torch.tensor([0, 9, 10, 49])
    inputs = draw(problem)
    o, lse = reference(*inputs, problem)
    chosen_o, chosen_lse = reference(*inputs, problem, rows)
    assert chosen_o.equal(o[:, :, rows]) and chosen_lse.equal(lse[:, :, rows])


def _with_o(change: str) -> SimpleNamespace:
    """Flash with a fault in it."""

    def forward(
        q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, problem: AttentionProblem, tile: TileConfig, **options: bool
    ) -> Output:
        right: Output = FLASH(q, k, v, problem, tile, **options)
        o, lse = right.o, right.lse
        assert lse is not None
        match change:
            case "last row unwritten":
                o[..., -1, :] = torch.nan
            case "columns from 64 on dropped":
                o[..., 64:] = 0
            case "one element off by little":
                o[0, 0, 7, 7] = 1.5 * ALLOWED[problem.dtype] + o[0, 0, 7, 7]
            case "query heads share the wrong kv head":
                o = FLASH(q, k.flip(1), v.flip(1), problem, tile, **options).o
            case "lse in base 2":
                lse = lse / math.log(2)
        return Output(o, lse)

    return SimpleNamespace(forward=forward)


@pytest.mark.parametrize(
    "fault",
    [
        "last row unwritten",
        "columns from 64 on dropped",
        "one element off by little",
        "query heads share the wrong kv head",
        "lse in base 2",
    ],
)
def test_the_comparison_notices(fault: str) -> None:
    problem = AttentionProblem(1, 4, 2, 20, 20, 80)
    with pytest.raises(AssertionError):
        check(_with_o(fault).forward, problem, T16, draw(problem))


def test_a_blind_row_does_not_spoil_its_neighbour() -> None:
    """bfloat16 on a CPU, rows of odd length: torch reads one element of the next row."""
    problem = AttentionProblem(1, 2, 1, 33, 31, 16, "bfloat16", causal=True)
    output = check(all_kernels()["naive"].forward, problem, T16, draw(problem), finite=True)
    assert bool(output.o.isfinite().all())


@pytest.mark.parametrize("name", ["naive", "flex", "flash"])
def test_a_nan_reaches_no_row_before_the_one_that_sees_it(name: str) -> None:
    problem = AttentionProblem(1, 2, 2, 17, 65, 3, "bfloat16", causal=True)
    q, k, v = draw(problem)
    k[:, :, 64] = torch.nan
    output = check(all_kernels()[name].forward, problem, T16, (q, k, v))
    assert bool(output.o[:, :, :16].isfinite().all()) and bool(output.o[:, :, 16].isnan().all())


def test_the_reference_shows_a_nan_beside_a_blind_row() -> None:
    problem = AttentionProblem(1, 1, 1, 2, 1, 1, "float32", causal=True)
    ones = torch.ones(1, 1, 2, 1)
    o, lse = reference(ones, torch.full((1, 1, 1, 1), torch.nan), ones[:, :, :1], problem)
    assert o[0, 0, 0].item() == 0 and o[0, 0, 1].isnan().all()
    assert lse[0, 0, 0].isneginf() and lse[0, 0, 1].isnan()


def test_the_reference_keeps_what_a_query_does_not_see_out_of_infinities() -> None:
    """Query 2 sees an infinity of key 2; that key 3 has NaN in the same column is for query 3 alone."""
    problem = AttentionProblem(1, 1, 1, 4, 4, 16, "float32", causal=True)
    q, k, v = (torch.zeros(1, 1, 4, 16) for _ in range(3))
    v[0, 0, 2, 0], v[0, 0, 3, 0], v[0, 0, 3, 1] = torch.inf, torch.nan, -torch.inf
    o, _ = reference(q, k, v, problem)
    assert o[0, 0, :2].abs().max() == 0
    assert o[0, 0, 2, 0] == torch.inf and o[0, 0, 2, 1] == 0
    assert o[0, 0, 3, 0].isnan() and o[0, 0, 3, 1] == -torch.inf and o[0, 0, 3, 2] == 0
