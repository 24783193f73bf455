"""Tables of one moment: what a program holds on chip, and which bytes were asked for so far."""

from app.picture import Table
from app.style import capacity, ratio, traffic
from app.tile_moment import Moment
from kernels.problem import TileConfig
from kernels.schedule import Schedule

SHORT = {"float16": "fp16", "bfloat16": "bf16", "float32": "fp32"}
MEANING = {
    "Q": "the queries that this program answers",
    "K": "keys: each query is compared with each of them",
    "V": "values: what a query takes from each key",
    "S": "scores: Q Kᵀ of this tile; they never leave the chip",
    "P": "exp(s − m): this tile's weights before their division by l",
    "acc": "Σ exp(s − m) · v so far: the output before its division by l",
    "m": "the largest score of each row so far",
    "l": "Σ exp(s − m) over each row's scores so far: the softmax's denominator",
}


def on_chip(moment: Moment, tile: TileConfig) -> Table:
    """The tiles that the program holds at this step."""
    held = moment.on_chip(tile)
    rows = tuple(
        (
            part.name,
            f"{'×'.join(map(str, part.shape))} {SHORT.get(part.dtype, part.dtype)}",
            capacity(part.size),
            part.stays,
            "schedule",
        )
        for part in held
    )
    reasons = tuple((MEANING[part.name], "", "", "", "") for part in held)
    caption = (
        "Shapes from the schedule. Registers or shared memory is the compiler's choice, and not all need room at once: "
        "do not add them up."
    )
    return Table("On chip now", caption, ("tile", "shape", "size", "how long", "source"), rows, reasons)


def moved(moment: Moment) -> Table:
    """Requested bytes of each tensor up to this step, included."""
    rows = []
    for part in moment.moved():
        is_read = part.tensor in ("q", "k", "v")
        program = part.program_read if is_read else part.program_written
        head = part.head_read if is_read else part.head_written
        times = "–" if part.times is None else ratio(part.times)
        way = "read" if is_read else "write"
        rows.append((part.tensor.upper(), way, traffic(program), traffic(head), times, "schedule"))
    batch, head_index = moment.batch_head
    columns = ("tensor", "", "this program", "this head", "times each", "source")
    caption = (
        f"Requested bytes. This head: batch {batch}, head {head_index}, its programs one after another. "
        "Times each: how often a byte was asked for."
    )
    return Table("Asked for so far", caption, columns, tuple(rows))


def launches_moved(schedule: Schedule, current: int) -> Table:
    """Requested bytes of each tensor up to and including launch `current`, all batches and heads."""
    rows = []
    for tensor in schedule.by_tensor:
        read = sum(launch.reads.get(tensor, 0) for launch in schedule.launches[: current + 1])
        written = sum(launch.writes.get(tensor, 0) for launch in schedule.launches[: current + 1])
        rows.append((tensor.upper(), traffic(read), traffic(written), "schedule"))
    caption = "Requested bytes; all batches and heads. Each operand counts once a launch."
    return Table("Asked for so far, by launch", caption, ("tensor", "read", "written", "source"), tuple(rows))
