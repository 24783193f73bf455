"""Who may use the dashboard: everybody, who knows a password, or whom an OIDC provider names; asked of each session.

A password stands in BYTESCOPE_PASSWORD, or in .streamlit/secrets.toml as [bytescope] password. Instead of it,
[bytescope] emails names those who may sign in through the provider of the section [auth], as Streamlit's st.login has
it. What is set and cannot be used keeps everybody out, with the reason.
"""

import fnmatch
import hashlib
import hmac
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import streamlit as st
from streamlit.errors import StreamlitAuthError, StreamlitSecretNotFoundError
from streamlit.runtime.scriptrunner import get_script_run_ctx

from app import page
from app.picture import Headline

VARIABLE, SECTION = "BYTESCOPE_PASSWORD", "bytescope"
FEWEST_CHARACTERS = 12
WRONG_SECONDS = 1.0  # that a wrong password costs
MOST_AT_ONCE, WAIT_SECONDS = 8, 10.0  # wrong passwords of all addresses
_KEY, _TYPED = "signed-in", "password-typed"

_slots = threading.BoundedSemaphore(MOST_AT_ONCE)
_addresses: dict[str, threading.Lock] = {}
_sessions: set[str] = set()


@dataclass(frozen=True)
class Gate:
    """What is asked of a session: `password`, or one of `emails` by OIDC; `fault` says why nobody can sign in."""

    password: str = ""
    emails: tuple[str, ...] = ()
    fault: str = ""

    @property
    def is_open(self) -> bool:
        """Whether nothing is asked."""
        return not (self.password or self.emails or self.fault)

    def __repr__(self) -> str:
        """Without the password, which is in no log."""
        return f"Gate(password={'***' if self.password else ''!r}, emails={len(self.emails)}, fault={self.fault!r})"


def gate() -> Gate:
    """What is set now."""
    told = os.environ.get(VARIABLE)
    if told is not None:
        return _of_password(told, VARIABLE)
    try:
        secrets = st.secrets.to_dict()
    except (OSError, ValueError) as fault:  # Streamlit's own error is one of the first
        if isinstance(fault, StreamlitSecretNotFoundError) and fault.error_id == "no-secrets-found":
            return Gate()
        return Gate(fault="secrets.toml cannot be read; correct it. The server's log has the reason.")
    own = secrets.get(SECTION, {})
    if not isinstance(own, dict) or set(own) - {"password", "emails"}:
        return Gate(fault=f"[{SECTION}] in secrets.toml may hold password or emails, and nothing else.")
    if "emails" in own:
        return _of_emails(own, "auth" in secrets)
    return _of_password(own["password"], f"[{SECTION}] password in secrets.toml") if own else Gate()


def _of_password(told: object, where: str) -> Gate:
    if not isinstance(told, str):
        return Gate(fault=f"{where} is no text; put it in quotation marks.")
    if len(told) < FEWEST_CHARACTERS:
        return Gate(fault=f"{where} is shorter than {FEWEST_CHARACTERS} characters; choose a longer one.")
    return Gate(password=told)


def _of_emails(own: dict[str, object], has_provider: bool) -> Gate:
    emails = own["emails"]
    if "password" in own:
        return Gate(fault=f"[{SECTION}] in secrets.toml has both password and emails; keep one of them.")
    if not isinstance(emails, list) or not emails or not all(isinstance(one, str) and "@" in one for one in emails):
        return Gate(fault=f'[{SECTION}] emails in secrets.toml is no list such as ["a@example.org", "*@example.org"].')
    if not has_provider:
        return Gate(fault="secrets.toml has emails, but no section [auth] that names a provider (docs/security.md).")
    return Gate(emails=tuple(one.lower() for one in emails))


def is_signed_in(asked: Gate) -> bool:
    """Whether this session may see the application; once it may, its uploads are taken, too."""
    known = asked.is_open or (
        _is_named(asked.emails)
        if asked.emails
        else bool(asked.password) and st.session_state.get(_KEY) == _digest(asked.password)
    )
    context = get_script_run_ctx()
    if context is not None:
        (_sessions.add if known else _sessions.discard)(context.session_id)
    return known


def may_upload(session_id: str) -> bool:
    """Whether a session has signed in, or need not."""
    return session_id in _sessions or gate().is_open


def _is_named(emails: tuple[str, ...]) -> bool:
    user = st.user.to_dict()
    email = user.get("email")
    is_told = user.get("is_logged_in") is True and isinstance(email, str) and user.get("email_verified") is not False
    return is_told and any(fnmatch.fnmatchcase(str(email).lower(), one) for one in emails)


def draw(asked: Gate) -> None:
    """The page of a session that has not signed in; nothing of the application is on it."""
    if asked.fault:
        page.headline(Headline("Nobody can sign in.", asked.fault))
    elif asked.emails:
        _draw_provider()
    else:
        page.headline(Headline("Sign in to Bytescope.", "The password is the one that this server was started with."))
        with st.form("sign-in", width=420):
            st.text_input("Password", type="password", key=_TYPED, autocomplete="current-password", max_chars=200)
            if st.form_submit_button("Sign in", type="primary") and (reason := _try(asked)):
                page.message("error", reason)


def _draw_provider() -> None:
    if st.user.to_dict().get("is_logged_in") is True:
        page.headline(Headline("This account may not use Bytescope here.", "Its e-mail is not among those named."))
        st.button("Sign out", on_click=st.logout, key="sign-out")
        return
    page.headline(Headline("Sign in to Bytescope.", "Through the provider that this server names."))
    if st.button("Sign in", type="primary", key="sign-in-provider"):
        try:
            st.login()
        except StreamlitAuthError as fault:
            page.message("error", f"The provider cannot be asked: {str(fault).splitlines()[0]}")


def _try(asked: Gate) -> str:
    """Sign the session in if what was typed is the password, and draw anew; else a sentence."""
    typed = str(st.session_state[_TYPED])
    with _turn() as is_free:
        if not is_free:
            return "Too many passwords are being tried here; try again in a minute."
        if hmac.compare_digest(_digest(typed), _digest(asked.password)):
            st.session_state[_KEY] = _digest(asked.password)
            st.rerun()
        time.sleep(WRONG_SECONDS)
    return "That is not the password."


@contextmanager
def _turn() -> Iterator[bool]:
    """One try at a time for each address, MOST_AT_ONCE for all; False where its turn does not come.

    Only wrong ones take time, so that whoever guesses cannot keep another address out.
    """
    lock = _addresses.setdefault(st.context.ip_address or "", threading.Lock())
    if not lock.acquire(timeout=WAIT_SECONDS):
        yield False
        return
    try:
        if not _slots.acquire(timeout=WAIT_SECONDS):
            yield False
            return
        try:
            yield True
        finally:
            _slots.release()
    finally:
        lock.release()


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()
