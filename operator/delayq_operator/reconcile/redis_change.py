"""Whether a changed spec.redis would leave tasks behind. Pure.

delayq does not move tasks from one Redis to another. While the old one holds tasks, or may hold some, the processes
keep using it, unless an annotation allows to abandon them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from delayq_operator.base import names
from delayq_operator.cache.sharing import elsewhere, hashed

if TYPE_CHECKING:
    from delayq.contract import DelayQueue

    from delayq_operator.cache.children import Child
    from delayq_operator.cache.resource import Resource
    from delayq_operator.scrape.backlog import Backlog


def is_other(resource: Resource, config_map: Child | None) -> bool:
    """Whether the spec names another Redis than the processes use, and the tasks there must not be abandoned."""
    annotations = config_map.body["metadata"].get("annotations") or {} if config_map else {}
    return not resource.abandons and elsewhere(annotations.get(names.PLACES, ""), hashed(resource.tasks))


def refusal(resource: Resource, queue: DelayQueue, config_map: Child | None, backlog: Backlog | None) -> str:
    """Return why the old Redis is kept; empty if the change is allowed or there is none. `config_map` is as applied."""
    if not is_other(resource, config_map):
        return ""
    if backlog is not None and backlog.whole and backlog.redis_up:
        if backlog.tasks or backlog.dead:
            return "the old one holds tasks or dead letters (status.backlog)"
        shard_map = backlog.shards.shard_map
        # A task in migration is in no state until it arrives.
        if shard_map is not None and not shard_map.settled:
            return "the old one is resharding, and tasks in migration are not counted (condition ReshardingComplete)"
        return ""
    # A Redis that was never reached holds no tasks of this queue: probably its address was wrong.
    measured = "backlog" in resource.status or not queue.spec.scanner.replicas
    return "no scanner reports whether the old one holds tasks" if measured else ""
