"""Runs as one HTML file that opens offline: every page's sheet, all measurements, environment, settings, command."""

import base64
import hashlib
from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path

import plotly.graph_objects as go
from plotly.offline import get_plotlyjs

from app import page
from app.command import command
from app.picture import Picture, Sheet, Table
from app.registry import all_views
from app.report_tables import environment, measurements, settings
from app.style import LIGHT
from kernels.problem import Refused
from profiler.run import Run

STYLE = Path(__file__).with_name("report.css")
SCRIPT = Path(__file__).with_name("report.js")
FOOT = (
    "<noscript><p>The charts need JavaScript; every number is in the tables.</p></noscript>"
    "<footer>Filled badge and solid bar: measured. Dashed badge and hatched bar: derived from the problem or the"
    " schedule. A dash: not measured; its reason is beside it.</footer>"
)


def html(runs: Sequence[Run]) -> str:
    """The report as one document: no load of any kind, every text that comes from a Run escaped.

    Raises Refused where there are no Runs.
    """
    if not runs:
        raise Refused("There is no Run to report; press Run, or open a recorded one.")
    runs = tuple(runs)
    repeat = command([run.workload for run in runs])
    sections = {view.TITLE: _page(view.sheet(runs, LIGHT)) for view in all_views() if hasattr(view, "sheet")} | {
        "Measurements": _cards(measurements(runs)),
        "Environment and settings": _cards((settings(runs), *environment(runs))),
        "Repeat it": _box(f"<pre>{escape(repeat)}</pre>"),
        "Raw samples": _raw(runs),
    }
    kernels = " and ".join(dict.fromkeys(run.workload.attention_kernel.title for run in runs))
    plotly, draw = get_plotlyjs(), SCRIPT.read_text(encoding="utf-8")
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{_policy(plotly, draw)}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(f'Bytescope: {kernels}, {runs[0].workload.problem.label}')}</title>"
        f"<style>{_style()}</style></head><body><main>{_head(runs, sections)}"
        f"{''.join(_section(name, content) for name, content in sections.items())}{FOOT}</main>"
        f"<script>{plotly}</script><script>{draw}</script></body></html>\n"
    )


def _policy(*scripts: str) -> str:
    # Charts set style attributes and use data: images; only the scripts written here may run.
    hashes = " ".join(f"'sha256-{_sha256(script)}'" for script in scripts)
    shut = "default-src 'none'; form-action 'none'; base-uri 'none'"
    return f"{shut}; script-src {hashes}; style-src 'unsafe-inline'; img-src data:"


def _sha256(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode("ascii")


def _style() -> str:
    return page.variables(LIGHT) + page.CSS.read_text(encoding="utf-8") + STYLE.read_text(encoding="utf-8")


def _anchor(name: str) -> str:
    return "".join(c if c.isalnum() else "-" for c in name.lower())


def _head(runs: Sequence[Run], sections: Iterable[str]) -> str:
    devices = ", ".join(dict.fromkeys(run.device.name for run in runs))
    days = ", ".join(sorted({run.created[:10] for run in runs}))
    recorded = ", ".join(dict.fromkeys(run.recorded for run in runs if run.recorded))
    about = " · ".join(filter(None, (devices, days, recorded)))
    links = "".join(f'<a href="#{_anchor(name)}">{escape(name)}</a>' for name in sections)
    return f'<p class="name">Bytescope report<small>{escape(about)}</small></p><nav>{links}</nav>'


def _section(name: str, content: str) -> str:
    return f'<section id="{_anchor(name)}"><h2 class="page">{escape(name)}</h2>{content}</section>'


def _page(sheet: Sheet) -> str:
    headline = page.headline_html(sheet.headline) if sheet.headline else ""
    figures = page.figures_html(sheet.figures) if sheet.figures else ""
    missing = f'<p class="bs-empty">{escape(sheet.missing)}</p>' if sheet.missing else ""
    return headline + figures + missing + _cards(sheet.items)


def _cards(items: Sequence[Picture | Table]) -> str:
    return f'<div class="cards">{"".join(map(_card, items))}</div>' if items else ""


def _box(content: str) -> str:
    return f'<div class="cards"><div class="card">{content}</div></div>'


def _card(item: Picture | Table) -> str:
    wide = isinstance(item, Table) and len(item.columns) > 5
    content = page.table_html(item) if isinstance(item, Table) else _chart(item.title, item.chart)
    return (
        f'<figure class="card{" wide" if wide else ""}"><p class="bs-card-title">{escape(item.title)}</p>'
        f'<p class="bs-caption">{escape(item.caption)}</p>{content}</figure>'
    )


def _chart(title: str, chart: go.Figure) -> str:
    # "<" is the only character that could end the element early; JSON may spell it as an escape.
    data = chart.to_json().replace("<", "\\u003c")
    height = chart.layout.height or 450
    return (
        f'<div class="chart" role="img" aria-label="{escape(title)}" style="height:{height:.0f}px"></div>'
        f'<script type="application/json">{data}</script>'
    )


def _raw(runs: Sequence[Run]) -> str:
    parts: list[str] = []
    for run in runs:
        lists = [(name, "", values) for name, values in run.samples.items()]
        for series in run.series:
            lists.append((f"{series.name}, time", f"s, {series.source}", series.seconds))
            lists.append((series.name, f"{series.unit}, {series.source}", series.values))
        parts.extend(_folded(run, name, note, values) for name, note, values in lists)
    return _box("".join(parts)) if parts else '<p class="bs-empty">These Runs hold no raw samples.</p>'


def _folded(run: Run, name: str, note: str, values: Sequence[float]) -> str:
    about = ", ".join(filter(None, (run.workload.kernel, note, f"{len(values)} values")))
    return (
        f"<details><summary>{escape(name)} <span>{escape(about)}</span></summary>"
        f"<pre>{' '.join(f'{value:.9g}' for value in values)}</pre></details>"
    )
