"""The peak of some Runs in parts, as bars: predicted and measured, each tensor in its colour."""

from collections.abc import Mapping
from html import escape

from app.memory_split import CACHED, CONTEXT, IN_PASS, INPUT_PART, LEFT, OTHERS, ROUNDING, SUMS, Part, spelled, split
from app.memory_steps import REST
from app.picture import Picture
from app.selection import Comparison
from app.stack_chart import Part as Piece
from app.stack_chart import Stack, stacks
from app.style import MEMORY, TENSOR, Theme, capacity, shade, tensor_colour
from app.unpredicted import why_unpredicted
from profiler.memory_names import EITHER
from profiler.memory_trace import OTHER, WORKSPACE

COLOURS = {
    INPUT_PART: TENSOR["q"],
    IN_PASS: TENSOR["s"],
    WORKSPACE: MEMORY["workspace"],
    OTHER: MEMORY["other"],
    REST: MEMORY["other"],
    ROUNDING: MEMORY["rounding"],
    CACHED: MEMORY["cached"],
    CONTEXT: MEMORY["context"],
}
LABELS = {CACHED: "cached by torch"}
IN_A_LINE = 34  # letters of a line below a bar: what a phone has room for
TOLD = 0.004  # of a bar: smaller parts are told by the table alone


def peak_parts(found: Comparison, theme: Theme) -> Picture:
    """A bar for each Run as predicted, hatched, and one as measured, from the inputs to the CUDA context."""
    rows = []
    for name, run in zip(found.names, found.runs, strict=True):
        parts = [part for part in split(run) if part.name not in (*SUMS, OTHERS, LEFT)]
        told = [_pieces(part, part.predicted, part.predicted_tensors, theme) for part in parts]
        seen = [_pieces(part, part.measured, part.measured_tensors, theme) for part in parts]
        if not why_unpredicted(run.workload.kernel):
            # Without a history the bar below has no tensor in it whose colour it could tell.
            key = _lines(parts, told) if run.memory is None else ()
            rows.append(Stack(f"{name}, predicted", tuple(p for part in told for p in part), False, key))
        pieces = tuple(piece for part in seen for piece in part)
        reason = "" if pieces else parts[0].reason
        rows.append(Stack(f"{name}, measured", pieces, lines=_lines(parts, seen), reason=reason))
    is_predicted = not all(row.is_measured for row in rows)
    caption = (
        "Solid: torch's allocator in one pass after warm-up, and the CUDA context by NVML. The table below has every "
        "part, and why the two differ."
    )
    if is_predicted:
        caption = f"Hatched: predicted from the tensors' sizes and the allocator's rules. {caption}"
    measured = {"torch": "peak_allocated_bytes", "nvml": "context_bytes"}
    known = (source for source, name in measured.items() if any(run.value(name) is not None for run in found.runs))
    sources = (*(("model",) if is_predicted else ()), *known)
    return Picture("Peak memory, part by part", caption, stacks(rows, "memory", theme, capacity), sources)


def memory_colour(name: str, theme: Theme) -> str:
    """The colour of a tensor, or of a part that is none; of tensors that cannot be told apart, the first one's."""
    return shade(COLOURS.get(name) or tensor_colour(name.partition(EITHER)[0]), theme)


def _pieces(part: Part, value: float | None, tensors: Mapping[str, int], theme: Theme) -> list[Piece]:
    """The tensors of a part; the part as a whole where they are not known."""
    sizes: Mapping[str, float] = tensors or ({} if value is None else {part.name: value})
    return [
        Piece(escape(spelled(name)), float(size), memory_colour(name, theme)) for name, size in sizes.items() if size
    ]


def _lines(parts: list[Part], seen: list[list[Piece]]) -> tuple[str, ...]:
    """What the colours of a bar are, part by part."""
    total = sum(piece.value for pieces in seen for piece in pieces)
    lines, letters = [], IN_A_LINE
    for part, pieces in zip(parts, seen, strict=True):
        size = sum(piece.value for piece in pieces)
        if size and size >= TOLD * total:
            squares = "".join(f'<span style="color:{piece.colour}">■</span>' for piece in pieces)
            label = LABELS.get(part.name) or ", ".join(piece.name for piece in pieces)
            words = f" {label} {capacity(size)}"
            taken = len(pieces) + len(words)
            if letters + 2 + taken > IN_A_LINE:
                lines.append(f"{squares}{words}")
                letters = taken
            else:
                lines[-1] += f"  {squares}{words}"
                letters += 2 + taken
    return tuple(lines)
