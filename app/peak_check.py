"""Tells HBM bytes that cannot be true: more than the memory's peak bandwidth could have moved in the time measured."""

from app.four_kinds import Bytes, hbm
from app.style import bandwidth, seconds, traffic
from profiler.run import Run


def above_peak(run: Run, moved: float | None, launch: str | None = None) -> str:
    """A sentence that flags `moved` bytes of a Run or of one of its launches; empty where they are possible.

    Empty too where the time or the peak is not known: nothing can be said then.
    """
    time, peak = run.value("gpu_time_seconds", launch), run.device.peak_hbm_bytes_per_second
    if moved is None or not time or time < 0 or not peak or moved <= time * peak:
        return ""
    return (
        f"{traffic(moved)} in {seconds(time)} would be {bandwidth(moved / time)}, above the peak of {bandwidth(peak)}: "
        "bytes and time do not belong together, so this is not drawn."
    )


def possible_hbm(run: Run, launch: str | None = None) -> Bytes:
    """HBM bytes of a Run or launch, or the reason why they are missing or cannot be true."""
    found = hbm(run, launch)
    flag = above_peak(run, found.value, launch)
    return Bytes(None, found.source, flag) if flag else found
