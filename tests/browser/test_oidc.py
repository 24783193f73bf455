"""Signing in through an OIDC provider, in a real browser: named accounts come in, others do not."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.fake_provider import CLIENT, provider
from tests.served import served

if TYPE_CHECKING:
    from playwright.sync_api import Browser

expect = pytest.importorskip("playwright.sync_api", reason="playwright is not installed.").expect
expect.set_options(timeout=30_000)
pytest.importorskip("authlib", reason="Authlib is not installed: pip install -r requirements-oidc.txt")
SECRETS = """
[bytescope]
emails = ["ada@example.org"]
[auth]
redirect_uri = "http://127.0.0.1:{port}/oauth2callback"
cookie_secret = "a random text that is long enough"
client_id = "%s"
client_secret = "of the tests"
server_metadata_url = "%s/.well-known/openid-configuration"
"""


def test_named_accounts_come_in_and_others_do_not(chromium: Browser, tmp_path: Path) -> None:
    with provider() as asked, served(tmp_path, secrets=SECRETS % (CLIENT, asked.url)) as server:
        for email, is_verified, told in (
            ("ada@example.org", True, "Press Run to see where attention's bytes go."),
            ("ada@example.org", False, "This account may not use Bytescope here."),
            ("eve@example.org", True, "This account may not use Bytescope here."),
        ):
            asked.email, asked.is_verified = email, is_verified
            with chromium.new_context() as context:
                page = context.new_page()
                page.set_default_timeout(60_000)
                page.goto(server.url)
                expect(page.locator("h1")).to_have_text("Sign in to Bytescope.")
                assert page.locator(".st-key-bs-nav").count() == 0
                page.get_by_role("button", name="Sign in").click()
                expect(page.locator("h1")).to_have_text(told)
                assert (page.locator(".st-key-bs-nav").count() == 1) is told.startswith("Press Run")
        assert server.trap.asked == []
