"""`from profiler import profile`: a function on its caller's tensors, and what a notebook shows of the Run."""

import gc
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from examples.own_tiled import streamed
from examples.own_triton import two_pass
from kernels.own_fault import KernelFault, RefusedKernel
from kernels.own_import import OwnCallable
from kernels.problem import AttentionProblem, Refused, TileConfig
from profiler import profile
from profiler.bench import Bench
from profiler.counter import Unavailable
from profiler.counters.ncu import measure as measure_by_ncu
from profiler.device import cpu_device
from profiler.in_process import GIVEN, problem_of
from profiler.notebook import card, sentence
from profiler.own_kernel import why_spoiled
from profiler.run import Measurement, Run
from profiler.run_document import from_json, to_json
from profiler.workload import CPU, Workload
from tests.fake_runs import cpu_run, flash_run, naive_run

ROOT = Path(__file__).resolve().parent.parent


def inputs(
    batch: int = 1, heads: int = 2, kv_heads: int = 2, seq_len_q: int = 40, seq_len_kv: int = 40, device: str = "cpu"
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator(device).manual_seed(7)
    q = torch.randn(batch, heads, seq_len_q, 16, generator=generator, device=device)
    k, v = (torch.randn(batch, kv_heads, seq_len_kv, 16, generator=generator, device=device) for _ in "kv")
    return q, k, v


def eager(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool) -> torch.Tensor:
    return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal)


def test_the_package_stays_light() -> None:
    code = "import profiler, sys; profiler.profile; print('torch' in sys.modules, 'profiler.in_process' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]


def test_a_triton_kernel_on_its_callers_tensors() -> None:
    q, k, v = inputs(2, 6, 2, 37, 50)
    run = profile(streamed, q, k, v, causal=True, tile=TileConfig(16, 32))
    problem = AttentionProblem(2, 6, 2, 37, 50, 16, "float32", causal=True)
    assert run.workload == Workload(
        "examples.own_tiled:streamed", problem, TileConfig(16, 32), CPU, trace=None, like="flash without lse"
    )
    assert 0 < (run.value("relative_error") or 0) < 1e-6
    asked = [run.find("requested_read_bytes", source=source) for source in ("schedule", "interpreter")]
    assert asked[0] is not None and asked[1] is not None and asked[0].value == asked[1].value
    assert run.environment["inputs"] == GIVEN["inputs"]
    assert from_json(to_json([run])) == (run,)


def test_errors_are_of_the_tensors_that_were_given() -> None:
    q, k, v = inputs()
    assert 0 < (profile(eager, q, k, v).value("relative_error") or 0) < 1e-6
    k[0, 0, 3, :] = torch.nan
    assert "O holds NaN or infinity" in why_spoiled(profile(eager, q, k, v))


def test_the_tile_is_the_functions_own_unless_one_is_given() -> None:
    q, k, v = inputs()
    assert profile(streamed, q, k, v).workload.tile == TileConfig(64, 64, 4, 2)
    assert profile(two_pass, q, k, v).workload.tile is None
    with pytest.raises(Refused, match=r"two_pass takes neither BLOCK_M nor BLOCK_N; leave tile out\."):
        profile(two_pass, q, k, v, tile=TileConfig(16, 16))


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (eager, "test_profile:eager"),
        (lambda q, k, v, causal: eager(q, k, v, causal), "test_profile:lambda"),
        (torch.nn.Module(), None),
    ],
)
def test_names(call: object, name: str | None) -> None:
    q, k, v = inputs()
    if name is None:
        with pytest.raises(KernelFault, match=r"torch.nn.modules.module:Module raised NotImplementedError"):
            profile(call, q, k, v)  # type: ignore[arg-type]
        return
    assert profile(call, q, k, v).workload.kernel == name  # type: ignore[arg-type]


def test_what_a_function_raises_is_the_cause() -> None:
    def fails(q: object, k: object, v: object, causal: bool) -> None:
        raise KeyError("tile")

    with pytest.raises(KernelFault, match=r"test_profile:fails raised KeyError: 'tile'") as fault:
        profile(fails, *inputs())
    assert isinstance(fault.value.__cause__, KeyError)
    with pytest.raises(RefusedKernel, match=r"takes \(q, k, v\), and is called with q, k, v and causal"):
        profile(lambda q, k, v: q, *inputs())


Q, K, V = inputs()
WRONG = {
    "no tensor": ((Q, [1], V), "k is a list; give a tensor [batch, heads, seq_len, head_dim]."),
    "three": ((Q[0], K, V), "q has the shape [2, 40, 16]; it should be [batch, heads, seq_len, head_dim]."),
    "dtype": ((Q, K.half(), V), "k is torch.float16 on cpu, and q torch.float32 on cpu; make them alike."),
    "float64": ((Q.double(), K.double(), V.double()), "dtype 'float64' is not supported; choose float16, bfloat16"),
    "k and v": ((Q, K, V[:, :1]), "k has the shape [1, 2, 40, 16] and v [1, 1, 40, 16]; they should be the same."),
    "head_dim": ((Q, K[..., :8], V[..., :8]), "q has the shape [1, 2, 40, 16] and k [1, 2, 40, 8]; batch and head"),
    "heads": ((Q, *(t.repeat(1, 2, 1, 1)[:, :3] for t in (K, V))), "kv_heads 3 does not divide heads 2"),
    "device": (tuple(t.to("meta") for t in (Q, K, V)), "q is on meta; move q, k and v to the CPU or to an NVIDIA GPU."),
    "sparse": ((Q.to_sparse(), K, V), "q is sparse or nested; give a dense tensor [batch, heads, seq_len, head_dim]."),
    "empty": ((Q[:, :, :0], K, V), "seq_len_q is 0; it must be at least 1."),
}


@pytest.mark.parametrize("case", WRONG)
def test_tensors_that_are_no_problem(case: str) -> None:
    tensors, told = WRONG[case]
    with pytest.raises(Refused) as refused:
        problem_of(*tensors, causal=False)  # type: ignore[arg-type]
    assert str(refused.value).startswith(told)


OPTIONS = {
    "passes": ([2.5, "3", True, None], "; give a whole number, such as 20."),
    "drain": ([None, 1], "; give True or False."),
    "detail": (["x"], "; give True or False."),
    "causal": (["yes", torch.tensor(True)], "; give True or False."),
    "l2": ([3], "; give a text, or leave it out."),
    "counters": ([["ncu"]], "; give a text, or leave it out."),
    "tile": ([(16, 16)], "; give a TileConfig, such as kernels.problem.TileConfig(64, 64)."),
}


@pytest.mark.parametrize("option", OPTIONS)
def test_options_that_no_run_could_hold(option: str) -> None:
    values, told = OPTIONS[option]
    for value in values:
        with pytest.raises(Refused, match=f"^{option} is ") as refused:
            profile(eager, Q, K, V, **{option: value})  # type: ignore[arg-type]
        assert str(refused.value).endswith(told)


class Odd:
    def __call__(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool) -> torch.Tensor:
        return eager(q, k, v, causal)


class Hidden(Odd):
    def __getattr__(self, name: str) -> object:
        raise RuntimeError(name)


def test_objects_with_odd_names() -> None:
    odd = Odd()
    odd.__name__ = 5  # type: ignore[attr-defined]
    assert profile(odd, Q, K, V).workload.kernel == "python:Odd"
    with pytest.raises(RefusedKernel, match=r"python:Hidden cannot be looked at: RuntimeError: __[a-z]+__; name a"):
        profile(Hidden(), Q, K, V)


def test_strides_and_gradients_are_the_callers() -> None:
    q, k, v = (tensor.mT.contiguous().mT.requires_grad_() for tensor in inputs())
    run = profile(eager, q, k, v)
    assert 0 < (run.value("relative_error") or 0) < 1e-6
    assert q.grad is None and torch.is_grad_enabled() and not torch.is_inference_mode_enabled()


def test_ncu_says_that_it_cannot() -> None:
    work = Workload("m:f", problem_of(*inputs(), causal=False), None, CPU)
    with pytest.raises(Unavailable, match="has neither this function nor these tensors"):
        measure_by_ncu(Bench(work, cpu_device(), OwnCallable("m:f", eager), inputs()))


def test_the_card_tells_the_answer_and_where_each_number_is_from() -> None:
    shown = card(naive_run())
    assert sentence(naive_run()) == "naive moved 13.1 GB through HBM in 6.4 ms"
    assert "naive moved 13.1 GB through HBM in 6.4 ms</h3>" in shown
    for cells in (
        '<td>HBM</td><td class="n">13.1 GB</td><td><b class="m">cupti-range</b></td>',
        '<td>requested</td><td class="n">13 GB</td><td><b>schedule</b></td>',
        '<td>peak memory</td><td class="n">4.13 GiB</td><td><b class="m">torch</b></td>',
    ):
        assert cells in shown, cells
    # Hatched where derived; as long as it is large: 15.5 GB cross L2↔SM, and HBM's 13.09 GB are 84.5% of that.
    assert '<i class="d" style="width:84.0%">' in shown and '<i style="width:84.5%">' in shown
    assert shown.count("<tr>") > len(naive_run().measurements)
    assert naive_run()._repr_html_() == shown


def test_a_shell_shows_a_line() -> None:
    assert repr(naive_run()) == (
        "<Run fake-naive: naive, (1, 16, 8192, 128) bfloat16, full mask, NVIDIA H200, 6.4 ms, 13.1 GB HBM>"
    )
    assert repr(cpu_run()) == f"<Run fake-cpu: flash, {cpu_run().workload.problem.label}, {cpu_run().device.name}>"
    assert naive_run() == replace(naive_run()) and naive_run() != flash_run()


WITHOUT_GPU = """
import torch
from examples.own_triton import two_pass
from profiler import profile

q = torch.randn(1, 2, 40, 16)
profile(two_pass, q, q, q)
"""


def test_a_triton_kernel_on_the_cpu_says_what_it_needs() -> None:
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_GPU], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == (
        "kernels.own_fault.KernelFault: examples.own_triton:two_pass launches a Triton kernel, and q, k and v are on "
        "the CPU: give them on a GPU, or set TRITON_INTERPRET=1 before triton is imported."
    )
    assert "active drivers" not in done.stderr


def test_the_card_says_why_a_number_is_missing() -> None:
    shown = card(cpu_run())
    assert '<td>HBM</td><td class="n">–</td><td></td><td class="why">A CPU has no HBM counters;' in shown
    assert '<td>GPU time</td><td class="n">–</td><td></td><td class="why">this Run does not hold it</td>' in shown
    assert "0 B" not in shown.partition("<details>")[0]
    whole = replace(flash_run(), measurements=(Measurement("hbm_bytes", 2e9, "B", "nvml-gpm", "an estimate"),))
    assert sentence(whole) == "flash moved 2 GB through HBM"
    assert sentence(replace(whole, measurements=())) == "flash ran; its bytes are not known"
    spoiled = Measurement("relative_error", None, "1", "torch", "O holds NaN or infinity (against float64)")
    told = "The output of flash holds NaN or infinity. flash ran; its bytes are not known"
    assert sentence(replace(whole, measurements=(spoiled,))) == told
    # 1/20 is what rounding may explain, and more is wrong.
    for error, begins in ((0.05, "flash ran"), (0.051, "The output of flash is wrong: relative error 0.051 against")):
        wrong = replace(spoiled, value=error, note="against float64, all rows")
        assert sentence(replace(whole, measurements=(wrong,))).startswith(begins)


def test_nothing_of_a_run_becomes_html() -> None:
    bad = "<script>alert(1)</script>\"'&"
    run = cpu_run()
    hostile = replace(
        run,
        device=replace(run.device, name=bad),
        environment={bad: bad},
        measurements=(
            Measurement("hbm_bytes", None, "B", "nvml-gpm", bad),
            Measurement("compulsory_bytes", 1.0, "B", "model", bad),
            Measurement(bad, 1.0, "B", "model", bad, launch=bad),
        ),
    )
    assert "<script" not in card(hostile) and card(hostile).count("&lt;script") >= 7


@pytest.mark.gpu
@pytest.mark.parametrize("call", [two_pass, streamed, eager])
def test_on_a_gpu_every_source_answers_and_nothing_is_left_behind(call: object) -> None:
    q, k, v = (tensor.half() for tensor in inputs(1, 4, 4, 1024, 1024, "cuda:0"))
    torch.cuda.synchronize()
    before, current = torch.cuda.memory_allocated(), torch.cuda.current_device()
    run: Run = profile(call, q, k, v, causal=True, passes=5)  # type: ignore[arg-type]
    assert 0 < (run.value("relative_error") or 0) < 2e-3
    assert 1e-6 < (run.value("gpu_time_seconds") or 0) < 1e-1
    assert (run.value("peak_allocated_bytes") or 0) >= run.workload.problem.compulsory_bytes
    for name in ("hbm_read_bytes", "hbm_write_bytes", "l2_sm_bytes"):
        assert run.find(name, source="cupti-range") is not None  # a number, or why not
    told = run.find("requested_read_bytes", source="interpreter")
    assert told is not None and told.value is None and "profile() runs on the GPU alone" in told.note
    gc.collect()
    assert torch.cuda.current_device() == current and torch.cuda.memory_allocated() <= before
    assert from_json(to_json([run])) == (run,)
    assert run._repr_html_().startswith('<div class="bytescope">')
