"""Real Redis servers for the tests, of several flavours, each with its own directory, port and clock.

`make setup` puts the binaries into .cache/servers; what is not there is an error, not a skip. Not here: Redis
behaviour of any kind. There is no fake.
"""

from __future__ import annotations

import random
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from redis import Redis

from tests.processes import Gone, Process

if TYPE_CHECKING:
    from collections.abc import Mapping

SERVERS = Path(__file__).parent.parent / ".cache" / "servers"
FLAVOURS = ("6.2", "7.0", "valkey9")
PREFERRED = "7.0"

# Below Linux' ephemeral ports (32768 and up): no client connection can sit on the port of a server that is
# down for a moment, and a client that reconnects to it cannot end up connected to itself.
PORTS = range(20_000, 32_000)


class ServerMissingError(Exception):
    """A Redis flavour was asked for that `make setup` has not put in place."""


def binary(flavour: str) -> Path:
    path = SERVERS / flavour / "redis-server"
    if not path.exists():
        raise ServerMissingError(f"no Redis {flavour} in {SERVERS}: run `make setup`")
    return path


@dataclass
class Clock:
    """A server's wall clock, moved by libfaketime, which reads the offset from a file at every look at it.

    `TIME`, key expiry and the deadlines of blocked clients follow; the event loop's monotonic timers do not.
    """

    file: Path
    port: int
    offset_ms: int = 0

    def shift_ms(self, delta_ms: int) -> None:
        self.set_ms(self.offset_ms + delta_ms)

    def set_ms(self, offset_ms: int) -> None:
        self.offset_ms = offset_ms
        self.write()
        self._await_next_tick()

    def write(self) -> None:
        # Replaced, not rewritten: the server must never read half an offset.
        new = self.file.with_suffix(".new")
        new.write_text(f"{self.offset_ms / 1000:+.3f}\n")
        new.replace(self.file)

    def _await_next_tick(self) -> None:
        """Valkey judges expiry by a time it looked up at its last tick, so wait for one: 2 ms at hz 500."""
        with Redis(port=self.port, socket_timeout=20) as client:
            before = client.info("server")["server_time_usec"]
            while client.info("server")["server_time_usec"] == before:
                pass

    def environment(self) -> dict[str, str]:
        # libc's malloc goes in front of jemalloc, which asks for the time while it is still being set up:
        # on Debian's Redis, libfaketime's own start then waits for an allocation for ever.
        return {
            "LD_PRELOAD": f"{SERVERS / 'libfaketime.so'}:libc.so.6",
            "FAKETIME_TIMESTAMP_FILE": str(self.file),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "FAKETIME_DISABLE_SHM": "1",
            "TZ": "UTC0",  # of absolute times in the file; ours may be another when a server is started
        }


@dataclass
class RedisServer:
    """One Redis on 127.0.0.1. `dir` outlives it, so `restart()` finds its data again.

    With `movable_clock` it has a `clock` to move, at some cost per call: leave it off to measure anything.
    """

    flavour: str
    dir: Path
    config: dict[str, str]
    port: int
    clock: Clock | None
    process: Process = field(init=False)

    @classmethod
    def start(
        cls,
        flavour: str,
        *,
        dir: Path,  # noqa: A002  Redis' own word for it
        appendonly: bool = False,
        movable_clock: bool = False,
        config: Mapping[str, str] | None = None,
    ) -> RedisServer:
        """Start on a port that turns out to be free: the one way to know is to have taken it."""
        dir.mkdir(parents=True, exist_ok=True)
        ticks = {"hz": "500"} if movable_clock else {}
        settings = {"save": "", "appendonly": "yes" if appendonly else "no", **ticks, **(config or {})}
        while True:
            port = random.choice(PORTS)
            clock = Clock(dir / "clock", port) if movable_clock else None
            server = cls(flavour, dir, settings, port, clock)
            try:
                server.launch()
            except Gone as gone:
                if "Address already in use" not in str(gone):
                    raise
            else:
                return server

    def launch(self) -> None:
        if self.clock is not None:
            self.clock.write()
        self.process = Process.start(*self._argv(), env=self._environment(), cwd=self.dir)
        try:
            self.process.wait_line("Ready to accept connections")
        except Gone:
            self.process.kill()
            raise

    def _argv(self) -> list[str]:
        settings = {"bind": "127.0.0.1", "port": str(self.port), "dir": str(self.dir), **self.config}
        if self.flavour != "6.2":
            settings["enable-debug-command"] = "yes"
        options = [word for name, value in settings.items() for word in (f"--{name}", value)]
        return [str(binary(self.flavour)), *options]

    def _environment(self) -> dict[str, str]:
        return {} if self.clock is None else self.clock.environment()

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    @property
    def version(self) -> tuple[int, ...]:
        """Of the Redis protocol it speaks: Valkey 9 says 7.2.4."""
        with self.client() as client:
            return tuple(
                int(part) for part in re.findall(r"\d+", str(client.info("server")["redis_version"]))
            )

    def client(self) -> Redis:
        """A plain client for looking at and preparing state; close it, or use it in a `with` block."""
        return Redis(port=self.port, socket_timeout=20, decode_responses=True)

    def now_ms(self) -> int:
        with self.client() as client:
            seconds, micros = client.time()
        return int(seconds) * 1000 + int(micros) // 1000

    def reset(self) -> None:
        """Empty, on time, and with no script loaded: as after a fresh start."""
        if self.clock is not None and self.clock.offset_ms != 0:
            self.clock.set_ms(0)
        with self.client() as client:
            client.flushall()
            client.script_flush()
            client.config_resetstat()

    def stop(self) -> None:
        self.process.stop()

    def kill(self) -> None:
        """SIGKILL: what was not written is gone, and nobody is told."""
        self.process.kill()

    def restart(self) -> None:
        """The same port, data and clock; SIGTERM first when still running."""
        if self.process.alive:
            self.stop()
        self.launch()

    def pause(self) -> None:
        """SIGSTOP: connections stay open and nothing answers."""
        self.process.pause()

    def resume(self) -> None:
        self.process.resume()
