"""A Run as a card for a notebook, one piece of HTML that loads nothing, all text escaped; and as a line for a shell."""

from collections.abc import Iterable
from html import escape

from profiler.run import HALVES, Measurement, Run
from profiler.show import spell
from profiler.wrong_output import why_wrong

# Label, and the Measurements whose sum it is; the first that has a value is shown.
BYTES = {
    "compulsory": (("compulsory_bytes",),),
    "requested": (HALVES["requested_bytes"],),
    "L2↔SM": (("l2_sm_bytes",),),
    "HBM": (HALVES["hbm_bytes"], ("hbm_bytes",)),
}
REST = {
    "GPU time": "gpu_time_seconds",
    "peak memory": "peak_allocated_bytes",
    "error against float64": "relative_error",
}
DIGITS = 3
MEMORY = "peak_allocated_bytes"
STYLE = """
.bytescope{font:14px/1.5 system-ui,sans-serif;max-width:760px;border:1px solid #8888;border-radius:8px}
.bytescope{padding:14px 18px;box-sizing:border-box}
.bytescope h3{margin:0;font-size:17px}.bytescope p{margin:2px 0 10px;opacity:.75}
.bytescope table{border-collapse:collapse;width:100%;background:none;font:inherit;color:inherit}
.bytescope td,.bytescope th{padding:3px 10px 3px 0;text-align:left;vertical-align:top;border:0;background:none}
.bytescope .n{white-space:nowrap;font-weight:600}.bytescope .why{opacity:.75}
.bytescope b{font-weight:400;font-size:12px;border:1px dashed #8888;border-radius:9px;padding:0 7px;white-space:nowrap}
.bytescope b.m{border:1px solid #0b7a75;background:#0b7a7522}
.bytescope i{display:block;height:12px;margin-top:5px;min-width:2px;border-radius:2px;background:#0b7a75}
.bytescope i.d{background:repeating-linear-gradient(45deg,#829ab1 0 2px,transparent 2px 5px);border:1px solid #829ab1}
.bytescope summary{cursor:pointer;margin-top:8px}
"""


def card(run: Run) -> str:
    """The answer as a sentence, the four kinds of bytes as bars, what else was measured; the rest is folded."""
    rows = {label: _first(run, choices) for label, choices in BYTES.items()}
    largest = max((size for size, _ in rows.values() if size is not None), default=0.0)
    bars = "".join(_bar(label, size, parts, largest) for label, (size, parts) in rows.items())
    rest = "".join(_line(label, run.find(name)) for label, name in REST.items())
    environment = "".join(f"<tr><td>{escape(k)}</td><td>{escape(v)}</td></tr>" for k, v in run.environment.items())
    return (
        f'<div class="bytescope"><style>{STYLE}</style><h3>{escape(sentence(run))}</h3><p>{escape(_of_what(run))}</p>'
        f"<table>{bars}{rest}</table>"
        f"<details><summary>All {len(run.measurements)} measurements</summary><table>{_all(run)}</table></details>"
        f"<details><summary>Environment</summary><table>{environment}</table></details></div>"
    )


def line(run: Run) -> str:
    """Which Run it is, of what, and its time and HBM bytes where they are known."""
    time, (moved, parts) = run.find("gpu_time_seconds"), _first(run, BYTES["HBM"])
    known = [spell(time, DIGITS)] if time is not None and time.value is not None else []
    known += [f"{spell(Measurement('', moved, 'B', parts[0].source), DIGITS)} HBM"] if moved is not None else []
    words = (f"Run {run.id}: {run.workload.kernel}", run.workload.problem.label, run.device.name, *known)
    return f"<{', '.join(words)}>"


def sentence(run: Run) -> str:
    """What is wrong with the output, then what moved, and in what time; requested bytes where none were counted."""
    name = run.workload.kernel.rpartition(":")[2]
    return f"{why_wrong(run, name)} {_moved(run, name)}".lstrip()


def _moved(run: Run, name: str) -> str:
    time = run.find("gpu_time_seconds")
    within = f" in {spell(time, DIGITS)}" if time is not None and time.value is not None else ""
    for label, verb in (("HBM", "moved {} through HBM"), ("requested", "asks for {}")):
        size, parts = _first(run, BYTES[label])
        if size is not None:
            return f"{name} {verb.format(spell(Measurement('', size, 'B', parts[0].source), DIGITS))}{within}"
    return f"{name} ran{within}; its bytes are not known"


def _of_what(run: Run) -> str:
    work = run.workload
    tile = "" if work.tile is None else f", tiles {work.tile.BLOCK_M}×{work.tile.BLOCK_N}"
    how = f", {work.l2} L2, {work.repeats:,} passes" if work.on_gpu else ", no GPU: nothing is said of time, L2 and HBM"
    return f"{work.problem.label}{tile}{how}, {run.device.name}, {run.created}"


def _first(run: Run, choices: Iterable[tuple[str, ...]]) -> tuple[float | None, tuple[Measurement, ...]]:
    """The sum of the first choice whose parts all have a value; else None with the parts that say why."""
    reasons: tuple[Measurement, ...] = ()
    for names in choices:
        parts = tuple(part for name in names if (part := run.find(name)) is not None)
        values = [part.value for part in parts if part.value is not None]
        if len(values) == len(names):
            return sum(values), parts
        reasons = reasons or tuple(part for part in parts if part.value is None)
    return None, reasons


def _bar(label: str, size: float | None, parts: tuple[Measurement, ...], largest: float) -> str:
    if size is None:
        return _missing(label, parts[0].note if parts else "this Run does not hold it")
    told = spell(Measurement(label, size, "B", parts[0].source), DIGITS)
    notes = "; ".join(dict.fromkeys(part.note for part in parts if part.note))
    width = 100 * size / largest if largest else 0
    kind = "" if parts[0].is_measured else ' class="d"'
    bar = f'<i{kind} style="width:{width:.1f}%"></i>'
    return _row(label, told, parts[0], f'<td style="width:45%" title="{escape(notes)}">{bar}</td>')


def _line(label: str, found: Measurement | None) -> str:
    if found is None or found.value is None:
        return _missing(label, found.note if found is not None else "this Run does not hold it")
    told = f"{found.value / 2**30:.3g} GiB" if found.name == MEMORY else spell(found, DIGITS)
    return _row(label, told, found, f'<td class="why">{escape(found.note)}</td>')


def _row(label: str, told: str, part: Measurement, last: str) -> str:
    return f'<tr><td>{escape(label)}</td><td class="n">{escape(told)}</td><td>{_badge(part)}</td>{last}</tr>'


def _missing(label: str, reason: str) -> str:
    return f'<tr><td>{escape(label)}</td><td class="n">–</td><td></td><td class="why">{escape(reason)}</td></tr>'


def _badge(part: Measurement) -> str:
    kind = ' class="m"' if part.is_measured else ""
    return f"<b{kind}>{escape(part.source)}</b>"


def _all(run: Run) -> str:
    rows = "".join(
        f'<tr><td>{escape(m.name)}{_launch(m)}</td><td class="n">{escape(spell(m))}'
        f'</td><td>{_badge(m)}</td><td class="why">{escape(m.note)}</td></tr>'
        for m in run.measurements
    )
    return f"<tr><th>name</th><th>value</th><th>source</th><th>how, or why not</th></tr>{rows}"


def _launch(part: Measurement) -> str:
    return f" of {escape(part.launch)}" if part.launch else ""
