"""A TCP proxy that can lose the answer to a request which the server has carried out."""

from __future__ import annotations

import socket
import threading
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass
class Proxy:
    """Passes bytes on. While `drop` is above 0, the next answer is swallowed and its connection closed."""

    target: int
    drop: int = 0
    dropped: int = 0
    listener: socket.socket = field(default_factory=lambda: socket.create_server(("127.0.0.1", 0)))
    sockets: list[socket.socket] = field(default_factory=list)
    forgotten: set[socket.socket] = field(default_factory=set)

    @property
    def port(self) -> int:
        return int(self.listener.getsockname()[1])

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def serve(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self.listener.accept()
                server = socket.create_connection(("127.0.0.1", self.target))
                self.sockets += client, server
                threading.Thread(target=self._requests, args=(client, server), daemon=True).start()
                threading.Thread(target=self._answers, args=(server, client), daemon=True).start()

    def _requests(self, client: socket.socket, server: socket.socket) -> None:
        with suppress(OSError):
            while data := client.recv(1 << 16):
                if client not in self.forgotten:
                    server.sendall(data)
        _shut(server)

    def _answers(self, server: socket.socket, client: socket.socket) -> None:
        with suppress(OSError):
            while data := server.recv(1 << 16):
                if server in self.forgotten:
                    continue
                if self.drop > 0:
                    self.drop -= 1
                    self.dropped += 1
                    break
                client.sendall(data)
        _shut(client)

    def forget(self) -> None:
        """As a firewall does: nothing gets through on these connections any more, and neither side is closed."""
        self.forgotten.update(self.sockets)

    def cut(self) -> None:
        """End all connections; new ones are passed on."""
        for each in list(self.sockets):
            _shut(each)

    def close(self) -> None:
        # Shutting down, and not only closing, wakes the threads that wait in accept() and recv().
        for each in (self.listener, *self.sockets):
            _shut(each)
            each.close()


def _shut(end: socket.socket) -> None:
    with suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)


@contextmanager
def proxy_to(port: int) -> Iterator[Proxy]:
    proxy = Proxy(port)
    thread = threading.Thread(target=proxy.serve, daemon=True)
    thread.start()
    try:
        yield proxy
    finally:
        proxy.close()
        thread.join(5)
