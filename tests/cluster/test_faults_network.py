"""Between the operator and the API server: connections that are open and dead, and an API server that refuses."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

import pytest
from delayq_operator.base import names

from tests.cluster.harness.waiting import eventually, lenient
from tests.cluster.operator import Operator
from tests.cluster.proxy import Proxy
from tests.cluster.world import World

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.cluster.harness.control_plane import ControlPlane

SILENCE_SECONDS: Final = 4.0  # of 90
REFUSING_SECONDS: Final = 6.0
CATCH_UP_SECONDS: Final = 5.0
WATCHED: Final = {*names.REQUIRED}
OTHERS: Final = 4
"""The list of everything, the Lease, and two DelayQueues."""
MOST_A_SECOND: Final = 2 * (len(WATCHED) + OTHERS)
"""After a first pause of 0.5 s each of them waits for a second or longer, so a second may have two of its tries."""


@pytest.fixture
def proxy(cluster: ControlPlane) -> Iterator[Proxy]:
    proxy = Proxy.start(cluster.kubeconfig)
    yield proxy
    proxy.stop()


@pytest.fixture
def options() -> tuple[str, ...]:
    return ()


@pytest.fixture
def through(proxy: Proxy, kubeconfig: Path) -> Path:
    return proxy.through(kubeconfig)


@pytest.fixture
def world(cluster: ControlPlane, through: Path, namespace: str, options: tuple[str, ...]) -> Iterator[World]:
    operator = Operator.fork(through, namespace, *options).wait_ready()
    yield World(cluster, operator, namespace)
    operator.process.stop()


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
    frozen = proxy.freeze()
    assert frozen >= 12
    since = time.monotonic()
    changed(world, 2)
    eventually(lambda: done(world, 2), timeout_s=30, what="caught up")
    print(f"{frozen} connections frozen; caught up after {time.monotonic() - since:.1f} s")
    world.operator.process.wait_http(f"http://127.0.0.1:{world.operator.port}/healthz", timeout_s=lenient(1))


@pytest.mark.parametrize("code", [503, pytest.param(401, marks=pytest.mark.full)])
def test_an_api_server_that_refuses_everything_is_asked_with_patience(
    world: World, proxy: Proxy, code: int
) -> None:
    """It is not stormed, nobody gives up, and what changed meanwhile is applied within 5 s of its return."""
    world.start()
    changed_at = time.monotonic()
    proxy.refuse(code)
    changed(world, 2)
    time.sleep(REFUSING_SECONDS)  # this long it is down
    asked = [at - changed_at for at in list(proxy.requests) if at > changed_at]
    proxy.accept()
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
