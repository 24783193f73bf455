"""One open page of the dashboard without a browser: it speaks Streamlit's protocol, so that many fit on two cores."""

import threading
import time
import urllib.request
from collections import Counter, deque
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from typing import Any

from streamlit.proto.BackMsg_pb2 import BackMsg
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect

TICK_SECONDS = 0.05


class Gone(RuntimeError):
    """What was waited for did not come, or the server is not there."""


@dataclass
class Drawn:
    """An element on the page: of which script run and which fragment."""

    element: Any
    run: str
    fragment: str


@dataclass
class LightPage:
    """An open page at `url`; close it as a browser closes a tab. `cookie` is that of another page of the same browser.

    What runs again by itself (st.fragment's run_every) is asked for as a browser asks for it.
    """

    url: str
    cookie: str = ""
    drawn: dict[tuple[int, ...], Drawn] = field(default_factory=dict)
    pages: dict[str, str] = field(default_factory=dict)
    runs: int = 0  # script runs that were finished
    whole_runs: int = 0  # those of them that drew the whole page
    fault: str = ""
    exceptions: list[str] = field(default_factory=list)  # that were drawn in place of something
    trace: deque[str] = field(default_factory=lambda: deque(maxlen=80))  # what was sent and came, newest last
    times: Counter[str] = field(default_factory=Counter)  # how often each widget was drawn, by its whole id
    _is_finished: bool = False
    _timers: dict[str, tuple[float, float]] = field(default_factory=dict)
    _page: str = ""  # the one that is drawn
    _asked: str = ""  # the one that was asked for last
    _run: str = ""

    def __post_init__(self) -> None:
        self._guard = threading.RLock()
        if not self.cookie:
            with urllib.request.urlopen(f"{self.url}/_stcore/health", timeout=20) as answer:
                self.cookie = str(answer.headers.get("Set-Cookie") or "").partition(";")[0]
        line = connect(
            f"ws{self.url.removeprefix('http')}/_stcore/stream",
            subprotocols=["streamlit"],  # type: ignore[list-item]
            additional_headers={"Cookie": self.cookie},
            max_size=None,
            open_timeout=60,
        )
        self._closing = ExitStack()
        self._line: ClientConnection = self._closing.enter_context(line)
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()
        self._ask()

    def close(self) -> None:
        """Close the tab."""
        self._closing.close()
        self._thread.join(10)

    def drop(self) -> None:
        """Vanish as a computer does that goes to sleep: the line stays, and nobody answers on it."""
        self._line.socket.shutdown(0)

    @property
    def is_idle(self) -> bool:
        """Whether the page that was asked for is drawn, and nothing more is on its way."""
        return self._is_finished and self._asked in ("", self._page)

    def html(self) -> str:
        """All HTML and text that is drawn."""
        with self._guard:
            return " ".join(_text(one.element) for one in self.drawn.values())

    def has(self, key: str) -> bool:
        """Whether a widget of that key is drawn and can be used."""
        found = self._widget(key)
        return found is not None and not getattr(_widget_of(found.element), "disabled", False)

    def count(self, key: str) -> int:
        """How often a widget of that key was drawn so far: what comes and goes quickly shows here."""
        with self._guard:
            return sum(times for name, times in self.times.items() if name.endswith((f"-{key}", f".{key}")))

    def click(self, key: str) -> None:
        """Press a button. Raises Gone where there is none."""
        self._send(key, trigger_value=True)

    def fill(self, key: str, value: float) -> None:
        """Type a number into a field, named by the end of its key. Raises Gone where there is none."""
        self._send(key, double_value=value)

    def go_to(self, path: str) -> None:
        """Show the page of that path, empty for the first."""
        self._asked = self.pages[path]
        self._ask(page=self._asked)

    def wait(self, what: Callable[["LightPage"], bool], seconds: float, words: str = "") -> float:
        """Seconds until `what` holds. Raises Gone where it does not within so many."""
        begun = time.monotonic()
        while not what(self):
            if time.monotonic() - begun > seconds or not self._thread.is_alive():
                raise Gone(f"{words or 'it'} did not come within {seconds:.0f} s; {self.fault} {self._said()}")
            time.sleep(TICK_SECONDS)
        return time.monotonic() - begun

    def _said(self) -> str:
        """What a person would look at first: what failed, what runs, what was sent last."""
        return f"{self.exceptions[-3:]} {self.html()[-400:]} {list(self.trace)[-25:]}"

    def _send(self, key: str, **value: Any) -> None:
        found = self._widget(key)
        if found is None:
            raise Gone(f"There is no widget {key} on the page.")
        message = BackMsg()
        message.rerun_script.fragment_id = found.fragment
        message.rerun_script.page_script_hash = self._page
        message.rerun_script.widget_states.widgets.add(id=_widget_of(found.element).id, **value)
        self._out(message)

    def _ask(self, page: str = "", fragment: str = "") -> None:
        message = BackMsg()
        message.rerun_script.page_script_hash = page or self._page
        message.rerun_script.fragment_id = fragment
        message.rerun_script.is_auto_rerun = bool(fragment)
        self._out(message)

    def _note(self, what: str) -> None:
        self.trace.append(f"{time.monotonic():.2f} {what}")

    def _out(self, message: BackMsg) -> None:
        asked = message.rerun_script
        self._note(f"asks fragment {asked.fragment_id[:4]} {[one.id[-12:] for one in asked.widget_states.widgets]}")
        try:
            self._line.send(message.SerializeToString())
        except ConnectionClosed as error:
            raise Gone(f"The server has closed the line: {error}.") from error

    def _widget(self, key: str) -> Drawn | None:
        with self._guard:
            found = [one for one in self.drawn.values() if _is_of(_widget_of(one.element), key)]
        return found[-1] if found else None

    def _listen(self) -> None:
        try:
            while True:
                with suppress(TimeoutError):
                    self._take(ForwardMsg.FromString(self._line.recv(timeout=TICK_SECONDS)))  # type: ignore[arg-type]
                now = time.monotonic()
                for name, (due, interval) in list(self._timers.items()):
                    if now >= due:
                        self._timers[name] = (now + interval, interval)
                        self._ask(fragment=name)
        except (ConnectionClosed, Gone, OSError) as end:
            self.fault = f"{type(end).__name__}: {end}"

    def _take(self, message: ForwardMsg) -> None:
        kind, run = message.WhichOneof("type"), message.metadata.run
        if kind in ("new_session", "auto_rerun", "stop_auto_rerun", "script_finished"):
            fragments = [name[:4] for name in run.fragment_ids]
            self._note(f"{kind} {run.script_run_id[:4]} {fragments} {str(getattr(message, kind))[:60]!r}")
        with self._guard:
            if kind == "new_session":
                self._is_finished, self._run = False, run.script_run_id
                if not run.fragment_ids:
                    self._timers.clear()
                    self._page = message.new_session.page_script_hash
            elif kind == "navigation":
                self.pages = {page.url_pathname: page.page_script_hash for page in message.navigation.app_pages}
            elif kind == "auto_rerun":
                interval = message.auto_rerun.interval
                self._timers[message.auto_rerun.fragment_id] = (time.monotonic() + interval, interval)
            elif kind == "stop_auto_rerun":
                for name in message.stop_auto_rerun.fragment_ids:
                    self._timers.pop(name, None)
            elif kind == "delta" and message.delta.WhichOneof("type") == "new_element":
                drawn = Drawn(message.delta.new_element, self._run, message.delta.fragment_id)
                self.drawn[tuple(message.metadata.delta_path)] = drawn
                if drawn.element.WhichOneof("type") == "exception":
                    self.exceptions.append(f"{drawn.element.exception.type}: {drawn.element.exception.message}")
                self.times[str(getattr(_widget_of(drawn.element), "id", ""))] += 1
            elif kind == "script_finished":
                self._finish(message.script_finished)

    def _finish(self, how: int) -> None:
        """Drop what the run did not draw again."""
        if how == ForwardMsg.FINISHED_SUCCESSFULLY:
            self.drawn = {path: one for path, one in self.drawn.items() if one.run == self._run}
            self.whole_runs += 1
        elif how == ForwardMsg.FINISHED_FRAGMENT_RUN_SUCCESSFULLY:
            again = {one.fragment for one in self.drawn.values() if one.run == self._run}
            self.drawn = {
                path: one for path, one in self.drawn.items() if one.run == self._run or one.fragment not in again
            }
        self.runs += 1
        self._is_finished = how != ForwardMsg.FINISHED_EARLY_FOR_RERUN


def _widget_of(element: Any) -> Any:
    return getattr(element, element.WhichOneof("type"))


def _is_of(widget: Any, key: str) -> bool:
    return str(getattr(widget, "id", "")).endswith((f"-{key}", f".{key}"))


def _text(element: Any) -> str:
    widget = _widget_of(element)
    return str(getattr(widget, "body", "") or getattr(widget, "text", "") or getattr(widget, "label", ""))
