"""A scanner tells why Redis does not serve, in one of a few words that no password or host can be part of."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from socketserver import BaseRequestHandler, ThreadingTCPServer
from typing import TYPE_CHECKING, Any

from tests.process.fleet import until
from tests.process.test_scrape import samples
from tests.servers import PASSWORD, USER

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.process.fleet import NewFleet
    from tests.processes import Process


def cause(process: Process) -> str:
    """The one that holds; empty while Redis serves."""
    held = [labels["cause"] for labels, value in samples(process)["delayq_redis_down"] if value == 1]
    assert len(held) <= 1
    return "".join(held)


def test_a_redis_that_turns_away_is_told_by_what_it_says(new_fleet: NewFleet) -> None:
    fleet = new_fleet()
    process = fleet.start("scanner")
    assert cause(process) == ""
    with fleet.server.client() as redis:
        redis.execute_command("ACL", "SETUSER", USER, "resetpass", ">s3cret")
        redis.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
        until(lambda: cause(process) == "auth", "it tells of the password")
        redis.execute_command("ACL", "SETUSER", USER, "resetpass", f">{PASSWORD}", "-evalsha", "-eval")
        until(lambda: cause(process) == "denied", "it tells of its rights")
        redis.execute_command("ACL", "SETUSER", USER, "+evalsha", "+eval")
        redis.execute_command("REPLICAOF", "127.0.0.1", "1")
        until(lambda: cause(process) == "read_only", "it tells of a replica")
        redis.execute_command("REPLICAOF", "NO", "ONE")
        until(lambda: cause(process) == "", "it serves again")


def test_a_redis_that_is_gone_or_hangs_is_told_apart(new_fleet: NewFleet) -> None:
    fleet = new_fleet()
    process = fleet.start("scanner")
    fleet.server.pause()
    until(lambda: cause(process) == "timeout", "it tells that Redis hangs")
    fleet.server.resume()
    until(lambda: cause(process) == "", "it serves again")
    fleet.server.kill()
    until(lambda: cause(process) == "refused", "it tells that nobody listens")


def test_what_was_never_reached_is_told_too(new_fleet: NewFleet) -> None:
    fleet = new_fleet()
    spec: dict[str, Any] = {"redis": {"standalone": {"host": "nowhere.invalid"}}}
    process = new_fleet(spec, server=fleet.server).start("scanner", ready=False)
    until(lambda: cause(process) == "dns", "it tells that the name is unknown")
    with without_tls() as port:
        spec["redis"] = {"standalone": {"host": "127.0.0.1", "port": port}, "tls": {}}
        process = new_fleet(spec, server=fleet.server).start("scanner", ready=False)
        until(lambda: cause(process) == "tls", "it tells that what listens there has no TLS")


class Plain(BaseRequestHandler):
    """Answers at once. Redis would wait for the end of the line."""

    def handle(self) -> None:
        self.request.recv(1)
        self.request.sendall(b"this is not TLS\r\n")


@contextmanager
def without_tls() -> Iterator[int]:
    """Something that listens and has no TLS; its port."""
    with ThreadingTCPServer(("127.0.0.1", 0), Plain) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_address[1]
        server.shutdown()
