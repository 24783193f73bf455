"""A driver that tests switch at run time: a libnvidia-ml.so.1 made with the C compiler, for processes started later."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

SOURCE = Path(__file__).with_name("nvml_stub.c")
COMPILER = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
UNINITIALIZED, DRIVER_NOT_LOADED, GPU_IS_LOST, MISMATCH = 1, 9, 15, 18  # as nvml.h numbers its errors


@dataclass(frozen=True)
class Driver:
    """The stub's folder and the file that says how it answers; processes find both by `environment`."""

    library: Path
    control: Path

    @property
    def environment(self) -> dict[str, str]:
        """What a process needs to take it for the driver."""
        return {"LD_LIBRARY_PATH": str(self.library.parent), "NVML_STUB": str(self.control)}

    def set(self, **words: int) -> None:
        """From the next call on it answers so; what is not named is as on a healthy host with one H200."""
        fresh = self.control.with_suffix(".new")
        fresh.write_text(" ".join(f"{name}={value}" for name, value in words.items()))
        os.replace(fresh, self.control)

    def remove(self) -> None:
        """The library cannot be loaded, by processes that have not done so.

        Were the file missing, a host with a driver would find the driver's own.
        """
        self.library.rename(self.library.with_suffix(".away"))
        self.library.write_bytes(b"no library")

    def restore(self) -> None:
        """It is there again."""
        self.library.with_suffix(".away").replace(self.library)


def build(folder: Path) -> Driver:
    """Compile the stub into a folder."""
    assert COMPILER is not None
    library = folder / "libnvidia-ml.so.1"
    subprocess.run([COMPILER, "-shared", "-fPIC", "-O1", "-o", library, SOURCE], check=True, timeout=60)
    driver = Driver(library, folder / "control")
    driver.set()
    return driver


@pytest.fixture
def driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Driver]:
    """A healthy driver of one H200 for every process that the test starts."""
    if COMPILER is None:
        pytest.skip("There is no C compiler to make a stub of NVML with.")
    (tmp_path / "driver").mkdir()
    found = build(tmp_path / "driver")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    for name, value in found.environment.items():
        monkeypatch.setenv(name, value)
    yield found
