"""Numbers as ncu prints them in its user's locale: 1,234.5 and 1.234,5 are one number; pure.

A number such as 14.200 may be 14.2 or 14,200. Others of the same table show which sign stands before decimals.
"""

import re
from collections.abc import Iterable

POINT, COMMA = ".", ","
GROUP = {POINT: COMMA, COMMA: POINT}  # the sign between thousands, by that before decimals
_POWER = r"(?:[eE][+-]?\d{1,3})"


def _number(decimal: str) -> re.Pattern[str]:
    group, sign = re.escape(GROUP[decimal]), re.escape(decimal)
    return re.compile(rf"(?:\d{{1,3}}(?:{group}\d{{3}})+|\d+)(?:{sign}\d+)?{_POWER}?", re.ASCII)


def _telling(decimal: str) -> re.Pattern[str]:
    """Numbers of one reading only: with groups and decimals, several groups, or decimals that can be no group."""
    group, sign = re.escape(GROUP[decimal]), re.escape(decimal)
    grouped = rf"\d{{1,3}}(?:{group}\d{{3}})+{sign}\d+{_POWER}?|\d{{1,3}}(?:{group}\d{{3}}){{2,}}"
    ungrouped = rf"\d+{sign}(?:\d{{1,2}}|\d{{4,}}){_POWER}?|(?:0\d*|\d{{4,}}){sign}\d{{3}}{_POWER}?"
    return re.compile(rf"{grouped}|{ungrouped}|\d+{sign}\d+{_POWER}", re.ASCII)


NUMBER = {decimal: _number(decimal) for decimal in GROUP}
TELLING = {decimal: _telling(decimal) for decimal in GROUP}


def decimal_signs(cells: Iterable[str]) -> frozenset[str]:
    """The signs before decimals that some cells show: one where they are of one locale, none where nothing tells."""
    found: set[str] = set()
    for cell in cells:
        if POINT in cell or COMMA in cell:
            found |= {decimal for decimal, telling in TELLING.items() if telling.fullmatch(cell)}
            if len(found) == len(TELLING):
                break
    return frozenset(found)


def number(text: str, decimal: str) -> float | None:
    """The number that a text is with this sign before decimals; None where it is none."""
    if not NUMBER[decimal].fullmatch(text):
        return None
    return float(text.replace(GROUP[decimal], "").replace(decimal, POINT))
