"""How many heads are launched side by side: as many as share what L2 keeps while they are at work."""

MOST_SIDE_BY_SIDE = 4  # heads of a section
SECTION_BYTES = 2**25  # of what the programs of a section share, all of which stays in L2


def side_by_side(heads: int, shared_bytes: int) -> int:
    """The largest section that divides so many heads, where the programs of each share so many bytes; 1 at least."""
    fitting = max(1, min(MOST_SIDE_BY_SIDE, SECTION_BYTES // shared_bytes))
    return next(number for number in range(fitting, 0, -1) if heads % number == 0)
