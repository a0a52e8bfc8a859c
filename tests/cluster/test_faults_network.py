"""Between the operator and the API server: connections that are open and dead, and an API server that refuses."""

from __future__ import annotations

import ssl
import time
from contextlib import contextmanager, suppress
from socketserver import BaseRequestHandler, ThreadingTCPServer
from threading import Thread
from typing import TYPE_CHECKING, Final

import pytest
from delayq_operator.base import names

from tests.cluster.harness.waiting import eventually, lenient
from tests.cluster.operator import Operator
from tests.cluster.world import World
from tests.redis.proxy import proxy_to

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.cluster.harness.control_plane import ControlPlane
    from tests.redis.proxy import Proxy

SILENCE_SECONDS: Final = 4.0  # of 90
REFUSING_SECONDS: Final = 6.0
CATCH_UP_SECONDS: Final = 5.0
REFUSAL: Final = "HTTP/1.1 {code} Refused\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
WATCHED: Final = {*names.REQUIRED}
OTHERS: Final = 4
"""The list of everything, the Lease, and two DelayQueues."""
MOST_A_SECOND: Final = 2 * (len(WATCHED) + OTHERS)
"""After a first pause of 0.5 s each of them waits for a second or longer, so a second may have two of its tries."""


@pytest.fixture
def proxy(cluster: ControlPlane) -> Iterator[Proxy]:
    """Before the API server, whose TLS it passes on."""
    with proxy_to(int(cluster.url.rpartition(":")[2])) as proxy:
        yield proxy


@pytest.fixture
def options() -> tuple[str, ...]:
    return ()


@pytest.fixture
def world(
    cluster: ControlPlane, proxy: Proxy, kubeconfig: Path, *, namespace: str, options: tuple[str, ...]
) -> Iterator[World]:
    through = kubeconfig.with_suffix(".through")
    through.write_text(kubeconfig.read_text().replace(cluster.url, f"https://127.0.0.1:{proxy.port}"))
    operator = Operator.fork(through, namespace, *options).wait_ready()
    yield World(cluster, operator, namespace)
    operator.process.stop()


@contextmanager
def refusing(cluster: ControlPlane, proxy: Proxy, code: int) -> Iterator[list[float]]:
    """Have everything answered with this status, and what is open broken; when, by time.monotonic()."""
    asked: list[float] = []
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(cluster.authority, cluster.authority.with_suffix(".key"))

    class Refusal(BaseRequestHandler):
        def handle(self) -> None:
            with suppress(OSError), context.wrap_socket(self.request, server_side=True) as client:
                if client.recv(1 << 16):
                    asked.append(time.monotonic())
                    client.sendall(REFUSAL.format(code=code).encode())

    with ThreadingTCPServer(("127.0.0.1", 0), Refusal) as server:
        server.daemon_threads = True
        Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        proxy.target, before = server.server_address[1], proxy.target
        proxy.cut()
        yield asked
        proxy.target = before
        proxy.cut()
        server.shutdown()


def changed(world: World, number: int) -> None:
    """Change everything that it has to learn of."""
    world.create(f"new-{number}")
    world.edit(worker={"replicas": number})
    world.delete("cronjobs", "orders-reaper")


def done(world: World, number: int) -> bool:
    assert world.there("deployments", f"new-{number}-worker"), "new, and without workers"
    assert world.get("deployments", "orders-worker")["spec"]["replicas"] == number, "not scaled"
    assert world.there("cronjobs", "orders-reaper"), "deleted, and not back"
    return True


@pytest.mark.parametrize("options", [(f"--silence-seconds={SILENCE_SECONDS}",)])
def test_dead_connections_are_noticed(world: World, proxy: Proxy) -> None:
    """Every open connection falls silent and stays open: watches are opened anew, requests are made again."""
    world.start()
    proxy.forget()
    assert len(proxy.forgotten) >= 2 * 12
    since = time.monotonic()
    changed(world, 2)
    eventually(lambda: done(world, 2), timeout_s=30, what="caught up")
    print(f"caught up after {time.monotonic() - since:.1f} s")
    world.operator.process.wait_http(f"http://127.0.0.1:{world.operator.port}/healthz", timeout_s=lenient(1))


@pytest.mark.parametrize("code", [503, pytest.param(401, marks=pytest.mark.full)])
def test_an_api_server_that_refuses_everything_is_asked_with_patience(
    cluster: ControlPlane, world: World, proxy: Proxy, code: int
) -> None:
    """It gets no storm of requests, no operator gives up, and changes are applied within 5 s of its return."""
    world.start()
    with refusing(cluster, proxy, code) as times:
        since = time.monotonic()
        changed(world, 2)
        time.sleep(REFUSING_SECONDS)  # this long it is down
        asked = [at - since for at in times]
    back_at = time.monotonic()
    eventually(lambda: done(world, 2), timeout_s=30, what="caught up")
    took = time.monotonic() - back_at
    busiest = max(sum(start <= at < start + 1 for at in asked) for start in asked if start > 1)
    print(
        f"{code}: {len(asked)} requests in {REFUSING_SECONDS} s, {busiest} in a second; caught up after {took:.2f} s"
    )
    assert busiest <= MOST_A_SECOND
    assert took < lenient(CATCH_UP_SECONDS)
    world.operator.process.wait_http(f"http://127.0.0.1:{world.operator.port}/healthz", timeout_s=lenient(1))
