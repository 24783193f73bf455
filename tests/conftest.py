"""What tests share: Triton's interpreter unless on a GPU, a folder of Runs each, poisoned outputs, one browser."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hypothesis
import pytest
import torch

from profiler import worker
from profiler.device import why_no_gpu
from profiler.worker import Worker, worker_for
from profiler.workload import CPU

if TYPE_CHECKING:
    from playwright.sync_api import Browser

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
CHROMIUM_ARGUMENTS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
)

hypothesis.settings.register_profile("bytescope", deadline=None, derandomize=True)
# Of `make test-long`: others each time, which are kept and told where one fails.
hypothesis.settings.register_profile("long", deadline=None, max_examples=2_000, print_blob=True)
hypothesis.settings.load_profile("bytescope")


def pytest_configure(config: pytest.Config) -> None:
    """Triton reads the variable when it is imported: before any test module is."""
    if config.option.markexpr == "gpu":
        os.environ.pop("TRITON_INTERPRET", None)
    else:
        os.environ["TRITON_INTERPRET"] = "1"


def pytest_runtest_setup(item: pytest.Item) -> None:
    """A test that needs a GPU is skipped by name where there is none, and where this process interprets kernels."""
    if item.get_closest_marker("gpu") is None:
        return
    if reason := why_no_gpu():
        pytest.skip(reason)
    if os.environ.get("TRITON_INTERPRET"):
        pytest.skip("In this process Triton interprets; run `python -m pytest -m gpu`.")


@pytest.fixture(autouse=True)
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of Runs, empty and only this test's, as the cache is."""
    folder = tmp_path / "runs"
    monkeypatch.setenv("BYTESCOPE_RUNS", str(folder))
    monkeypatch.setenv("BYTESCOPE_CACHE", str(tmp_path / "cache"))
    return folder


@pytest.fixture
def poisoned(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fresh tensors hold NaN, so an element that a kernel forgets to write shows."""

    def poison(make: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
        def made(*args: Any, **options: Any) -> torch.Tensor:
            tensor = make(*args, **options)
            if tensor.is_floating_point():
                # Detached, for torch's compiler makes tensors with gradients on its way.
                tensor.detach().fill_(torch.nan)
            return tensor

        return made

    for name in ("empty", "empty_like"):
        monkeypatch.setattr(torch, name, poison(getattr(torch, name)))


@pytest.fixture(scope="session")
def cpu_worker() -> Iterator[Worker]:
    """The warm child process of the CPU, the one that the command line uses too."""
    yield worker_for(CPU)
    for one in worker._workers.values():
        one.stop()
    worker._workers.clear()


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    """The one browser of all tests: Playwright cannot be opened twice in a process.

    A test that asks for it is skipped by name where Chromium or playwright is missing.
    """
    if CHROMIUM is None:
        pytest.skip("Chromium is not installed.")
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed.")
    with playwright.sync_playwright() as opened:
        browser = opened.chromium.launch(executable_path=CHROMIUM, args=list(CHROMIUM_ARGUMENTS))
        yield browser
        browser.close()
