"""A kernel of the user's own: its spelling, its import, what it says of itself, and every way in which it can fail."""

import signal
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from kernels import own_import
from kernels.own import MAX_NAME, is_own, kernel_named, likes
from kernels.own_fault import MOST_CHARACTERS, KernelFault, RefusedKernel, bounded, trace_of, words_of
from kernels.own_forward import forward_of, untouched
from kernels.own_import import OwnCallable, imported, offered, permit
from kernels.problem import AttentionProblem, Refused, TileConfig
from profiler.accuracy import measure_errors
from profiler.bench import Bench
from profiler.child import words_of as child_words_of
from profiler.codec import NotARun
from profiler.device import cpu_device
from profiler.measure import measure
from profiler.own_kernel import OWN_WORK, completed, why_spoiled
from profiler.run import Measurement, Run
from profiler.run_document import from_json, to_json
from profiler.workload import CPU, Workload, workloads
from tests.fake_runs import cpu_run

PROBLEM = AttentionProblem(1, 2, 2, 40, 40, 16, "float32")
EAGER = """
import torch


def eager(q, k, v, causal):
    return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal)
"""

Write = Callable[..., None]


@pytest.fixture
def write(tmp_path: Path) -> Iterator[Write]:
    """Writes modules into a folder of which this process may import the names that are given."""
    path, before = [*sys.path], set(sys.modules)

    def write(names: tuple[str, ...] = (), **texts: str) -> None:
        for name, text in texts.items():
            (tmp_path / f"{name}.py").write_text(text)
        permit(names, str(tmp_path))

    yield write
    permit((), "")
    sys.path[:] = path
    for name in set(sys.modules) - before:
        if getattr(sys.modules[name], "__file__", None) and str(tmp_path) in str(sys.modules[name].__file__):
            del sys.modules[name]


def run_of(name: str, problem: AttentionProblem = PROBLEM, tile: TileConfig | None = None) -> Run:
    return measure(Workload(name, problem, tile, CPU), cpu_device(), "request")


@pytest.mark.parametrize(
    ("name", "is_one"),
    [
        ("my_module:my_attention", True),
        ("a.b.c:d", True),
        ("os:system", True),
        ("flash", False),
        ("my_module", False),
        (":f", False),
        ("m:", False),
        ("m:f:g", False),
        ("m:f.g", False),
        ("../m:f", False),
        ("m:f()", False),
        ("m:f\n", False),
        ("1m:f", False),
        ("m..n:f", False),
        ("mö:f", False),
        ("m:" + "f" * MAX_NAME, False),
    ],
)
def test_the_spelling(name: str, is_one: bool) -> None:
    assert is_own(name) is is_one
    if ":" in name and not is_one:
        with pytest.raises(Refused, match="is not spelled as one of your own is: module:function"):
            kernel_named(name)


def test_opening_a_run_never_imports(write: Write, tmp_path: Path) -> None:
    """The module leaves a file where it is imported, and is where an import would find it."""
    write(trap=f"open({str(tmp_path / 'sprung')!r}, 'w').close()\n" + EAGER)
    for name in ("trap:eager", "os:system"):
        work = Workload(name, PROBLEM, None, CPU)
        text = to_json([replace(cpu_run(), workload=work, softmax=None)])
        assert from_json(text)[0].workload.attention_kernel.title == name.partition(":")[2]
    with pytest.raises(Refused, match=r"trap:eager may not be imported here: name it on the command line, or under"):
        run_of("trap:eager")
    assert not (tmp_path / "sprung").exists() and "trap" not in sys.modules
    write(("trap:eager",))
    run_of("trap:eager")
    assert (tmp_path / "sprung").exists()


@pytest.mark.parametrize(
    ("kernel", "like", "sentence"),
    [
        ("m:f", "slow", "m:f has the schedule 'slow', which is not known; choose row_streaming, "),
        ("m:f", "naive", "m:f has the schedule 'naive', which is not known"),
        ("flash", "flash", "Kernel flash has a schedule of its own; leave like out."),
        ("m:f", "flash", "Kernel m:f needs a tile"),
    ],
)
def test_a_file_cannot_name_a_schedule_that_is_none(kernel: str, like: str, sentence: str) -> None:
    made = replace(cpu_run(), workload=Workload("m:f", PROBLEM, None, CPU), softmax=None)
    text = (
        to_json([made]).replace('"kernel": "m:f"', f'"kernel": "{kernel}"').replace('"like": ""', f'"like": "{like}"')
    )
    with pytest.raises(NotARun, match=sentence):
        from_json(text)


def test_schedules_that_an_own_kernel_may_have_are_tiled_and_of_one_launch() -> None:
    ones = ("row_streaming", "query_tiled", "flash_kv_outer", "flash", "flash_tma", "flash_ws")
    assert [like for like in likes() if " " not in like] == [*ones]
    assert "flash without lse" in likes() and "flash_kv_outer without lse" not in likes()
    tile = TileConfig(16, 32)
    ours, theirs = (kernel.schedule(PROBLEM, tile) for kernel in (kernel_named("flash"), kernel_named("m:f", "flash")))
    assert [launch.name for launch in theirs.launches] == ["f"]
    assert theirs.by_tensor == ours.by_tensor
    less = kernel_named("m:f", "flash without lse").schedule(PROBLEM, tile)
    assert less.by_tensor == {tensor: sizes for tensor, sizes in ours.by_tensor.items() if tensor != "lse"}
    assert [step.writes for step in less.steps()][-1] == {"o": 8 * 16 * 4}, "the last Q tile has 8 of 40 rows"
    assert kernel_named("m:drain").schedule(PROBLEM, tile).launches[0].name == "drain_"


def test_a_window_is_refused(write: Write) -> None:
    kernel = kernel_named("m:f")
    with pytest.raises(Refused, match="given q, k, v and causal, and no window; leave window out"):
        kernel.refuse(replace(PROBLEM, window=3), TileConfig(), None)


EVIL = "class F:\n  def __call__(self, q, k, v, causal): pass\n  "
MODULE_OF, IN_PLACE = "import sys\nclass M:\n  ", "\nsys.modules[__name__] = M()"
IMPORTS = {
    "no_module": ("absent:f", {}, "There is no module absent in .*; start in the folder that holds it", ""),
    "no_parent": ("absent.part:f", {}, "There is no module absent in", ""),
    "ours": ("profiler.mine:f", {}, "profiler is a package of Bytescope's; give yours another name, or move", ""),
    "needs": ("m:f", {"m": "import absent"}, "does not import: ModuleNotFoundError: No module named 'absent'", "m.py"),
    "syntax": ("m:f", {"m": "def f(:"}, "The module m does not import: SyntaxError: invalid syntax", "m.py"),
    "raises": ("m:f", {"m": "def g(): 1 / 0\ng()"}, "does not import: ZeroDivisionError: division by zero", "in g"),
    "leaves": ("m:f", {"m": "raise SystemExit(3)"}, "does not import: SystemExit: 3", "m.py"),
    "no_function": ("m:f", {"m": "def g(): pass\ndef _h(): pass"}, "The module m has no f; it has g.$", ""),
    "no_callable": ("m:f", {"m": "f = 3"}, "m:f is an int, which cannot be called; name a function", ""),
    "three": ("m:f", {"m": "def f(q, k, v): pass"}, r"m:f takes \(q, k, v\), and is called with q, k, v and", ""),
    "five": ("m:f", {"m": "def f(q, k, v, c, d): pass"}, "missing a required argument: 'd'", ""),
    "schedule": ("m:f", {"m": "def f(*a): pass\nf.schedule = 'slow'"}, "m:f.schedule is 'slow'; it names one of", ""),
    "no_tile": (
        "m:f",
        {"m": "def f(*a): pass\nf.schedule = 'flash'"},
        "the function must take BLOCK_M and BLOCK_N",
        "",
    ),
    "reference": ("m:f", {"m": "def f(*a): pass\nf.reference = 3"}, "m:f.reference is an int; it is a function", ""),
    "attributes": (
        "m:f",
        {"m": EVIL + "def __getattr__(self, n): 1 / 0\nf = F()"},
        "m:f cannot be looked at: Zero",
        "m.py",
    ),
    "signature": (
        "m:f",
        {"m": EVIL + "__signature__ = property(lambda self: 1 / 0)\nf = F()"},
        "looked at: Zero",
        "m.py",
    ),
    "default": (
        "m:f",
        {"m": EVIL + "def __repr__(self): 1 / 0\ndef f(q, k, v, causal, x, y=F()): pass"},
        "m:f cannot be looked at: ZeroDivisionError: division by zero; name a plain function",
        "m.py",
    ),
    "module_attributes": (
        "m:f",
        {"m": "def __getattr__(name): 1 / 0"},
        "m:f cannot be looked at: ZeroDivision",
        "m.py",
    ),
    "replaced": (
        "m:f",
        {"m": MODULE_OF + "def __getattr__(self, name): 1 / 0" + IN_PLACE},
        "looked at: ZeroDiv",
        "m.py",
    ),
    "no_dict": ("m:f", {"m": MODULE_OF + "__slots__ = ()" + IN_PLACE}, "The module m has no f.$", ""),
}


@pytest.mark.parametrize("case", IMPORTS)
def test_what_cannot_be_imported(write: Write, case: str) -> None:
    name, texts, sentence, frame = IMPORTS[case]
    write((name,), **texts)
    with pytest.raises(RefusedKernel, match=sentence) as refused:
        imported(name)
    assert frame in refused.value.trace and bool(frame) == bool(refused.value.trace)
    # Bytescope's own frames say nothing to the user.
    assert "own_import" not in refused.value.trace and "importlib" not in refused.value.trace


def test_a_file_that_was_changed_is_read_anew(write: Write) -> None:
    write(("m:f",), m="from part import NUMBER\ndef f(*a): return NUMBER", part="NUMBER = 1")
    assert imported("m:f").call() == 1 and imported("m:f") is imported("m:f")
    write(("m:f",), part="NUMBER = 23")
    assert imported("m:f").call() == 23
    kept = sys.modules["kernels.own"]
    write(("m:f",))
    assert sys.modules["kernels.own"] is kept


Q = torch.ones(1, 2, 40, 16)


def _fail(*inputs: object) -> None:
    raise ValueError("tile \x1b[31m of\nnothing.")


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (_fail, "m:f raised ValueError: tile �[31m of nothing."),
        (lambda *_: sys.exit(3), "m:f raised SystemExit: 3."),
        (lambda q, *_: q[:, :1], "m:f returned the shape [1, 1, 40, 16]; O has q's, [1, 2, 40, 16]."),
        (lambda q, *_: q.mT, "m:f returned the shape [1, 2, 16, 40]; O has q's, [1, 2, 40, 16]."),
        (lambda q, *_: q.half(), "m:f returned float16; O has q's dtype, float32."),
        (lambda q, *_: q.to("meta"), "m:f returned a tensor on meta; O is where q is, on cpu."),
        (lambda q, *_: (q, q), "m:f returned a tuple, and not a tensor; return O alone."),
        (lambda *_: None, "m:f returned a NoneType, and not a tensor."),
    ],
)
def test_what_it_does_wrong_is_a_sentence(call: Callable[..., object], sentence: str) -> None:
    with pytest.raises(KernelFault) as fault:
        forward_of(OwnCallable("m:f", call))(Q, Q, Q, PROBLEM, TileConfig())
    assert str(fault.value) == sentence
    if call is _fail:
        assert fault.value.trace.splitlines()[0] == "Traceback (most recent call last):"
        assert "in _fail" in fault.value.trace and "own_forward" not in fault.value.trace
        assert "\x1b" not in fault.value.trace


class Silent(torch.Tensor):
    @classmethod
    def __torch_function__(cls, *_: object, **__: object) -> object:
        raise RuntimeError("not asked")


class Unreadable(torch.Tensor):
    @property
    def shape(self) -> torch.Size:  # type: ignore[override]
        raise RuntimeError("no shape")


def returned(o: torch.Tensor) -> torch.Tensor:
    call = OwnCallable("m:f", lambda *_: o)
    return forward_of(call)(Q, Q, Q, PROBLEM, TileConfig()).o


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_a_tensor_of_a_class_of_its_own_is_taken_as_a_plain_one() -> None:
    for kind in (Silent, Unreadable):
        assert type(returned(Q.as_subclass(kind))) is torch.Tensor
    with pytest.raises(KernelFault, match=r"returned a tensor of layout sparse_coo; return a dense one, as by"):
        returned(Q.to_sparse())
    nested = torch.nested.nested_tensor([Q[0], Q[0]])
    with pytest.raises(KernelFault, match=r"returned a Tensor that cannot be read \(RuntimeError: .*return a plain"):
        returned(nested)


class Mute(Exception):
    def __str__(self) -> str:
        return self.args[0]()  # type: ignore[no-any-return]


@pytest.mark.parametrize("said", [lambda: 1 / 0, lambda: 3, sys.exit])
def test_an_error_without_a_text_is_named_by_its_type(said: Callable[[], object]) -> None:
    assert words_of(Mute(said)) == child_words_of(Mute(said)) == "Mute, without a word"
    assert trace_of(Mute(said)).rstrip("\n").endswith("test_own_kernel.Mute: <exception str() failed>")


def test_ctrl_c_ends_a_notebook_and_no_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    run = forward_of(OwnCallable("m:f", interrupted))
    with pytest.raises(KeyboardInterrupt):
        run(Q, Q, Q, PROBLEM, TileConfig())
    monkeypatch.setattr(signal, "getsignal", lambda _: signal.SIG_IGN)
    with pytest.raises(KernelFault, match="m:f raised KeyboardInterrupt, without a word"):
        run(Q, Q, Q, PROBLEM, TileConfig())


def test_it_is_given_what_it_takes() -> None:
    def takes(q: object, k: object, v: object, causal: bool, num_warps: int = 1, BLOCK_N: int = 1) -> torch.Tensor:
        seen.append((causal, BLOCK_N, num_warps))
        return Q

    def plain(q: object, k: object, v: object, causal: bool, num_warps: int = 1) -> torch.Tensor:
        seen.append((causal, num_warps))
        return Q

    seen: list[tuple[object, ...]] = []
    tile = TileConfig(16, 32, num_warps=8)
    for call in (takes, plain):
        forward_of(offered("m:f", call))(Q, Q, Q, replace(PROBLEM, causal=True), tile)
    # Warps alone make no tile.
    assert seen == [(True, 32, 8), (True, 1)]
    asked = Workload("m:f", PROBLEM, tile, CPU)
    assert completed(asked, offered("m:f", takes)).tile == tile
    assert completed(asked, offered("m:f", plain)).tile is None


def test_a_workload_takes_a_tile_or_none_until_it_runs() -> None:
    (work,) = workloads(("m:f",), PROBLEM, TileConfig(16, 32, order="linear"), CPU)
    assert (work.tile, work.trace, work.like) == (TileConfig(16, 32), None, "")


def test_an_eager_kernel_as_a_run(write: Write) -> None:
    write(("m:eager",), m=EAGER)
    run = run_of("m:eager", tile=TileConfig(16, 16))
    assert run.workload == Workload("m:eager", PROBLEM, None, CPU)
    assert run.id.split("-", 1)[1].startswith("m-eager-")
    assert 0 < (run.value("relative_error") or 0) < 1e-6
    for name in ("requested_read_bytes", "requested_write_bytes"):
        told = run.find(name)
        assert told is not None and (told.value, told.source) == (None, "interpreter")
        assert "it launched no Triton kernel" in told.note
    predicted = run.find("predicted_peak_bytes")
    assert predicted is not None and predicted.value is None and "not known beforehand" in predicted.note
    assert from_json(to_json([run])) == (run,)
    assert why_spoiled(run) == ""


def test_nan_is_told_with_its_place(write: Write) -> None:
    write(
        ("m:spoiled",), m=EAGER + "def spoiled(*a):\n    o = eager(*a)\n    o[0, 1, 17:20] = torch.nan\n    return o\n"
    )
    run = run_of("m:spoiled")
    assert run.value("relative_error") is None and run.value("max_abs_error") is None
    assert why_spoiled(run) == (
        "m:spoiled has no error against float64: O holds NaN or infinity (against float64, all 40 rows of 2 (batch, "
        "head)), in 3 rows, the first at batch 0, head 1, query 17."
    )


def test_who_writes_into_its_inputs_is_found_out(write: Write) -> None:
    write(("m:f",), m="def f(q, k, v, causal):\n    v[0, 0, 0, 0] += 1\n    return q")
    with pytest.raises(KernelFault, match="m:f wrote into v, which it was given to read"):
        run_of("m:f")
    # What others are measured on is as it was drawn.
    write(("m:eager",), m=EAGER)
    assert 0 < (run_of("m:eager").value("relative_error") or 0) < 1e-6


CHANGES = {
    "rearranges": "q.copy_(q.flip(2))",
    "exchanges two": "q[0, 0, :2] = q[0, 0, :2].flip(0)",
    "resizes": "q.resize_(1)",
    "replaces": "q.data = torch.zeros(2)",
}


@pytest.mark.parametrize("change", CHANGES)
def test_inputs_hold_the_same_in_the_same_places(write: Write, change: str) -> None:
    write(
        ("m:f",),
        m=EAGER + f"def f(q, k, v, causal):\n    o = eager(q, k, v, causal)\n    {CHANGES[change]}\n    return o",
    )
    with pytest.raises(KernelFault, match="m:f wrote into q, which it was given to read"):
        run_of("m:f")
    assert 0 < (run_of_flash().value("relative_error") or 0) < 1e-6


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_places_count_beyond_what_is_weighed_at_once(dtype: torch.dtype) -> None:
    large = torch.arange(2**20 + 7).to(dtype)[None]
    with untouched("m:f", [large, large, large]):
        large.mul_(1)
    for first, second in ((3, 2**20 + 2), (2**20 + 5, 1000)):
        with pytest.raises(KernelFault, match="wrote into q"), untouched("m:f", [large, large, large]):
            large[0, [first, second]] = large[0, [second, first]]


def run_of_flash() -> Run:
    return run_of("flash", tile=TileConfig(16, 16))


def test_who_writes_into_its_inputs_later_is_found_out_too(monkeypatch: pytest.MonkeyPatch, write: Write) -> None:
    """And whoever is measured next has inputs of its own, whatever became of these."""
    write(("m:f",), m=EAGER + "def f(q, k, v, causal):\n    return eager(q, k, v, causal)")
    exact = run_of_flash().value("max_abs_error")
    launched = measure_errors

    def later(bench: Bench, o: torch.Tensor) -> tuple[Measurement, ...]:
        bench.inputs[0].copy_(bench.inputs[0].flip(2))
        return launched(bench, o)

    with monkeypatch.context() as patched:
        patched.setattr("profiler.measure.measure_errors", later)
        with pytest.raises(KernelFault, match="m:f wrote into q, which it was given to read"):
            run_of("m:f")
    assert run_of_flash().value("max_abs_error") == exact


REFERENCE = """
def twice(q, k, v, causal):
    return eager(q, k, v, causal) * 2


def exact(q, k, v, causal):
    assert q.dtype == torch.float64
    return twice(q, k, v, causal)


twice.reference = exact
"""


def test_errors_against_a_reference_of_its_own(write: Write) -> None:
    write(("m:twice",), m=EAGER + REFERENCE)
    found = run_of("m:twice").find("relative_error")
    assert found is not None and 0 < (found.value or 0) < 1e-6
    assert found.note.startswith("against the kernel's own reference in float64, all 40 rows")
    # What it computes is not attention, so neither are its FLOP; of the same kernel without a reference they are.
    flops = run_of("m:twice").find("flops")
    assert flops is not None and (flops.value, flops.note) == (None, OWN_WORK)
    write(("n:eager",), n=EAGER)
    assert run_of("n:eager").value("flops") == PROBLEM.flops


def test_a_reference_that_fails_costs_the_errors_alone(write: Write) -> None:
    write(("m:twice",), m=EAGER + REFERENCE.replace("return twice(q, k, v, causal)", "return q[0]"))
    run = run_of("m:twice")
    assert run.value("compulsory_bytes") == PROBLEM.compulsory_bytes
    assert why_spoiled(run) == (
        "m:twice has no error against float64: m:twice.reference returned the shape [2, 40, 16]; O has q's, "
        "[1, 2, 40, 16]."
    )


def test_a_reference_that_is_not_finite_is_to_blame(write: Write) -> None:
    text = EAGER + REFERENCE.replace("    return twice(q, k, v, causal)", "    q[0, 1, 17] = torch.nan\n    return q")
    write(("m:twice",), m=text)
    assert why_spoiled(run_of("m:twice")) == (
        "m:twice has no error against float64: m:twice.reference returned NaN or infinity, in 1 rows, the first at "
        "batch 0, head 1, query 17."
    )


def test_a_long_traceback_keeps_its_end() -> None:
    text = bounded("\n".join(f"line {number} {'x' * 1000}" for number in range(1000)) + "\nThe end: \x07.")
    assert len(text) <= MOST_CHARACTERS and text.endswith("\nThe end: �.")
    assert max(map(len, text.splitlines())) <= 300


def test_nothing_is_permitted_by_itself() -> None:
    own_import.permit((), "")
    with pytest.raises(Refused, match="may not be imported here"):
        imported("examples.own_triton:two_pass")
