"""Servers that take connections and never answer, and Sentinels with set answers."""

from __future__ import annotations

import socket
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@contextmanager
def silent(count: int = 1) -> Iterator[list[str]]:
    """Where they listen."""
    listening = [socket.create_server(("127.0.0.1", 0), backlog=128) for _ in range(count)]
    try:
        yield [f"127.0.0.1:{each.getsockname()[1]}" for each in listening]
    finally:
        for each in listening:
            each.close()


def reply(host: str, port: str, epoch: int) -> bytes:
    """What a Sentinel answers to both questions."""
    address = f"*2\r\n${len(host)}\r\n{host}\r\n${len(port)}\r\n{port}\r\n"
    return f"{address}*2\r\n$12\r\nconfig-epoch\r\n${len(str(epoch))}\r\n{epoch}\r\n".encode()


@contextmanager
def telling(said: bytes | Callable[[], bytes]) -> Iterator[str]:
    """One with this answer to each question for a master."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        threading.Thread(target=_served, args=(listening, said), daemon=True).start()
        try:
            yield f"127.0.0.1:{listening.getsockname()[1]}"
        finally:
            listening.shutdown(socket.SHUT_RDWR)


def _served(listening: socket.socket, said: bytes | Callable[[], bytes]) -> None:
    while True:
        try:
            taken, _ = listening.accept()
        except OSError:
            return
        threading.Thread(target=_answered, args=(taken, said), daemon=True).start()


def _answered(taken: socket.socket, said: bytes | Callable[[], bytes]) -> None:
    with taken:
        while b"GET-MASTER" in taken.recv(4096):
            taken.sendall(said if isinstance(said, bytes) else said())
