"""dQ, dK, dV of every kernel that has them: against float64 and torch's autograd."""

import math
from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch

from kernels.base import AttentionKernel, all_kernels
from kernels.problem import ELEMENT_BYTES, AttentionProblem, Refused, TileConfig
from kernels.reference import reference_gradients
from kernels.run import Gradients, Output
from kernels.schedule import Launch
from profiler.bench import draw_do
from profiler.workload import workloads
from tests.attention_cases import CASES, draw, takers, takes

pytestmark = [pytest.mark.computes, pytest.mark.usefixtures("poisoned")]

FLASH, NAIVE, TMA = (all_kernels()[name] for name in ("flash", "naive", "flash_tma"))
T32 = TileConfig(32, 16)
# Of the Euclidean norm: P and dS are rounded once each on their way, and so is the gradient.
ALLOWED = {"float16": 3 * 2**-11, "bfloat16": 3 * 2**-8, "float32": 16 * 2**-24}
CAUSAL = AttentionProblem(1, 1, 1, 20, 20, 16, "float32", causal=True, backward=True)
GQA = AttentionProblem(2, 4, 2, 33, 40, 16, "float32", causal=True, backward=True)


@pytest.fixture
def device() -> str:
    """Where the kernels run."""
    return "cpu"


def run(
    kernel: AttentionKernel,
    problem: AttentionProblem,
    tile: TileConfig,
    inputs: tuple[torch.Tensor, ...],
    do: torch.Tensor,
) -> tuple[Output, Gradients]:
    """Forward, then backward."""
    q, k, v = inputs
    tile = kernel.cut(problem, tile)
    output = kernel.forward(q, k, v, problem, tile)
    found: Gradients = kernel.backward(q, k, v, output, do, problem, tile)
    return output, found


def exact(problem: AttentionProblem, inputs: tuple[torch.Tensor, ...], do: torch.Tensor) -> dict[str, torch.Tensor]:
    """Every gradient in float64, with the shapes that a kernel gives them."""
    q, k, v = inputs
    pairs = [(batch, head) for batch in range(problem.batch) for head in range(problem.kv_heads)]
    parts = [reference_gradients(q, k, v, do, problem, *pair) for pair in pairs]
    stacked = (torch.stack(part) for part in zip(*parts, strict=True))
    shapes = {"dq": q.shape, "dk": k.shape, "dv": v.shape}
    return {name: part.reshape(shape) for (name, shape), part in zip(shapes.items(), stacked, strict=True)}


def check(kernel: AttentionKernel, problem: AttentionProblem, tile: TileConfig, device: str) -> None:
    inputs, do = draw(problem, device), draw_do(problem, 0, device).clone()
    _, found = run(kernel, problem, tile, inputs, do)
    for name, right in exact(problem, inputs, do).items():
        wrong = vars(found)[name]
        assert wrong.dtype == inputs[0].dtype and wrong.shape == right.shape
        # Where queries see one key alone dQ and dK are 0, and what is left is the rounding of dP, which is about 1.
        scale = float(right.norm()) if right.abs().max() > 1e-9 else math.sqrt(right.numel())
        assert float((wrong.double() - right).norm()) <= ALLOWED[problem.dtype] * scale, name


def cases() -> Iterator[object]:
    """Every case in one dtype after the other, with few heads; tiles by pointers and by descriptors in turn."""
    for place, (name, (shape, tile)) in enumerate(CASES.items()):
        heads = {"heads": 2, "kv_heads": 2} if shape.heads > 6 else {}
        dtype = [*ELEMENT_BYTES][place % 3]
        problem = replace(shape, dtype=dtype, backward=True, seq_len_q=min(shape.seq_len_q, 200), **heads)
        for kernel in (NAIVE, *((TMA,) if takes(TMA, problem, tile) and place % 2 else (FLASH,))):
            yield pytest.param(kernel, problem, tile, id=f"{name}-{dtype}-{kernel.name}")


@pytest.mark.parametrize(("kernel", "problem", "tile"), [*cases()])
def test_equals_float64(device: str, kernel: AttentionKernel, problem: AttentionProblem, tile: TileConfig) -> None:
    check(kernel, problem, tile, device)


@pytest.mark.parametrize("tile", [TileConfig(4, 4), TileConfig(128, 8), TileConfig(2, 128)], ids=str)
def test_any_tile_gives_the_same(tile: TileConfig) -> None:
    check(FLASH, AttentionProblem(1, 2, 1, 16, 20, 8, "float32", causal=True, backward=True), tile, "cpu")


def test_the_reference_is_what_autograd_derives() -> None:
    q, k, v = (tensor.double().requires_grad_() for tensor in draw(GQA))
    do = draw_do(GQA, 0, "cpu").double()
    keys, values = (tensor.repeat_interleave(GQA.group, 1) for tensor in (k, v))
    hidden = torch.ones(33, 40, dtype=torch.bool).triu(8)
    p = (q @ keys.mT * GQA.sm_scale).masked_fill(hidden, -math.inf).softmax(-1)
    derived = torch.autograd.grad(p @ values, (q, k, v), do)
    found = exact(GQA, (q.detach(), k.detach(), v.detach()), do)
    for one, other in zip(found.values(), derived, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("dtype", ELEMENT_BYTES)
def test_naive_launches_what_autograd_does(dtype: str) -> None:
    """Bit for bit what torch's autograd gives for the same forward pass, mask and groups included."""
    problem = replace(GQA, dtype=dtype)
    inputs, do = draw(problem), draw_do(problem, 0, "cpu")
    q, k, v = (tensor.clone().requires_grad_() for tensor in inputs)
    folded = (problem.batch, problem.kv_heads, problem.group * problem.seq_len_q, problem.head_dim)
    s = q.reshape(folded) @ k.mT * problem.sm_scale
    hidden = torch.ones(33, 40, dtype=torch.bool).triu(8).repeat(problem.group, 1)
    o = s.masked_fill(hidden, -math.inf).softmax(-1) @ v
    derived = torch.autograd.grad(o.view(q.shape), (q, k, v), do)
    _, found = run(NAIVE, problem, TileConfig(), inputs, do)
    for one, other in zip(vars(found).values(), derived, strict=True):
        torch.testing.assert_close(
            one, other, rtol=1e-3 if dtype != "float32" else 1e-5, atol=1e-3 if dtype != "float32" else 1e-6
        )


def test_one_key_by_hand() -> None:
    """Queries 1 and 2 of one key and one value: P = 1, so dV is the sum of dO, and dQ and dK are 0."""
    problem = AttentionProblem(1, 1, 1, 2, 1, 1, "float32", backward=True)
    q, k, v = torch.tensor([1.0, 2.0]).view(1, 1, 2, 1), torch.ones(1, 1, 1, 1), torch.full((1, 1, 1, 1), 5.0)
    do = torch.tensor([3.0, 4.0]).view(1, 1, 2, 1)
    for kernel in (NAIVE, FLASH):
        _, found = run(kernel, problem, TileConfig(2, 1), (q, k, v), do)
        assert found.dv.item() == 7 and found.dk.item() == 0 and found.dq.flatten().tolist() == [0, 0]


def test_two_keys_by_hand() -> None:
    """q = 0 weighs both keys 1/2, so dV is dO / 2."""
    problem = AttentionProblem(1, 1, 1, 1, 2, 1, "float32", backward=True)
    q, do = torch.zeros(1, 1, 1, 1), torch.full((1, 1, 1, 1), 2.0)
    k, v = torch.tensor([1.0, 3.0]).view(1, 1, 2, 1), torch.tensor([4.0, 8.0]).view(1, 1, 2, 1)
    for kernel in (NAIVE, FLASH):
        _, found = run(kernel, problem, TileConfig(1, 2), (q, k, v), do)
        assert found.dv.flatten().tolist() == [1, 1]
        # dP = dO · v = (8, 16), delta = 12, dS = ½ · (−4, 4); dQ = −2 · 1 + 2 · 3; dK = dS · q = 0.
        assert found.dq.item() == 4 and found.dk.flatten().tolist() == [0, 0]


@takers(CAUSAL)
@pytest.mark.filterwarnings("ignore:invalid value encountered in:RuntimeWarning")  # what the interpreter says
@pytest.mark.filterwarnings("ignore:All-NaN slice encountered:RuntimeWarning")
@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("spoiled", ["q", "k", "v"])
def test_hidden_values_never_touch_a_gradient(device: str, kernel: AttentionKernel, spoiled: str, bad: float) -> None:
    """Query 9 does not see key 10: its dQ is clean. Key 11 is not seen by query 10: its dK and dV are."""
    inputs, do = draw(CAUSAL, device), draw_do(CAUSAL, 0, device)
    clean = exact(CAUSAL, inputs, do)
    place = 10
    inputs["qkv".index(spoiled)][0, 0, place] = bad
    _, found = run(kernel, CAUSAL, TileConfig(16, 16), inputs, do)
    torch.testing.assert_close(found.dq[:, :, :place].double(), clean["dq"][:, :, :place], rtol=1e-4, atol=1e-6)
    assert not bool(found.dq[:, :, place].isfinite().all())
    if spoiled == "q":
        for name in ("dk", "dv"):
            unseen = vars(found)[name][:, :, place + 1 :].double()
            torch.testing.assert_close(unseen, clean[name][:, :, place + 1 :], rtol=1e-4, atol=1e-6)


@takers(GQA)
def test_strided_views_of_one_fused_tensor(device: str, kernel: AttentionKernel) -> None:
    """[batch, seq, heads · head_dim] side by side, as a projection layer leaves them, dO as one leaves it too."""
    problem = replace(GQA, seq_len_q=33, seq_len_kv=33, dtype="float16")
    fused = torch.randn(2, 33, 4 + 2 * 2 + 4, 16, generator=torch.Generator().manual_seed(1)).half().to(device)
    q, k, v, do = (part.transpose(1, 2) for part in fused.split([4, 2, 2, 4], dim=2))
    _, found = run(kernel, problem, TileConfig(16, 16), (q, k, v), do)
    for name, right in exact(problem, (q, k, v), do).items():
        assert (vars(found)[name].double() - right).norm() <= ALLOWED["float16"] * right.norm(), name


def test_of_a_kernel_without_one_it_is_refused() -> None:
    problem = AttentionProblem(1, 2, 2, 64, 64, 16, backward=True)
    having = [kernel for kernel in all_kernels().values() if kernel.has_backward]
    assert {"naive", "flash", "flash_tma", "flash_ws"} <= {kernel.name for kernel in having}
    with pytest.raises(
        Refused, match=r"^Split K/V has no backward pass; choose naive, flash, .*, or leave backward out\.$"
    ):
        workloads(("split_kv",), problem, T32, "cpu")
    assert all(launch.flops is not None for launch in NAIVE.schedule(problem, T32).launches)


def test_an_output_that_lacks_what_backward_needs(device: str) -> None:
    inputs, do = draw(CAUSAL), draw_do(CAUSAL, 0, "cpu")
    output = Output(inputs[0])
    with pytest.raises(ValueError, match="kept no P"):
        NAIVE.backward(*inputs, output, do, CAUSAL, TileConfig())
    with pytest.raises(ValueError, match="left no LSE"):
        FLASH.backward(*inputs, output, do, CAUSAL, TileConfig())
    with pytest.raises(ValueError, match=r"^do has stride 20 along head_dim"):
        whole = FLASH.forward(*inputs, CAUSAL, T32)
        FLASH.backward(*inputs, whole, do.mT.contiguous().mT, CAUSAL, T32)


def test_every_launch_is_an_identifier_of_its_own() -> None:
    for kernel in all_kernels().values():
        if kernel.has_backward:
            names = [launch.name for launch in kernel.schedule(CAUSAL, kernel.cut(CAUSAL, TileConfig())).launches]
            assert len(set(names)) == len(names)
            assert all(isinstance(Launch(name, {}, {}), Launch) for name in names)
