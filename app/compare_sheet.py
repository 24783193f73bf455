"""Everything that is said about two compared Runs: the answer, what differs around them, pictures, the table."""

from collections.abc import Sequence

from app.compare_pictures import pictures
from app.compare_ratios import ratios
from app.compare_tables import differences, every_measurement, limits, of_one_run
from app.compare_words import figures, headline
from app.picture import Picture, Sheet
from app.style import Theme
from profiler.compare import Compared
from profiler.compare_limits import Check


def rows(shown: Sheet) -> tuple[int, ...]:
    """How many items stand side by side in each row: two, then up to three pictures; tables have the whole width."""
    pictures = sum(isinstance(item, Picture) for item in shown.items[2:])
    return (2, *((min(3, pictures),) if pictures else ()))


def compare_sheet(compared: Compared, theme: Theme, checks: Sequence[Check] = ()) -> Sheet:
    """The page and the report of one comparison; limits, where any were set, come first."""
    items = (
        limits(checks),
        differences(compared),
        ratios(compared, theme),
        *pictures(compared, theme),
        every_measurement(compared),
        of_one_run(compared),
    )
    return Sheet(headline(compared), figures(compared), tuple(item for item in items if item is not None))
