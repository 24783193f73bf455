"""One visitor of the soak: runs, stops, looks around, closes the page and comes back, as a seeded random chooses."""

import random
import re
import threading
import time
from collections import Counter
from dataclasses import dataclass, field

from benchmarks.light_page import Gone, LightPage

ACTS = {"run": 5, "stop": 2, "look": 4, "reload": 1, "leave": 1, "rest": 3}  # how likely each is
PATIENCE = 150.0  # seconds, behind nine others
MESSAGE = re.compile(r'bs-message error" role[^>]*>([^<]*)')
PLACE = re.compile(r"Number (\d+) in the queue")
EXPECTED = ("SIGKILL", "the worker process died", "closed, or could not be reached")
BROKEN = "cannot be drawn"


@dataclass
class Seen:
    """What all visitors saw; safe to add to from threads."""

    acts: Counter[str] = field(default_factory=Counter)
    runs_seen: int = 0
    killed_runs: int = 0
    failures: list[str] = field(default_factory=list)
    traces: list[list[str]] = field(default_factory=list)  # what the page of each visitor that gave up saw last
    stop_seconds: list[float] = field(default_factory=list)
    run_seconds: list[float] = field(default_factory=list)
    open_seconds: list[float] = field(default_factory=list)
    deepest_place: int = 0
    guard: threading.Lock = field(default_factory=threading.Lock)


class Visitor:
    """A page that is used until `ending` is set; `turn` lets few visitors be busy at once."""

    def __init__(self, name: int, url: str, seed: int, seen: Seen, turn: threading.Semaphore) -> None:
        self._name, self._url, self._seen, self._turn = name, url, seen, turn
        self._random = random.Random(seed * 1000 + name)
        self._page: LightPage | None = None

    def visit(self, ending: threading.Event) -> None:
        """Act until the end."""
        while not ending.is_set():
            act = self._random.choices([*ACTS], [*ACTS.values()])[0]
            try:
                with self._turn:
                    getattr(self, f"_{act}")()
                with self._seen.guard:
                    self._seen.acts[act] += 1
            except (Gone, OSError, TimeoutError) as fault:
                with self._seen.guard:
                    self._seen.failures.append(
                        f"visitor {self._name}, {act}: {type(fault).__name__}: {str(fault)[:600]}"
                    )
                    self._seen.traces.append([] if self._page is None else list(self._page.trace))
                self._close()
            self._read_exceptions()
            ending.wait(self._random.uniform(0.5, 3.0))
        self._close()

    def _opened(self) -> LightPage:
        if self._page is None:
            begun = time.monotonic()
            self._page = LightPage(self._url)
            self._page.wait(_is_ready, PATIENCE, "the page")
            with self._seen.guard:
                self._seen.open_seconds.append(time.monotonic() - begun)
        return self._page

    def _close(self) -> None:
        if self._page is not None:
            self._page.close()
            self._page = None

    def _begin(self) -> LightPage:
        """Press Run for a small problem; one that was left may still be on its way."""
        page = self._opened()
        page.wait(lambda page: page.is_idle and page.has("run"), PATIENCE, "Run")
        self._read_notice(page)
        page.fill("seq_len_q", self._random.choice((16, 33, 64, 100, 128)))
        page.wait(_is_ready, PATIENCE, "the form")
        # A Job may be over before the page has drawn its Stop.
        stops, drawn = page.count("stop"), page.whole_runs
        page.click("run")
        page.wait(lambda page: page.count("stop") > stops or page.whole_runs > drawn, PATIENCE, "the Job")
        return page

    def _run(self) -> None:
        begun, page = time.monotonic(), self._begin()
        while not _is_over(page):
            if (place := PLACE.search(page.html())) is not None:
                with self._seen.guard:
                    self._seen.deepest_place = max(self._seen.deepest_place, int(place[1]))
            time.sleep(0.1)
            if time.monotonic() - begun > PATIENCE:
                raise Gone(f"The Run did not end within {PATIENCE:.0f} s: {page.html()[-300:]}")
        with self._seen.guard:
            self._seen.runs_seen += 1
            self._seen.run_seconds.append(time.monotonic() - begun)
        self._read_notice(page)

    def _stop(self) -> None:
        page = self._begin()
        time.sleep(self._random.uniform(0.0, 1.0))
        if not page.has("stop"):
            return  # it was over before
        page.click("stop")
        seconds = page.wait(_is_over, PATIENCE, "the end after Stop")
        with self._seen.guard:
            self._seen.stop_seconds.append(seconds)
        self._read_notice(page)

    def _look(self) -> None:
        page = self._opened()
        path = self._random.choice(sorted(page.pages))
        before = page.runs
        page.go_to(path)
        page.wait(lambda page: page.runs > before and page.is_idle, PATIENCE, f"page {path or 'overview'}")

    def _reload(self) -> None:
        page = self._opened()
        cookie = page.cookie
        self._close()
        self._page = LightPage(self._url, cookie)
        self._page.wait(_is_ready, PATIENCE, "the page, loaded anew")

    def _leave(self) -> None:
        """Close the page while it waits or measures."""
        self._begin()
        time.sleep(self._random.uniform(0.0, 1.0))
        self._close()

    def _rest(self) -> None:
        self._opened()

    def _read_exceptions(self) -> None:
        if self._page is None:
            return
        found, self._page.exceptions = self._page.exceptions, []
        if BROKEN in (drawn := self._page.html()):
            found.append(drawn[max(0, drawn.index(BROKEN) - 200) :][:500])
        with self._seen.guard:
            self._seen.failures += [f"visitor {self._name} saw {one}" for one in found]

    def _read_notice(self, page: LightPage) -> None:
        if not page.has("dismiss"):
            return
        for text in MESSAGE.findall(page.html()):
            is_expected = any(word in text for word in EXPECTED)
            with self._seen.guard:
                self._seen.killed_runs += is_expected
                if not is_expected:
                    self._seen.failures.append(f"visitor {self._name} was told: {text}")
        page.wait(_is_ready, PATIENCE, "the page")
        page.click("dismiss")
        page.wait(lambda page: not page.has("dismiss"), PATIENCE, "the end of the notice")


def _is_over(page: LightPage) -> bool:
    return page.is_idle and page.has("run") and not page.has("stop")


def _is_ready(page: LightPage) -> bool:
    return page.is_idle and (page.has("run") or page.has("stop"))
