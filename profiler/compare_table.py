"""Two compared Runs for a terminal: what differs around them, then every quantity with its ratio and verdict."""

from collections.abc import Iterator, Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from profiler.compare import Compared
from profiler.compare_limits import Check
from profiler.compare_row import BEYOND, EXACT, MISSING, UNRELATED, Row
from profiler.show import spell

MOST_LAUNCHES = 12  # that are named where one Run lacks them
CERTAIN = (BEYOND, EXACT)


def compare_table(compared: Compared, checks: Sequence[Check] = ()) -> RenderableType:
    """Warnings and differing circumstances, the quantities that can be compared, then the others with their reason."""
    parts: list[RenderableType] = [Text(sentence, style="bold") for sentence in compared.warnings]
    parts.append(_circumstances(compared))
    parts.append(_quantities(compared))
    parts += [Text(f"–  {line}") for line in missing(compared.rows)]
    parts += [Text(f"{'passed' if one.passed else 'failed'}: {one.sentence}") for one in checks]
    return Group(*parts)


def _circumstances(compared: Compared) -> RenderableType:
    if not compared.differences:
        return Text("Problem, kernel, tile, method, device and versions are the same.")
    table = Table(title="Circumstances", title_justify="left")
    for title in ("differs", *compared.names):
        table.add_column(Text(title), overflow="fold")
    for one in compared.differences:
        table.add_row(Text(one.what), Text(one.before), Text(one.after))
    return table


def _quantities(compared: Compared) -> Table:
    table = Table(title=Text(f"{compared.names[0]} against {compared.names[1]}"), title_justify="left")
    table.add_column("quantity", no_wrap=True)
    for title in ("launch", "source"):
        table.add_column(title, overflow="fold")
    for name in (*compared.names, "ratio"):
        table.add_column(Text(name), justify="right", overflow="fold")
    table.add_column("change", overflow="fold")
    for row in compared.rows:
        if row.verdict == MISSING:
            continue
        words = (row.name, row.launch or "", " / ".join(row.sources), spell(row.before), spell(row.after))
        # Of two problems, the warning above has said why.
        is_known = row.ratio is not None or row.verdict == UNRELATED or not row.reason
        change = row.verdict if is_known else f"{row.verdict}: {row.reason}"
        table.add_row(*map(Text, words), Text(ratio(row.ratio), style=_style(row)), Text(change))
    return table


def ratio(value: float | None) -> str:
    """A ratio with three significant digits, so that a change of a percent shows: 0.0103×, 1.03×, 97.5×, 1.0e-5×."""
    if value is None:
        return "–"
    if value < 1e-3:
        mantissa, exponent = f"{value:.1e}".split("e")
        return f"{mantissa}e{int(exponent)}×"
    return f"{value:,.0f}×" if value >= 999.5 else f"{value:#.3g}".rstrip(".") + "×"


def _style(row: Row) -> str:
    """Red where the second Run is worse for certain, green where it is better."""
    if row.worsening is None or not row.better or row.verdict not in CERTAIN:
        return ""
    return "red" if row.worsening > 1 else "green"


def missing(rows: Sequence[Row]) -> Iterator[str]:
    """What one side lacks as sentences, each reason once, and launches that are of one Run alone by name."""
    whole: dict[str, list[str]] = {}
    launches: dict[str, list[str]] = {}
    for row in rows:
        if row.verdict == MISSING and row.launch is None:
            whole.setdefault(row.reason, []).append(row.name)
        elif row.verdict == MISSING and row.launch is not None:
            launches.setdefault(row.reason, []).append(row.launch)
    for reason, names in whole.items():
        yield f"{', '.join(dict.fromkeys(names))}: {reason}"
    for reason, names in launches.items():
        each = list(dict.fromkeys(names))
        more = f" and {len(each) - MOST_LAUNCHES:,} more" if len(each) > MOST_LAUNCHES else ""
        yield f"of launch {', '.join(each[:MOST_LAUNCHES])}{more}: {reason}"
