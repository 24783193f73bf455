"""How a value that may be anything stands in a sentence: on one line, at most 40 characters of it."""

MOST = 40
MOST_BITS = 128


def shown(value: object) -> str:
    """A value as Python spells it; of a long number its length, of a list or an object only that it is one."""
    if isinstance(value, int) and value.bit_length() > MOST_BITS:
        return f"a number of {value.bit_length():,} bits"
    if isinstance(value, list | tuple | dict | set | frozenset):
        return f"a {type(value).__name__}"
    return repr(value[:MOST] if isinstance(value, str) else value)[: MOST + 8]


def named(name: str) -> str:
    """A name as it is where it can be printed, and as Python spells it where it cannot."""
    return name[:MOST] if name[:MOST].isprintable() else shown(name)
