"""Timeline: which SM ran which program, when, and how far apart they were on K and V."""

import streamlit as st

from app import page, place, timeline_pages
from app.lane_shades import SHADES
from app.no_timeline import why_no_timeline
from app.picture import Headline, Picture, Sheet, Table
from app.program_card import chosen
from app.program_work import walk_of
from app.selection import compare
from app.style import Theme
from app.tile_moment import Moment
from app.timeline_headline import headline
from app.timeline_pages import Timed, timed
from profiler.run import Run

TITLE = "Timeline"
ICON = ":material/view_timeline:"
ORDER = 35
SHADE, CHART = "timeline.shade", "timeline.lanes"


def sheet(runs: tuple[Run, ...], theme: Theme) -> Sheet:
    """The newest timeline, and for each Run that has one how far apart programs were and when tiles were last read."""
    found = timed(runs)
    if not found:
        return Sheet(missing=why_no_timeline(compare(runs).runs))
    one = found[0]
    nobody = len(one.found.sm)
    items: list[Picture | Table] = [timeline_pages.programs_on_sms(one, nobody, "wave", theme)]
    items += [*timeline_pages.spreads(found, nobody, theme), *timeline_pages.rereads(found, theme)]
    return Sheet(headline(one, found[1:]), timeline_pages.figures(one), tuple(items))


def render(runs: tuple[Run, ...]) -> None:
    """Draw the page around one Run and one program, which the other pages share."""
    found = timed(runs)
    if not found:
        page.headline(Headline(why_no_timeline(compare(runs).runs), ""))
        return
    names = [one.name for one in found]
    one = next((one for one in found if one.name == place.kernel()), found[0])
    program = min(max(int(st.session_state.get("program", 0)), 0), len(one.found.sm) - 1)
    colours = page.theme()
    others = [other for other in found if other is not one]
    page.headline(headline(one, others))
    page.figures(timeline_pages.figures(one))
    left, right = st.columns([7, 3])
    with left:
        _lanes(one, names, program, colours)
    with right:
        page.table(chosen(one, program))
        page.link("tile_schedule", "Its tiles and bytes, step by step")
        page.link("online_softmax", "Its m, l and acc")
    pictures = timeline_pages.spreads([one, *others], program, colours)
    for index, (column, item) in enumerate(zip(st.columns(max(1, len(pictures))), pictures, strict=False)):
        with column:
            page.picture(item, f"timeline.spread-{index}")
    for item in timeline_pages.rereads([one, *others], colours):
        page.picture(item, "timeline.reread")


def _lanes(one: Timed, names: list[str], program: int, theme: Theme) -> None:
    by = st.session_state.get(SHADE) or "wave"
    item = timeline_pages.programs_on_sms(one, program, by, theme)
    with page.card(item.title, item.caption, sources=item.sources):
        with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
            _pickers(one, names, program)
        if words := place.take_remark():
            st.caption(words)
        st.plotly_chart(
            item.chart, key=CHART, theme=None, config=page.CHART_CONFIG, on_select=lambda: _clicked(one),
            selection_mode="points", alt=f"{item.title}. {item.caption}",
        )  # fmt: skip


def _pickers(one: Timed, names: list[str], program: int) -> None:
    if len(names) > 1:
        st.session_state["timeline.run"] = one.name
        st.segmented_control(
            "Run", names, key="timeline.run", format_func=page.plain, on_change=lambda: _look_at(one.name)
        )
    st.segmented_control("Coloured by", list(SHADES), default="wave", key=SHADE, required=True)
    last = len(one.found.sm) - 1
    st.session_state["timeline.program"] = program
    st.number_input(
        f"Program, 0 to {last:,}", step=1, key="timeline.program", width=160,
        on_change=lambda: _go_to(one, place.clamped("Program", st.session_state["timeline.program"], 0, last)),
    )  # fmt: skip


def _look_at(shown: str) -> None:
    place.choose_kernel(st.session_state["timeline.run"] or shown)


def _clicked(one: Timed) -> None:
    points = st.session_state[CHART].selection.points
    data = points[0].get("customdata") if points else None
    if data is not None:
        _go_to(one, int(data["0"]))  # a row of an array, which comes back as a dict


def _go_to(one: Timed, program: int) -> None:
    """Choose a program on every page."""
    place.choose_kernel(one.name)
    walk = walk_of(one.run, one.found)
    if walk is None:
        st.session_state["program"] = program
    else:
        place.go_to(Moment(walk, program))
