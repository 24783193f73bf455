"""CUPTI's callbacks at launches: a stand-in for its library calls back, C++ names, the C headers, a real GPU."""

import ctypes
import re
import shutil
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from kernels.problem import AttentionProblem
from profiler.bench import Bench
from profiler.child import describe
from profiler.counters import kernel_names
from profiler.cupti import launches
from profiler.cupti.launches import DRIVER_API, ENTER, LAUNCHES, CallbackData, demangled, watched_launches
from profiler.cupti.library import CuptiError
from profiler.workload import Workload
from tests.test_cupti_sampling import HEADERS

EXIT = 1
SUBSCRIBER = 0x5AB
MANGLED, WRITTEN = b"_ZN2at6native3fooILi4EEEvi", "void at::native::foo<4>(int)"
NAMES = ("cuLaunchKernel", "cuLaunchCooperativeKernel", "cuLaunchKernelEx")


class Library:
    """CUPTI's calls about callbacks. `fails` maps one, or the function it enables, to the CUptiResult it answers."""

    def __init__(self, **fails: int) -> None:
        self.fails = fails
        self.calls: list[str] = []
        self.enabled: list[int] = []
        self.callback = None

    def cuptiSubscribe(self, subscriber, callback, user) -> int:
        self.calls.append("subscribe")
        if "subscribe" not in self.fails:
            subscriber._obj.value, self.callback = SUBSCRIBER, callback
        return self.fails.get("subscribe", 0)

    def cuptiEnableCallback(self, enable, subscriber, domain, function) -> int:
        assert (enable, subscriber.value, domain) == (1, SUBSCRIBER, DRIVER_API)
        self.enabled.append(function)
        return self.fails.get(f"enable_{function}", 0)

    def cuptiUnsubscribe(self, subscriber) -> int:
        assert subscriber.value == SUBSCRIBER
        self.calls.append("unsubscribe")
        return self.fails.get("unsubscribe", 0)

    def launch(self, symbol: bytes | None, sites: tuple[int, ...] = (ENTER, EXIT)) -> None:
        """What the driver does at a launch, in C; nothing is called back where nobody has subscribed."""
        if self.calls[-1:] == ["subscribe"] and self.callback is not None:
            for site in sites:
                data = CallbackData(callbackSite=site, functionName=b"cuLaunchKernel", symbolName=symbol)
                self.callback(None, DRIVER_API, LAUNCHES[0], ctypes.pointer(data))


def cupti_of(library: Library) -> SimpleNamespace:
    return SimpleNamespace(library=library, result_name=lambda code: "A_NAME")


def test_kernels_belong_to_the_launch_around_them_in_order() -> None:
    """Each once, though the driver calls back before and after; nested launches give to the innermost."""
    library = Library()
    with watched_launches(cupti_of(library)) as seen:
        library.launch(b"before")
        with seen.launch("qk"):
            library.launch(b"nvjet_qk")
            with seen.launch("inner"):
                library.launch(b"split")
            library.launch(b"reduce")
        library.launch(b"between")
        with seen.launch("pv"):
            library.launch(MANGLED)
    library.launch(b"after")
    assert seen.kernels == [
        ("", "before"),
        ("qk", "nvjet_qk"),
        ("inner", "split"),
        ("qk", "reduce"),
        ("", "between"),
        ("pv", WRITTEN),
    ]
    assert library.calls == ["subscribe", "unsubscribe"]
    assert library.enabled == [307, 442, 477, 478, 652, 653]


def test_only_the_entry_counts() -> None:
    library = Library()
    with watched_launches(cupti_of(library)) as seen:
        library.launch(b"k", sites=(EXIT,))
    assert seen.kernels == []


def test_a_launch_that_fails_ends_with_its_error() -> None:
    library = Library()
    with watched_launches(cupti_of(library)) as seen:
        with pytest.raises(ZeroDivisionError), seen.launch("qk"):
            raise ZeroDivisionError
        library.launch(b"k")
    assert seen.kernels == [("", "k")]


def test_an_error_inside_comes_through_and_ends_the_watch() -> None:
    library = Library()
    with pytest.raises(ZeroDivisionError), watched_launches(cupti_of(library)):
        raise ZeroDivisionError
    assert library.calls == ["subscribe", "unsubscribe"]


def test_one_that_watches_already_is_told_by_its_code() -> None:
    library = Library(subscribe=39)
    with pytest.raises(CuptiError, match="another profiler is active in this process") as caught:
        watched_launches(cupti_of(library)).__enter__()
    assert caught.value.code == 39
    assert "(cuptiSubscribe answered A_NAME, 39.)" in str(caught.value)
    assert library.calls == ["subscribe"]


@pytest.mark.parametrize(("function", "enabled"), [(307, 1), (478, 4), (653, 6)])
def test_a_function_that_cannot_be_watched_ends_the_watch(function: int, enabled: int) -> None:
    library = Library(**{f"enable_{function}": 7})
    with pytest.raises(CuptiError, match="cuptiEnableCallback answered A_NAME, 7"):
        watched_launches(cupti_of(library)).__enter__()
    assert library.calls == ["subscribe", "unsubscribe"]
    assert len(library.enabled) == enabled


def test_an_unsubscription_that_fails_costs_no_names() -> None:
    library = Library(unsubscribe=7)
    with watched_launches(cupti_of(library)) as seen:
        library.launch(b"flash_forward")
    assert seen.kernels == [("", "flash_forward")]


# Names.


@pytest.mark.parametrize(
    ("symbol", "name"),
    [
        (MANGLED, WRITTEN),
        (b"_Z3barPfS_", "bar(float*, float*)"),
        (b"flash_forward", "flash_forward"),
        (b"_Z", "_Z"),
        (b"_Znothing", "_Znothing"),
        (b"nvjet\xff", "nvjet\ufffd"),
        (b"", "a kernel without a name"),
    ],
)
def test_names_as_a_person_writes_them(symbol: bytes, name: str) -> None:
    assert demangled(symbol) == name


def test_a_kernel_without_a_symbol() -> None:
    library = Library()
    with watched_launches(cupti_of(library)) as seen:
        library.launch(None)
    assert seen.kernels == [("", "a kernel without a name")]


def test_without_a_cpp_library_names_stay_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> None:
        raise OSError(name)

    monkeypatch.setattr(ctypes, "CDLL", absent)
    assert launches._demangler.__wrapped__() is None
    monkeypatch.setattr(launches, "_demangler", lambda: None)
    assert demangled(MANGLED) == MANGLED.decode()


# CUPTI's own headers.


@pytest.mark.parametrize("headers", HEADERS.values(), ids=HEADERS.keys())
def test_callbacks_are_as_in_the_c_headers(headers: Path, tmp_path: Path) -> None:
    if not (headers / "cupti_callbacks.h").is_file():
        pytest.skip(f"no cupti_callbacks.h in {headers}")
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler")
    fields = [name for name, _ in CallbackData._fields_]
    values = [f"offsetof(CUpti_CallbackData, {name})" for name in fields]
    values += [f"sizeof(((CUpti_CallbackData *)0)->{name})" for name in fields]
    values += ["sizeof(CUpti_CallbackDomain)", "sizeof(CUpti_CallbackId)"]
    values += ["CUPTI_API_ENTER", "CUPTI_API_EXIT", "CUPTI_CB_DOMAIN_DRIVER_API"]
    values += [f"CUPTI_DRIVER_TRACE_CBID_{name}{per_thread}" for name in NAMES for per_thread in ("", "_ptsz")]
    values += ["CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED"]
    in_python = [getattr(CallbackData, name).offset for name in fields]
    in_python += [getattr(CallbackData, name).size for name in fields]
    in_python += [4, 4, ENTER, EXIT, DRIVER_API, *LAUNCHES, launches.ANOTHER_SUBSCRIBER]
    source, program = tmp_path / "callbacks.c", tmp_path / "callbacks"
    printed = " ".join(f'printf("%zu\\n", (size_t)({value}));' for value in values)
    # The assignment compiles only where a callback takes what launches.Callback says, an id and a pointer.
    source.write_text(
        "#include <stddef.h>\n#include <stdio.h>\n#include <cupti.h>\n"
        "static void see(void *user, CUpti_CallbackDomain domain, CUpti_CallbackId id, const void *data) {}\n"
        f"int main(void) {{ CUpti_CallbackFunc function = see; (void)function; {printed} }}"
    )
    subprocess.run([compiler, "-Werror", f"-I{headers}", source, "-o", program], check=True)
    in_c = subprocess.run([program], check=True, capture_output=True, text=True).stdout.split()
    assert [int(number) for number in in_c] == in_python


# On a GPU.


@pytest.mark.gpu
@torch.inference_mode()
def test_names_of_the_kernels_on_this_gpu() -> None:
    device = describe("cuda:0")
    if reason := kernel_names.COUNTER.unavailable(device):
        pytest.skip(reason)
    problem = AttentionProblem(1, 16, 16, 4096, 4096, 128, "bfloat16")
    load = Bench(Workload("naive", problem, None, "cuda:0"), device)
    reading = kernel_names.measure(load)
    assert reading.measurements[0].value == len(reading.kernels) >= len(load.launch_names)
    for launch, pattern in (("qk", "gemm|cutlass|nvjet"), ("softmax", "softmax"), ("pv", "gemm|cutlass|nvjet")):
        names = [kernel.kernel for kernel in reading.kernels if kernel.launch == launch]
        assert any(re.search(pattern, name, re.IGNORECASE) for name in names), (launch, names)
    assert {kernel.launch for kernel in reading.kernels} == set(load.launch_names)
