"""A real server against clients that are no browser of ours: foreign origins and names, uploads, paths, network."""

import signal
import tomllib
from collections.abc import Iterator

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus

from profiler.run_document import MAX_FILE_BYTES
from tests.served import ESTABLISHED, LISTEN, ROOT, Served, served, session, upload, xsrf

PASSWORD = "a password for the tests"
LOCAL = ("0100007F:", "00000000000000000000000001000000:", "0000000000000000FFFF00000100007F:")


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """As `make run` starts it."""
    with served(tmp_path_factory.mktemp("local")) as server:
        yield server


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Listening to everybody, with a password."""
    secrets = f'[bytescope]\npassword = "{PASSWORD}"\n'
    with served(tmp_path_factory.mktemp("guarded"), secrets=secrets, address="0.0.0.0") as server:
        yield server


def test_what_protects_is_set_and_not_left_to_a_default() -> None:
    config = tomllib.loads((ROOT / ".streamlit" / "config.toml").read_text())
    server = {"address": "127.0.0.1", "enableXsrfProtection": True, "enableCORS": True, "enableAgentApi": False}
    assert config["server"].items() >= {**server, "enableStaticServing": False}.items()
    assert config["server"]["maxUploadSize"] == MAX_FILE_BYTES >> 20
    assert config["browser"] == {"serverAddress": "127.0.0.1", "gatherUsageStats": False}
    assert config["client"]["showErrorDetails"] == "none"


def test_it_listens_on_this_machine_alone(local: Served) -> None:
    listening = [own for state, own, _ in local.sockets() if state == LISTEN]
    assert [own.partition(":")[0] for own in listening] == ["0100007F"]
    assert "listens on" not in local.log


@pytest.mark.parametrize("origin", ["http://evil.example", "http://127.0.0.1:1", "http://localhost:{port}", "null"])
def test_a_page_of_another_origin_gets_nothing(local: Served, origin: str) -> None:
    """Another port of this machine is another origin too, and so is another of its names."""
    told = origin.format(port=local.port)
    with pytest.raises(InvalidStatus) as refused, session(local, origin=told):
        pass
    assert refused.value.response.status_code == 403
    for path, method in (("/", "GET"), ("/_stcore/health", "GET"), ("/_stcore/upload_file/a/1", "PUT")):
        status, headers, _ = local.ask(path, method, b"", origin=told)
        assert (status, headers.get("access-control-allow-origin")) == (403, None)


def test_its_own_page_gets_in(local: Served) -> None:
    with session(local, origin=local.url) as opened:
        assert "Press Run" in opened.text and "page_link" in opened.text


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8501", "127.0.0.1.evil.example", "", "a@127.0.0.1:x"])
def test_another_name_that_means_this_machine_gets_nothing(local: Served, host: str) -> None:
    """DNS rebinding: the page's origin and the name that it asks for are the same."""
    assert local.ask("/", host=host)[0] == 403
    assert local.ask("/_stcore/health", host=host, origin=f"http://{host}")[0] == 403


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "[::1]", "LOCALHOST"])
def test_names_of_this_machine_get_in(local: Served, host: str) -> None:
    assert local.ask("/_stcore/health", host=f"{host}:{local.port}")[0] == 200


def test_an_upload_needs_a_token_a_session_and_a_size(local: Served) -> None:
    with session(local) as opened:
        assert upload(local, opened.id, 100) == 403, "no token against cross-site requests"
        token = xsrf(local)
        assert upload(local, opened.id, 100, **{**token, "x_xsrftoken": "2|00|00|0"}) == 403
        assert upload(local, "no-session", 100, **token) == 400
        assert upload(local, opened.id, 100, **token) == 204
        assert upload(local, opened.id, MAX_FILE_BYTES + 2**16, **token) == 413


@pytest.mark.parametrize(
    "path",
    [
        "/../../../../etc/passwd",
        "/..%2f..%2f..%2fetc/passwd",
        "/static/../../../../../../etc/passwd",
        "/media/..%2f..%2fetc%2fpasswd",
        "/media/%00",
        "/component/x/../../../etc/passwd",
        "/app/static/../main.py",
        "//etc/passwd",
        "/.streamlit/config.toml",
        "/app/main.py",
    ],
)
def test_no_address_reads_a_file_of_the_machine(local: Served, path: str) -> None:
    status, _, body = local.ask(path)
    # Streamlit answers an unknown address with its empty page.
    assert b"root:" not in body and b"enableXsrfProtection" not in body and b"show()" not in body
    assert status in (200, 400, 403, 404) and (status != 200 or body.lstrip().startswith((b"<!--", b"<!doctype")))


def test_programs_cannot_drive_it_past_the_pages(local: Served) -> None:
    assert local.ask("/_stcore/agent/interact", "POST", b"{}", content_type="application/json")[0] in (403, 404)


@pytest.mark.parametrize("message", ["a text", "", b"", b"\xff\xfe no protobuf", b"\x0a\xff\xff\xff\xff\x0f"])
def test_what_no_page_says_ends_its_session_and_fills_no_log(local: Served, message: str | bytes) -> None:
    with session(local) as opened:
        opened.connection.send(message)
        with pytest.raises(ConnectionClosed) as closed:
            while True:
                opened.connection.recv(timeout=10)
        assert closed.value.rcvd is not None and closed.value.rcvd.code == 1002
    assert "Traceback" not in local.log
    with session(local) as other:
        assert "Press Run" in other.text


def test_no_page_of_it_may_be_framed(local: Served) -> None:
    _, headers, _ = local.ask("/")
    assert headers["x-frame-options"] == "DENY" and headers["x-content-type-options"] == "nosniff"


def test_nothing_leaves_the_machine(local: Served, guarded: Served) -> None:
    """Foreign origins above all: Streamlit alone would ask an outside service for this machine's address."""
    for server in (local, guarded):
        with session(server):
            server.ask("/_stcore/health", origin="http://evil.example")
            with pytest.raises(InvalidStatus), session(server, origin="http://evil.example"):
                pass
            ends = [(state, own, other) for state, own, other in server.sockets() if state != LISTEN]
            assert any(state == ESTABLISHED for state, _, _ in ends), "the session's own is seen"
            assert [other for _, _, other in ends if not other.startswith(LOCAL)] == []
        assert server.trap.asked == []
        assert "external IP" not in server.log


def test_where_others_reach_it_the_log_says_so_and_never_the_password(guarded: Served) -> None:
    assert "listens on every address of this machine, and asks who comes to sign in; without TLS, here" in guarded.log
    assert PASSWORD not in guarded.log


@pytest.mark.parametrize("page", ["", "runs", "live_gpu", "overview"])
def test_who_has_not_signed_in_is_drawn_nothing(guarded: Served, page: str) -> None:
    with session(guarded, page) as opened:
        assert "Sign in to Bytescope." in opened.text and PASSWORD not in opened.text
        for word in ("Run files", "page_link", "Press Run", "BLOCK_M", "/media/", "saved Run", "download"):
            assert word not in opened.text, word


def test_who_has_not_signed_in_uploads_and_reads_nothing(guarded: Served) -> None:
    with session(guarded) as opened:
        assert upload(guarded, opened.id, 100, **xsrf(guarded)) == 403
        assert guarded.ask("/_stcore/metrics")[0] == 403
    assert guarded.ask("/_stcore/health")[0] == 200, "what watches a container must know whether it answers"


@pytest.mark.parametrize(
    ("secrets", "told"),
    [
        ("[bytescope\npassword", "secrets.toml cannot be read"),
        ('[bytescope]\npassword = "short"\n', "is shorter than 12 characters"),
    ],
)
def test_what_is_set_and_cannot_be_used_keeps_everybody_out(
    tmp_path_factory: pytest.TempPathFactory, secrets: str, told: str
) -> None:
    with served(tmp_path_factory.mktemp("faulty"), secrets=secrets) as server, session(server) as opened:
        assert "Nobody can sign in." in opened.text and told in opened.text
        assert "page_link" not in opened.text


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_ends_at_once_and_cleans_up_where_it_is_asked_to(
    tmp_path_factory: pytest.TempPathFactory, number: signal.Signals
) -> None:
    """With a session open; a process that a signal ends cleans nothing up."""
    with served(tmp_path_factory.mktemp("ending")) as server, session(server):
        server.process.send_signal(number)
        assert server.process.wait(30) == 0
        assert "Traceback" not in server.log and "leaked" not in server.log
