"""A Redis for tests: on a socket in a directory of its own, without files, ended with the process that started it."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from delayq.connection import Address, SyncConnection
from delayq.errors import Unavailable
from delayq.local.binary import find
from delayq.local.process import tied
from delayq.protocol.commands import Commands

START_SECONDS = 20.0


class Server:
    """Use as `with Server() as server`; `server.url` names it. CannotRun without a Redis binary."""

    def __init__(self) -> None:
        """Start it and wait until it answers."""
        # A short name: the path of a socket has 107 bytes at most.
        self._dir = tempfile.TemporaryDirectory(prefix="delayq-")
        socket = Path(self._dir.name) / "redis.sock"
        files = ("--save", "", "--appendonly", "no")
        argv = (str(find().path), "--port", "0", "--unixsocket", str(socket), *files)
        self._process = subprocess.Popen(  # noqa: S603 -- Redis, as `delayq run` finds it
            tied(os.getpid(), argv, signal.SIGKILL),
            cwd=self._dir.name,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
        )
        self.url = f"unix://{socket}?db=0"
        self._wait()

    def _wait(self) -> None:
        connection, commands = SyncConnection(Address.from_url(self.url)), Commands("start")
        deadline = time.monotonic() + START_SECONDS
        try:
            while True:
                try:
                    connection.one(commands.counts(0))
                except Unavailable:
                    if self._process.poll() is not None or time.monotonic() > deadline:
                        self.close()
                        raise
                    time.sleep(0.01)
                else:
                    return
        finally:
            connection.close()

    def close(self) -> None:
        """Stop it and delete its directory."""
        self._process.kill()
        self._process.wait()
        self._dir.cleanup()

    def __enter__(self) -> Self:
        """Return the running server."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop it."""
        self.close()
