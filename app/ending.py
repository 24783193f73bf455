"""The server's end on SIGTERM or Ctrl+C: connections are closed, and the process cleans up and exits with 0."""

import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from types import FrameType

import uvicorn
from streamlit import cli_util
from streamlit.starlette import App

SIGNALS = (signal.SIGINT, signal.SIGTERM)


@asynccontextmanager
async def ends_by_itself(app: App) -> AsyncIterator[None]:
    """While the server runs a first signal asks it to stop; a second one is uvicorn's, which does not wait."""
    # uvicorn would raise the signal again once all is closed, which ends the process before it has cleaned up.
    for number in SIGNALS:
        server = getattr(signal.getsignal(number), "__self__", None)
        if isinstance(server, uvicorn.Server):
            signal.signal(number, partial(_stop, server))
    yield


def _stop(server: uvicorn.Server, number: int, frame: FrameType | None) -> None:
    if server.should_exit:
        server.handle_exit(number, frame)
        return
    server.should_exit = True
    cli_util.print_to_cli("  Stopping...", fg="blue")
