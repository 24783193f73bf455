"""bytescope.toml: which own kernels the dashboard offers, and a sentence for each way in which the file is broken."""

import os
from pathlib import Path

import pytest

from profiler.project import FILE, Project, read_project


def project_of(folder: Path, text: str | bytes) -> Project:
    (folder / FILE).write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_project(folder)


def test_names(tmp_path: Path) -> None:
    assert read_project(tmp_path) == Project()
    assert project_of(tmp_path, "") == Project()
    assert project_of(tmp_path, '[kernels]\nown = ["a:b", "c.d:e", "a:b"]') == Project(("a:b", "c.d:e"))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("[kernels", "it is not TOML ("),
        (b"\xff\xfe", "it is not TOML ("),
        ("own = 3", "it has 'own', which is not known"),
        ("[kernels]\nownn = []", "it has 'ownn', which is not known"),
        ("kernels = 3", "own under [kernels] is not a list of up to 32 names"),
        ('[kernels]\nown = "a:b"', "own under [kernels] is not a list of up to 32 names"),
        (f"[kernels]\nown = {['a:b'] * 33}", "own under [kernels] is not a list of up to 32 names"),
        ("[kernels]\nown = [3]", "3 under [kernels] own is not spelled module:function"),
        ('[kernels]\nown = ["a:b", "os.system(1)"]', "'os.system(1)' under [kernels] own is not spelled module:"),
        ("[kernels]\nown = ['a\x1b[31m:b']", "it is not TOML ("),
        ("#" * 70_000, "it is above 64 KiB"),
        ("a = " + "[" * 5_000, "it is not TOML ("),
    ],
)
def test_a_broken_file_is_a_sentence(tmp_path: Path, text: str | bytes, reason: str) -> None:
    found = project_of(tmp_path, text)
    assert found.own == ()
    assert found.fault.startswith(f"{FILE} is left out of account: {reason}")
    assert found.fault.endswith("Correct it and start Bytescope again.") and found.fault.isprintable()


def test_a_folder_of_that_name(tmp_path: Path) -> None:
    (tmp_path / FILE).mkdir()
    assert read_project(tmp_path).fault.startswith(f"{FILE} is left out of account: it cannot be read (Is a directory)")


def test_a_pipe_is_not_waited_for_and_a_link_to_nothing_is_told(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / FILE)
    assert "it is no ordinary file" in read_project(tmp_path).fault
    (tmp_path / FILE).unlink()
    (tmp_path / FILE).symlink_to("nowhere.toml")
    assert "No such file" in read_project(tmp_path).fault


def test_a_byte_order_mark_is_no_fault(tmp_path: Path) -> None:
    (tmp_path / FILE).write_bytes(b'\xef\xbb\xbf[kernels]\nown = ["m:f"]\n')
    assert read_project(tmp_path).own == ("m:f",)
