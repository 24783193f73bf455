"""Which versions of Triton and numpy can interpret kernels."""

from importlib.metadata import PackageNotFoundError

import pytest

from kernels.problem import AttentionProblem, Refused, TileConfig
from profiler import child, interpreter
from profiler.workload import workloads


def installed(monkeypatch: pytest.MonkeyPatch, **versions: str) -> None:
    def version(name: str) -> str:
        if name not in versions:
            raise PackageNotFoundError(name)
        return versions[name]

    monkeypatch.setattr(interpreter, "version", version)


@pytest.mark.parametrize(
    ("triton", "numpy", "works"),
    [("3.6.0", "2.3.5", True), ("3.6.0", "2.4.0", False), ("3.6.0", "2.5.2", False), ("3.7.1", "2.5.2", True)],
)
def test_numpy_2_4_breaks_the_interpreter_of_triton_3_6(
    monkeypatch: pytest.MonkeyPatch, triton: str, numpy: str, works: bool
) -> None:
    installed(monkeypatch, triton=triton, numpy=numpy)
    reason = interpreter.why_not_interpreted()
    assert (reason is None) == works
    assert works or reason == (
        f"the interpreter of Triton 3.6.0 fails with numpy {numpy}; install numpy below 2.4, or Triton 3.7"
    )


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    installed(monkeypatch, numpy="2.3.5")
    assert interpreter.why_not_interpreted() == "triton is not installed; install the versions of requirements.txt"


def test_what_would_be_interpreted_is_refused_before_it_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    installed(monkeypatch, triton="3.6.0", numpy="2.5.2")
    flash, naive = workloads(("flash", "naive"), AttentionProblem(1, 1, 1, 16, 16, 16), TileConfig(16, 16), "cpu")
    with pytest.raises(Refused, match=r"Flash cannot run without a GPU here: the interpreter of Triton 3\.6\.0 fails"):
        child.admit_all((flash,))
    child.admit_all((naive,))
