"""The benchmark of backward passes: its table by hand, and that each of its loads runs, on the CPU."""

import pytest
import torch
from torch.nn.attention import SDPBackend

from benchmarks import attention_speed, backward_speed
from kernels.problem import AttentionProblem, TileConfig
from profiler.bench import Bench
from profiler.device import cpu_device
from profiler.workload import Workload

SMALL = AttentionProblem(1, 2, 2, 32, 32, 16, "float32", causal=True, backward=True)


def test_rows_by_hand() -> None:
    """10 · 16 heads · 8192² scores · 128 = 1.374e12 FLOP: 1.374 PFLOP/s in a millisecond."""
    full, causal, *narrow = backward_speed.PROBLEMS
    assert (full.causal, causal.causal) == (False, True) and full.head_dim == 128 and full.seq_len_q == 8192
    assert [one.head_dim for one in narrow] == [64, 64]
    cudnn, flash = backward_speed.rows(full, {"cudnn": 2e-3, "flash": 4e-3})
    assert cudnn == (full.label, "cudnn, backward alone", "2.000", "687", "1.000")
    assert flash == (full.label, "flash, backward alone", "4.000", "344", "0.500")
    (alone,) = backward_speed.rows(full, {"flash": 4e-3})
    assert alone[-1] == "–"
    assert {*backward_speed.RUNGS} < {*attention_speed.RUNGS}


def test_its_loads_give_the_same_gradients(monkeypatch: pytest.MonkeyPatch) -> None:
    """On the CPU torch's attention stands in for cuDNN's."""
    monkeypatch.setitem(backward_speed.LIBRARIES, "cudnn", SDPBackend.MATH)
    monkeypatch.setitem(backward_speed.LIBRARIES, "flash_attention_2", SDPBackend.MATH)
    found = backward_speed.loads([Workload("flash", SMALL, TileConfig(16, 16))], cpu_device())
    assert list(found) == ["cudnn", "flash_attention_2", "flash"]
    library, ours = found["cudnn"].launch(), vars(found["flash"].launch()).values()
    for one, other in zip(library, ours, strict=True):
        torch.testing.assert_close(other, one, rtol=1e-4, atol=1e-5)


def test_what_a_library_cannot_is_left_out(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(backward_speed.LIBRARIES, "flash_attention_2", SDPBackend.MATH)
    bench = Bench(Workload("flash", SMALL, TileConfig(16, 16)), cpu_device())
    with pytest.raises(RuntimeError):
        backward_speed.of_a_library(bench, "cudnn")
    assert "cudnn" not in backward_speed.loads([bench.workload], cpu_device())
    assert "cudnn is left out" in capsys.readouterr().out
