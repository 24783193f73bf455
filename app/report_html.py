"""Runs as one HTML file that opens offline: for each problem every page's sheet, measurements and raw samples."""

from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path

from plotly.offline import get_plotlyjs

from app import page, report_parts
from app.command import command
from app.content_policy import policy, styles_of_its_own
from app.registry import all_views
from app.report_samples import raw_samples
from app.report_tables import environment, measurements, settings
from app.selection import names
from app.style import LIGHT
from kernels.problem import Refused
from profiler.run import Run

STYLE = Path(__file__).with_name("report.css")
SCRIPT = Path(__file__).with_name("report.js")
FOOT = (
    "<noscript><p>The charts need JavaScript; every number is in the tables.</p></noscript>"
    "<footer>Filled badge and solid bar: measured. Outlined badge: observed, but not by a counter or a clock. Dashed"
    " badge and hatched bar: derived from the problem or the schedule. A dash: not measured; its reason is beside or"
    " below it.</footer>"
)

# The sections of each chapter by their titles; a report of one problem is one chapter without a name.
Chapters = Mapping[str, Mapping[str, str]]


def html(runs: Sequence[Run]) -> str:
    """The report as one document: no load of any kind, every text that comes from a Run escaped.

    Raises Refused where there are no Runs.
    """
    if not runs:
        raise Refused("There is no Run to report; press Run, or open a recorded one.")
    problems: dict[str, list[Run]] = {}
    for run in runs:
        problems.setdefault(run.workload.problem.label, []).append(run)
    subject = _subject(problems)
    chapters = _chapters(problems)
    return document(f"Bytescope: {subject}", f"{_head(runs, subject)}{_contents(chapters)}{_body(chapters)}{FOOT}")


def document(title: str, content: str) -> str:
    """A whole HTML document around a report's content, with all that its charts need."""
    plotly, draw, style = get_plotlyjs(), SCRIPT.read_text(encoding="utf-8"), _style()
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy((plotly, draw), style)}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title>"
        f"<style>{style}</style>{styles_of_its_own(plotly)}</head><body><main>{content}</main>"
        f"<script>{plotly}</script><script>{draw}</script></body></html>\n"
    )


def _subject(problems: Mapping[str, Sequence[Run]]) -> str:
    if len(problems) > 1:
        return f"{len(problems)} problems, {sum(map(len, problems.values()))} Runs"
    ((label, runs),) = problems.items()
    return f"{' and '.join(dict.fromkeys(run.workload.attention_kernel.title for run in runs))}, {label}"


def _chapters(problems: Mapping[str, Sequence[Run]]) -> Chapters:
    runs = [run for group in problems.values() for run in group]
    repeat = command([run.workload for run in runs])
    about_all = {
        "Environment and settings": report_parts.cards((*settings(runs), *environment(runs))),
        "Repeat it": report_parts.box(f"<pre>{escape(repeat)}</pre>"),
    }
    found = {label: _about_problem(label, tuple(group)) for label, group in problems.items()}
    if len(found) > 1:
        return found | {"All Runs": about_all}
    return {"": {**next(iter(found.values())), **about_all}}


def _about_problem(label: str, runs: tuple[Run, ...]) -> dict[str, str]:
    pages = [view for view in all_views() if hasattr(view, "sheet")]
    named = list(zip(names(runs), runs, strict=True))
    return {view.TITLE: report_parts.sheet(view.sheet(runs, LIGHT), f"{view.TITLE}, {label}") for view in pages} | {
        "Measurements": report_parts.box("".join(measurements(name, run) for name, run in named)),
        "Raw samples": raw_samples(named),
    }


def _style() -> str:
    # A chart is drawn once, in the light theme; a page around it in the dark would be half white.
    return page.variables(LIGHT) + page.CSS.read_text(encoding="utf-8") + STYLE.read_text(encoding="utf-8")


def _head(runs: Sequence[Run], subject: str) -> str:
    made = dict.fromkeys(run.recorded or f"{run.device.name}, {run.created[:10]}" for run in runs)
    about = "".join(f"<p>{escape(line)}</p>" for line in made)
    return f'<header><p class="name">Bytescope report</p><p class="subject">{escape(subject)}</p>{about}</header>'


def _contents(chapters: Chapters) -> str:
    lines = []
    for number, (chapter, sections) in enumerate(chapters.items(), 1):
        links = [_link(_anchor(name, chapter, number), name) for name in sections]
        if chapter:
            links.insert(0, f"<b>{_link(f'chapter-{number}', chapter)}</b>")
        lines.append(f"<p>{''.join(links)}</p>")
    return f'<nav aria-label="Contents">{"".join(lines)}</nav>'


def _link(anchor: str, name: str) -> str:
    return f'<a href="#{anchor}">{escape(name)}</a>'


def _anchor(name: str, chapter: str, number: int) -> str:
    slug = "".join(c if c.isalnum() else "-" for c in name.lower())
    return f"{slug}-{number}" if chapter else slug


def _body(chapters: Chapters) -> str:
    parts = []
    for number, (chapter, sections) in enumerate(chapters.items(), 1):
        if chapter:
            parts.append(f'<h2 class="chapter" id="chapter-{number}">{escape(chapter)}</h2>')
        level = "h3" if chapter else "h2"
        for name, content in sections.items():
            heading = f'<{level} class="page">{escape(name)}</{level}>'
            parts.append(f'<section id="{_anchor(name, chapter, number)}">{heading}{content}</section>')
    return "".join(parts)
