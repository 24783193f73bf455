"""Which kernels this process launches, by the names the driver knows: CUPTI calls back at each launch.

It wants no permission, counts nothing, and works inside a range of the RangeProfiler; seen on an H200.

with watched_launches() as seen:
    with seen.launch("qk"):
        torch.matmul(q, k)
seen.kernels  # [("qk", "nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_TNT")]
"""

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from ctypes import CFUNCTYPE, POINTER, c_char_p, c_int, c_uint32, c_void_p
from functools import cache

from profiler.cupti.library import Cupti, CuptiError, explain, load

# CUpti_ApiCallbackSite and CUpti_CallbackDomain (cupti_callbacks.h).
ENTER, DRIVER_API = 0, 1
ANOTHER_SUBSCRIBER = 39  # CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED
# The driver's launches (cupti_driver_cbid.h): cuLaunchKernel, …Cooperative and …Ex, each also per thread's stream.
# What the runtime launches passes through them too.
LAUNCHES = (307, 442, 477, 478, 652, 653)


class CallbackData(ctypes.Structure):
    """The beginning of CUpti_CallbackData, as far as it is read here."""

    _fields_ = [
        ("callbackSite", c_int),
        ("functionName", c_char_p),
        ("functionParams", c_void_p),
        ("functionReturnValue", c_void_p),
        ("symbolName", c_char_p),
    ]


Callback = CFUNCTYPE(None, c_void_p, c_int, c_uint32, POINTER(CallbackData))


class AnotherWatcher(CuptiError):
    """Another profiler in this process is called back already."""


class LaunchWatch:
    """The kernels that were launched, as (launch, kernel) in order; the launch is "" outside any."""

    def __init__(self) -> None:
        self.kernels: list[tuple[str, str]] = []
        self._launch = ""

    @contextmanager
    def launch(self, name: str) -> Iterator[None]:
        """Kernels launched inside belong to `name`."""
        outer, self._launch = self._launch, name
        try:
            yield
        finally:
            self._launch = outer

    def _see(self, user: int | None, domain: int, function: int, data: "ctypes._Pointer[CallbackData]") -> None:
        # An exception would be lost: nothing here can raise.
        found = data.contents
        if found.callbackSite == ENTER:
            self.kernels.append((self._launch, demangled(found.symbolName or b"")))


@contextmanager
def watched_launches(cupti: Cupti | None = None) -> Iterator[LaunchWatch]:
    """Yields a LaunchWatch of all threads of this process.

    Raises AnotherWatcher where another profiler is told of launches, and CuptiError where CUPTI fails.
    """
    cupti = cupti or load()
    watch, subscriber = LaunchWatch(), c_void_p()
    callback = Callback(watch._see)  # must outlive the subscription
    try:
        _check(cupti, "cuptiSubscribe", ctypes.byref(subscriber), callback, None)
    except CuptiError as error:
        if error.code == ANOTHER_SUBSCRIBER:
            raise AnotherWatcher(str(error), error.code) from error
        raise
    try:
        for function in LAUNCHES:
            _check(cupti, "cuptiEnableCallback", 1, subscriber, DRIVER_API, function)
        yield watch
    finally:
        # Whatever it answers: what was seen was seen, and an error inside says more.
        cupti.library.cuptiUnsubscribe(subscriber)


def _check(cupti: Cupti, call: str, *arguments: object) -> None:
    if code := getattr(cupti.library, call)(*arguments):
        raise CuptiError(explain(code, call, cupti.result_name(code)), code)


def demangled(symbol: bytes) -> str:
    """A C++ symbol as a person writes it; any other name unchanged."""
    demangle = _demangler() if symbol.startswith(b"_Z") else None
    if demangle is not None:
        buffer = demangle(symbol, None, None, None)
        if buffer:
            try:
                return ctypes.string_at(buffer).decode(errors="replace")
            finally:
                ctypes.CDLL(None).free(c_void_p(buffer))
    return symbol.decode(errors="replace") or "a kernel without a name"


@cache
def _demangler() -> "ctypes._NamedFuncPointer | None":
    """__cxa_demangle of the C++ library, which torch brings along; None where there is none."""
    try:
        function = ctypes.CDLL("libstdc++.so.6").__cxa_demangle
    except (OSError, AttributeError):
        return None
    function.restype = c_void_p
    return function
