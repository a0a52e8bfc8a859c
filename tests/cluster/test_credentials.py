"""Secrets of Redis and of an HTTP service: mounted by the operator, which never reads them, and awaited by the pods."""

from __future__ import annotations

from typing import TYPE_CHECKING

from delayq import SyncClient
from delayq_operator.base import names

from tests.cluster.harness.waiting import eventually
from tests.cluster.operator import condition, queue
from tests.process.receiver import receiving
from tests.servers import PASSWORD, USER

if TYPE_CHECKING:
    from tests.cluster.harness.node import ProcessNode
    from tests.cluster.world import World
    from tests.servers import RedisServer

TOKEN = "canary-4d1f7a"  # noqa: S105 -- of no service
REF = {"name": "shop-api", "key": "token", "scheme": "Bearer"}


def missing(world: World, kind: str, *keys: str) -> str:
    """What a condition says once it names these keys as missing."""

    def look() -> str:
        entry = condition(world.queue(), kind)
        assert entry["reason"] == "ReferenceNotFound", entry
        assert [key for key in keys if key not in entry["message"]] == [], entry
        return str(entry["message"])

    return eventually(look, timeout_s=40, what=f"{kind} names {keys}")


def test_pods_wait_for_keys_that_the_operator_never_reads_and_the_status_names_them(
    process_node: ProcessNode, world: World, redis: RedisServer
) -> None:
    """First no Secret is there, then one without the keys; the processes that wait go on by themselves.

    The queue is ready without the key of its check, which is not called before a lease expires.
    """
    mark = world.enqueue()
    auth = {"usernameSecretRef": {"name": "login"}, "passwordSecretRef": {"name": "login"}}
    where = {"standalone": {"host": "127.0.0.1", "port": redis.port}, "auth": auth}
    with receiving(204) as (url, seen), SyncClient(redis.url, queue="orders") as client:
        handler = {"http": {"url": url, "secretHeaders": {"Authorization": REF}}}
        check = {"http": {"url": url, "secretHeaders": {"Authorization": REF | {"key": "check"}}}}
        world.make(names.PLURAL, queue(handler=handler, recovery={"check": check}, redis=where))
        client.schedule({"n": 1}, delay_ms=0, task_id="early")
        login = ("key password of Secret login", "key username of Secret login")
        for kind in ("Ready", "Degraded"):
            assert f"in namespace {world.namespace}" in missing(world, kind, *login)
        world.until("Accepted", "True", "Valid")
        world.until("BackendAvailable", "Unknown", "MetricsUnavailable")
        world.event("ReferenceNotFound", "key password of Secret login")
        world.make("secrets", {"metadata": {"name": "shop-api"}, "stringData": {"other": TOKEN}})
        world.make(
            "secrets", {"metadata": {"name": "login"}, "stringData": {"username": USER, "password": PASSWORD}}
        )
        world.until("BackendAvailable", "True", timeout_s=40)
        assert "login" not in missing(world, "Ready", "key token of Secret shop-api")
        assert seen == []
        world.patch("secrets", "shop-api", {"stringData": {"token": f"{TOKEN}\n"}})
        world.until("Ready", "True", timeout_s=40)
        eventually(lambda: seen, what="early is delivered")
        reported = missing(world, "Degraded", "key check of Secret shop-api")
        assert "spec.recovery.check cannot be called without it" in reported
        world.patch("secrets", "shop-api", {"stringData": {"check": TOKEN}})
        world.until("Degraded", "False", "AsExpected", timeout_s=40)
    assert ("Authorization", f"Bearer {TOKEN}") in seen[0][0]
    assert {each.restarts for pod in process_node.pods.values() for each in pod.containers} == {0}
    read = [
        event
        for event in world.cluster.audit_events(mark)
        if event.user.endswith(":delayq-operator") and event.resource == "secrets" and event.name
    ]
    assert read == []
    assert TOKEN not in str(world.queue())
