"""The HBM bandwidth of one Run as counters of a Chrome trace, with its launches as slices."""

from typing import Any

from app.resample import resample
from app.sampled import READ, WRITE, Sampled

LAUNCHES = 1  # the thread of the launches


def counters(found: Sampled, pid: int, most: int) -> tuple[list[dict[str, Any]], str]:
    """Events of one process, and in words what is not as it was sampled; empty where all is.

    Time is in µs from the earlier of the first sample and the first launch. More samples than `most` are averaged. A
    counter keeps its value until the next event: where samples are missing, that of the one before.
    """
    begin, end = found.extent
    bins = resample(found.seconds, found.interval, most)
    spans = [*found.launches, *([found.drain] if found.drain else [])]
    events: list[dict[str, Any]] = [
        {"ph": "M", "pid": pid, "tid": LAUNCHES, "name": "thread_name", "args": {"name": "launches"}} for _ in spans[:1]
    ]
    for span in spans:
        when = {"ts": (span.start - begin) * 1e6, "dur": (span.end - span.start) * 1e6}
        events.append({"ph": "X", "pid": pid, "tid": LAUNCHES, "name": span.launch, "cat": "launch", **when})
    for name, values in ((READ, found.read), (WRITE, found.write)):
        for at, value in zip((bins.start - begin).tolist(), bins.mean(values).tolist(), strict=True):
            events.append({"ph": "C", "pid": pid, "tid": 0, "name": name, "ts": at * 1e6, "args": {"B/s": value}})
    words = []
    if int(bins.size.max()) > 1:
        words.append(f"means of up to {int(bins.size.max())} samples")
    if missing := found.missing(begin, end):
        words.append(f"{missing:,} missing samples show the value before them")
    return events, ", ".join(words)
