"""Block sizes: what each BLOCK_M × BLOCK_N costs, measured on the GPU here and compiled for those that are not."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import product
from types import MappingProxyType
from typing import TypeVar

import streamlit as st

from app import block_buttons, block_code, block_pages, block_progress, form, form_values, page
from app.block_board import Board, Measured, Subject, board
from app.block_measured import failures_of, of_runs, of_subject, stored
from app.block_quantities import OCCUPANCY, QUANTITIES, REQUESTED, TIME
from app.block_targets import Target, default_targets, targets
from app.keep import keep, kept
from app.picture import Sheet
from app.style import Theme
from kernels.base import all_kernels
from kernels.problem import LINEAR, AttentionProblem, Refused, TileConfig
from profiler.compile_pool import known
from profiler.resources import Configuration, Resources
from profiler.run import Run

TITLE = "Block sizes"
ICON = ":material/grid_on:"
ORDER = 50
FOLLOWS_FORM = True  # its problem and tile are the form's
WARPS, STAGES = (1, 2, 4, 8, 16), (1, 2, 3, 4, 5)
MOST_GPUS = 4
GPUS, QUANTITY, MAP = "blocks.gpus", "blocks.quantity", "blocks.map"
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
    more = list(dict.fromkeys((*tiles, *_all_tiles(subject, found))))
    wanted = [one for target in chosen for one in block_buttons.to_compile(subject, tiles, target.gpu)]
    wanted += [one for target in chosen[:1] for one in block_buttons.to_compile(subject, more, target.gpu)]
    at_hand = known(wanted)
    boards = [_board(subject, tiles, target, found, at_hand) for target in chosen]
    everything = [_board(subject, _all_tiles(subject, found), target, found, at_hand) for target in chosen[:1]]
    with answer:
        page.headline(block_pages.headline(boards, subject, how, next(iter(everything), None)))
        page.figures(block_pages.figures(boards))
    block_buttons.draw(subject, tiles, [target.gpu for target in chosen], at_hand)
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
        kernel = _choice("Kernel", "kernel", list(kernels), "flash", lambda name: kernels[name].title)
    others = {one.workload.problem for one in found if one.workload.kernel == kernel} - {asked}
    problems = {OF_FORM: asked} | {problem.label: problem for problem in sorted(others, key=lambda one: one.label)}
    # A browser sends the name back: one that a measured problem has too would come to stand for that.
    named = {OF_FORM: f"Form: {asked.label}"}
    with problem_at:
        label = _choice("Problem", "problem", list(problems), OF_FORM, lambda name: named.get(name, name))
    with warps_at:
        warps = _choice("num_warps", "warps", sorted({*WARPS, tile.num_warps}), tile.num_warps)
    with stages_at:
        stages = _choice("num_stages", "stages", sorted({*STAGES, tile.num_stages}), tile.num_stages)
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


def _choice(label: str, name: str, options: list[T], default: T, spell: Callable[[T], str] = str) -> T:
    """A choice that outlives its widget, which Streamlit forgets on other pages; `default` until one is made."""
    key = f"blocks.{name}"
    wanted = kept(key, default)
    st.session_state[key] = wanted if wanted in options else default
    chosen: T = st.selectbox(label, options, key=key, format_func=spell, on_change=keep, args=(key,))
    return chosen


def _gpus(offered: dict[str, Target]) -> list[str]:
    """The titles of the GPUs to show side by side."""
    st.session_state[GPUS] = [title for title in kept(GPUS, default_targets(offered)) if title in offered]
    chosen: list[str] = st.multiselect(
        "GPUs", list(offered), key=GPUS, max_selections=MOST_GPUS, on_change=keep, args=(GPUS,),
        help="Those that are here can be measured on; for every one of them the kernel can be compiled.",
    )  # fmt: skip
    return chosen


def _tiles(how: TileConfig, subject: Subject, found: Sequence[Measured]) -> list[TileConfig]:
    """The tiles of the map: every BLOCK_M with every BLOCK_N that is asked for, and those that were measured."""
    sizes = [
        block_buttons.sizes("BLOCK_M", subject.problem.seq_len_q),
        block_buttons.sizes("BLOCK_N", subject.problem.seq_len_kv),
    ]
    asked = [_used(subject, replace(how, BLOCK_M=m, BLOCK_N=n)) for m, n in product(*sizes)]
    known_tiles = [tile for tile in _all_tiles(subject, found) if (tile.num_warps, tile.num_stages) == _pair(how)]
    return list(dict.fromkeys((*asked, *known_tiles)))


def _used(subject: Subject, tile: TileConfig) -> TileConfig:
    """The tile as the kernel uses it, which may leave no choice about one side; as it is where it is refused."""
    try:
        return all_kernels()[subject.kernel].cut(subject.problem, tile)
    except Refused:
        return tile


def _pair(tile: TileConfig) -> tuple[int, int]:
    return tile.num_warps, tile.num_stages


def _all_tiles(subject: Subject, found: Sequence[Measured]) -> list[TileConfig]:
    """Every tile of the subject that a Run has, whatever its warps and stages."""
    tiles = {one.workload.tile for one in of_subject(found, subject)}
    return sorted((tile for tile in tiles if tile), key=lambda t: (t.BLOCK_M, t.BLOCK_N, *_pair(t)))


def _board(
    subject: Subject,
    tiles: Sequence[TileConfig],
    target: Target,
    found: Sequence[Measured],
    at_hand: Mapping[Configuration, Resources] = MappingProxyType({}),
) -> Board:
    own = [one for one in of_subject(found, subject) if target.owns(one)]
    capability = None if target.gpu is None else target.gpu.compute_capability
    compiled = {one.tile: resources for one, resources in at_hand.items() if one.compute_capability == capability}
    is_here = bool(target.device)
    failed = failures_of(subject) if is_here else {}
    return board(subject, tiles, target.title, target.gpu, own, compiled, failed, is_here, target.why)


def _current(how: TileConfig) -> TileConfig:
    """The form's tile, at the warps and stages that are looked at."""
    _, tile = _asked()
    return TileConfig(tile.BLOCK_M, tile.BLOCK_N, how.num_warps, how.num_stages, how.order)


def _map(boards: list[Board], current: TileConfig, how: TileConfig) -> None:
    keys = [key for key in QUANTITIES if any(cell.value(key) is not None for one in boards for cell in one.cells)]
    default = next((key for key in (TIME, OCCUPANCY) if key in keys), REQUESTED)
    wanted = kept(QUANTITY, default)
    st.session_state[QUANTITY] = shown = wanted if wanted in keys else default
    item = block_pages.heat(boards, shown, page.theme(), current)
    with page.card(item.title, item.caption, sources=item.sources):
        st.pills(
            "Quantity", keys or [REQUESTED], key=QUANTITY, format_func=lambda key: QUANTITIES[key].title,
            label_visibility="collapsed", on_change=keep, args=(QUANTITY,), required=True,
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
