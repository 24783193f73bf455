"""JSON from anywhere, read strictly: UTF-8, finite numbers, every field once, and no more than a file holds."""

import json
from typing import Any

from profiler.codec import NotARun

# Of lists, objects and the values in them: a Run file of MAX_FILE_BYTES has as many where it is all samples, of sixteen
# bytes each. More would take gigabytes of memory and many seconds.
MOST_VALUES = 4_000_000


def loads(text: str | bytes, what: str) -> Any:
    """The document. Raises NotARun with a sentence that begins with `what`, such as "This is not a Run file"."""
    try:
        # Bytes in another encoding would be read too, but nothing else that reads these files knows more than UTF-8.
        spelled = text if isinstance(text, str) else text.decode("utf-8")
        # A count of the signs that begin a value: those in texts count too, which are few.
        values = sum(map(spelled.count, ",[{"))
        if values > MOST_VALUES:
            raise NotARun(f"{what}: it holds {values:,} values, and {MOST_VALUES:,} are the most.")
        return json.loads(spelled, parse_constant=_refuse_constant, object_pairs_hook=once)
    except NotARun:
        raise
    # Not UTF-8, not JSON, nested too deep, or a number of thousands of digits.
    except (ValueError, RecursionError) as error:
        raise NotARun(f"{what}: it is not JSON ({str(error)[:120]}).") from error


def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object; of a field that stands twice readers take one or the other."""
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        raise NotARun(f"The file has the field {_repeated(names)[:40]!r} twice in one object.")
    return found


def _repeated(names: list[str]) -> str:
    seen: set[str] = set()
    return next(name for name in names if name in seen or seen.add(name))  # type: ignore[func-returns-value]


def _refuse_constant(name: str) -> None:
    raise NotARun(f"The file holds {name}; a measured value is finite or absent.")
