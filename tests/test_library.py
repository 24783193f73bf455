"""Library kernels: what each refuses, which backend really runs, FlexAttention's mask, LSE and hidden values."""

import math
import warnings
from dataclasses import replace

import pytest
import torch
from torch.nn.attention import SDPBackend
from torch.nn.attention.flex_attention import create_block_mask

from app import form
from app.devices import devices
from app.picture import Table
from app.style import LIGHT
from app.views import overview
from kernels.base import GpuLimits, all_kernels
from kernels.library.flex_mask import flex_mask
from kernels.library.limits import CUDNN
from kernels.library.sdpa import asked, forced
from kernels.problem import AttentionProblem, Refused
from kernels.reference import reference
from profiler.admission import admit, needs
from profiler.bench import Bench
from profiler.child import describe
from profiler.counter import all_counters
from profiler.device import GPUS
from profiler.measure import modelled
from profiler.run import DeviceInfo, LaunchedKernel, Measurement, Run
from profiler.workload import Workload
from tests.attention_cases import ALLOWED, CASES, T16, check, draw, takes
from tests.fake_runs import H200, PROBLEM, flash_run, naive_run
from tests.test_app_form import SMALL

pytestmark = pytest.mark.computes

SDPA = ("cudnn", "flash_attention_2", "mem_efficient")
LIBRARY = (*SDPA, "flex")
FLEX = all_kernels()["flex"]
PLAIN = AttentionProblem(1, 2, 2, 256, 256, 64, "float16")
ON_H200 = GPUS["h200"].limits
GPU = "cuda:0"
LIBRARIES = "What the libraries ran"


def refusal_of(name: str, gpu: GpuLimits | None = ON_H200, **changes: object) -> str:
    with pytest.raises(Refused) as refusal:
        all_kernels()[name].refuse(replace(PLAIN, **changes), T16, gpu)  # type: ignore[arg-type]
    sentence = str(refusal.value)
    assert sentence.endswith(".") and "\n" not in sentence
    return sentence


def test_four_kernels_of_one_folder_each_with_a_forward_of_its_own() -> None:
    found = [all_kernels()[name] for name in LIBRARY]
    assert [kernel.title for kernel in found] == ["cuDNN", "FlashAttention-2", "Memory-efficient", "FlexAttention"]
    assert len({kernel.forward for kernel in found}) == 4 == len({kernel.prepare for kernel in found})
    assert not any(kernel.is_tiled or kernel.is_triton or kernel.records for kernel in found)


@pytest.mark.parametrize("name", LIBRARY)
def test_every_one_takes_a_plain_problem_on_an_h200(name: str) -> None:
    for problem in (PLAIN, replace(PLAIN, dtype="bfloat16", head_dim=128, causal=True)):
        all_kernels()[name].refuse(problem, T16, ON_H200)


@pytest.mark.parametrize(
    ("name", "title"),
    [("cudnn", "cuDNN's attention"), ("flash_attention_2", "FlashAttention-2"), ("mem_efficient", "Memory-efficient")],
)
def test_torchs_attention_is_refused_where_it_would_be_something_else(name: str, title: str) -> None:
    on_cpu = refusal_of(name, None)
    assert on_cpu.startswith(title)
    assert on_cpu.endswith(" runs only on a GPU: choose a cuda device, or flash, which is interpreted.")
    assert "has no window; choose none, or flex or flash." in refusal_of(name, window=9)
    assert "aligns a causal mask top-left, not bottom-right" in refusal_of(name, causal=True, seq_len_kv=300)
    assert refusal_of(name, causal=True, seq_len_kv=300).endswith("choose seq_len_kv 256, or flex or flash.")
    assert "head_dim is 63: choose 64, or flash." in refusal_of(name, head_dim=63)
    assert "batch is 65,536: choose fewer, or flash." in refusal_of(name, batch=65_536)
    all_kernels()[name].refuse(replace(PLAIN, batch=65_535, seq_len_kv=300), T16, ON_H200)


def test_what_only_some_of_them_take() -> None:
    t4 = GPUS["t4"].limits
    for name, title in (("cudnn", "cuDNN's attention"), ("flash_attention_2", "FlashAttention-2")):
        assert refusal_of(name, dtype="float32").startswith(f"{title} takes no float32; choose float16 or bfloat16")
        assert refusal_of(name, t4).startswith(f"{title} wants compute capability 8.0; T4 has 7.5: choose ")
        all_kernels()[name].refuse(replace(PLAIN, kv_heads=1), T16, ON_H200)
    assert refusal_of("cudnn", seq_len_kv=1).startswith("cuDNN's attention takes no single key; choose seq_len_kv 2")
    efficient = all_kernels()["mem_efficient"]
    assert "takes no GQA: kv_heads is 1; choose kv_heads 2, or" in refusal_of("mem_efficient", kv_heads=1)
    efficient.refuse(replace(PLAIN, dtype="float32", head_dim=4), T16, ON_H200)
    efficient.refuse(replace(PLAIN, dtype="float32", head_dim=3), T16, t4)
    assert "a multiple of 4" in refusal_of("mem_efficient", dtype="float32", head_dim=3)
    efficient.refuse(replace(PLAIN, seq_len_kv=2**23, head_dim=248), T16, ON_H200)
    assert "and one has 2,147,483,648; choose a shorter" in refusal_of("mem_efficient", seq_len_kv=2**23, head_dim=256)
    for name in ("mem_efficient", "flex"):
        all_kernels()[name].refuse(PLAIN, T16, t4)
        assert refusal_of(name, t4, dtype="bfloat16").startswith("T4 has no bfloat16")


def test_rows_too_far_apart_for_memory_efficient_attention_are_refused_by_name() -> None:
    q, k = (torch.empty(1, 2, 256, 64, device="meta", dtype=torch.float16) for _ in range(2))
    far = torch.empty(1, device="meta", dtype=torch.float16).as_strided((1, 2, 256, 64), (64, 64, 2**24, 1))
    words = r"^The last row of v is 4,278,190,080 elements after the first of its head, .* make v contiguous"
    with pytest.raises(ValueError, match=words):
        all_kernels()["mem_efficient"].forward(q, k, far, PLAIN, T16, finite=True)


def test_flex_takes_every_mask_and_is_bounded_where_it_is_not_fused() -> None:
    masked = replace(PLAIN, causal=True, window=9, seq_len_kv=300, head_dim=63, kv_heads=1)
    for gpu in (None, ON_H200):
        FLEX.refuse(masked, T16, gpu)
    assert "head_dim is 8: choose 16 or more, or flash." in refusal_of("flex", head_dim=8)
    FLEX.refuse(replace(PLAIN, head_dim=8), T16, None)
    # 16 heads × 4096² scores × 4 B.
    largest = replace(PLAIN, heads=16, kv_heads=16, seq_len_q=4096, seq_len_kv=4096)
    FLEX.refuse(largest, T16, ON_H200)
    FLEX.refuse(replace(largest, seq_len_q=512), T16, None)
    with pytest.raises(Refused, match=r"its float32 scores would take 1\.0 GiB, several times over; stay below 1 GiB"):
        FLEX.refuse(replace(largest, seq_len_q=4097), T16, None)


def test_the_shared_cases_leave_out_what_is_refused_and_nothing_else() -> None:
    """Without a GPU: all cases for flex and for kernels that are no library's, none for torch's attention or Gluon.

    By descriptor only those with rows of whole 16 bytes: not head_dim 63, 4 and 1.
    """
    for case, (problem, tile) in CASES.items():
        for name, kernel in all_kernels().items():
            takes_it = name not in (*SDPA, "flash_ws") and (name != "flash_tma" or problem.head_dim not in (63, 4, 1))
            assert takes(kernel, problem, tile) == takes_it, (case, name)


def test_schedules_by_hand() -> None:
    """(2, 4 over 2, 8 over 12, 16) float16: Q and O 2·4·8·16·2 B, K and V 2·2·12·16·2 B, LSE 2·4·8·4 B."""
    problem = AttentionProblem(2, 4, 2, 8, 12, 16, "float16")
    q, kv, lse = 2048, 1536, 256
    for name in LIBRARY:
        kernel = all_kernels()[name]
        schedule = kernel.schedule(problem, T16)
        (launch,) = schedule.launches
        assert (schedule.kernel, launch.name) == (name, "flex" if name == "flex" else "sdpa")
        assert launch.reads == {"q": q, "k": kv, "v": kv} and launch.walk is None
        writes_lse = name in ("flash_attention_2", "flex")
        assert launch.writes == {"o": q} | ({"lse": lse} if writes_lse else {})
        assert kernel.temporaries(problem, T16) == ({"lse": lse} if writes_lse else {})
    # Bottom-right and causal: 7 of the 12 keys are hidden from the first query.
    assert FLEX.temporaries(replace(problem, causal=True), T16)["mask"] == 2 * 4 * (1 + 1 + 2)


MASKS = [
    AttentionProblem(1, 1, 1, 512, 512, 16, causal=True),
    AttentionProblem(1, 1, 1, 700, 300, 16, causal=True),
    AttentionProblem(1, 1, 1, 300, 700, 16, causal=True, window=150),
    AttentionProblem(1, 1, 1, 1000, 1000, 16, window=300),
    AttentionProblem(1, 1, 1, 1000, 300, 16, window=300),
    AttentionProblem(1, 1, 1, 5, 2, 16, causal=True),
]


@pytest.mark.parametrize("problem", MASKS, ids=str)
def test_the_mask_is_what_create_block_mask_finds_in_every_score(problem: AttentionProblem) -> None:
    made = flex_mask(problem, "cpu")
    assert made is not None
    lo, hi = (torch.from_numpy(end) for end in problem.visible_keys())

    def seen(batch: torch.Tensor, head: torch.Tensor, query: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
        return (key >= lo[query]) & (key < hi[query])

    expected = create_block_mask(seen, None, None, problem.seq_len_q, problem.seq_len_kv, device="cpu")
    parts = [part for part in made.as_tuple() if isinstance(part, torch.Tensor)]
    others = [part for part in expected.as_tuple() if isinstance(part, torch.Tensor)]
    assert len(parts) == len(others) == 8
    for part, other in zip(parts, others, strict=True):
        assert part.dtype == other.dtype and part.equal(other)
    assert sum(part.nbytes for part in parts) == FLEX.temporaries(problem, T16)["mask"]
    query, key = torch.arange(problem.seq_len_q)[:, None], torch.arange(problem.seq_len_kv)
    assert made.mask_mod(query, query, query, key).equal(seen(query, query, query, key))


def test_a_problem_without_hidden_scores_has_no_mask() -> None:
    assert flex_mask(replace(PLAIN, window=256), "cpu") is None


def test_the_lse_of_flex_is_a_natural_logarithm() -> None:
    """The article's scores [0, 0, ln 2, ln 2]: Σ exp = 6."""
    problem = AttentionProblem(1, 1, 1, 1, 4, 1, "float32")
    q = torch.ones(1, 1, 1, 1)
    k = torch.tensor([0.0, 0.0, math.log(2), math.log(2)]).reshape(1, 1, 4, 1)
    v = torch.tensor([6.0, 12.0, 18.0, 24.0]).reshape(1, 1, 4, 1)
    output = FLEX.forward(q, k, v, problem, T16)
    assert output.lse is not None and output.lse.item() == pytest.approx(math.log(6))
    assert output.o.item() == pytest.approx(1 + 2 + 6 + 8)


def test_flex_is_prepared_once_and_promised_finite_values_cost_nothing() -> None:
    problem = AttentionProblem(2, 4, 2, 70, 100, 16, causal=True, window=40)
    q, k, v = draw(problem)
    prepared = FLEX.prepare(problem, T16, "cpu") if FLEX.prepare else None
    calls: list[int] = []

    def counted(*tensors: torch.Tensor) -> object:
        calls.append(1)
        assert prepared is not None
        return prepared(*tensors)

    output = FLEX.forward(q, k, v, problem, T16, finite=True, prepared=counted)
    o, lse = reference(q, k, v, problem)
    assert (output.o.double() - o).norm() < ALLOWED["float16"] * o.norm() and len(calls) == 1
    torch.testing.assert_close(output.lse.double(), lse, rtol=2e-6, atol=2e-6)
    v[0, 1, 99] = math.nan
    assert FLEX.forward(q, k, v, problem, T16, finite=True, prepared=counted).o[0, 2, :69].isnan().any()
    assert not FLEX.forward(q, k, v, problem, T16, prepared=counted).o[0, 2, :69].isnan().any()


@pytest.mark.parametrize("kv_heads", [1, 2, 4])
@pytest.mark.parametrize("causal", [False, True])
def test_torchs_attention_is_asked_for_scale_mask_and_gqa(causal: bool, kv_heads: int) -> None:
    """By the one fused backend that torch has for a CPU; kernels on a GPU differ from it in the backend alone."""
    problem = AttentionProblem(2, 4, kv_heads, 50, 50, 16, "float32", causal)
    q, k, v = draw(problem)
    forward = forced(SDPBackend.FLASH_ATTENTION)
    check(forward, problem, T16, (q, k, v))
    if causal:
        v[0, 0, 49, 3] = math.nan
        o = check(forward, problem, T16, (q, k, v)).o
        assert o[0, 0].isnan().nonzero().tolist() == [[49, 3]]


def test_a_backend_that_cannot_is_refused_in_torchs_words_and_nothing_else_runs() -> None:
    for name, title in zip(SDPA, ("cuDNN's attention", "FlashAttention-2", "Memory-efficient attention"), strict=True):
        prepare = all_kernels()[name].prepare
        assert prepare is not None
        # float32 runs on a CPU by a backend of that name: only the other two cannot.
        if name == "flash_attention_2":
            prepare(replace(PLAIN, dtype="float32"), T16, "cpu")
            continue
        with pytest.raises(Refused, match=rf"^{title} does not take this problem: No viable backend.+; choose another"):
            prepare(PLAIN, T16, "cpu")


def test_torchs_reasons_are_told_without_those_of_other_backends() -> None:
    def forward(*tensors: object, **options: object) -> None:
        for reason in (
            "Flash attention kernel not used because: (Triggered internally at a.cpp:1)",
            "Flash attention has been runtime disabled. (Triggered internally at a.cpp:2)",
            "head_dim should be no more than 128 (Triggered internally at a.cpp:3)",
        ):
            warnings.warn(reason, stacklevel=1)
        raise RuntimeError("No available kernel. Aborting execution.")

    with pytest.raises(Refused) as refusal:
        asked("cuDNN's attention", forward)(PLAIN, T16, "cpu")  # type: ignore[arg-type]
    words = "head_dim should be no more than 128"
    assert str(refusal.value) == f"cuDNN's attention does not take this problem: {words}; choose another kernel."


def test_other_errors_of_torch_stay_errors() -> None:
    def forward(*tensors: object, **options: object) -> None:
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    with pytest.raises(RuntimeError, match="illegal memory access"):
        asked("cuDNN's attention", forward)(PLAIN, T16, "cpu")  # type: ignore[arg-type]


def test_needs_count_hidden_scores_and_an_unknown_gpu_is_left_to_its_worker() -> None:
    """4 · 2 heads · 256² · 64 FLOP, whatever the mask hides."""
    assert needs(Workload("flex", replace(PLAIN, causal=True), None)).flops == 4 * 2 * 256 * 256 * 64
    unknown = DeviceInfo(GPU, "GPU of tomorrow", compute_capability=(13, 0))
    for name in LIBRARY:
        workload = Workload(name, PLAIN, None, GPU)
        admit(workload, unknown, None, None)
        found = {m.name: m.value for m in modelled(workload)}
        assert found["requested_read_bytes"] is None and found["predicted_peak_bytes"]


def test_the_form_says_before_run_what_cannot_run_on_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    wanted, reason = form.check(SMALL | {"kernels": ["flex", "naive", "flash"], "device": "cpu"})
    assert [workload.kernel for workload in wanted] == ["naive", "flash", "flex"] and reason == ""
    for name in SDPA:
        wanted, reason = form.check(SMALL | {"kernels": ["flash", name], "device": "cpu"})
        assert len(wanted) == 2 and reason.endswith(
            "runs only on a GPU: choose a cuda device, or flash, which is interpreted."
        )
    monkeypatch.setattr("app.form.devices", lambda: devices() | {GPU: H200})
    monkeypatch.setattr("app.form.free_bytes", lambda device: 10**11)
    every = SMALL | {"kernels": list(LIBRARY), "device": GPU}
    wanted, reason = form.check(every)
    assert [workload.kernel for workload in wanted] == list(LIBRARY) and reason == ""
    assert form.check(every | {"window": 9})[1].startswith("cuDNN's attention is run through torch's attention, which")
    assert form.check(every | {"kernels": ["flex"], "window": 9})[1] == ""


def test_the_overview_names_what_a_librarys_call_started() -> None:
    def run_of(name: str, device: str, kernels: tuple[str, ...], why: str = "") -> Run:
        told = Measurement("kernels_launched", len(kernels) or None, "1", "cupti-callback", why)
        work = Workload(name, PROBLEM, None, device)
        ran = tuple(LaunchedKernel("sdpa", kernel) for kernel in kernels)
        return replace(naive_run(run_id=name), workload=work, measurements=(told,), kernels=ran)

    runs = (
        run_of("cudnn", GPU, ("cudnn_generated_sdpa_flash_fprop",)),
        run_of("flex", GPU, ("triton_tem_fused_0", "triton_poi_fused_mul_1")),
        run_of("mem_efficient", GPU, (), "CUPTI is held by another"),
    )
    table = next(item for item in overview.sheet((*runs, naive_run()), LIGHT).items if item.title == LIBRARIES)
    assert isinstance(table, Table)
    unbroken = tuple((name, kernels.replace("\u200b", "")) for name, kernels in table.rows)
    assert unbroken == (
        ("cudnn", "cudnn_generated_sdpa_flash_fprop"),
        ("flex", "triton_tem_fused_0, then triton_poi_fused_mul_1"),
        ("mem_efficient", "–"),
    )
    assert table.reasons == (("", ""), ("", ""), ("", "CUPTI is held by another"))
    assert LIBRARIES not in [item.title for item in overview.sheet((naive_run(), flash_run()), LIGHT).items]


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("name", LIBRARY)
def test_each_equals_float64_on_a_gpu(name: str, causal: bool, dtype: str) -> None:
    """With hidden values that are not finite too, which the shared cases try at head_dim 4, below what these take."""
    kernel, problem = all_kernels()[name], AttentionProblem(2, 4, 4, 300, 300, 64, dtype, causal)
    q, k, v = draw(problem, GPU)
    check(kernel.forward, problem, T16, (q, k, v))
    if causal:
        v[0, 1, 200, 3], k[0, 1, 299, 0] = math.inf, math.nan
        o = check(kernel.forward, problem, T16, (q, k, v)).o
        assert o[0, 1, :200].isfinite().all() and not o[0, 1, 200:, 3].isfinite().any()


@pytest.mark.gpu
def test_torch_is_asked_on_a_gpu() -> None:
    """torch itself takes the plain problem by each of them, and no float32 by cuDNN."""
    for name in LIBRARY:
        prepare = all_kernels()[name].prepare
        assert prepare is not None
        prepare(PLAIN, T16, GPU)
    with pytest.raises(Refused, match=r"^cuDNN's attention does not take this problem: .+; choose another kernel"):
        asked(CUDNN, all_kernels()["cudnn"].forward)(replace(PLAIN, dtype="float32"), T16, GPU)


@pytest.mark.gpu
def test_the_kernels_that_ran_are_those_asked_for() -> None:
    """Names from CUPTI's callbacks: one launch each, all different, and none of torch's unfused path."""
    counter = next(counter for counter in all_counters() if "CUPTI callbacks" in counter.title)
    assert counter.measure is not None
    ran: dict[str, set[str]] = {}
    for name in LIBRARY:
        reading = counter.measure(Bench(Workload(name, replace(PLAIN, head_dim=128), None, GPU), describe(GPU)))
        assert {kernel.launch for kernel in reading.kernels} == {"flex" if name == "flex" else "sdpa"}
        ran[name] = {kernel.kernel for kernel in reading.kernels}
    names = [kernel for kernels in ran.values() for kernel in kernels]
    assert len(names) == len(set(names)) and all(ran.values())
    assert not any(word in kernel.lower() for kernel in names for word in ("softmax", "math"))
    assert any("triton" in kernel for kernel in ran["flex"])


def test_backends_are_offered_only_on_a_gpu_that_they_take() -> None:
    older = replace(ON_H200, compute_capability=(7, 5))
    for name in LIBRARY:
        kernel = all_kernels()[name]
        offered = [not kernel.why_not_on(gpu) for gpu in (None, older, ON_H200)]
        assert offered == [name == "flex", name in ("flex", "mem_efficient"), True], name
