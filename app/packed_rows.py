"""What a score matrix is called whose rows are query heads (GQA packing): its head, its rows, and why they are that."""

from kernels.tile_grid import TileGrid


def head_title(grid: TileGrid) -> str:
    """Of what the score matrix is: head, or K/V head where query heads that share one are its rows."""
    return "K/V head" if grid.packs > 1 else "head"


def rows_title(grid: TileGrid) -> str:
    """Of an axis along the rows."""
    return "Q row: query head of the K/V head" if grid.packs > 1 else "Q row"


def rows_in_words(grid: TileGrid, batch_head: int, first: int, stop: int) -> str:
    """Rows [first, stop) of one (batch, head): Q rows 0 to 63; Q rows 0 to 3, which are query heads 12 to 15."""
    rows = f"Q rows {first:,} to {stop - 1:,}"
    if grid.packs == 1:
        return rows
    (_, low, _), (_, high, _) = grid.query_of(batch_head, first), grid.query_of(batch_head, stop - 1)
    return f"{rows}, which are query heads {low:,} to {high:,}"


def why_packed(grid: TileGrid) -> str:
    """A sentence to follow others, where rows are query heads; else nothing."""
    if grid.packs == 1:
        return ""
    return (
        f" GQA packing: each head has one query, and the {grid.packs:,} query heads that share a K/V head are the rows "
        "of its Q tile, so that one read of K and V serves all of them."
    )
