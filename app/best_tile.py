"""Which tile is best on a board, and why, in words that the board's own numbers bear out."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from app.block_board import Board, Cell
from app.block_quantities import CTAS, L2_SM, QUANTITIES, RATE, REQUESTED, SPILLS, TIME, WAVES

ENOUGH_WARPS = 8  # on an SM: two for each sub-core
SAME = 0.01  # within one percent two numbers of bytes or times say the same


@dataclass(frozen=True)
class Best:
    """The cell, and a sentence on why; `is_measured` where time decided, else what the compiler and theory tell.

    `is_alone` where no other tile was timed.
    """

    cell: Cell
    sentence: str
    is_measured: bool
    is_alone: bool = False


def best(board: Board) -> Best | None:
    """The fastest tile where tiles were timed; else the one that asks for least of those that fit a GPU well."""
    timed = [cell for cell in board.cells if (cell.value(TIME) or 0.0) > 0.0]
    if timed:
        first = min(timed, key=lambda cell: cell.value(TIME) or 0.0)
        return Best(first, _why_fastest(first, timed), True, len(timed) == 1)
    fitting = [cell for cell in board.cells if not cell.why_not and cell.value(CTAS) and cell.value(REQUESTED)]
    if not fitting:
        return None
    busy = [cell for cell in fitting if _programs_per_sm(cell) >= 1]
    if not busy:
        # Nothing else counts as much as SMs that have no program at all.
        most = max(map(_programs_per_sm, fitting))
        busy = [cell for cell in fitting if _programs_per_sm(cell) >= most * (1 - SAME)]
        return Best(min(busy, key=_modesty), _FEW_PROGRAMS, False)
    # With fewer warps a sub-core idles whenever one waits; a spill goes through memory at every step.
    demands: dict[str, Callable[[Cell], bool]] = {
        f", give every SM a program, spill nothing and keep {ENOUGH_WARPS} warps or more on an SM": _is_roomy,
        ", give every SM a program and spill nothing": _spills_nothing,
        " and give every SM a program; all of them spill": lambda cell: True,
    }
    for words, demand in demands.items():
        if found := [cell for cell in busy if demand(cell)]:
            first = min(found, key=_modesty)
            asked = QUANTITIES[REQUESTED].spell(first.value(REQUESTED))
            why = f"It asks for the fewest bytes ({asked}) of the tiles that fit{words}. Nothing was timed."
            return Best(first, why, False)
    return None


_FEW_PROGRAMS = (
    "No tile gives every SM a program; of those with the most programs it asks for the fewest bytes. Nothing was timed."
)


def _modesty(cell: Cell) -> tuple[float, float, int]:
    """Bytes asked for; then spills; then, of those that are equal, the fewest steps."""
    return cell.value(REQUESTED) or 0.0, cell.value(SPILLS) or 0.0, -cell.tile.BLOCK_N


def _programs_per_sm(cell: Cell) -> float:
    """Programs of the problem for each SM of the GPU."""
    return (cell.value(WAVES) or 0.0) * (cell.value(CTAS) or 0.0)


def _is_roomy(cell: Cell) -> bool:
    return _spills_nothing(cell) and (cell.value(CTAS) or 0) * cell.tile.num_warps >= ENOUGH_WARPS


def _spills_nothing(cell: Cell) -> bool:
    return not cell.value(SPILLS)


def _why_fastest(first: Cell, timed: Sequence[Cell]) -> str:
    """What its neighbours that move fewer bytes lack, as far as the numbers show it."""
    if len(timed) == 1:
        return "No other tile has been timed."
    moved, ctas = first.value(L2_SM), first.value(CTAS)
    if moved is None:
        return f"It is the fastest of {len(timed)} tiles; L2↔SM bytes, which could say why, were not counted."
    fewer = [cell for cell in timed if (other := cell.value(L2_SM)) is not None and other < moved * (1 - SAME)]
    if not fewer:
        return f"It also moves the fewest bytes between L2 and the SMs, of {len(timed)} tiles."
    if ctas is None:
        return f"{_tiles(fewer)} {_move(fewer)} fewer bytes between L2 and the SMs; compile to see what they lack."
    spilling = [cell for cell in fewer if (cell.value(SPILLS) or 0) > (first.value(SPILLS) or 0)]
    crowded = [c for c in fewer if c not in spilling and (have := c.value(CTAS)) is not None and have < ctas]
    if len(spilling) + len(crowded) < len(fewer):
        left = [cell for cell in fewer if cell not in spilling and cell not in crowded]
        return (
            f"{_tiles(left)} {_move(left)} fewer bytes between L2 and the SMs and {'is' if len(left) == 1 else 'are'} "
            f"slower for a reason that these numbers do not show."
        )
    lacks = [f"keep {_ctas(ctas)} on an SM"] if crowded else []
    lacks += ["spill nothing" if not first.value(SPILLS) else "spill no more"] if spilling else []
    return f"It moves the fewest bytes between L2 and the SMs of the tiles that {' and '.join(lacks)}."


def sentence(found: Best) -> str:
    """The answer in one sentence."""
    cell = found.cell
    if not found.is_measured:
        return f"{cell.name} looks best, untimed."
    verb = "takes" if found.is_alone else "is fastest:"
    time, rate = (QUANTITIES[key].spell(cell.value(key)) for key in (TIME, RATE))
    return f"{cell.name} {verb} {time}, {rate}."


def _tiles(cells: Sequence[Cell]) -> str:
    names = [cell.name for cell in cells]
    return (
        names[0]
        if len(names) == 1
        else f"{', '.join(names[:3])}{'' if len(names) <= 3 else f' and {len(names) - 3} more'}"
    )


def _move(cells: Sequence[Cell]) -> str:
    return "moves" if len(cells) == 1 else "move"


def _ctas(count: float) -> str:
    words = {1: "one CTA", 2: "two CTAs", 3: "three CTAs", 4: "four CTAs"}
    return words.get(int(count), f"{count:.0f} CTAs")
