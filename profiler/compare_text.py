"""Two compared Runs as JSON and as CSV, every number in full."""

import csv as csv_format
import io
import json
from collections.abc import Sequence
from typing import Any

from profiler.codec import encode
from profiler.compare import Compared
from profiler.compare_limits import Check
from profiler.run import Measurement, Run
from profiler.run_document import FORMAT_VERSION

SIDES = ("before", "after")
PARTS = ("value", "source", "p20", "p80", "note")
COLUMNS = (
    "name",
    "launch",
    "unit",
    *(f"{side}_{part}" for side in SIDES for part in PARTS),
    "ratio",
    "change",
    "reason",
)
FORMULA = ("=", "+", "-", "@", "\t", "\r")  # what a spreadsheet takes for the begin of one


def json_text(compared: Compared, checks: Sequence[Check] = ()) -> str:
    """One JSON document: both Runs in short, differences, warnings, a row for each quantity, and the checks."""
    document = {
        "format_version": FORMAT_VERSION,
        "before": _short(compared.before, compared.names[0]),
        "after": _short(compared.after, compared.names[1]),
        "warnings": list(compared.warnings),
        "differences": encode(compared.differences),
        "measurements": [
            {
                "name": row.name,
                "launch": row.launch,
                "unit": row.unit,
                "before": _side(row.before),
                "after": _side(row.after),
                "ratio": row.ratio,
                "better": row.better,
                "change": row.verdict,
                "reason": row.reason,
            }
            for row in compared.rows
        ],
        "checks": encode(tuple(checks)),
    }
    return json.dumps(document, allow_nan=False, ensure_ascii=False)


def csv_text(compared: Compared, checks: Sequence[Check] = ()) -> str:
    """RFC 4180 text with a header: a row for each differing circumstance, then one for each quantity; no checks."""
    text = io.StringIO()
    writer = csv_format.DictWriter(text, COLUMNS, restval="")
    writer.writeheader()
    for one in compared.differences:
        writer.writerow(
            _inert({"name": one.what, "before_value": one.before, "after_value": one.after, "change": "circumstance"})
        )
    for row in compared.rows:
        about = {"name": row.name, "launch": row.launch, "unit": row.unit, "ratio": row.ratio}
        about |= {"change": row.verdict, "reason": row.reason}
        for side, found in zip(SIDES, (row.before, row.after), strict=True):
            if found is not None:
                p20, p80 = found.spread or (None, None)
                values = (found.value, found.source, p20, p80, found.note)
                about |= {f"{side}_{part}": value for part, value in zip(PARTS, values, strict=True)}
        writer.writerow(_inert(about))
    return text.getvalue()


def _inert(cells: dict[str, Any]) -> dict[str, Any]:
    return {
        name: f"'{cell}" if isinstance(cell, str) and cell.startswith(FORMULA) else cell for name, cell in cells.items()
    }


def _short(run: Run, name: str) -> dict[str, Any]:
    return {
        "name": name,
        "id": run.id,
        "created": run.created,
        "workload": encode(run.workload),
        "device": encode(run.device),
        "environment": dict(run.environment),
    }


def _side(found: Measurement | None) -> dict[str, Any] | None:
    if found is None:
        return None
    return {"value": found.value, "source": found.source, "spread": encode(found.spread), "note": found.note}
