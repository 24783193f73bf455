"""Who may use the dashboard: passwords, accounts of a provider, guessing; in Streamlit's test harness."""

import threading
import time
from collections.abc import Iterator
from types import SimpleNamespace

import pytest
import streamlit as st
from streamlit.testing.v1 import AppTest

from app import listening, sign_in
from app.sign_in import VARIABLE, WRONG_SECONDS, Gate, gate
from tests.test_app_main import MAIN, FakeWorker, html, worker

__all__ = ["worker"]  # a fixture
PASSWORD = "correct horse battery"


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    sign_in._addresses.clear()
    yield
    sign_in._sessions.clear()


def secrets(monkeypatch: pytest.MonkeyPatch, told: dict[str, object]) -> None:
    monkeypatch.setattr(st, "secrets", SimpleNamespace(to_dict=lambda: told))


def account(monkeypatch: pytest.MonkeyPatch, **told: object) -> None:
    monkeypatch.setattr(st, "user", SimpleNamespace(to_dict=lambda: told))


def nothing_is_drawn(at: AppTest) -> bool:
    return not at.sidebar.children and not at.get("page_link") and 'class="bs-brand"' not in html(at)


def typed(at: AppTest, password: str) -> AppTest:
    at.text_input(key="password-typed").set_value(password)
    return at.button[0].click().run()


def test_without_a_password_everybody_is_let_in(worker: FakeWorker) -> None:
    assert gate() == Gate() and gate().is_open
    assert "Press Run" in html(AppTest.from_file(MAIN, default_timeout=30).run())


def test_nothing_is_drawn_before_the_password_and_all_after_it(
    worker: FakeWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, PASSWORD)
    at = AppTest.from_file(MAIN, default_timeout=30).run()
    assert not at.exception and nothing_is_drawn(at) and "Sign in to Bytescope." in html(at)
    assert "current" not in at.session_state and "pages" in at.session_state
    begun = time.monotonic()
    typed(at, PASSWORD[:-1])
    assert time.monotonic() - begun >= WRONG_SECONDS
    assert nothing_is_drawn(at) and "That is not the password." in html(at)
    typed(at, PASSWORD)
    assert not at.exception and "Press Run" in html(at) and at.button(key="run")
    assert "password-typed" not in at.session_state, "what was typed is not kept"
    again = AppTest.from_file(MAIN, default_timeout=30).run()
    assert nothing_is_drawn(again), "another session is asked anew"
    monkeypatch.setenv(VARIABLE, "another password")
    assert nothing_is_drawn(at.run()), "a password that was changed holds at once"


@pytest.mark.parametrize("wrong", ["", "x" * 200, PASSWORD.upper(), PASSWORD + " "])
def test_a_wrong_password_is_wrong(worker: FakeWorker, monkeypatch: pytest.MonkeyPatch, wrong: str) -> None:
    monkeypatch.setattr(sign_in, "WRONG_SECONDS", 0.0)
    monkeypatch.setenv(VARIABLE, PASSWORD)
    at = typed(AppTest.from_file(MAIN, default_timeout=30).run(), wrong)
    assert not at.exception and nothing_is_drawn(at)


@pytest.mark.parametrize(
    ("told", "found"),
    [
        ({}, Gate()),
        ({"auth": {"client_id": "of another application"}}, Gate()),
        ({"bytescope": {"password": PASSWORD}}, Gate(password=PASSWORD)),
        ({"bytescope": {"emails": ["A@Example.org"]}, "auth": {}}, Gate(emails=("a@example.org",))),
    ],
)
def test_what_secrets_ask_for(monkeypatch: pytest.MonkeyPatch, told: dict[str, object], found: Gate) -> None:
    secrets(monkeypatch, told)
    assert gate() == found


@pytest.mark.parametrize(
    ("told", "reason"),
    [
        ({"bytescope": "password"}, "may hold password or emails"),
        ({"bytescope": {"pasword": PASSWORD}}, "may hold password or emails"),
        ({"bytescope": {"password": ""}}, "shorter than 12 characters"),
        ({"bytescope": {"password": 123456789012}}, "is no text"),
        ({"bytescope": {"password": PASSWORD, "emails": ["a@b.c"]}, "auth": {}}, "keep one"),
        ({"bytescope": {"emails": []}, "auth": {}}, "is no list"),
        ({"bytescope": {"emails": "a@b.c"}, "auth": {}}, "is no list"),
        ({"bytescope": {"emails": ["*"]}, "auth": {}}, "is no list"),
        ({"bytescope": {"emails": ["a@b.c"]}}, "no section"),
    ],
)
def test_what_cannot_be_used_keeps_everybody_out(
    worker: FakeWorker, monkeypatch: pytest.MonkeyPatch, told: dict[str, object], reason: str
) -> None:
    secrets(monkeypatch, told)
    assert reason in gate().fault and not gate().is_open and gate().fault.endswith((".", ")."))
    at = AppTest.from_file(MAIN, default_timeout=30).run()
    assert not at.exception and nothing_is_drawn(at) and "Nobody can sign in." in html(at)


def test_an_empty_variable_is_no_password_and_keeps_everybody_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "")
    assert VARIABLE in gate().fault


def test_a_gate_never_shows_its_password() -> None:
    assert PASSWORD not in f"{Gate(password=PASSWORD)!r} {Gate(password=PASSWORD)}"


@pytest.mark.parametrize(
    ("told", "is_let_in"),
    [
        ({"is_logged_in": True, "email": "ada@example.org", "email_verified": True}, True),
        ({"is_logged_in": True, "email": "Ada@Example.ORG"}, True),
        ({"is_logged_in": True, "email": "any@lab.example"}, True),
        ({"is_logged_in": True, "email": "ada@example.org", "email_verified": False}, False),
        ({"is_logged_in": False, "email": "ada@example.org"}, False),
        ({"is_logged_in": True, "email": "eve@example.org"}, False),
        ({"is_logged_in": True, "email": "ada@example.org.evil"}, False),
        ({"is_logged_in": True, "email": "any@lab.example@evil"}, False),
        ({"is_logged_in": True}, False),
        ({}, False),
    ],
)
def test_accounts_of_a_provider(
    worker: FakeWorker, monkeypatch: pytest.MonkeyPatch, told: dict[str, object], is_let_in: bool
) -> None:
    secrets(monkeypatch, {"bytescope": {"emails": ["ada@example.org", "*@lab.example"]}, "auth": {}})
    account(monkeypatch, **told)
    at = AppTest.from_file(MAIN, default_timeout=30).run()
    assert not at.exception
    assert nothing_is_drawn(at) is not is_let_in
    if not is_let_in:
        words = "may not use Bytescope here" if told.get("is_logged_in") else "Sign in to Bytescope."
        assert words in html(at)


def test_who_guesses_keeps_no_other_address_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """One address waits for its own wrong passwords alone; of all addresses only so many are tried at once."""
    address = threading.local()

    class Context:
        @property
        def ip_address(self) -> str:
            return str(address.value)

    monkeypatch.setattr(st, "context", Context())
    monkeypatch.setattr(sign_in, "WAIT_SECONDS", 0.05)
    inside, leave = threading.Semaphore(0), threading.Event()

    def guess(name: str) -> None:
        address.value = name
        with sign_in._turn() as is_free:
            assert is_free
            inside.release()
            leave.wait(30)

    guessing = [threading.Thread(target=guess, args=(f"192.0.2.{n}",)) for n in range(sign_in.MOST_AT_ONCE - 1)]
    try:
        for one in guessing:
            one.start()
            assert inside.acquire(timeout=30)
        address.value = "192.0.2.0"
        with sign_in._turn() as is_free:
            assert not is_free
        address.value = "198.51.100.1"
        with sign_in._turn() as is_free:
            assert is_free
    finally:
        leave.set()
        for one in guessing:
            one.join(30)


@pytest.mark.parametrize(
    ("address", "is_wide"),
    [
        *((one, False) for one in ("127.0.0.1", "localhost", "::1", "127.1.2.3", "unix:/run/bytescope.sock")),
        *((one, True) for one in (None, "", "0.0.0.0", "::", "192.168.1.2", "gpu7.example.org", "10.0.0.1")),
    ],
)
def test_which_addresses_others_reach(address: str | None, is_wide: bool) -> None:
    assert listening.is_wide(address) is is_wide


@pytest.mark.parametrize("is_guarded", [True, False])
def test_every_page_says_that_others_reach_it(
    worker: FakeWorker, monkeypatch: pytest.MonkeyPatch, is_guarded: bool
) -> None:
    monkeypatch.setattr(listening, "address", lambda: "0.0.0.0")
    if is_guarded:
        monkeypatch.setenv(VARIABLE, PASSWORD)
    at = AppTest.from_file(MAIN, default_timeout=30).run()
    if is_guarded:
        typed(at, PASSWORD)
    words = "and asks who comes to sign in" if is_guarded else "asks for no password: whoever reaches it can run"
    assert "listens on every address of this machine" in html(at) and words in html(at)
    monkeypatch.setattr(listening, "address", lambda: "127.0.0.1")
    assert "listens on" not in html(at.run())
