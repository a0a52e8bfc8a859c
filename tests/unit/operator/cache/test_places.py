"""Two specs name the same tasks when they name the same queue in a Redis that some node of tells to be the same."""

from __future__ import annotations

from typing import Any

import pytest
from delayq_operator.cache.places import places

Redis = dict[str, Any]


def standalone(host: str = "redis.data.svc", **more: Any) -> Redis:  # noqa: ANN401 -- JSON
    return {"standalone": {"host": host, "port": 6379}, "database": 0, "keyPrefix": "delayq", **more}


def cluster(*hosts: str) -> Redis:
    return {"cluster": {"nodes": [{"host": host, "port": 6379} for host in hosts]}}


def sentinel(*hosts: str, master: str = "main", **more: Any) -> Redis:  # noqa: ANN401 -- JSON
    nodes = [{"host": host, "port": 26379} for host in hosts]
    return {"sentinel": {"masterName": master, "nodes": nodes}, **more}


SAME = {
    "defaults that are not stored": (standalone(), {"standalone": {"host": "redis.data.svc"}}),
    "upper case": (standalone(), standalone("Redis.Data.svc")),
    "the full name of a Service": (standalone(), standalone("redis.data.svc.cluster.local")),
    "a Service of the namespace": (standalone("redis"), standalone("redis.shop.svc")),
    "other credentials": (standalone(), standalone(auth={"passwordSecretRef": {"name": "other"}})),
    "another node of the Cluster first": (cluster("a.x", "b.x"), cluster("b.x", "c.x")),
    "one node of the Cluster": (cluster("a.x", "b.x"), standalone("b.x")),
    "another Sentinel first": (sentinel("s-0.x", "s-1.x"), sentinel("s-1.x", "s-2.x")),
}
OTHERS = {
    "another server": (standalone(), standalone("other.data.svc")),
    "another port": (standalone(), {"standalone": {"host": "redis.data.svc", "port": 6380}}),
    "another database": (standalone(), standalone(database=1)),
    "another prefix": (standalone(), standalone(keyPrefix="shop")),
    "another master of the Sentinels": (sentinel("s-0.x"), sentinel("s-0.x", master="other")),
    "another Cluster": (cluster("a.x", "b.x"), cluster("c.x", "d.x")),
    "a Sentinel is no server": (sentinel("a.x"), standalone("a.x")),
}


@pytest.mark.parametrize("name", [*SAME, *OTHERS])
def test_which_tasks_are_the_same(name: str) -> None:
    one, other = (places("orders", redis, "shop") for redis in (SAME | OTHERS)[name])
    assert one
    assert bool(one & other) is (name in SAME)


def test_another_queue_has_other_tasks_and_so_has_a_service_of_another_namespace() -> None:
    assert not places("orders", standalone(), "shop") & places("mails", standalone(), "shop")
    assert not places("orders", standalone("redis"), "shop") & places("orders", standalone("redis"), "bank")
    address = standalone("fd00::7")
    assert places("orders", address, "shop") == places("orders", address, "bank")


def test_who_names_no_place_shares_nothing() -> None:
    invalid: list[Redis] = [{}, {"standalone": None}, {"cluster": {"nodes": 5}}, {"sentinel": {"nodes": [1]}}]
    assert [places("orders", redis, "shop") for redis in invalid] == [frozenset()] * 4
