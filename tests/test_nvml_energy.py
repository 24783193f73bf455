"""Energy of a pass against a simulated board whose energy counter is refreshed now and then, as drivers do it."""

import re
from dataclasses import dataclass
from types import SimpleNamespace

import pynvml
import pytest
import torch

from kernels.problem import AttentionProblem, TileConfig
from profiler import steady_load
from profiler.bench import Bench
from profiler.counter import Unavailable
from profiler.counters import nvml_energy
from profiler.counters.nvml_energy import COUNTER, energy_window, measure
from profiler.device import detect
from profiler.run import DeviceInfo
from profiler.workload import Workload
from tests.fake_runs import H200, THIS_CPU

IDLE_WATTS, BUSY_WATTS = 100.0, 500.0


@dataclass
class Board:
    """Passes of `seconds` each, one after another; its counter shows the energy until the last refresh."""

    seconds: float
    refresh: float = 0.02
    host_seconds: float = 10e-6  # to launch one pass
    look_seconds: float = 10e-6  # to look at the counter
    stands_still: bool = False
    now: float = 3.0
    free_at: float = 0.0
    busy: float = 0.0
    device: DeviceInfo = H200

    def launch(self) -> None:
        self.now += self.host_seconds
        self.free_at = max(self.now, self.free_at) + self.seconds
        self.busy += self.seconds

    def synchronize(self) -> None:
        self.now = max(self.now, self.free_at)

    def timed_pass(self) -> SimpleNamespace:
        return SimpleNamespace(seconds=self.seconds)

    def mark(self) -> SimpleNamespace:
        when = max(self.now, self.free_at)

        def synchronize() -> None:
            self.now = max(self.now, when)

        return SimpleNamespace(when=when, synchronize=synchronize, elapsed_time=lambda end: (end.when - when) * 1e3)

    def joules_at(self, when: float) -> float:
        worked = self.busy - max(0.0, self.free_at - when)
        return IDLE_WATTS * when + (BUSY_WATTS - IDLE_WATTS) * worked

    def read(self) -> float:
        self.now += self.look_seconds
        return 7.0 if self.stands_still else self.joules_at(self.now // self.refresh * self.refresh)


@pytest.fixture
def attach(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(pynvml, "nvmlLib", None)
    monkeypatch.setattr(pynvml, "_nvmlGetFunctionPointer_cache", {})

    def attach(board: Board) -> Board:
        answers = {
            "nvmlInit": lambda: None,
            "nvmlShutdown": lambda: None,
            "nvmlDeviceGetCount": lambda: 1,
            "nvmlDeviceGetHandleByIndex": lambda index: index,
            "nvmlDeviceGetTotalEnergyConsumption": lambda handle: int(board.read() * 1e3),
            "nvmlDeviceGetComputeRunningProcesses": lambda handle: [],
        }
        for name, function in answers.items():
            monkeypatch.setattr(pynvml, name, function)
        monkeypatch.setattr(nvml_energy, "perf_counter", lambda: board.now)
        monkeypatch.setattr(steady_load, "mark_border", Board.mark)
        return board

    return attach


def test_a_millisecond_at_500_watts_is_half_a_joule(attach) -> None:
    board = attach(Board(1e-3))
    (found,) = measure(board).measurements
    assert found.value == pytest.approx(0.5, rel=0.02)
    assert (found.name, found.unit, found.source) == ("energy_joules", "J", "nvml")
    (watts,) = re.findall(r"\((\d+) W\)", found.note)
    assert float(watts) == pytest.approx(BUSY_WATTS, rel=0.02)
    assert "the whole board, idle power included" in found.note
    assert board.now - 3.0 < 0.6


@pytest.mark.parametrize("refresh", [0.001, 0.02, 0.1])
@pytest.mark.parametrize("seconds", [2e-4, 1.3e-3, 6.4e-3, 45e-3])
def test_however_seldom_the_counter_is_refreshed(attach, seconds: float, refresh: float) -> None:
    """The window runs from step to step; where passes are long, it is seen up to a pass late."""
    (found,) = measure(attach(Board(seconds, refresh))).measurements
    close = 0.03 if seconds < refresh / 5 else 0.1
    assert found.value == pytest.approx(BUSY_WATTS * seconds, rel=close)


def test_a_pass_that_is_longer_than_the_window(attach) -> None:
    """0.7 s: at 500 W 350 J."""
    (found,) = measure(attach(Board(0.7, 0.1))).measurements
    assert found.value == pytest.approx(350.0, rel=0.1)


@pytest.mark.parametrize(("host_seconds", "waits"), [(10e-6, False), (300e-6, True)])
def test_a_gpu_that_waits_for_the_host_is_told(attach, host_seconds: float, waits: bool) -> None:
    """Passes of 0.2 ms, launched every 0.3 ms, leave the GPU idle a third of the time: more joules a pass."""
    (found,) = measure(attach(Board(2e-4, host_seconds=host_seconds))).measurements
    assert ("the GPU's wait counts" in found.note) == waits
    expected = BUSY_WATTS * 2e-4 + (IDLE_WATTS * 1e-4 if waits else 0)
    assert found.value == pytest.approx(expected, rel=0.05)


def test_a_counter_that_is_slow_to_answer_does_not_let_the_gpu_wait(attach) -> None:
    """As NVML on an H200: 3 ms a look, more than two passes."""
    (found,) = measure(attach(Board(1.3e-3, look_seconds=3e-3))).measurements
    assert "the GPU's wait counts" not in found.note
    assert found.value == pytest.approx(BUSY_WATTS * 1.3e-3, rel=0.05)


def test_a_counter_that_stands_still_is_a_reason(attach) -> None:
    board = attach(Board(1e-3, stands_still=True))
    with pytest.raises(Unavailable, match="stood still for 2 s"):
        measure(board)
    assert board.now >= board.free_at, "nothing stays queued"


def test_what_nvml_does_not_count_is_a_reason(attach, monkeypatch: pytest.MonkeyPatch) -> None:
    board = attach(Board(1e-3))

    def refuse(handle: object) -> int:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)

    monkeypatch.setattr(pynvml, "nvmlDeviceGetTotalEnergyConsumption", refuse)
    with pytest.raises(Unavailable, match="Not Supported"):
        measure(board)
    assert "no GPU here" in (COUNTER.unavailable(THIS_CPU) or "")
    assert COUNTER.unavailable(H200) is None and COUNTER.is_detail


@pytest.mark.gpu
def test_a_pass_of_flash_on_this_gpu() -> None:
    """A GPU that works draws between 50 W and 1500 W, and two measurements agree."""
    device = next(iter(detect()))
    problem = AttentionProblem(1, 16, 16, 8192, 8192, 128, "float16")
    load = Bench(Workload("flash", problem, TileConfig(128, 64, 8, 3), device.device), device)
    with torch.inference_mode():
        first, second = (measure(load).measurements[0] for _ in range(2))
        with nvml_energy.open_nvml() as nvml:
            gpu = nvml_energy.gpu_handle(nvml, device)
            window = energy_window(load, lambda: nvml.nvmlDeviceGetTotalEnergyConsumption(gpu) * 1e-3)
    print(f"\n{first}\n{second}\n{window}")
    assert first.value is not None and second.value is not None
    assert 50 < window.joules / window.seconds < 1500
    assert second.value == pytest.approx(first.value, rel=0.1)
