"""The embedded Redis: on the loopback address, with a password and an append-only file."""

from __future__ import annotations

import asyncio
import logging
import os
import random
import secrets
import signal
import socket
from collections import deque
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from delayq.local.binary import MULTI_PART, find
from delayq.local.ending import end, first
from delayq.local.errors import CannotRun
from delayq.local.keeper import Keeper, ended_by
from delayq.local.panel import embedded_line
from delayq.local.process import Command, tied

if TYPE_CHECKING:
    from delayq.local.binary import Server
    from delayq.local.datadir import DataDir
    from delayq.local.ending import Urgency

log = logging.getLogger(__name__)

# Below Linux' ephemeral ports (32768 and up): while Redis restarts, no client's connection can take its port.
PORTS = range(20_000, 32_000)
CONFIG = """\
bind 127.0.0.1
port {port}
requirepass {password}
appendonly yes
appendfsync everysec
save ""
maxmemory-policy noeviction
"""
APPEND_ONLY_DIR, APPEND_ONLY_FILE = "appendonlydir", "appendonly.aof"
STOP_SECONDS = 30.0  # for Redis to save its data
PORT_TAKEN = "Address already in use"


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

    def __init__(self, directory: DataDir) -> None:
        """Raise CannotRun without a binary that can read the data."""
        self.server, self._directory = find(), directory
        self._refuse_older()
        self._parser = RedisLogParser(self.server, directory)
        self._password = secrets.token_hex(16)
        self._port, self._known = 0, False
        self.keeper = Keeper(self._command, "redis", self._parser)

    @property
    def url(self) -> str:
        """URL with the password."""
        return f"redis://:{self._password}@127.0.0.1:{self._port}/0"

    async def open(self) -> str:
        """Start the server, wait without limit until it has loaded its data, publish its URL, and return a description.

        Raises CannotRun if it cannot start.
        """
        task = self.keeper.start()
        await first(asyncio.wait({task}), self.keeper.started.wait())
        if task.done():
            task.result()
        self._known = True
        self._directory.publish(self.url)
        return embedded_line(self.server, _shown(self._directory.path))

    async def close(self, urgency: Urgency) -> bool:
        """Stop the server, which saves its data first, also when hurried."""
        return await end([self.keeper], STOP_SECONDS, urgency)

    def _command(self) -> Command:
        """Write the configuration and return the command. The port is fixed once published."""
        if not self._known:
            self._port = _free_port()
        config = self._directory.redis / "redis.conf"
        with os.fdopen(
            os.open(config, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8"
        ) as file:
            file.write(CONFIG.format(port=self._port, password=self._password))
        # Relative to its own directory: no path needs quoting.
        argv = tied(os.getpid(), (str(self.server.path), config.name), signal.SIGTERM)
        inherited = (self._directory.lock,)
        return Command(argv, dict(os.environ), self._directory.redis, inherited, umask=0o077)

    def _refuse_older(self) -> None:
        """Raise CannotRun for a Redis before 7 with files of Redis 7: it would ignore them and start empty."""
        parts = self._directory.redis / APPEND_ONLY_DIR
        if parts.is_dir() and self.server.version < MULTI_PART:
            raise CannotRun(
                f"{parts} was written by Redis 7 or newer, and {self.server.path} is {self.server.label}",
                "put the newer redis-server on PATH again, or start without tasks with --data-dir DIR",
            )


def _shown(path: Path) -> Path:
    """Return the path relative to the current directory, if it is below."""
    here = Path.cwd()
    return path.relative_to(here) if path.is_relative_to(here) else Path(os.path.normpath(path))


def _free_port() -> int:
    """Return a free port. If another process takes it first, Redis fails and restarts on another port."""
    for port in random.sample(PORTS, 100):
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise CannotRun("no free port for the embedded Redis", "give --redis URL")
