"""Measures memory at doubling sequence lengths, as a sweep in the worker, up to where it is safe."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

import streamlit as st

from app import block_jobs, session
from app.cost import refusal
from app.devices import devices, free_bytes
from app.growth_chart import tokens
from app.memory_growth import at, is_square, need
from app.style import roughly
from app.unpredicted import why_unpredicted
from kernels.problem import MAX_SEQ_LEN, Refused, TileConfig
from profiler.axes import Value, option
from profiler.grid import Grid
from profiler.run import DeviceInfo
from profiler.sweep_cost import estimate
from profiler.worker import DEFAULT_TIMEOUT
from profiler.workload import Workload, workloads

FIRST = 512
FREE_SHARE = 0.5  # of the free memory that the tensors may take
PASS_SECONDS = 0.5  # that a pass may take at the GPU's peak rate
UNKNOWN_PEAK = 2e13  # FLOP/s, where the GPU's is not known: that of a small one
SHAPE = ("batch", "heads", "kv_heads", "head_dim", "dtype", "causal", "window", "backward")
NO_GPU = "Memory is measured on a GPU, and there is none here: torch counts no allocations on a CPU."
CUT = ("BLOCK_M", "BLOCK_N", "num_warps", "num_stages", "order")


@dataclass(frozen=True)
class Plan:
    """The sweep that measures some Workloads at more lengths: its grid, its command, and the longest of each kernel."""

    grid: Grid
    command: str
    longest: dict[str, int]


def plan(shown: Sequence[Workload], device: DeviceInfo, free: int | None) -> Plan:
    """Each kernel at doubling lengths, as far as is safe on the device. Raises Refused where none is."""
    found = {work.kernel: safe_lengths(work, device, free) for work in shown}
    found = {kernel: lengths for kernel, lengths in found.items() if lengths}
    if not found:
        raise Refused(f"No length from {FIRST} on is safe on {device.name}: {_why_not(shown[0], device, free)}")
    first, square = shown[0], is_square(shown[0].problem)
    axis = "seq_len_q" if square else "seq_len_kv"
    tile = next((work.tile for work in shown if work.tile is not None), None)
    given: dict[str, tuple[Value, ...]] = {"kernel": tuple(found)}
    given |= {name: (getattr(first.problem, name),) for name in SHAPE}
    given |= {} if square else {"seq_len_q": (first.problem.seq_len_q,)}
    given[axis] = tuple(sorted({length for lengths in found.values() for length in lengths}))
    given |= {} if tile is None else {name: (getattr(tile, name),) for name in CUT}
    # The peak needs one pass; of the sources of bytes the one that disturbs nothing.
    given |= {"repeats": (1,), "counters": ("nvml-gpm",), "drain": (False,)}
    longest = {kernel: lengths[-1] for kernel, lengths in found.items()}
    condition = ""
    if len(set(longest.values())) > 1:
        condition = " OR ".join(f"(kernel = '{kernel}' AND {axis} <= {end})" for kernel, end in longest.items())
    grid = Grid(given, condition)
    return Plan(grid, _command(grid, device.device), longest)


def safe_lengths(work: Workload, device: DeviceInfo, free: int | None) -> list[int]:
    """Doubling lengths whose tensors take at most FREE_SHARE of what is free, and whose pass ends soon."""
    found: list[int] = []
    length = FIRST
    while length <= MAX_SEQ_LEN and not _why_not(work, device, free, length):
        found.append(length)
        length *= 2
    return found


def _why_not(work: Workload, device: DeviceInfo, free: int | None, length: int = FIRST) -> str:
    """Why a length is not safe; empty where it is."""
    if reason := why_unpredicted(work.kernel):
        return f"{reason}."
    size = need(work, length)
    if free is None or size is None:
        return "how much memory is free is not known."
    if size > FREE_SHARE * free:
        return f"its tensors would take more than half of the free memory at S = {length:,}."
    try:
        (wanted,) = workloads(
            (work.kernel,), at(work.problem, length), work.tile or TileConfig(), device.device, trace=None
        )
    except Refused as refused:
        return str(refused)
    seconds = wanted.problem.flops / (device.peak_flops_per_second or UNKNOWN_PEAK)
    if seconds > PASS_SECONDS:
        return f"a pass would take more than {PASS_SECONDS:g} s at S = {length:,}."
    return refusal((wanted,), device, free)


def _command(grid: Grid, device: str) -> str:
    words = ["python", "-m", "profiler", "sweep"]
    for name, values in grid.words.items():
        words += [option(name), ",".join(values)]
    words += ["--where", grid.where] if grid.where else []
    return shlex.join([*words, "--device", device])


def draw(shown: Sequence[Workload], named_device: str) -> None:
    """A button that measures more lengths on a GPU of this host, or the reason why it cannot; and the same command."""
    device = _gpu(named_device)
    if device is None:
        _cannot(NO_GPU)
        return
    try:
        found = plan(shown, device, free_bytes(device.device))
    except Refused as refused:
        _cannot(str(refused))
        return
    ends = ", ".join(f"{kernel} to {tokens(end)}" for kernel, end in found.longest.items())
    busy = session.job() is not None or block_jobs.sweeping() is not None
    st.button(
        f"Measure {ends} on {device.name}, roughly {roughly(estimate(found.grid, True, 1))}",
        icon=":material/speed:", disabled=busy, key="memory.measure", on_click=block_jobs.start_sweep,
        args=(found.grid, device.device, DEFAULT_TIMEOUT),
        help="Doubling lengths, while the tensors take at most half of the free memory and a pass ends soon.",
    )  # fmt: skip
    with st.expander("The same on the command line"):
        st.code(found.command, language="bash", wrap_lines=True)


def _cannot(reason: str) -> None:
    with st.container(horizontal=True, vertical_alignment="center"):
        st.button("Measure more lengths", icon=":material/speed:", disabled=True, key="memory.measure")
        st.html(f'<p class="bs-caption">{escape(reason)}</p>', width="stretch")


def _gpu(named: str) -> DeviceInfo | None:
    """The GPU of that name here, else the first one."""
    gpus = [info for info in devices().values() if info.compute_capability is not None]
    return next((gpu for gpu in gpus if gpu.name == named), gpus[0] if gpus else None)
