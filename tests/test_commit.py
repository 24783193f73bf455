"""The commit of the measured code: of a repository made here, with and without changes, and where there is none."""

import subprocess
from pathlib import Path

import pytest

from profiler import commit
from profiler.commit import commit_of, commits


def git(folder: Path, *words: str) -> str:
    identity = ("-c", "user.name=nobody", "-c", "user.email=nobody@example.org", "-c", "commit.gpgsign=false")
    done = subprocess.run(["git", "-C", str(folder), *identity, *words], capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A repository with one commit."""
    folder = tmp_path / "project"
    folder.mkdir()
    git(folder, "init", "-q")
    (folder / "kernel.py").write_text("1\n")
    git(folder, "add", "kernel.py")
    git(folder, "commit", "-qm", "One")
    return folder


def test_a_commit_and_changes_after_it(project: Path) -> None:
    head = git(project, "rev-parse", "--short=12", "HEAD")
    git(project, "tag", "v1")  # a name would say less
    assert commit_of(project) == head
    (project / "kernel.py").write_text("2\n")
    assert commit_of(project) == f"{head}-dirty"


def test_where_there_is_no_repository_or_no_git(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert commit_of(tmp_path) == "" and commit_of(tmp_path / "none") == ""
    monkeypatch.setenv("PATH", str(tmp_path))
    assert commit_of(tmp_path) == ""


def test_a_project_beside_bytescope_has_its_own(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(commit.VARIABLE, raising=False)
    commit.bytescopes.cache_clear()
    monkeypatch.setattr(commit, "commit_of", lambda folder: "mine" if folder == project else "ours")
    assert commits(project) == {"commit": "ours", "project commit": "mine"}
    assert commits(commit.ROOT / "tests") == {"commit": "ours"}
    commit.bytescopes.cache_clear()


@pytest.mark.parametrize(("told", "found"), [("0123456789ab", "0123456789ab"), ("a\nb", "ours"), ("", "ours")])
def test_a_copy_without_its_repository_is_told_its_commit(
    told: str, found: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(commit.VARIABLE, told)
    monkeypatch.setattr(commit, "commit_of", lambda folder: "ours")
    commit.bytescopes.cache_clear()
    assert commits(commit.ROOT) == {"commit": found}
    commit.bytescopes.cache_clear()


def test_no_program_that_a_repository_names_is_started(project: Path, tmp_path: Path) -> None:
    trap, sprung = tmp_path / "trap", tmp_path / "sprung"
    trap.write_text(f"#!/bin/sh\ntouch {sprung}\n")
    trap.chmod(0o755)
    git(project, "config", "core.fsmonitor", str(trap))
    commit_of(project)
    assert not sprung.exists()
