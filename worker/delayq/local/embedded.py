"""The embedded Redis: on the loopback address unless --host names another, with a password and an append-only file.

It has the port and the password of the last run of its directory, so that programs keep their URL.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import signal
import time
from collections import deque
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from delayq.local.binary import find
from delayq.local.datadir import LOOPBACK
from delayq.local.ending import end, first
from delayq.local.errors import CannotRun
from delayq.local.keeper import Keeper, ended_by
from delayq.local.listening import is_free, of_redis
from delayq.local.panel import embedded_line
from delayq.local.process import Command, tied
from delayq.local.redis_config import APPEND_ONLY_DIR, APPEND_ONLY_FILE, NAME, Access, written_by

if TYPE_CHECKING:
    from delayq.local.binary import Server
    from delayq.local.datadir import DataDir
    from delayq.local.ending import Urgency

log = logging.getLogger(__name__)

# Below Linux' ephemeral ports (32768 and up): while Redis restarts, no client's connection can take its port.
PORTS = range(20_000, 32_000)
STOP_SECONDS = 30.0  # for Redis to save its data
PORT_TAKEN = "Address already in use"
PORT_SECONDS = 1.0  # for the Redis of a killed run to close its port after its lock


class RedisLogParser:
    """Parses Redis' log."""

    def __init__(self, server: Server, directory: DataDir) -> None:
        """`server` and `directory` are for error messages."""
        self._server, self._directory = server, directory
        self.begin()

    def begin(self) -> None:
        """Reset for a new process."""
        self._ready, self._last = False, deque[str](maxlen=8)

    def parse(self, _stream: int, line: str) -> bool:
        """Return True once Redis has loaded its data and is ready."""
        log.debug("redis_output", extra={"fields": {"said": line}})
        self._last.append(line)
        if "Ready to accept connections" in line:
            self._ready = True
            return True
        return False

    def ended(self, code: int) -> None:
        """Raise CannotRun if Redis never became ready, except for a port in use."""
        if self._ready or any(PORT_TAKEN in line for line in self._last):
            return
        error = " ".join(
            line.partition(" # ")[2] or line for line in self._last if " # " in line
        ) or ended_by(code)
        raise CannotRun(
            f"the embedded Redis ({self._server.path}) does not start: {error}", self._hint(error)
        )

    def _hint(self, error: str) -> str:
        redis = self._directory.redis
        if "append only file" not in error.lower():
            return f"its files are in {redis}"
        parts = redis / APPEND_ONLY_DIR / f"{APPEND_ONLY_FILE}.manifest"
        damaged = parts if parts.exists() else redis / APPEND_ONLY_FILE
        # redis-check-aof is the server's binary under another name, which packages often leave out.
        check = f'bash -c \'exec -a redis-check-aof "{self._server.path}" --fix "{damaged}"\''
        return f"copy {redis}, then truncate the file where it is damaged (later changes are lost): {check}"


class Embedded:
    """The embedded server, restarted until the end of the run."""

    def __init__(self, directory: DataDir, host: str = LOOPBACK) -> None:
        """Raise CannotRun without a binary that can read the data, and if nothing can listen on `host`."""
        self._writer, self._directory = written_by(directory.redis), directory
        self.server = find(self._writer)
        self._parser = RedisLogParser(self.server, directory)
        self._access, self._bind = Access.kept(directory.redis), of_redis(host)
        self._known, self._tried = False, False
        self.keeper = Keeper(self._command, "redis", self._parser)

    @property
    def url(self) -> str:
        """URL with the password."""
        return f"redis://:{self._access.password}@{LOOPBACK}:{self._access.port}/0"

    @property
    def exposed(self) -> str:
        """What other machines can reach, if they can."""
        where = self._directory.url_file
        return f"Redis on port {self._access.port}, with the password in {where} and without TLS"

    async def open(self) -> str:
        """Start the server, wait without limit until it has loaded its data, publish its URL, and return a description.

        Raises CannotRun if it cannot start.
        """
        await self._choose_port()
        task = self.keeper.start()
        await first(asyncio.wait({task}), self.keeper.started.wait())
        if task.done():
            task.result()
        self._known, self._writer = True, self.server
        self._access.write(
            self._directory.redis, self._bind, self._writer
        )  # one that did not start wrote nothing
        self._directory.publish(self.url)
        return embedded_line(self.server, _shown(self._directory.path))

    async def close(self, urgency: Urgency) -> bool:
        """Stop the server, which saves its data first, also when hurried."""
        return await end([self.keeper], STOP_SECONDS, urgency)

    async def _choose_port(self) -> None:
        """Take the port of the last run, or a new one if there was none or another process uses it."""
        deadline = time.monotonic() + PORT_SECONDS
        while self._access.port and not is_free(self._access.port, self._bind):
            if time.monotonic() > deadline:
                return self._change_port()
            await asyncio.sleep(0.05)
        if not self._access.port:
            self._access = replace(self._access, port=_free_port(self._bind))
        return None

    def _change_port(self) -> None:
        """Choose another port: programs need the new URL."""
        before, self._access = self._access.port, replace(self._access, port=_free_port(self._bind))
        fields = {
            "port": before,
            "new_port": self._access.port,
            "hint": f"another process uses the port of the last run: the new URL is in {self._directory.url_file}",
        }
        log.warning("redis_port_taken", extra={"fields": fields})

    def _command(self) -> Command:
        """Write the configuration and return the command. The port is fixed once published."""
        if self._tried and not self._known:  # another process took the port in the last moment
            self._change_port()
        self._tried = True
        self._access.write(self._directory.redis, self._bind, self._writer)
        # Relative to its own directory: no path needs quoting.
        argv = tied(os.getpid(), (str(self.server.path), NAME), signal.SIGTERM)
        inherited = (self._directory.lock,)
        return Command(argv, dict(os.environ), self._directory.redis, inherited, umask=0o077)


def _shown(path: Path) -> Path:
    """Return the path relative to the current directory, if it is below."""
    here = Path.cwd()
    return path.relative_to(here) if path.is_relative_to(here) else Path(os.path.normpath(path))


def _free_port(hosts: list[str]) -> int:
    """Return a free port. If another process takes it first, Redis fails and restarts on another port."""
    for port in random.sample(PORTS, 100):
        if is_free(port, hosts):
            return port
    raise CannotRun("no free port for the embedded Redis", "give --redis URL")
