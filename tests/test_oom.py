"""Whose count of OOM kills is read: cgroup version 1 and 2, both at once, in a container; and what is in the file."""

from pathlib import Path

import pytest

from profiler.oom import count_in, file_that_counts, hierarchies

MOUNT = "35 31 0:29 {root} {place} rw,relatime shared:9 - {kind} cgroup {options}"


def mounted(place: Path, kind: str, root: str = "/", options: str = "rw") -> str:
    return MOUNT.format(root=root, place=place, kind=kind, options=options)


def made(file: Path) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("oom_kill 0\n")
    return file


def test_version_2(tmp_path: Path) -> None:
    mounts = hierarchies(mounted(tmp_path, "cgroup2"))
    file = made(tmp_path / "user.slice" / "memory.events")
    assert file_that_counts("0::/user.slice", mounts) == file
    # A group that does not account for memory itself.
    (tmp_path / "user.slice" / "session").mkdir()
    assert file_that_counts("0::/user.slice/session", mounts) == file
    assert file_that_counts("0::/", mounts) is None
    assert file_that_counts("0::/elsewhere", mounts) is None


def test_version_1(tmp_path: Path) -> None:
    cpu, memory = mounted(tmp_path / "cpu", "cgroup", options="rw,cpu"), tmp_path / "memory"
    mounts = hierarchies(f"{cpu}\n{mounted(memory, 'cgroup', options='rw,memory')}")
    file = made(memory / "job" / "memory.oom_control")
    assert file_that_counts("5:cpu,cpuacct:/other\n4:memory:/job\n", mounts) == file


def test_where_both_are_mounted_version_1_accounts_for_memory(tmp_path: Path) -> None:
    unified, memory = tmp_path / "unified", tmp_path / "memory"
    mounts = hierarchies(f"{mounted(unified, 'cgroup2')}\n{mounted(memory, 'cgroup', options='rw,memory')}")
    made(unified / "memory.events")
    file = made(memory / "memory.oom_control")
    assert file_that_counts("0::/\n4:memory:/\n", mounts) == file


def test_in_a_container_its_own_group_is_at_the_top(tmp_path: Path) -> None:
    mounts = hierarchies(mounted(tmp_path, "cgroup", root="/docker/abc", options="rw,memory"))
    file, below = made(tmp_path / "memory.oom_control"), made(tmp_path / "job" / "memory.oom_control")
    assert file_that_counts("4:memory:/docker/abc", mounts) == file
    assert file_that_counts("4:memory:/docker/abc/job", mounts) == below


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("low 0\nhigh 0\nmax 4\noom 2\noom_kill 1\noom_group_kill 0\n", 1),
        ("oom_kill_disable 0\nunder_oom 0\noom_kill 12\n", 12),
        ("oom_kill_disable 0\nunder_oom 0\n", None),
        ("oom_kill much\n", None),
        ("", None),
    ],
)
def test_the_count(tmp_path: Path, text: str, count: int | None) -> None:
    file = tmp_path / "count"
    file.write_text(text)
    assert count_in(file) == count
    assert count_in(tmp_path / "missing") is None and count_in(None) is None
