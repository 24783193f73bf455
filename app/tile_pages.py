"""What the tile schedule shows of one subject at one moment: pictures and words, no Streamlit."""

from app.launch_chart import launch_steps, launch_title
from app.picture import Headline, Picture
from app.style import Theme
from app.subject import Subject
from app.tile_cells import Cells, around, whole
from app.tile_chart import scale_in_words, tile_map
from app.tile_moment import Moment
from app.timeline_chart import lanes, story, timeline


def headline(subject: Subject) -> Headline:
    """How the kernel goes through the score matrix, as a sentence."""
    grid, label = subject.schedule.tiles, subject.problem.label
    kernel = subject.name[:1].upper() + subject.name[1:]
    if grid is None:
        names = [launch_title(launch.name) for launch in subject.schedule.launches]
        sentence = f"{kernel} runs {len(names)} launches over the whole score matrix: {', '.join(names)}."
        return Headline(sentence, f"{label}. Each launch reads its operands and writes its result; from the schedule.")
    share = 1 - int((grid.last - grid.first).sum()) / (grid.q_tiles * grid.kv_tiles)
    end = Moment(grid, grid.q_tiles - 1, grid.kv_tiles)
    times = next(part.times for part in end.moved() if part.tensor == "k") or 0
    skipped = f"; the mask skips {share:.0%} of the tiles" if share else ""
    sentence = (
        f"{kernel} keeps each of {grid.q_tiles:,} Q tiles on chip while K and V stream past: "
        f"every head asks for them {times:.3g} times{skipped}."
    )
    blocks = f"BLOCK_M × BLOCK_N {grid.BLOCK_M} × {grid.BLOCK_N}"
    return Headline(sentence, f"{label}. {blocks}, {grid.programs:,} programs; from the schedule, no Run needed.")


def matrix(subject: Subject, moment: Moment, theme: Theme) -> Picture:
    """The score matrix of one head as tiles."""
    cells = whole(moment.grid)
    # Alone in its column the map may be as high as the tables beside it.
    chart = tile_map(moment, cells, theme, height=540 if cells.is_exact else 470)
    return Picture(f"Score matrix, {subject.name}", _caption(moment, cells, theme), chart)


def neighbourhood(subject: Subject, moment: Moment, theme: Theme) -> Picture | None:
    """The tiles around the one at hand, where the matrix shows several tiles as one cell; else None."""
    if whole(moment.grid).is_exact:
        return None
    near = around(moment.grid, moment.q_tile, moment.kv_tile or 0)
    caption = "The matrix around the tile at hand, one cell a tile."
    return Picture(f"Neighbourhood, {subject.name}", caption, tile_map(moment, near, theme, height=330))


def _caption(moment: Moment, cells: Cells, theme: Theme) -> str:
    batch, head = moment.batch_head
    first, stop = moment.rows
    at_hand = "no KV tile, all are hidden" if moment.kv_tile is None else f"KV tile {moment.kv_tile:,} at hand"
    scale = "" if cells.is_exact else f" One cell is {cells.q_step} × {cells.kv_step} tiles."
    return (
        f"Batch {batch}, head {head}, program {moment.program:,}: Q rows {first:,} to {stop - 1:,} stay, {at_hand}. "
        f"{scale_in_words(theme)}: order within a program. Grey: skipped. Stroke: partly masked.{scale}"
    )


def launches(subject: Subject, current: int, theme: Theme) -> Picture:
    """The launches of a kernel without known tiles."""
    caption = "Launches in order, and what each asks to read and to write of whole tensors; from the schedule."
    return Picture(f"Launches, {subject.name}", caption, launch_steps(subject.schedule, current, theme))


def programs_on_sms(subject: Subject, program: int, theme: Theme) -> Picture | None:
    """The measured timeline of the subject's Run; None where it has none."""
    trace = None if subject.run is None else subject.run.timeline
    found = None if trace is None else lanes(trace)
    if trace is None or found is None:
        return None
    caption = f"{story(found, program)} By the GPU's clock, which ticks every {trace.timer_step_ns} ns."
    return Picture(f"Programs on SMs, {subject.name}", caption, timeline(found, program, theme))
