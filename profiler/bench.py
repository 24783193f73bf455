"""A Workload ready to launch: its inputs on the device and the few moves that every source of numbers needs."""

import time
from contextlib import nullcontext
from functools import cached_property, lru_cache

import torch

from kernels.problem import AttentionProblem, TileConfig
from kernels.run import LaunchHook, Output
from profiler.run import DeviceInfo
from profiler.workload import Workload

FALLBACK_L2_BYTES = 128 * 2**20  # above the L2 of any GPU of 2026


class Bench:
    """Launches one Workload; sources of numbers call it and read clocks or counters around it."""

    def __init__(self, workload: Workload, device: DeviceInfo) -> None:
        self.workload = workload
        self.device = device
        self.inputs = draw_inputs(workload.problem, workload.seed, workload.device)
        kernel = workload.attention_kernel
        self._forward = kernel.forward
        self._prepared = kernel.prepare(workload.problem, workload.device) if kernel.prepare else None
        self._tile = workload.tile or TileConfig()
        self.schedule = kernel.schedule(workload.problem, self._tile)

    def launch(self, hook: LaunchHook = nullcontext, **extra: object) -> Output:
        """One forward pass, asynchronous; `hook` is entered around each kernel launch by name."""
        problem = self.workload.problem
        options = {"launch": hook, "finite": True, "prepared": self._prepared} | extra
        output: Output = self._forward(*self.inputs, problem, self._tile, **options)
        return output

    def synchronize(self) -> None:
        """Wait for everything launched so far."""
        if self.workload.on_gpu:
            torch.cuda.synchronize(self.workload.device)

    def prepare_l2(self) -> None:
        """Bring L2 into the state the Workload asks for: cold evicts everything, warm runs one pass before."""
        if self.workload.l2 == "cold":
            self.evict_l2()
        else:
            self.launch()

    def evict_l2(self) -> None:
        """Replace what L2 holds by clean lines, by reading a scratch buffer of twice its size.

        What was dirty is written back to HBM, and nothing of the eviction itself is written back later.
        """
        torch.sum(self._scratch, dim=0, out=self._sum)

    def busy_for(self, seconds: float) -> int:
        """Launch back to back for about `seconds` of wall time and wait; returns the number of passes."""
        end, passes = time.perf_counter() + seconds, 0
        while passes == 0 or time.perf_counter() < end:
            self.launch()
            passes += 1
            if passes % 8 == 0:
                self.synchronize()
        self.synchronize()
        return passes

    @cached_property
    def _scratch(self) -> torch.Tensor:
        size = 2 * (self.device.l2_bytes or FALLBACK_L2_BYTES)
        return torch.ones(size // 4, dtype=torch.float32, device=self.workload.device)

    @cached_property
    def _sum(self) -> torch.Tensor:
        return torch.empty((), dtype=torch.float32, device=self.workload.device)


@lru_cache(maxsize=1)
def draw_inputs(problem: AttentionProblem, seed: int, device: str) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Random normal q, k, v of the problem, drawn on the device; the same seed on the same device gives the same."""
    generator = torch.Generator(device).manual_seed(seed)
    dtype = getattr(torch, problem.dtype)
    q_shape = (problem.batch, problem.heads, problem.seq_len_q, problem.head_dim)
    kv_shape = (problem.batch, problem.kv_heads, problem.seq_len_kv, problem.head_dim)
    q, k, v = (torch.randn(s, generator=generator, device=device, dtype=dtype) for s in (q_shape, kv_shape, kv_shape))
    return q, k, v
