"""The lock file: every package that is asked for, at a version that is allowed, by the hashes of its files alone."""

import re
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parent.parent
LOCK = (ROOT / "requirements.lock").read_text()
BLOCK = re.compile(r"^([a-z0-9-]+)==([^ ]+)((?: ;[^\\\n]+)?) \\\n((?: +--hash=sha256:[0-9a-f]{64}(?: \\)?\n)+)", re.M)


def locked() -> dict[str, set[str]]:
    """The versions of each package; one may have another for another Python."""
    found: dict[str, set[str]] = {}
    for name, version, _, _ in BLOCK.findall(LOCK):
        found.setdefault(name, set()).add(version)
    return found


def test_every_line_is_a_package_a_hash_or_a_comment() -> None:
    rest = BLOCK.sub("", LOCK)
    assert [line for line in rest.splitlines() if line.strip() and not line.lstrip().startswith("#")] == []
    assert len(locked()) > 50


def test_it_names_no_index_and_no_file_of_one_machine() -> None:
    assert "://" not in LOCK and "--index" not in LOCK and "--find-links" not in LOCK
    # A build of torch for one kind of machine has a version of its own, and hashes that nobody else can check.
    assert "+cpu" not in LOCK and "+cu" not in LOCK


def test_it_holds_what_is_asked_for_at_a_version_that_is_allowed() -> None:
    asked = [line for line in (ROOT / "requirements.txt").read_text().splitlines() if line and line[0] not in "#-"]
    assert len(asked) > 5
    for line in asked:
        wanted = Requirement(line)
        versions = locked()[canonicalize_name(wanted.name)]
        assert versions and all(wanted.specifier.contains(version) for version in versions), line


def test_licences_are_listed_for_all_of_it() -> None:
    text = (ROOT / "docs" / "licences.md").read_text()
    listed = {canonicalize_name(name) for name in re.findall(r"^(?:\| |\* )([A-Za-z0-9._-]+)", text, re.M)}
    assert set(locked()) <= listed
