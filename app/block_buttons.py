"""What it takes to know more of the tiles on a map: which tiles, compile them, measure them."""

from collections.abc import Mapping, Sequence
from dataclasses import fields

import streamlit as st

from app import block_jobs, form, form_values, session
from app.block_board import Subject
from app.cost import refusal
from app.devices import devices, free_bytes
from app.keep import keep, kept
from app.style import roughly
from kernels.problem import Refused, TileConfig
from profiler.axes import Value
from profiler.grid import Grid
from profiler.resources import Configuration, Resources, configurations
from profiler.sweep_cost import estimate
from profiler.target import GpuTarget
from profiler.workload import CPU, Workload, workloads

BLOCKS = (16, 32, 64, 128, 256)
MORE_BLOCKS = (4, 8, 512)


def sizes(name: str, rows: int) -> list[int]:
    """The blocks that were asked for along one side; those of BLOCKS that the problem fills, if none were."""
    usual = [block for block in BLOCKS if block < 2 * rows] or [BLOCKS[0]]
    return sorted(kept(f"blocks.{name}", None) or usual)


def to_compile(subject: Subject, tiles: Sequence[TileConfig], gpu: GpuTarget | None) -> list[Configuration]:
    """What is to be compiled for a GPU: the tiles that the kernel uses as they are."""
    if gpu is None:
        return []
    wanted = []
    for tile in tiles:
        try:
            found = configurations(subject.kernel, subject.problem, [tile], [gpu.compute_capability])
        except Refused:
            continue  # the board says why
        wanted += [one for one in found if one.tile == tile]
    return wanted


def draw(
    subject: Subject,
    tiles: Sequence[TileConfig],
    gpus: Sequence[GpuTarget | None],
    at_hand: Mapping[Configuration, Resources],
) -> None:
    """Buttons that compile and measure what is not `at_hand` yet, and the tiles that they are for."""
    wanted = [one for gpu in gpus for one in to_compile(subject, tiles, gpu)]
    missing = [one for one in dict.fromkeys(wanted) if one not in at_hand]
    with st.container(horizontal=True, vertical_alignment="center", gap="small", key="bs-ask-for-more"):
        with st.popover("Tiles", icon=":material/grid_on:"):
            for name, rows in (("BLOCK_M", subject.problem.seq_len_q), ("BLOCK_N", subject.problem.seq_len_kv)):
                _sides(name, rows)
        busy = block_jobs.compiling() is not None
        label = f"Compile {len(missing)} for {_gpus_of(missing)}" if missing else "All compiled"
        st.button(
            label, icon=":material/memory:", disabled=busy or not missing, key="blocks.compile",
            on_click=block_jobs.start_compiling, args=(missing,),
        )  # fmt: skip
        _measure_button(subject, tiles)


def _sides(name: str, rows: int) -> None:
    key = f"blocks.{name}"
    st.session_state[key] = sizes(name, rows)
    options = sorted({*BLOCKS, *MORE_BLOCKS, *sizes(name, rows)})
    st.pills(name, options, selection_mode="multi", key=key, on_change=keep, args=(key,))


def _gpus_of(missing: Sequence[Configuration]) -> str:
    capabilities = dict.fromkeys(one.compute_capability for one in missing)
    return ", ".join("sm_" + "".join(map(str, capability)) for capability in capabilities)


def _measure_button(subject: Subject, tiles: Sequence[TileConfig]) -> None:
    wanted, reason = form.check(form_values.values())
    if not wanted:
        st.button("Measure", icon=":material/speed:", disabled=True, key="blocks.measure", help=reason)
        return
    asked = wanted[0]
    reasons = [_why_not(subject, tile, asked.device) for tile in tiles]
    grid, able = _grid(subject, tiles, asked), reasons.count("")
    where = "the CPU, interpreted" if asked.device == CPU else devices()[asked.device].name
    took = f", roughly {roughly(estimate(grid, asked.on_gpu, 1))}" if able else ""
    busy = session.job() is not None or block_jobs.sweeping() is not None
    st.button(
        f"Measure {able} on {where}{took}" if able else f"Measure on {where}",
        icon=":material/speed:", disabled=busy or not able, key="blocks.measure", on_click=block_jobs.start_sweep,
        args=(grid, asked.device, float(str(form_values.values()["timeout"]))),
        help=None if able else next(iter(reasons), None),
    )  # fmt: skip


def _why_not(subject: Subject, tile: TileConfig, device: str) -> str:
    """Why a tile cannot be measured on a device; empty where it can."""
    try:
        wanted = workloads((subject.kernel,), subject.problem, tile, device, trace=None)
    except Refused as refused:
        return str(refused)
    return refusal(wanted, devices()[device], free_bytes(device))


def _grid(subject: Subject, tiles: Sequence[TileConfig], asked: Workload) -> Grid:
    """The tiles as a grid of one kernel and problem, measured as the form has it."""
    given: dict[str, tuple[Value, ...]] = {"kernel": (subject.kernel,)}
    given |= {name: (value,) for name, value in vars(subject.problem).items()}
    given |= {part.name: tuple(sorted({getattr(tile, part.name) for tile in tiles})) for part in fields(TileConfig)}
    how = ("l2", "repeats", "seed", "counters", "drain", "detail")
    return Grid(given | {name: (getattr(asked, name),) for name in how})
