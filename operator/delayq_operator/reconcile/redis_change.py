"""Whether a changed spec.redis would leave tasks behind. Pure.

delayq does not move tasks from one Redis to another. While the old one holds tasks, or may hold some, the processes
keep using it, unless an annotation allows to abandon them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from delayq_operator.base import names
from delayq_operator.cache.places import addresses, separate

if TYPE_CHECKING:
    from delayq.contract import DelayQueue

    from delayq_operator.cache.children import Child
    from delayq_operator.cache.resource import Resource
    from delayq_operator.scrape.backlog import Backlog


def left(resource: Resource, config_map: Child | None) -> str:
    """Return an address of the Redis that the processes use, if spec.redis names another and it is not abandoned."""
    annotations = config_map.body["metadata"].get("annotations") or {} if config_map else {}
    before = separate(annotations.get(names.PLACES, ""))
    found = [] if before & resource.tasks else addresses(before)
    return "" if resource.abandons in found else next(iter(found), "")


def refusal(resource: Resource, queue: DelayQueue, config_map: Child | None, backlog: Backlog | None) -> str:
    """Return why the old Redis is kept; empty if the change is allowed or there is none. `config_map` is as applied."""
    old = left(resource, config_map)
    if not old:
        return ""
    if backlog is not None and backlog.whole and backlog.redis_up:
        if backlog.tasks or backlog.dead:
            return f"the old one, {old}, holds tasks or dead letters (status.backlog)"
        shard_map = backlog.shards.shard_map
        # A task in migration is in no state until it arrives.
        if shard_map is not None and not shard_map.settled:
            uncounted = "tasks in migration are not counted (condition ReshardingComplete)"
            return f"the old one, {old}, is resharding, and {uncounted}"
        return ""
    # A Redis that was never reached holds no tasks of this queue: probably its address was wrong.
    measured = "backlog" in resource.status or not queue.spec.scanner.replicas
    return f"no scanner reports whether the old one, {old}, holds tasks" if measured else ""
