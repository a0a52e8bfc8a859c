"""Real Redis servers for the tests, of several flavours, each with its own directory, port and clock.

`make setup` puts the binaries into .cache/servers; what is not there is an error, not a skip. Not here: Redis
behaviour of any kind. There is no fake.
"""

from __future__ import annotations

import random
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from delayq.contract.acl import rule
from redis import Redis

from tests.processes import Gone, Process

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from delayq.protocol.keys import Keys

    from tests.topologies.certificates import Tls

SERVERS = Path(__file__).parent.parent / ".cache" / "servers"
FLAVOURS = ("6.2", "7.0", "valkey9")
PREFERRED = "7.0"
SPEAKS = {"6.2": (6, 2), "7.0": (7, 0), "valkey9": (7, 2)}
LOOPBACK = "127.0.0.1"
USER, PASSWORD = "delayq", "pass-for-tests"  # of the product; the harness is Redis' default user

# Below Linux' ephemeral ports (32768 and up): no client connection can sit on the port of a server that is
# down for a moment, and a client that reconnects to it cannot end up connected to itself.
PORTS = range(20_000, 32_000)


class ServerMissingError(Exception):
    """A Redis flavour was asked for that `make setup` has not put in place."""


def free_port(ports: range = PORTS) -> int:
    """Any port; its user finds out whether it is free."""
    return random.choice(ports)


def users(directory: Path, rights: str) -> None:
    """Write the ACL file of a server: the harness, which may do anything, and delayq."""
    lines = ("default on nopass ~* &* +@all", f"{USER} on >{PASSWORD} {rights}")
    (directory / "users.acl").write_text("".join(f"user {line}\n" for line in lines))


def looking(port: int, socket: Path | None, *, decode: bool = False) -> Redis:
    """A client of the harness' own."""
    place: dict[str, Any] = {"port": port} if socket is None else {"unix_socket_path": str(socket)}
    return Redis(**place, socket_timeout=20, decode_responses=decode)


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
    base_ms: int = 0  # what it is fast by while it is said to be on time
    socket: Path | None = None

    def shift_ms(self, delta_ms: int) -> None:
        self.set_ms(self.offset_ms + delta_ms)

    def set_ms(self, offset_ms: int) -> None:
        self.offset_ms = offset_ms
        self.write()
        self._await_next_tick()

    def write(self) -> None:
        # Replaced, not rewritten: the server must never read half an offset.
        new = self.file.with_suffix(".new")
        new.write_text(f"{(self.base_ms + self.offset_ms) / 1000:+.3f}\n")
        new.replace(self.file)

    def _await_next_tick(self) -> None:
        """Valkey judges expiry by a time it looked up at its last tick, so wait for one: 2 ms at hz 500."""
        with looking(self.port, self.socket) as client:
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


class Killable:
    """A server's process, which tests treat badly."""

    process: Process
    paused = False

    def launch(self) -> None:
        """Start it, and wait until it is ready."""
        raise NotImplementedError

    def run(self, ready: str, *argv: str, **options: Any) -> None:  # noqa: ANN401  Process.start's
        """Start the process, and wait for a line that it writes."""
        self.process = Process.start(*argv, **options)
        try:
            self.process.wait_line(ready)
        except Gone:
            self.process.kill()
            raise

    def kill(self) -> None:
        """SIGKILL: what was not written is lost, and clients get no message."""
        self.process.kill()
        self.paused = False

    def pause(self) -> None:
        """SIGSTOP: connections stay open and nothing answers."""
        self.paused = True
        self.process.pause()

    def resume(self) -> None:
        self.paused = False
        self.process.resume()


K = TypeVar("K", bound=Killable)


def on_a_free_port(make: Callable[[int], K], ports: range = PORTS) -> K:
    """Launch it on a port that turns out to be free: only taking it proves that."""
    while True:
        server = make(free_port(ports))
        try:
            server.launch()
        except Gone as gone:
            if "Address already in use" not in str(gone):
                raise
        else:
            return server


@dataclass
class RedisServer(Killable):
    """One Redis on 127.0.0.1. `dir` outlives it, so `restart()` finds its data again.

    With `movable_clock` it has a `clock` to move, at some cost per call: leave it off to measure anything. With `tls`
    it speaks nothing else. `enter` goes in front of its command, into a network namespace where `host` is an address.
    """

    flavour: str
    dir: Path
    config: dict[str, str]
    port: int
    clock: Clock | None
    tls: Tls | None = None
    host: str = LOOPBACK
    enter: tuple[str, ...] = ()
    config_get: bool = False  # what the user may besides, where a document has `durability.confirm: Fsynced`
    process: Process = field(init=False)

    @classmethod
    def start(
        cls,
        flavour: str,
        *,
        dir: Path,  # noqa: A002  Redis' own word for it
        appendonly: bool = False,
        movable_clock: bool | Clock = False,
        config: Mapping[str, str] | None = None,
        ports: range = PORTS,
        **fields: Any,  # noqa: ANN401  those above
    ) -> RedisServer:
        """Start on a free port."""
        dir.mkdir(parents=True, exist_ok=True)
        ticks = {"hz": "500"} if movable_clock else {}
        settings = {"save": "", "appendonly": "yes" if appendonly else "no", **ticks, **(config or {})}

        def made(port: int) -> RedisServer:
            server = cls(flavour, dir, settings, port, None, **fields)
            own = Clock(dir / "clock", port, socket=server.socket)
            server.clock = own if movable_clock is True else movable_clock or None
            return server

        return on_a_free_port(made, ports)

    def launch(self, ready: str = "Ready to accept connections") -> None:
        if self.clock is not None:
            self.clock.write()
        users(self.dir, rule(redis=SPEAKS[self.flavour], config_get=self.config_get))
        environment = {} if self.clock is None else self.clock.environment()
        self.run(ready, *self._argv(), env=environment, cwd=self.dir)

    def _argv(self) -> list[str]:
        port = str(self.port)
        ports = {"port": port} if self.tls is None else {"port": "0", "tls-port": port, **self.tls.settings()}
        places = {"dir": str(self.dir), "aclfile": str(self.dir / "users.acl")}
        settings = {"bind": self.host, **ports, **places, **self.config}
        if self.socket is not None:
            settings |= {"unixsocket": str(self.socket), "protected-mode": "no"}
        if self.flavour != "6.2":
            settings["enable-debug-command"] = "yes"
        said = [word for name, value in settings.items() for word in (f"--{name}", value)]
        return [*self.enter, str(binary(self.flavour)), *said]

    @property
    def url(self) -> str:
        """Where and as whom delayq connects: with the rights that it is documented to need, and no others."""
        scheme, query = ("redis", "") if self.tls is None else ("rediss", f"?{self.tls.query()}")
        return f"{scheme}://{USER}:{PASSWORD}@{self.host}:{self.port}/0{query}"

    @property
    def open_url(self) -> str:
        """The same as Redis' default user, who may do anything: for tests with other keys, or commands of their own."""
        return f"redis://{self.host}:{self.port}/0"

    @property
    def version(self) -> tuple[int, ...]:
        """Of the Redis protocol it speaks: Valkey 9 says 7.2.4."""
        with self.client() as client:
            return tuple(
                int(part) for part in re.findall(r"\d+", str(client.info("server")["redis_version"]))
            )

    def client(self, *, decode: bool = True) -> Redis:
        """A plain client for looking at and preparing state; close it, or use it in a `with` block."""
        return looking(self.port, self.socket, decode=decode)

    @property
    def socket(self) -> Path | None:
        """Where the harness reaches it without TLS, and across any cut."""
        return None if self.tls is None and self.host == LOOPBACK else self.dir / "redis.sock"

    def follow(self, primary: RedisServer) -> None:
        """Become its replica, and wait until all it had is here."""
        with self.client() as client:
            client.execute_command("REPLICAOF", primary.host, primary.port)
            while client.info("replication")["master_link_status"] != "up":
                self.process.wait_line(
                    "MASTER <-> REPLICA sync: Finished with success|sync succeeded|with success"
                )

    def on(self, keys: Keys) -> Redis:  # noqa: ARG002  elsewhere, keys are on one server of several
        """A client to where these keys are, which takes and gives bytes."""
        return self.client(decode=False)

    def all(self) -> list[RedisServer]:
        """Every server that keeps tasks: here, the one."""
        return [self]

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

    def restart(self) -> None:
        """The same port, data and clock; SIGTERM first when still running."""
        if self.process.alive:
            self.stop()
        self.launch()
