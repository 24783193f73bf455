"""The four notions of bytes of a Run (compulsory, requested, L2↔SM, HBM), each with its source or its reason."""

from collections.abc import Callable
from dataclasses import dataclass

from profiler.run import MEASURED, Run


@dataclass(frozen=True)
class Bytes:
    """One kind of bytes of one Run: a value with its source, or None and the reason."""

    value: float | None
    source: str
    reason: str = ""

    @property
    def is_measured(self) -> bool:
        """True where a counter or the interpreter's trace gave the value."""
        return self.source in MEASURED


def compulsory(run: Run) -> Bytes:
    """Every input read once, every output written once."""
    return _single(run, "compulsory_bytes")


def requested(run: Run) -> Bytes:
    """What the programs' loads and stores ask for; as traced where the Run was interpreted, else by the schedule."""
    traced = _sum(run, "requested_read_bytes", "requested_write_bytes", "interpreter")
    return traced if traced.value is not None else _sum(run, "requested_read_bytes", "requested_write_bytes")


def l2_sm(run: Run, launch: str | None = None) -> Bytes:
    """What crossed between L2 and the SMs; of one launch, or of the whole Run."""
    return _single(run, "l2_sm_bytes", launch)


def hbm(run: Run, launch: str | None = None) -> Bytes:
    """What crossed the memory pins, read and written; of one launch, or of the whole Run."""
    split = _sum(run, "hbm_read_bytes", "hbm_write_bytes", launch=launch)
    if split.value is not None:
        return split
    whole = _single(run, "hbm_bytes", launch)
    return whole if whole.value is not None else split


FOUR_KINDS: dict[str, Callable[[Run], Bytes]] = {
    "compulsory": compulsory,
    "requested": requested,
    "L2↔SM": l2_sm,
    "HBM": hbm,
}


def _single(run: Run, name: str, launch: str | None = None) -> Bytes:
    found = run.find(name, launch)
    if found is None:
        return Bytes(None, "", f"This Run holds no {name}.")
    return Bytes(found.value, found.source, "" if found.value is not None else found.note)


def _sum(run: Run, read: str, write: str, source: str | None = None, launch: str | None = None) -> Bytes:
    parts = [run.find(name, launch, source) for name in (read, write)]
    for name, part in zip((read, write), parts, strict=True):
        if part is None:
            return Bytes(None, "", f"This Run holds no {name}.")
        if part.value is None:
            return Bytes(None, part.source, part.note)
    values = [part.value for part in parts if part is not None and part.value is not None]
    sources = [part.source for part in parts if part is not None]
    # A sum is only as good as its weaker part.
    derived = [part for part in sources if part not in MEASURED]
    return Bytes(sum(values), (derived or sources)[0])
