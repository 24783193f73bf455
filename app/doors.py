"""What is refused before Streamlit sees it: foreign hosts and origins, uploads and figures of who has not signed in.

Streamlit's own checks let a page of another name in that was made to mean this machine (DNS rebinding), and ask an
outside service for this machine's address before they refuse a foreign origin.
"""

import re
from urllib.parse import urlsplit

from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from streamlit import config
from streamlit.proto.BackMsg_pb2 import BackMsg

from app import listening, sign_in

UPLOAD, METRICS = "/_stcore/upload_file/", "/_stcore/metrics"
PROTOCOL_ERROR, POLICY_VIOLATION = 1002, 1008
HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[\w.-]+)(?::\d{1,5})?")  # the name, then the port
HEADERS = {
    "X-Frame-Options": "DENY",
    "Content-Security-Policy": "frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
}


class Doors:
    """ASGI middleware around the whole application."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on what may come in; 403, or a closed WebSocket, for the rest."""
        if scope["type"] not in ("http", "websocket"):
            await self.app(scope, receive, send)
            return
        reason = refusal(scope["path"], Headers(scope=scope))
        if not reason:
            spoken = _in_protocol(receive, send) if scope["type"] == "websocket" else receive
            await self.app(scope, spoken, _with_headers(send))
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": POLICY_VIOLATION, "reason": reason})
        else:
            await PlainTextResponse(f"{reason}\n", 403)(scope, receive, _with_headers(send))


def refusal(path: str, headers: Headers) -> str:
    """Why a request is refused, as a sentence; empty where it may come in."""
    host, origin = headers.get("host", ""), headers.get("origin")
    named = HOST.fullmatch(host)
    if not _is_known(named[1].strip("[]").lower() if named else None):
        return "This server is not known by that name; it may be added with --server.allowedHosts."
    if origin is not None and origin not in config.get_option("server.corsAllowedOrigins"):
        # "null" is the origin of a file and of a frame without rights.
        try:
            is_same = origin != "null" and urlsplit(origin).netloc.lower() == host.lower()
        except ValueError:
            is_same = False
        if not is_same:
            return "A page of another origin may not ask this server."
    base = str(config.get_option("server.baseUrlPath")).strip("/")
    inside = path.removeprefix(f"/{base}") if base else path
    if inside.startswith(UPLOAD) and not sign_in.may_upload(inside.removeprefix(UPLOAD).partition("/")[0]):
        return "Sign in first."
    if inside.rstrip("/") == METRICS and not sign_in.gate().is_open:
        return "Sign in first."
    return ""


def _is_known(name: str | None) -> bool:
    """Whether the server may be called so: anything where it listens to others and no names are set."""
    allowed = [str(one).strip().lower() for one in config.get_option("server.allowedHosts")]
    if name is None:
        return False
    if listening.is_wide(listening.address()) and not allowed:
        return True
    here = {*listening.LOCAL_NAMES, (listening.address() or "").strip("[]").lower()}
    return name in here or any(
        one in ("*", name) or (one.startswith("*.") and name.endswith(one[1:])) for one in allowed
    )


def _in_protocol(receive: Receive, send: Send) -> Receive:
    """Close on what is no message of a page's: Streamlit does so too, with a traceback in the log for each."""

    async def received() -> Message:
        message = await receive()
        if message["type"] != "websocket.receive":
            return message
        try:
            BackMsg.FromString(message.get("bytes") or b"\xff")
        except DecodeError:
            await send({"type": "websocket.close", "code": PROTOCOL_ERROR})
            return {"type": "websocket.disconnect", "code": PROTOCOL_ERROR}
        return message

    return received


def _with_headers(send: Send) -> Send:
    async def sent(message: Message) -> None:
        if message["type"] == "http.response.start":
            MutableHeaders(scope=message).update(HEADERS)
        await send(message)

    return sent
