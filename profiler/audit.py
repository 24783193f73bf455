"""An Audit: sources of numbers checked against a referee and against what is known; plain, frozen, saved as JSON."""

import json
import stat
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from kernels.shown import shown
from profiler.codec import NotARun, decode, encode
from profiler.plausible import CREATED, LARGEST, MAX_TEXT, SMALLEST, require_possible_device
from profiler.run import TRUST, UNITS, DeviceInfo
from profiler.store import StoreError, printable_name, require_text_name, runs_folder, write_atomically
from profiler.strict_json import loads

FORMAT_VERSION = 1
PASS, FAIL, NOT_CHECKED = "pass", "fail", "not checked"
MAX_FILE_BYTES, MAX_ROWS, MAX_SECONDS = 8 * 2**20, 10_000, 24 * 3_600.0


@dataclass(frozen=True)
class AuditRow:
    """One check of one quantity of one subject: what `source` says, what the referee says, and whether that is within
    `limit`, a sentence. `source` and `referee_source` are Measurements' sources, or empty. A value that could not be
    had is None and never passes; `note` says why, or adds to a value.
    """

    subject: str
    kernel: str
    quantity: str
    unit: str
    source: str
    value: float | None
    referee_source: str
    referee_value: float | None
    limit: str
    verdict: str
    note: str = ""

    def __post_init__(self) -> None:
        if self.verdict not in (PASS, FAIL, NOT_CHECKED):
            raise NotARun(f"verdict {self.verdict[:40]!r} is not known.")
        if self.unit not in UNITS or not {self.source, self.referee_source} <= {*TRUST, ""}:
            raise NotARun(f"{self.quantity[:40]!r} has a unit or a source that is not known.")
        if self.verdict == PASS and self.value is None:
            raise NotARun(f"{self.quantity[:40]!r} passes without a value.")
        if self.value is None and not self.note:
            raise NotARun(f"{self.quantity[:40]!r} has neither a value nor a reason.")

    @property
    def difference(self) -> float | None:
        """value / referee_value − 1; None where one is missing or the referee says 0."""
        if self.value is None or not self.referee_value:
            return None
        return self.value / self.referee_value - 1


@dataclass(frozen=True)
class Audit:
    """All rows of one audit of a device. `seconds` is how long it took; `run_ids` are the Runs it saved on the way,
    which share the audit's `id` as their request; `created` is UTC, ISO 8601.
    """

    id: str
    created: str
    device: DeviceInfo
    environment: dict[str, str]
    rows: tuple[AuditRow, ...]
    run_ids: tuple[str, ...]
    seconds: float

    def __post_init__(self) -> None:
        for name in (self.id, *self.run_ids):
            if not name or not all(c.isalnum() or c in "-_" for c in name) or len(name) > 80:
                raise NotARun(f"id {name[:80]!r} may hold letters, digits, - and _ only.")

    def count(self, verdict: str) -> int:
        """Rows of a verdict."""
        return Counter(row.verdict for row in self.rows)[verdict]

    @property
    def checks(self) -> int:
        """Rows that have been checked."""
        return self.count(PASS) + self.count(FAIL)

    @property
    def summary(self) -> str:
        """Such as "112 checks: 110 pass, 2 fail, 31 not checked"."""
        return (
            f"{self.checks} check{'' if self.checks == 1 else 's'}: {self.count(PASS)} pass, {self.count(FAIL)} fail, "
            f"{self.count(NOT_CHECKED)} not checked"
        )


@dataclass(frozen=True)
class Newest:
    """The newest Audit that can be read, its file, and a sentence for every newer file that cannot."""

    audit: Audit | None = None
    path: Path | None = None
    faults: tuple[str, ...] = ()


def audits_folder() -> Path:
    """Where Audits are kept: beside the Runs, out of their list."""
    return runs_folder() / "audits"


def runs_of(audit_id: str) -> Path:
    """Where an Audit's own Runs are kept: nobody asked for them one by one, so they stay out of the history."""
    return audits_folder() / audit_id


def to_json(audit: Audit) -> str:
    """The document of an Audit; `from_json` gives it back equal."""
    document = {"format_version": FORMAT_VERSION, "audit": encode(audit)}
    return json.dumps(document, allow_nan=False, ensure_ascii=False)


def from_json(text: str | bytes) -> Audit:
    """The Audit of a document. Raises NotARun with a sentence for anything that is not one."""
    document = loads(text, "This is not an audit")
    if not isinstance(document, dict) or document.keys() != {"format_version", "audit"}:
        raise NotARun("This is not an audit: it should hold format_version and audit, and nothing else.")
    if document["format_version"] != FORMAT_VERSION:
        version = shown(document["format_version"])
        raise NotARun(f"The file has format_version {version}; this Bytescope reads {FORMAT_VERSION}.")
    audit: Audit = decode(Audit, document["audit"], "audit")
    _require_plausible(audit)
    return audit


def save(audit: Audit) -> Path:
    """Write an Audit and return its path. A reader never sees half a file; raises StoreError."""
    path = audits_folder() / f"{audit.id}.json"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, to_json(audit))
    except OSError as fault:
        raise StoreError(f"The audit could not be saved in {path.parent}: {fault.strerror or fault}.") from fault
    return path


def load(path: Path) -> Audit:
    """The Audit of a file. Raises NotARun or StoreError, each a sentence."""
    try:
        found = path.stat()
        if not stat.S_ISREG(found.st_mode) or found.st_size > MAX_FILE_BYTES:
            raise NotARun(f"It is not a file, or above the {MAX_FILE_BYTES >> 20} MiB that an audit can have.")
        return from_json(path.read_bytes())
    except OSError as fault:
        raise StoreError(f"It could not be read: {fault.strerror or fault}.") from fault


def newest() -> Newest:
    """The last Audit; ids begin with the time, so the last name is the newest."""
    faults: list[str] = []
    folder = audits_folder()
    for path in sorted(folder.glob("*.json"), reverse=True) if folder.is_dir() else ():
        try:
            require_text_name(path)
            return Newest(load(path), path, tuple(faults))
        except (NotARun, StoreError) as fault:
            faults.append(f"{printable_name(path)}: {fault}")
    return Newest(faults=tuple(faults))


def _require_plausible(audit: Audit) -> None:
    if not CREATED.fullmatch(audit.created):
        raise NotARun(f"audit.created is {audit.created[:40]!r}; it should be like 2026-11-29T15:59:09Z.")
    if len(audit.rows) > MAX_ROWS or len(audit.run_ids) > MAX_ROWS or not 0 <= audit.seconds <= MAX_SECONDS:
        raise NotARun(f"audit has more than {MAX_ROWS:,} rows, or took longer than a day.")
    texts: Sequence[str] = [
        *(text for row in audit.rows for text in (row.subject, row.kernel, row.quantity, row.limit, row.note)),
        *(text for item in audit.environment.items() for text in item),
    ]
    if any(len(text) > MAX_TEXT or not text.isprintable() for text in texts):
        raise NotARun(f"audit has a text that is longer than {MAX_TEXT} characters or cannot be printed.")
    require_possible_device(audit.device, "audit.device")
    for row in audit.rows:
        values = [value for value in (row.value, row.referee_value) if value is not None]
        if any(value != 0 and not SMALLEST <= value <= LARGEST for value in values):
            raise NotARun(f"audit has a {row.quantity[:40]!r} that cannot be measured.")
