"""Frozen dataclasses to JSON and back, strictly: unknown fields, missing fields and wrong types are refused."""

import base64
import binascii
import dataclasses
import math
import sys
import types
import typing
import zlib
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

MAX_ARRAY_BYTES = 64 * 2**20
MAX_DIMENSIONS = 8
# Metadata of a field that older files lack: it then has its default.
ADDED = {"added": True}
DTYPES = ("float32", "float64", "int32", "int64")


class NotARun(ValueError):
    """Data that is not what it should be; the message is a sentence that names the place and the fault."""


@dataclass(frozen=True)
class PackedArray:
    """A numpy array as text: zlib-compressed little-endian bytes in base64, with shape and dtype."""

    shape: tuple[int, ...]
    dtype: str
    data: str

    def __post_init__(self) -> None:
        if self.dtype not in DTYPES:
            raise NotARun(f"An array has dtype {self.dtype!r}; known are {', '.join(DTYPES)}.")
        possible = len(self.shape) <= MAX_DIMENSIONS and all(0 <= size <= MAX_ARRAY_BYTES for size in self.shape)
        if not possible or self.nbytes > MAX_ARRAY_BYTES:
            shape = str(self.shape)[:40]
            raise NotARun(f"An array of shape {shape} is impossible or above {MAX_ARRAY_BYTES >> 20} MiB.")

    @property
    def nbytes(self) -> int:
        """Size in bytes once unpacked."""
        return math.prod(self.shape) * np.dtype(self.dtype).itemsize

    @classmethod
    def pack(cls, array: NDArray[Any]) -> "PackedArray":
        """Pack an array of one of DTYPES."""
        raw = np.ascontiguousarray(array).astype(array.dtype.newbyteorder("<"), copy=False).tobytes()
        return cls(array.shape, array.dtype.name, base64.b64encode(zlib.compress(raw, 9)).decode("ascii"))

    def numpy(self) -> NDArray[Any]:
        """The array, read-only. Raises NotARun where the data does not hold exactly shape × dtype."""
        try:
            # The limit keeps a small file from unpacking into a large one.
            unpacker = zlib.decompressobj()
            raw = unpacker.decompress(base64.b64decode(self.data, validate=True), self.nbytes + 1)
        except (binascii.Error, ValueError, zlib.error) as error:
            raise NotARun(f"An array cannot be unpacked: {error}.") from error
        if len(raw) != self.nbytes or not unpacker.eof:
            raise NotARun(f"An array holds more or less than the {self.nbytes} bytes of its shape {self.shape}.")
        return np.frombuffer(raw, dtype=np.dtype(self.dtype).newbyteorder("<")).reshape(self.shape)


def encode(value: Any) -> Any:
    """A dataclass tree as dicts, lists and plain values, ready for json.dumps."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: encode(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, tuple | list):
        return [encode(item) for item in value]
    if isinstance(value, dict):
        return {key: encode(item) for key, item in value.items()}
    return value


def decode(kind: Any, data: Any, place: str = "run") -> Any:
    """Build `kind` (a dataclass or annotation) from what `encode` made. Raises NotARun naming the place."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if dataclasses.is_dataclass(kind):
        return _decode_dataclass(kind, data, place)
    if origin in (types.UnionType, typing.Union):
        if data is None and type(None) in arguments:
            return None
        return decode(next(a for a in arguments if a is not type(None)), data, place)
    if origin is tuple:
        if not isinstance(data, list) or (arguments[-1] is not Ellipsis and len(data) != len(arguments)):
            raise NotARun(f"{place} should be a list{'' if arguments[-1] is ... else f' of {len(arguments)}'}.")
        if arguments == (float, ...):
            return _decode_floats(data, place)
        kinds = [arguments[0]] * len(data) if arguments[-1] is Ellipsis else arguments
        return tuple(decode(k, item, f"{place}[{i}]") for i, (k, item) in enumerate(zip(kinds, data, strict=True)))
    if origin is dict:
        if not isinstance(data, dict):
            raise NotARun(f"{place} should be an object.")
        kind_of_key, kind_of_item = arguments
        return {decode(kind_of_key, k, place): decode(kind_of_item, v, f"{place}.{k[:40]}") for k, v in data.items()}
    return _decode_plain(kind, data, place)


def _decode_dataclass(kind: Any, data: Any, place: str) -> Any:
    if not isinstance(data, dict):
        raise NotARun(f"{place} should be an object.")
    fields = {field.name: field for field in dataclasses.fields(kind)}
    unknown = [name for name in data if name not in fields]
    missing = [name for name, field in fields.items() if name not in data and field.metadata != ADDED]
    if unknown:
        raise NotARun(f"{place} has a field that this version does not know: {unknown[0][:40]!r}.")
    if missing:
        raise NotARun(f"{place} lacks the field {missing[0]!r}.")
    hints = typing.get_type_hints(kind)
    values = {name: decode(hints[name], item, f"{place}.{name}") for name, item in data.items()}
    try:
        return kind(**values)
    except ValueError as error:
        raise NotARun(f"{place} is not valid: {error}") from error


def _decode_plain(kind: Any, data: Any, place: str) -> Any:
    if kind is float and isinstance(data, int) and not isinstance(data, bool):
        data = float(data) if abs(data) <= sys.float_info.max else math.inf
    if not isinstance(data, kind) or (isinstance(data, bool) and kind is not bool):
        raise NotARun(f"{place} should be {kind.__name__}, not {type(data).__name__}.")
    if isinstance(data, float) and not math.isfinite(data):
        raise NotARun(f"{place} is {data}; a measured value is finite or absent.")
    if isinstance(data, str) and not _is_unicode(data):
        raise NotARun(f"{place} holds half a character (a lone surrogate).")
    return data


def _decode_floats(data: list[Any], place: str) -> tuple[float, ...]:
    """Samples come by the million, so a place is spelled only for one that is no float."""
    most = sys.float_info.max
    for index, item in enumerate(data):
        if type(item) not in (float, int) or not -most <= item <= most:
            _decode_plain(float, item, f"{place}[{index}]")
    return tuple(map(float, data))


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
