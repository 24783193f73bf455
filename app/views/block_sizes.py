"""Block sizes: what each BLOCK_M × BLOCK_N costs, measured on the GPU here and compiled for those that are not."""

from collections.abc import Callable, Sequence
from itertools import product
from typing import TypeVar

import streamlit as st

from app import block_code, block_jobs, block_pages, block_progress, form, form_values, page, session
from app.block_board import Board, Measured, Subject, board
from app.block_measured import failures_of, of_runs, of_subject, stored
from app.block_quantities import COMPILED_HERE, QUANTITIES, REQUESTED, TIME
from app.block_targets import Target, default_targets, targets
from app.cost import refusal
from app.devices import devices, free_bytes
from app.picture import Sheet
from app.style import Theme, roughly
from kernels.base import all_kernels
from kernels.problem import LINEAR, AttentionProblem, Refused, TileConfig
from profiler.compile_pool import known
from profiler.grid import Grid
from profiler.resources import Configuration, configurations
from profiler.run import Run
from profiler.sweep_cost import estimate
from profiler.workload import CPU, workloads

TITLE = "Block sizes"
ICON = ":material/grid_on:"
ORDER = 50
BLOCKS = (16, 32, 64, 128, 256)
WARPS, STAGES = (1, 2, 4, 8, 16), (1, 2, 3, 4, 5)
MOST_GPUS = 4
MAP, SCATTER = "blocks.map", "blocks.scatter"
OF_FORM = "of the form"
SMALL = AttentionProblem(1, 2, 2, 512, 512, 64, "float16")  # before the form has been drawn
T = TypeVar("T")


def sheet(runs: tuple[Run, ...], theme: Theme) -> Sheet:
    """The tiles among some Runs; what is compiled is no Run's, so a report of Runs does not hold it."""
    return block_pages.sheet(runs, theme)


def render(runs: tuple[Run, ...]) -> None:
    """Draw the page: the answer, what it is of, the map with the current tile beside it, and all the rest in small."""
    form.prepare()
    found = tuple(dict.fromkeys((*of_runs(runs), *stored())))
    answer = st.container()
    subject, how, chosen = _choose(found)
    tiles = _tiles(how, subject, found)
    boards = [_board(subject, tiles, target, found) for target in chosen]
    everything = [_board(subject, _all_tiles(subject, found), target, found) for target in chosen[:1]]
    with answer:
        page.headline(block_pages.headline(boards, subject, how, next(iter(everything), None)))
        page.figures(block_pages.figures(boards))
    _ask_for_more(subject, tiles, chosen)
    block_progress.draw()
    if not boards:
        page.empty("Choose a GPU: one that is here to measure on, any to compile for.")
        return
    current = _current(how)
    left, right = st.columns([5, 3]) if len(boards) < 3 else (st.container(), st.container())
    with left:
        _map(boards, current, how)
    with right:
        _tile(boards, current)
    _rest(boards[0], everything[0], current)


def _choose(found: Sequence[Measured]) -> tuple[Subject, TileConfig, list[Target]]:
    """Kernel and problem, warps and stages, and the GPUs."""
    kernels = {name: kernel for name, kernel in all_kernels().items() if kernel.is_tiled and kernel.is_triton}
    asked, tile = _asked()
    kernel_at, problem_at, warps_at, stages_at, gpus_at = st.columns([2, 4.2, 1.5, 1.5, 5], vertical_alignment="bottom")
    with kernel_at:
        kernel = _kept("Kernel", "kernel", list(kernels), "flash", lambda name: kernels[name].title)
    problems = {OF_FORM: asked} | {
        one.workload.problem.label: one.workload.problem for one in found if one.workload.kernel == kernel
    }
    named = {OF_FORM: asked.label}
    with problem_at:
        label = _kept("Problem", "problem", list(problems), OF_FORM, lambda name: named.get(name, name))
    with warps_at:
        warps = _kept("num_warps", "warps", sorted({*WARPS, tile.num_warps}), tile.num_warps)
    with stages_at:
        stages = _kept("num_stages", "stages", sorted({*STAGES, tile.num_stages}), tile.num_stages)
    order = tile.order if tile.order in kernels[kernel].orders else LINEAR
    subject = Subject(kernel, problems[label], order)
    offered = targets(subject, found)
    with gpus_at:
        chosen = [offered[title] for title in _gpus(offered)]
    return subject, TileConfig(num_warps=warps, num_stages=stages, order=order), chosen


def _asked() -> tuple[AttentionProblem, TileConfig]:
    """The form's problem and tile, as they were when it last held a whole request."""
    state = st.session_state
    return state.get("problem", SMALL), state.get("tile", TileConfig())


def _kept(label: str, name: str, options: list[T], default: T, spell: Callable[[T], str] = str) -> T:
    """A choice that outlives its widget, which Streamlit forgets on other pages; `default` until one is made."""
    key, store = f"blocks.{name}", f"blocks.kept.{name}"
    kept = st.session_state.get(store, default)
    st.session_state[key] = kept if kept in options else default
    chosen: T = st.selectbox(label, options, key=key, format_func=spell, on_change=_keep, args=(key, store))
    return chosen


def _keep(key: str, store: str) -> None:
    st.session_state[store] = st.session_state[key]


def _gpus(offered: dict[str, Target]) -> list[str]:
    """The titles of the GPUs to show side by side."""
    key, store = "blocks.gpus", "blocks.kept.gpus"
    kept = [title for title in st.session_state.get(store, default_targets(offered)) if title in offered]
    st.session_state[key] = kept
    chosen: list[str] = st.multiselect(
        "GPUs", list(offered), key=key, max_selections=MOST_GPUS, on_change=_keep, args=(key, store),
        help="Those that are here can be measured on; for every one of them the kernel can be compiled.",
    )  # fmt: skip
    return chosen


def _tiles(how: TileConfig, subject: Subject, found: Sequence[Measured]) -> list[TileConfig]:
    """The tiles of the map: every BLOCK_M with every BLOCK_N that is asked for, and those that were measured."""
    sizes = [_sizes("BLOCK_M", subject.problem.seq_len_q), _sizes("BLOCK_N", subject.problem.seq_len_kv)]
    asked = [TileConfig(m, n, how.num_warps, how.num_stages, how.order) for m, n in product(*sizes)]
    known_tiles = [tile for tile in _all_tiles(subject, found) if (tile.num_warps, tile.num_stages) == _pair(how)]
    return list(dict.fromkeys((*asked, *known_tiles)))


def _pair(tile: TileConfig) -> tuple[int, int]:
    return tile.num_warps, tile.num_stages


def _sizes(name: str, rows: int) -> list[int]:
    """The blocks that were asked for along one side; those of BLOCKS that the problem fills, if none were."""
    usual = [block for block in BLOCKS if block < 2 * rows] or [BLOCKS[0]]
    return sorted(st.session_state.get(f"blocks.kept.{name}") or usual)


def _all_tiles(subject: Subject, found: Sequence[Measured]) -> list[TileConfig]:
    """Every tile of the subject that a Run has, whatever its warps and stages."""
    tiles = {one.workload.tile for one in of_subject(found, subject) if one.workload.on_gpu}
    return sorted((tile for tile in tiles if tile), key=lambda t: (t.BLOCK_M, t.BLOCK_N, *_pair(t)))


def _board(subject: Subject, tiles: Sequence[TileConfig], target: Target, found: Sequence[Measured]) -> Board:
    own = [one for one in of_subject(found, subject) if one.device in target.names and one.workload.on_gpu]
    compiled = {one.tile: resources for one, resources in known(_configurations(subject, tiles, target)).items()}
    failed = failures_of(subject) if target.device else {}
    is_here = bool(target.device)
    return board(subject, tiles, target.title, target.gpu, own, compiled, failed, is_here, target.why)


def _configurations(subject: Subject, tiles: Sequence[TileConfig], target: Target) -> list[Configuration]:
    """What is to be compiled for a GPU: the tiles that the kernel uses as they are."""
    if target.gpu is None:
        return []
    wanted = []
    for tile in tiles:
        try:
            found = configurations(subject.kernel, subject.problem, [tile], [target.gpu.compute_capability])
        except Refused:
            continue  # the board says why
        wanted += [one for one in found if one.tile == tile]
    return wanted


def _current(how: TileConfig) -> TileConfig:
    """The form's tile, at the warps and stages that are looked at."""
    _, tile = _asked()
    return TileConfig(tile.BLOCK_M, tile.BLOCK_N, how.num_warps, how.num_stages, how.order)


def _ask_for_more(subject: Subject, tiles: Sequence[TileConfig], chosen: Sequence[Target]) -> None:
    """Buttons that compile and measure what is not known yet, and the tiles that they are for."""
    wanted = [one for target in chosen for one in _configurations(subject, tiles, target)]
    at_hand = known(wanted)
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
    key, store = f"blocks.{name}", f"blocks.kept.{name}"
    st.session_state[key] = _sizes(name, rows)
    options = sorted({4, 8, *BLOCKS, 512, *_sizes(name, rows)})
    st.pills(name, options, selection_mode="multi", key=key, on_change=_keep, args=(key, store))


def _gpus_of(missing: Sequence[Configuration]) -> str:
    capabilities = dict.fromkeys(one.compute_capability for one in missing)
    return ", ".join("sm_" + "".join(map(str, capability)) for capability in capabilities)


def _measure_button(subject: Subject, tiles: Sequence[TileConfig]) -> None:
    device = str(form_values.values()["device"])
    if device not in devices():
        return
    reasons = [_why_not(subject, tile, device) for tile in tiles]
    grid = _grid(subject, tiles)
    able = [reason for reason in reasons if not reason]
    where = "the CPU, interpreted" if device == CPU else devices()[device].name
    busy = session.job() is not None or block_jobs.sweeping() is not None
    took = f", roughly {roughly(estimate(grid, device != CPU, 1))}" if able else ""
    st.button(
        f"Measure {len(able)} on {where}{took}" if able else f"Measure on {where}",
        icon=":material/speed:", disabled=busy or not able, key="blocks.measure",
        on_click=block_jobs.start_sweep, args=(grid, device, float(str(form_values.values()["timeout"]))),
        help=None if able else next(iter(reasons), None),
    )  # fmt: skip


def _why_not(subject: Subject, tile: TileConfig, device: str) -> str:
    """Why a tile cannot be measured on a device; empty where it can."""
    try:
        wanted = workloads((subject.kernel,), subject.problem, tile, device, trace=None)
    except Refused as refused:
        return str(refused)
    return refusal(wanted, devices()[device], free_bytes(device))


def _grid(subject: Subject, tiles: Sequence[TileConfig]) -> Grid:
    """The tiles as a grid of one kernel and problem."""
    problem, form = subject.problem, form_values.values()
    shape = ("batch", "heads", "kv_heads", "seq_len_q", "seq_len_kv", "head_dim", "dtype", "causal", "window")
    given = {"kernel": (subject.kernel,)} | {name: (getattr(problem, name),) for name in shape}
    for name in ("BLOCK_M", "BLOCK_N", "num_warps", "num_stages", "order"):
        given[name] = tuple(sorted({getattr(tile, name) for tile in tiles}))
    given |= {"l2": (str(form["l2"]),), "repeats": (int(str(form["repeats"])),), "seed": (int(str(form["seed"])),)}
    return Grid(given)


def _map(boards: list[Board], current: TileConfig, how: TileConfig) -> None:
    keys = [key for key in QUANTITIES if any(cell.value(key) is not None for one in boards for cell in one.cells)]
    store = "blocks.kept.quantity"
    default = next((key for key in (TIME, *COMPILED_HERE, REQUESTED) if key in keys), REQUESTED)
    shown = st.session_state.get(store, default)
    st.session_state["blocks.quantity"] = shown if shown in keys else default
    item = block_pages.heat(boards, st.session_state["blocks.quantity"], page.theme(), current)
    with page.card(item.title, item.caption, sources=item.sources):
        st.pills(
            "Quantity", keys or [REQUESTED], key="blocks.quantity", format_func=lambda key: QUANTITIES[key].title,
            label_visibility="collapsed", on_change=_keep, args=("blocks.quantity", store), required=True,
        )  # fmt: skip
        st.plotly_chart(
            item.chart, key=MAP, theme=None, config=page.CHART_CONFIG, on_select=lambda: _clicked(how),
            selection_mode="points", alt=f"{item.title}. {item.caption}",
        )  # fmt: skip


def _clicked(how: TileConfig) -> None:
    """Make the tile that was clicked the form's."""
    found = st.session_state[MAP].selection.points
    data = found[0].get("customdata") if found else None
    if data is not None:
        # A row of an array, which comes back as a dict or as a list.
        block_m, block_n = (int(data[str(i)] if isinstance(data, dict) else data[i]) for i in (0, 1))
        form_values.put(
            {"BLOCK_M": block_m, "BLOCK_N": block_n, "num_warps": how.num_warps, "num_stages": how.num_stages}
        )


def _tile(boards: list[Board], current: TileConfig) -> None:
    table = block_pages.tile_table(boards, current)
    if table is None:
        page.empty("The current tile is not on the map: click a tile to make it the current one.")
        return
    page.table(table)
    block_code.draw(boards, current)
    page.link("tile_schedule", "Its schedule, step by step")


def _rest(one: Board, everything: Board, current: TileConfig) -> None:
    """All quantities in small, and time against bytes."""
    colours = page.theme()
    pictures = block_pages.overview(one, colours, current), block_pages.trade(everything, colours, current)
    for index, item in enumerate(pictures):
        if item is not None:
            page.picture(item, f"blocks.more-{index}")
