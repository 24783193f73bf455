"""Which tile is best on a board, and why, in words that the board's own numbers bear out."""

from collections.abc import Sequence
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
        first = min(busy, key=lambda cell: (cell.value(SPILLS), cell.value(REQUESTED), -cell.tile.BLOCK_N))
        return Best(first, _FEW_PROGRAMS, False)
    fitting = busy
    # With fewer warps a sub-core idles whenever one waits; a spill goes through memory at every step.
    for demand in (_is_roomy, _spills_nothing, lambda cell: True):
        if found := [cell for cell in fitting if demand(cell)]:
            # Of those that ask for as much, the one with the fewest steps.
            first = min(found, key=lambda cell: (cell.value(REQUESTED), cell.value(SPILLS), -cell.tile.BLOCK_N))
            return Best(first, _why_modest(first, found, fitting), False)
    return None


_FEW_PROGRAMS = (
    "No tile gives every SM a program; of those with the most programs it asks for the fewest bytes. Nothing was timed."
)


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


def _why_modest(first: Cell, found: Sequence[Cell], fitting: Sequence[Cell]) -> str:
    asked = (
        f"It asks for the fewest bytes ({QUANTITIES[REQUESTED].spell(first.value(REQUESTED))}) of the tiles that fit"
    )
    if len(found) == len(fitting) and not all(map(_is_roomy, found)):
        return f"{asked}; all of them spill."
    also = (
        f", spill nothing and keep {ENOUGH_WARPS} warps or more on an SM" if _is_roomy(first) else " and spill nothing"
    )
    return f"{asked}{also}. Nothing was timed."


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
