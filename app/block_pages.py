"""What the page of block sizes shows of some boards: words, figures, pictures and tables; no Streamlit."""

from collections import Counter
from collections.abc import Sequence

from app.best_tile import SAME, best, sentence
from app.block_board import Board, Cell, Measured, Subject, board
from app.block_map import LARGE, SMALL, Panel, block_map
from app.block_measured import of_runs, of_subject
from app.block_quantities import (
    CTAS,
    HBM,
    L2_SM,
    LESS,
    MORE,
    QUANTITIES,
    RATE,
    REGISTERS,
    REQUESTED,
    TIME,
)
from app.block_scatter import points, scatter
from app.picture import Figure, Headline, Picture, Sheet, Table
from app.style import Theme
from kernels.problem import TileConfig
from profiler.run import Run

FEWEST_TILES = 2  # that are worth a map
NOTHING = "Nothing was measured or compiled yet of these tiles. Press Compile, or Measure."
SMALL_PER_ROW = 7  # at most
HEADS = (TIME, RATE, L2_SM, HBM, CTAS)


def headline(boards: Sequence[Board], subject: Subject, tile: TileConfig, everything: Board | None = None) -> Headline:
    """The best tile of the first board that has one, and why; of what, and on which GPU.

    `everything` is that board at all warps and stages: where one of those is faster, it is named.
    """
    found = next(((one, choice) for one in boards if (choice := best(one)) is not None), None)
    what = f"{subject.title}, {subject.problem.label}, {_how(tile)}"
    if found is None:
        return Headline(f"Which tile for {subject.title}?", f"{what}. {NOTHING}")
    one, choice = found
    key, done = (TIME, f"timed on {one.title}") if choice.is_measured else (CTAS, f"compiled for {one.title}")
    counted = sum(cell.value(key) is not None for cell in one.cells)
    where = f"{counted} of {len(one.cells)} tiles {done}"
    faster = "" if everything is None or not choice.is_measured else _faster(choice.cell, everything)
    return Headline(sentence(choice), f"{choice.sentence} {what}; {where}.{faster}")


def _faster(cell: Cell, everything: Board) -> str:
    """What other warps and stages gain, as a sentence; empty where they gain nothing."""
    other = best(everything)
    if other is None or (other.cell.value(TIME) or 0.0) >= (cell.value(TIME) or 0.0) * (1 - SAME):
        return ""
    time = QUANTITIES[TIME].spell(other.cell.value(TIME))
    return f" At {_how(other.cell.tile)}, {other.cell.name} takes {time}."


def _how(tile: TileConfig) -> str:
    return f"{tile.num_warps} warp{'s' * (tile.num_warps > 1)}, {tile.num_stages} stage{'s' * (tile.num_stages > 1)}"


def figures(boards: Sequence[Board]) -> tuple[Figure, ...]:
    """Numbers of the best tile of the first board that has one."""
    choice = next((choice for one in boards if (choice := best(one)) is not None), None)
    if choice is None:
        return ()
    keys = HEADS if choice.is_measured else (REQUESTED, REGISTERS, CTAS)
    return tuple(_figure(choice.cell, key) for key in keys)


def _figure(cell: Cell, key: str) -> Figure:
    number, quantity = cell.numbers[key], QUANTITIES[key]
    detail = f"limited by {' and '.join(cell.limits)}" if key == CTAS and cell.limits else quantity.about
    return Figure(
        f"{cell.name}: {quantity.title}", quantity.spell(number.value), number.source, detail,
        "" if number.value is not None else number.reason,
    )  # fmt: skip


def heat(boards: Sequence[Board], key: str, theme: Theme, chosen: TileConfig | None) -> Picture:
    """One quantity of every board, side by side on one scale."""
    quantity = QUANTITIES[key]
    panels = [Panel(one, key, one.title if len(boards) > 1 else "", _starred(one)) for one in boards]
    how = {LESS: "the less the better", MORE: "the more the better"}.get(quantity.better, "a stronger colour is more")
    caption = (
        f"{quantity.about[0].upper()}{quantity.about[1:]}; {how}. ✕: cannot run there, – : not known; hover says why. "
        "★: best tile; framed: the current one. Click a tile to make it that."
    )
    sources = tuple(dict.fromkeys(source for one in boards for source in one.sources(key)))
    return Picture(f"{quantity.title} by tile", caption, block_map(panels, theme, chosen, size=LARGE), sources)


def overview(one: Board, theme: Theme, chosen: TileConfig | None) -> Picture | None:
    """Every quantity of one board that has values, in small; None where there is but one."""
    keys = [key for key in QUANTITIES if any(cell.value(key) is not None for cell in one.cells)]
    if len(keys) < 2:
        return None
    rows = -(-len(keys) // SMALL_PER_ROW)
    panels = [_small(one, key) for key in keys]
    sources = tuple(dict.fromkeys(source for key in keys for source in one.sources(key)))
    caption = (
        f"On {one.title}; BLOCK_M downwards, BLOCK_N across. A stronger colour is better, or more; bold: best tile."
    )
    return Picture(
        "All quantities", caption, block_map(panels, theme, chosen, per_row=-(-len(keys) // rows), size=SMALL), sources
    )


def _small(one: Board, key: str) -> Panel:
    quantity = QUANTITIES[key]
    unit = quantity.unit([value for cell in one.cells if (value := cell.value(key)) is not None])
    return Panel(one, key, f"{quantity.title}, {unit[1]}".rstrip(", "), _starred(one), unit)


def _starred(one: Board) -> TileConfig | None:
    found = best(one)
    return None if found is None else found.cell.tile


def trade(one: Board, theme: Theme, chosen: TileConfig | None) -> Picture | None:
    """Time against L2↔SM bytes of every timed tile of a board; None where fewer than two have both."""
    found = points(one.cells)
    if len(found) < FEWEST_TILES:
        return None
    current = next((point.cell for point in found if point.cell.tile == chosen), None)
    caption = (
        f"Each tile that was timed and counted on {one.title}, all warps and stages. The line joins the Pareto front: "
        "no other tile is both faster and moves fewer bytes."
    )
    sources = tuple(dict.fromkeys((*one.sources(TIME), *one.sources(L2_SM))))
    return Picture("Time against L2↔SM bytes", caption, scatter(found, theme, current), sources)


def tile_table(boards: Sequence[Board], tile: TileConfig) -> Table | None:
    """Everything known of one tile, a column for each GPU; None where no board has it."""
    found = [(one.title, cell) for one in boards for cell in one.cells if cell.tile == tile]
    if not found:
        return None
    rows, reasons, sources = [], [], []
    for key, quantity in QUANTITIES.items():
        numbers = [cell.numbers[key] for _, cell in found]
        if all(number.value is None for number in numbers) and key not in HEADS:
            continue
        rows.append((quantity.title, *(quantity.spell(number.value) for number in numbers)))
        reasons.append((quantity.about, *("" if n.value is not None else n.reason for n in numbers)))
        sources.append(("", *(number.source if number.value is not None else "" for number in numbers)))
    limited = tuple(", ".join(cell.limits) or "–" for _, cell in found)
    if any(cell.limits for _, cell in found):
        rows.append(("Limited by", *limited))
        reasons.append(("what keeps more CTAs from an SM", *("" for _ in found)))
        sources.append(("", *("" for _ in found)))
    if any(cell.why_not for _, cell in found):
        rows.append(("Runs", *("no" if cell.why_not else "yes" for _, cell in found)))
        reasons.append(("", *(cell.why_not for _, cell in found)))
        sources.append(("", *("" for _ in found)))
    name = f"{tile.BLOCK_M}×{tile.BLOCK_N}, {_how(tile)}"
    caption = "The current tile, which the form holds."
    columns = ("", *(title for title, _ in found))
    return Table(name, caption, columns, tuple(rows), tuple(reasons), tuple(sources))


def sheet(runs: Sequence[Run], theme: Theme) -> Sheet:
    """The tiles of the kernel and problem that most of the Runs are of, at their commonest warps and stages."""
    measured = of_runs(runs)
    counted = Counter(
        (Subject(one.workload.kernel, one.workload.problem, one.workload.tile.order), one.device)
        for one in measured
        if one.workload.tile is not None and one.workload.attention_kernel.is_triton
    )
    groups = [(_board_of(subject, device, measured), subject) for (subject, device), _ in counted.most_common()]
    shown = [(one, subject) for one, subject in groups if len(one.cells) >= FEWEST_TILES]
    if not shown or not any(one.sources(TIME) for one, _ in shown):
        return Sheet(
            missing="Block sizes are compared where Runs on a GPU have several tiles of one kernel and problem."
        )
    one, subject = next((one, subject) for one, subject in shown if one.sources(TIME))
    commonest = Counter((cell.tile.num_warps, cell.tile.num_stages) for cell in one.cells).most_common(1)[0][0]
    of_one = Board(one.title, tuple(c for c in one.cells if (c.tile.num_warps, c.tile.num_stages) == commonest))
    tile = of_one.cells[0].tile
    items: list[Picture | Table] = [
        heat([of_one], key, theme, None) for key in (TIME, L2_SM, HBM) if of_one.sources(key)
    ]
    items += [picture for picture in (trade(one, theme, None),) if picture is not None]
    return Sheet(headline([of_one], subject, tile), figures([of_one]), tuple(items))


def _board_of(subject: Subject, device: str, measured: Sequence[Measured]) -> Board:
    own = [one for one in of_subject(measured, subject) if one.device == device]
    tiles = sorted({t for one in own if (t := one.workload.tile)}, key=lambda t: (t.BLOCK_M, t.BLOCK_N, t.num_warps))
    why = "Runs do not hold what a compiler tells"
    return board(subject, tiles, device, None, own, why_no_gpu=why)
