"""How a worker and its process speak: whole messages on a socket, and answers that can always be sent and read."""

import os
import pickle
import signal
import socket
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from profiler.child import start, words_of
from profiler.gpu_errors import ContextLost

LENGTH_BYTES = 8  # before each message, big-endian
MOST_ANSWER_BYTES = 64 * 2**20  # no answer needs more: a Run goes to its file, and only its id comes this way
BLOCK_BYTES = 2**20
BEGUN = b"begun"  # what the process says before it does anything of a task
OURS = ("kernels", "profiler")
LOST_EXIT_CODE = 70  # of a process whose CUDA context is lost

Answer = tuple[bool, Any]  # whether it went well; the value, or the error


class TaskFailed(RuntimeError):
    """A task that raised what only its own process knows, or whose answer cannot be had; the message says it all."""


def serve(line: socket.socket, device: str) -> None:
    """What a worker's process does until nobody is at the other end: one task after the other."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C in a terminal is for the parent, which ends this process
    start(device)
    with suppress(EOFError, OSError):
        while True:
            order = receive(line)
            send(line, BEGUN)
            answer, is_last = answer_to(order)
            send(line, answer)
            if is_last:
                os._exit(LOST_EXIT_CODE)


def order_of(function: Callable[..., Any], arguments: tuple[object, ...]) -> bytes:
    """The message that asks for a function of some module. Raises what cannot be pickled."""
    return pickle.dumps((function, arguments))


def answer_to(order: bytes) -> tuple[bytes, bool]:
    """Do what is asked; the message that tells what came of it, and whether this process can do nothing more."""
    said: Answer
    try:
        function, arguments = pickle.loads(order)
        said = True, function(*arguments)
    except BaseException as error:  # a task of the user's own may raise whatever it likes
        said = False, _sendable(error)
    return _message(said), isinstance(said[1], ContextLost)


def read_answer(message: bytes) -> Answer:
    """What a process has answered."""
    try:
        went_well, value = pickle.loads(message)
    except Exception as error:  # a class of the other process's may raise anything here
        return False, TaskFailed(f"its answer cannot be read ({words_of(error)})")
    return went_well, value


def send(line: socket.socket, message: bytes, meanwhile: Callable[[], None] | None = None) -> None:
    """A whole message. Raises OSError where nobody is there, and TimeoutError of a line with a time-out.

    With `meanwhile`, that is called instead of each time-out; what it raises ends the sending.
    """
    rest = memoryview(len(message).to_bytes(LENGTH_BYTES, "big") + message)
    while rest:
        try:
            rest = rest[line.send(rest) :]
        except TimeoutError:
            if meanwhile is None:
                raise
            meanwhile()


def receive(line: socket.socket, meanwhile: Callable[[], None] | None = None) -> bytes:
    """The next whole message. Raises EOFError where the other end is closed first, and else as `send`."""
    size = int.from_bytes(_exactly(line, LENGTH_BYTES, meanwhile), "big")
    return _exactly(line, size, meanwhile)


def _exactly(line: socket.socket, size: int, meanwhile: Callable[[], None] | None) -> bytes:
    found = bytearray()
    while len(found) < size:
        try:
            part = line.recv(min(size - len(found), BLOCK_BYTES))
        except TimeoutError:
            if meanwhile is None:
                raise
            meanwhile()
            continue
        except ConnectionError:
            part = b""
        if not part:
            raise EOFError
        found += part
    return bytes(found)


def _message(said: Answer) -> bytes:
    try:
        message = pickle.dumps(said)
    except BaseException as error:  # too deep, too large for the memory, or of a kind that is never pickled
        return pickle.dumps((False, TaskFailed(f"its answer cannot be sent ({words_of(error)})")))
    if len(message) > MOST_ANSWER_BYTES:
        size, most = len(message) / 2**20, MOST_ANSWER_BYTES >> 20
        return pickle.dumps((False, TaskFailed(f"its answer has {size:,.0f} MiB, and at most {most} MiB are taken")))
    return message


def _sendable(error: BaseException) -> BaseException:
    """The error itself where the other side knows its class, else what it says.

    To read a class of torch's there would load torch, and one of the user's may not be found or may raise. And an error
    that means something there, such as TimeoutError, means something else where a library raised it here.
    """
    if type(error) is MemoryError or type(error).__module__.partition(".")[0] in OURS:
        return error
    return TaskFailed(words_of(error))
