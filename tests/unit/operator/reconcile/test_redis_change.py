"""Another Redis is taken only when no task is left behind, or an annotation allows it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest
from delayq.contract import parse
from delayq_operator.base import names
from delayq_operator.cache.resource import Resource
from delayq_operator.desired.config import config_map
from delayq_operator.reconcile.redis_change import refusal
from delayq_operator.scrape.backlog import Backlog

from tests.unit.operator.queues import facts, queue

if TYPE_CHECKING:
    from delayq_operator.base.objects import Object
    from delayq_operator.cache.children import Child

SENTINELS = {"sentinel": {"masterName": "main", "nodes": [{"host": "a"}, {"host": "b"}]}}
EMPTY = Backlog(read_at=1.0, whole=True, redis_up=True)


def refused(redis: Object, backlog: Backlog | None, *, status: Object | None = None, **rest: Any) -> str:  # noqa: ANN401
    """Change the Redis of a queue that its processes find behind the Sentinels a and b."""
    served = queue(redis=SENTINELS)
    metadata = {
        "name": "orders",
        "namespace": "shop",
        "uid": "1",
        "generation": 2,
        "resourceVersion": "3",
        "annotations": rest.pop("annotations", {}),
    }
    body = {
        "metadata": metadata,
        "spec": {"redis": redis, "handler": {"python": {"callable": "shop:c"}}, **rest},
    }
    resource = Resource(body | {"status": status or {}})
    config = cast("Child", SimpleNamespace(body=config_map(served, facts(served))))
    return refusal(resource, parse(resource.document), config, backlog)


OTHERS: list[Object] = [
    {"standalone": {"host": "a"}},
    {"sentinel": {"masterName": "other", "nodes": [{"host": "a"}]}},
    {"sentinel": {"masterName": "main", "nodes": [{"host": "c"}]}},
    SENTINELS | {"database": 1},
]


@pytest.mark.parametrize("other", OTHERS)
def test_what_has_no_place_in_common_is_refused_while_the_old_one_holds_anything(other: Object) -> None:
    for field in ("due", "scheduled", "in_flight", "dead"):
        held = Backlog(read_at=1.0, whole=True, redis_up=True, **{field: 1})  # type: ignore[arg-type]  # any of them
        assert "holds tasks" in refused(other, held)
    assert refused(other, EMPTY) == ""


def test_a_node_more_or_another_password_is_the_same_redis() -> None:
    held = Backlog(read_at=1.0, whole=True, redis_up=True, due=1)
    more = {"sentinel": {"masterName": "main", "nodes": [{"host": "b"}, {"host": "c"}]}}
    assert refused(more, held) == refused(SENTINELS | {"tls": {}}, held) == ""


@pytest.mark.parametrize("backlog", [None, Backlog(read_at=1.0), Backlog(read_at=1.0, whole=True)])
def test_where_nothing_tells_what_the_old_one_holds_it_is_kept_unless_it_was_never_reached(
    backlog: Backlog | None,
) -> None:
    (other, *_) = OTHERS
    assert "no scanner reports" in refused(other, backlog, status={"backlog": {"due": 0}})
    assert "no scanner reports" in refused(other, backlog, scanner={"replicas": 0})
    assert refused(other, backlog) == ""


def test_an_annotation_allows_it() -> None:
    held = Backlog(read_at=1.0, whole=True, redis_up=True, due=1)
    for text, allowed in (("true", True), ("yes", False)):
        found = refused(OTHERS[0], held, annotations={names.ABANDON_TASKS: text})
        assert (found == "") is allowed
