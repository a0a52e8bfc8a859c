"""Another Redis is taken only when no task is left behind, or an annotation allows it."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest
from delayq.contract import parse
from delayq_operator.base import names
from delayq_operator.desired.config import config_map
from delayq_operator.reconcile.redis_change import refusal
from delayq_operator.scrape.backlog import Backlog
from delayq_operator.scrape.shards import ShardMap, Shards

from tests.unit.operator.queues import facts, queue
from tests.unit.operator.views import resource

if TYPE_CHECKING:
    from delayq.kube.objects import Object
    from delayq_operator.cache.children import Child

SENTINELS = {"sentinel": {"masterName": "main", "nodes": [{"host": "a"}, {"host": "b"}]}}
EMPTY = Backlog(read_at=1.0, whole=True, redis_up=True)


def refused(redis: Object, backlog: Backlog | None, status: Object | None = None, **rest: Any) -> str:  # noqa: ANN401
    """Change the Redis of a queue that its processes find behind the Sentinels a and b."""
    served, changed = queue(redis=SENTINELS), resource(status, annotations=rest.pop("annotations", None))
    changed.body["spec"] |= {"redis": redis, **rest}
    config = cast("Child", SimpleNamespace(body=config_map(served, facts(served))))
    return refusal(changed, parse(changed.document), config, backlog)


OTHERS: list[Object] = [
    {"standalone": {"host": "a"}},
    {"sentinel": {"masterName": "other", "nodes": [{"host": "a"}]}},
    {"sentinel": {"masterName": "main", "nodes": [{"host": "c"}]}},
    SENTINELS | {"database": 1},
]


ONE_TASK = [
    *(replace(EMPTY, scheduled=1), replace(EMPTY, retrying=1), replace(EMPTY, parked=1)),
    *(replace(EMPTY, in_flight=1), replace(EMPTY, dead=1)),
]
HELD = replace(EMPTY, due=1)
OTHER = OTHERS[0]
MORE_NODES = {"sentinel": {"masterName": "main", "nodes": [{"host": "b"}, {"host": "c"}]}}
ALLOWED: Object = {"annotations": {names.ABANDON_TASKS: "b.shop.svc:26379"}}
MEASURED: Object = {"status": {"backlog": {"due": 0}}}


@pytest.mark.parametrize(
    ("redis", "backlog", "rest", "why"),
    [
        *((other, HELD, {}, "holds tasks") for other in OTHERS),
        *((OTHER, one, {}, "holds tasks") for one in ONE_TASK),
        (OTHER, EMPTY, {}, ""),
        # A task in migration is in no state until it arrives.
        (OTHER, replace(EMPTY, shards=Shards(shard_map=ShardMap(2, 3, 1, 3))), {}, "resharding"),
        (OTHER, replace(EMPTY, shards=Shards(shard_map=ShardMap(2, 1, 1, 3))), {}, "resharding"),
        (OTHER, replace(EMPTY, shards=Shards(shard_map=ShardMap(2, 3, 3, 3))), {}, ""),
        (OTHER, replace(EMPTY, shards=Shards(shard_map=ShardMap(2, 3, 1, 3))), ALLOWED, ""),
        (OTHER, HELD, ALLOWED, ""),
        *(
            (
                OTHER,
                HELD,
                {"annotations": {names.ABANDON_TASKS: text}},
                "the old one, a.shop.svc:26379, holds tasks",
            )
            for text in ("true", "", "a:26379", "a.shop.svc:6379")
        ),
        # The same Redis: a node more, another certificate.
        (MORE_NODES, HELD, {}, ""),
        (SENTINELS | {"tls": {}}, HELD, {}, ""),
        # No scanner tells what the old one holds. One that was never reached holds nothing.
        (OTHER, None, MEASURED, "no scanner reports"),
        (OTHER, replace(EMPTY, whole=False), MEASURED, "no scanner reports"),
        (OTHER, replace(EMPTY, redis_up=False), {"scanner": {"replicas": 0}}, "no scanner reports"),
        (OTHER, None, {}, ""),
    ],
)
def test_another_redis_is_refused_while_the_old_one_may_hold_anything(
    redis: Object, backlog: Backlog | None, rest: Object, why: str
) -> None:
    found = refused(redis, backlog, **rest)
    assert why in found
    assert bool(found) is bool(why)
