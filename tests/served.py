"""A real server of the dashboard, a trap for what it would send out, and a WebSocket client that is no browser."""

import http.client
import json
import os
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from streamlit.proto.BackMsg_pb2 import BackMsg
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg
from websockets.sync.client import ClientConnection, connect

ROOT = Path(__file__).resolve().parent.parent
START_SECONDS, SCRIPT_SECONDS = 60.0, 60.0
LISTEN, ESTABLISHED = "0A", "01"


@dataclass
class Trap:
    """Listens where the server is told that its proxy is; `asked` are the first lines of what came."""

    port: int
    asked: list[str] = field(default_factory=list)


@dataclass
class Served:
    """A running server; `log` is all that it has written."""

    port: int
    process: subprocess.Popen[bytes]
    log_file: Path
    trap: Trap

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def log(self) -> str:
        return self.log_file.read_text(errors="replace")

    def ask(
        self, path: str, method: str = "GET", body: bytes | None = None, **headers: str
    ) -> tuple[int, dict[str, str], bytes]:
        """Status, headers by lower-case names, and body; a header's name is spelled with _ for -."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.putrequest(method, path, skip_host="host" in headers)
            told = {**headers, **({} if body is None else {"content_length": str(len(body))})}
            for name, value in told.items():
                connection.putheader(name.replace("_", "-"), value)
            connection.endheaders(body)
            answer = connection.getresponse()
            return answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read()
        finally:
            connection.close()

    def sockets(self) -> list[tuple[str, str, str]]:
        """Of each TCP socket of the process its state, its own address and the other end's, as /proc spells them."""
        own = set()
        for link in Path(f"/proc/{self.process.pid}/fd").iterdir():
            try:
                own.add(os.readlink(link))
            except OSError:
                continue
        found = []
        for table in ("tcp", "tcp6"):
            for line in Path(f"/proc/{self.process.pid}/net/{table}").read_text().splitlines()[1:]:
                words = line.split()
                if f"socket:[{words[9]}]" in own:
                    found.append((words[3], words[1], words[2]))
        return found


@contextmanager
def served(folder: Path, *options: str, secrets: str | None = None, address: str = "127.0.0.1") -> Iterator[Served]:
    """The application on the CPU with an empty store; `secrets` is what secrets.toml holds, {port} for the port."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    file, log = folder / "secrets.toml", folder / "log"
    if secrets is not None:
        file.write_text(secrets.replace("{port}", str(port)))
    with _trapped() as trap, log.open("wb") as written:
        proxy = f"http://127.0.0.1:{trap.port}"
        names = dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy"), proxy)
        places = {"BYTESCOPE_RUNS": str(folder / "runs"), "BYTESCOPE_CACHE": str(folder / "cache")}
        where = ("--server.address", address, "--server.port", str(port), "--secrets.files", str(file))
        process = subprocess.Popen(
            [sys.executable, "-m", "streamlit", "run", "app/main.py", "--server.headless", "true", *where, *options],
            cwd=ROOT,
            env=os.environ | names | places | {"CUDA_VISIBLE_DEVICES": "", "NO_PROXY": "127.0.0.1,localhost"},
            stdout=written,
            stderr=subprocess.STDOUT,
        )
        try:
            found = Served(port, process, log, trap)
            _wait_until_it_answers(found)
            yield found
        finally:
            process.terminate()
            process.wait(30)


def _wait_until_it_answers(server: Served) -> None:
    end = time.monotonic() + START_SECONDS
    while server.process.poll() is None and time.monotonic() < end:
        try:
            server.ask("/_stcore/health")
            return
        except OSError:
            time.sleep(0.1)
    pytest.fail(f"The dashboard did not start: {server.log}")


@contextmanager
def _trapped() -> Iterator[Trap]:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        trap = Trap(listener.getsockname()[1])

        def take() -> None:
            while True:
                try:
                    asking, _ = listener.accept()
                except OSError:
                    return
                with asking:
                    asking.settimeout(5)
                    trap.asked.append(asking.recv(200).decode(errors="replace"))

        threading.Thread(target=take, daemon=True).start()
        yield trap
        listener.shutdown(socket.SHUT_RDWR)


@contextmanager
def session(server: Served, page: str = "", origin: str | None = None, **headers: str) -> Iterator["Session"]:
    """A session as a program opens one that is no browser. Raises websockets' InvalidStatus where it is refused."""
    told = {name.replace("_", "-"): value for name, value in headers.items()}
    with connect(
        f"ws://127.0.0.1:{server.port}/_stcore/stream",
        origin=origin,  # type: ignore[arg-type]
        subprotocols=["streamlit"],  # type: ignore[list-item]
        additional_headers=told,
        max_size=None,
        proxy=None,
    ) as opened:
        found = Session(opened)
        found.run(page)
        yield found


@dataclass
class Session:
    """What a server has sent to one session: everything drawn, as text, and the session's id."""

    connection: ClientConnection
    text: str = ""
    id: str = ""

    def run(self, page: str = "") -> None:
        """Let the script run, for a page by its name in the address, and take what it draws until it is over."""
        asked = BackMsg()
        asked.rerun_script.page_name = page
        self.connection.send(asked.SerializeToString())
        end = time.monotonic() + SCRIPT_SECONDS
        while time.monotonic() < end:
            told = ForwardMsg.FromString(self.connection.recv(timeout=SCRIPT_SECONDS))  # type: ignore[arg-type]
            self.text += str(told)
            if told.WhichOneof("type") == "new_session":
                self.id = told.new_session.initialize.session_id
            if told.WhichOneof("type") == "script_finished":
                return
        pytest.fail("The script did not end.")


def xsrf(server: Served) -> dict[str, str]:
    """Headers that carry the token against cross-site requests, as a page of this server sends them."""
    _, headers, _ = server.ask("/_stcore/health")
    (token,) = re.findall(r"_streamlit_xsrf=([^;]+)", headers.get("set-cookie", "")) or [""]
    return {"cookie": f"_streamlit_xsrf={token}", "x_xsrftoken": token}


def upload(server: Served, session_id: str, size: int, **headers: str) -> int:
    """The status of an attempt to upload a file of so many bytes to a session."""
    edge = "bytescope"
    head = f'--{edge}\r\nContent-Disposition: form-data; name="file"; filename="a.json"\r\n\r\n'
    body = head.encode() + json.dumps("x" * max(0, size - 2)).encode() + f"\r\n--{edge}--\r\n".encode()
    kind = {"content_type": f"multipart/form-data; boundary={edge}"}
    status, _, _ = server.ask(f"/_stcore/upload_file/{session_id}/1", "PUT", body, **kind, **headers)
    return status
