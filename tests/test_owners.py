"""Jobs and the pages they belong to: ended when the page is gone, taken up by one of the same browser."""

from dataclasses import dataclass, field
from types import SimpleNamespace

import pytest

from app import owners as module
from app.owners import WHY_ENDED, Owners, Page, browser_of

OPEN = set[str]()


@dataclass
class Task:
    is_over: bool = False
    told: list[str] = field(default_factory=list)

    def status(self) -> SimpleNamespace:
        return SimpleNamespace(is_over=self.is_over)

    def stop(self, why: str = "") -> None:
        self.told.append(why)
        self.is_over = True


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """A clock that the test sets, pages that are open by name, and nobody who looks by himself."""
    now = [100.0]
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: now[0]))
    monkeypatch.setattr(Page, "is_open", property(lambda page: page.session in OPEN))
    monkeypatch.setattr(module, "_watch", lambda owners: None)
    OPEN.clear()
    return now


def test_a_task_ends_when_its_page_is_gone_for_longer_than_the_grace(clock: list[float]) -> None:
    owners, task = Owners(grace=8.0), Task()
    OPEN.add("a")
    owners.own("run", task, Page("a"))
    clock[0] += 1_000
    assert owners.look() and not task.is_over, "a page that is open, however long it said nothing"
    OPEN.clear()
    clock[0] += 7.9
    assert owners.look() and not task.is_over
    clock[0] += 0.2
    assert owners.look() and task.told == [WHY_ENDED]
    assert not owners.look(), "nothing is left to look after"


def test_a_page_that_comes_back_in_time_keeps_its_task(clock: list[float]) -> None:
    owners, task = Owners(grace=8.0), Task()
    owners.own("run", task, Page("a"))
    for _ in range(3):
        clock[0] += 7
        OPEN.symmetric_difference_update({"a"})
        owners.look()
    assert not task.is_over


def test_a_reloaded_page_takes_its_task_up_and_nobody_elses(clock: list[float]) -> None:
    owners, mine, theirs = Owners(), Task(), Task()
    OPEN.add("theirs")
    owners.own("run", theirs, Page("theirs", "other browser"))
    owners.own("run", mine, Page("old", "browser"))
    owners.own("compile", Task(), Page("old", "browser"))
    assert owners.take_up("run", Page("stranger", "third browser")) is None
    OPEN.add("new")
    assert owners.take_up("run", Page("new", "browser")) is mine
    assert owners.take_up("run", Page("newer", "browser")) is None, "it has a page again"
    assert owners.take_up("run", Page("new", "other browser")) is None, "its page is open"
    clock[0] += 100
    owners.look()
    assert not mine.is_over


def test_a_task_that_is_over_is_not_taken_up() -> None:
    owners, task = Owners(), Task()
    owners.own("run", task, Page("a"))
    task.is_over = True
    assert owners.take_up("run", Page("b")) is None


def test_a_browser_is_known_by_the_token_under_the_mask() -> None:
    """Streamlit masks it anew with every answer; the same token, 16 bytes, under two masks of 4."""
    token = bytes(range(16))
    cookies = []
    for mask in (b"\x01\x02\x03\x04", b"\xff\x00\xaa\x55"):
        masked = bytes(byte ^ mask[i % 4] for i, byte in enumerate(token))
        cookies.append(f"2|{mask.hex()}|{masked.hex()}|1700000000")
    assert {browser_of(cookie) for cookie in cookies} == {token.hex()}
    assert [browser_of(cookie) for cookie in ("", "x", "2|zz|00|1", "2|0102030405|00|1")] == [""] * 4
