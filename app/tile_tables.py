"""Tables of one moment: which bytes were asked for so far, by one kernel or by two side by side."""

from app.packed_rows import head_title
from app.picture import Table
from app.standing import Pair, Standing
from app.style import ratio, traffic
from app.subject import Subject
from app.tensor_names import tensor_title
from app.tile_moment import Moment
from kernels.schedule import Schedule


def moved(subject: Subject, moment: Moment) -> Table:
    """Requested bytes of each tensor up to this step, included."""
    rows = []
    for part in moment.moved(subject.tensor_bytes):
        times = "–" if part.times is None else ratio(part.times)
        name = tensor_title(part.tensor)
        rows.append((name, part.way, traffic(part.program), traffic(part.head), times, "schedule"))
    (batch, head), whose = moment.batch_head, head_title(moment.walk.grid)
    columns = ("tensor", "", "this program", f"this {whose}", "times each", "source")
    caption = (
        f"Requested bytes{_of_launch(subject.schedule)}. This {whose}: batch {batch}, {whose} {head}, its programs one "
        f"after another. Times each: so far, over the tensor's bytes that a {whose} asks for at all."
    )
    return Table("Asked for so far", caption, columns, tuple(rows))


def _of_launch(schedule: Schedule) -> str:
    """Which launch the tiles belong to, where there are others."""
    return f" of launch {schedule.main.name}" if schedule.main and len(schedule.launches) > 1 else ""


def moved_both(pair: Pair) -> Table:
    """Requested bytes of one head so far, two kernels beside each other."""
    assert pair.second is not None
    first, second = pair.first, pair.second
    one, other = first.bytes_of_head(), second.bytes_of_head()
    keys = sorted(one | other, key=lambda key: key[1])
    sizes = [(tensor_title(key[0]), key[1], one.get(key, 0.0), other.get(key, 0.0)) for key in keys]
    sizes.append(("all", "", sum(one.values()), sum(other.values())))
    rows = [
        (tensor, way, traffic(a), traffic(b), ratio(a / b) if a and b else "–", "schedule")
        for tensor, way, a, b in sizes
    ]
    reasons = [("", "", "", "", "" if a and b else "0 on one side or both", "") for _, _, a, b in sizes]
    columns = ("tensor", "", first.subject.name, second.subject.name, "first / second", "source")
    packs = " and ".join(part.subject.name for part in (first, second) if part.query_heads > 1)
    share = f" Where query heads share a tile ({packs}), one head's share of it." if packs else ""
    caption = f"Requested bytes of one head up to the step shown.{share} {_pace(first, second)}"
    return Table("Asked for so far, side by side", caption, columns, tuple(rows), tuple(reasons))


def _pace(one: Standing, other: Standing) -> str:
    """How the two are kept in step."""
    if one.steps == other.steps:
        return "Both have the same number of steps."
    shares = " and ".join(f"step {part.at + 1:,} of {part.steps:,} ({part.subject.name})" for part in (one, other))
    return f"Both stand at the same share of their steps: {shares}."


def launches_moved(schedule: Schedule, current: int) -> Table:
    """Requested bytes of each tensor up to and including launch `current`, all batches and heads."""
    rows = []
    for tensor in schedule.by_tensor:
        read = sum(launch.reads.get(tensor, 0) for launch in schedule.launches[: current + 1])
        written = sum(launch.writes.get(tensor, 0) for launch in schedule.launches[: current + 1])
        rows.append((tensor_title(tensor), traffic(read), traffic(written), "schedule"))
    caption = "Requested bytes; all batches and heads. Each operand counts once a launch."
    return Table("Asked for so far, by launch", caption, ("tensor", "read", "written", "source"), tuple(rows))
