"""Frozen dataclasses to JSON and back, strictly: unknown fields, missing fields and wrong types are refused."""

import base64
import binascii
import dataclasses
import math
import sys
import types
import typing
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernels.problem import ADDED
from kernels.shown import named, shown

MAX_ARRAY_BYTES = 64 * 2**20
MAX_DIMENSIONS = 8
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
            raise NotARun(f"An array has dtype {shown(self.dtype)}; known are {', '.join(DTYPES)}.")
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
    try:
        return _reader(kind)(data)
    except _Misplaced as fault:
        raise NotARun(f"{place}{''.join(reversed(fault.way))} {fault.words}") from fault


class _Misplaced(Exception):
    """What is wrong with a value; `way` is how it is reached, the last step first.

    Files hold values by the million, so it is spelled only when it is raised.
    """

    def __init__(self, words: str) -> None:
        self.words = words
        self.way: list[str] = []

    def within(self, step: str) -> "_Misplaced":
        self.way.append(step)
        return self


Reader = Callable[[Any], Any]


@cache
def _reader(kind: Any) -> Reader:
    """What reads values of `kind`: made once for each."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if dataclasses.is_dataclass(kind):
        return _reader_of_dataclass(kind)
    if origin in (types.UnionType, typing.Union):
        read = _reader(next(a for a in arguments if a is not type(None)))
        return lambda data: None if data is None else read(data)
    if origin is tuple:
        if arguments == (float, ...):
            return _read_floats
        if arguments[-1] is Ellipsis:
            return _reader_of_list(_reader(arguments[0]))
        return _reader_of_tuple([_reader(argument) for argument in arguments])
    if origin is dict:
        return _reader_of_object(*map(_reader, arguments))
    return {float: _read_float, str: _read_text}.get(kind) or _reader_of_plain(kind)


def _reader_of_dataclass(kind: Any) -> Reader:
    fields = {field.name: field for field in dataclasses.fields(kind)}
    hints = typing.get_type_hints(kind)
    needed = [name for name, field in fields.items() if field.metadata != ADDED]
    readers: dict[str, Reader] = {}

    def read(data: Any) -> Any:
        if not isinstance(data, dict):
            raise _Misplaced("should be an object.")
        # Not before the first is read: a field's kind may be known only then.
        if not readers:
            readers.update((name, _reader(hints[name])) for name in fields)
        if unknown := data.keys() - readers.keys():
            name = next(name for name in data if name in unknown)
            raise _Misplaced(f"has a field that this version does not know: {shown(name)}.")
        if missing := [name for name in needed if name not in data]:
            raise _Misplaced(f"lacks the field {missing[0]!r}.")
        values = {}
        for name, item in data.items():
            try:
                values[name] = readers[name](item)
            except _Misplaced as fault:
                raise fault.within(f".{name}") from None
        try:
            return kind(**values)
        except ValueError as error:
            raise _Misplaced(f"is not valid: {error}") from error

    return read


def _reader_of_list(read_item: Reader) -> Reader:
    def read(data: Any) -> Any:
        if not isinstance(data, list):
            raise _Misplaced("should be a list.")
        found: list[Any] = []
        try:
            for item in data:
                found.append(read_item(item))
        except _Misplaced as fault:
            raise fault.within(f"[{len(found)}]") from None
        return tuple(found)

    return read


def _reader_of_tuple(readers: list[Reader]) -> Reader:
    def read(data: Any) -> Any:
        if not isinstance(data, list) or len(data) != len(readers):
            raise _Misplaced(f"should be a list of {len(readers)}.")
        found: list[Any] = []
        try:
            for read_item, item in zip(readers, data, strict=True):
                found.append(read_item(item))
        except _Misplaced as fault:
            raise fault.within(f"[{len(found)}]") from None
        return tuple(found)

    return read


def _reader_of_object(read_key: Reader, read_item: Reader) -> Reader:
    def read(data: Any) -> Any:
        if not isinstance(data, dict):
            raise _Misplaced("should be an object.")
        found: dict[Any, Any] = {}
        for key, item in data.items():
            name = read_key(key)
            try:
                found[name] = read_item(item)
            except _Misplaced as fault:
                raise fault.within(f".{named(name)}") from None
        return found

    return read


def _reader_of_plain(kind: Any) -> Reader:
    def read(data: Any) -> Any:
        if type(data) is not kind:
            raise _wrong_kind(kind, data)
        return data

    return read


def _wrong_kind(kind: Any, data: Any) -> _Misplaced:
    return _Misplaced(f"should be {kind.__name__}, not {type(data).__name__}.")


def _read_text(data: Any) -> str:
    if type(data) is not str:
        raise _wrong_kind(str, data)
    if not data.isascii() and not _is_unicode(data):
        raise _Misplaced("holds half a character (a lone surrogate).")
    return data


def _read_float(data: Any) -> float:
    if type(data) is int:
        data = float(data) if abs(data) <= sys.float_info.max else math.inf
    if type(data) is not float:
        raise _wrong_kind(float, data)
    if not math.isfinite(data):
        raise _Misplaced(f"is {data}; a measured value is finite or absent.")
    return data


def _read_floats(data: Any) -> tuple[float, ...]:
    if not isinstance(data, list):
        raise _Misplaced("should be a list.")
    most = sys.float_info.max
    for index, item in enumerate(data):
        if type(item) not in (float, int) or not -most <= item <= most:
            try:
                _read_float(item)
            except _Misplaced as fault:
                raise fault.within(f"[{index}]") from None
    return tuple(map(float, data))


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
