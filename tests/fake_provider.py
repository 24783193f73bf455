"""An OIDC provider of one account, which it signs in at once."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

CLIENT = "bytescope"


class Provider(ThreadingHTTPServer):
    """`email` is the account's; what is signed is checked against the one key of `jwks`."""

    def __init__(self) -> None:
        from joserfc.jwk import RSAKey

        super().__init__(("127.0.0.1", 0), _Answers)
        self.email, self.is_verified, self.nonce = "", True, ""
        self.key = RSAKey.generate_key(2048, {"kid": "one", "use": "sig", "alg": "RS256"})

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def about(self) -> dict[str, Any]:
        """Its discovery document."""
        ends = {"authorization_endpoint": "/authorize", "token_endpoint": "/token", "jwks_uri": "/jwks"}
        kinds = {"id_token_signing_alg_values_supported": ["RS256"], "response_types_supported": ["code"]}
        return {"issuer": self.url, **{name: self.url + path for name, path in ends.items()}, **kinds}

    def token(self) -> dict[str, Any]:
        """What a code is worth."""
        from joserfc import jwt

        now = int(time.time())
        told = {"iss": self.url, "aud": CLIENT, "sub": "1", "iat": now, "exp": now + 600, "nonce": self.nonce}
        told |= {"email": self.email, "email_verified": self.is_verified}
        signed = jwt.encode({"alg": "RS256", "kid": "one"}, told, self.key)
        return {"access_token": "none", "token_type": "Bearer", "expires_in": 600, "id_token": signed}


class _Answers(BaseHTTPRequestHandler):
    server: Provider

    def do_GET(self) -> None:
        asked = urlsplit(self.path)
        if asked.path == "/authorize":
            told = dict(parse_qsl(asked.query))
            self.server.nonce = told["nonce"]
            self.send_response(302)
            self.send_header("Location", f"{told['redirect_uri']}?{urlencode({'code': 'c', 'state': told['state']})}")
            self.end_headers()
        elif asked.path == "/jwks":
            self._answer({"keys": [self.server.key.as_dict(private=False)]})
        else:
            self._answer(self.server.about())

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self._answer(self.server.token())

    def _answer(self, document: dict[str, Any]) -> None:
        body = json.dumps(document).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing is told."""


@contextmanager
def provider() -> Iterator[Provider]:
    """A provider that runs."""
    with Provider() as found:
        threading.Thread(target=found.serve_forever, daemon=True).start()
        yield found
        found.shutdown()
