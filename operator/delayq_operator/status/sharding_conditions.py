"""Condition ReshardingComplete and status.resharding, and the text for shards that Redis does not serve. Pure.

Not here: the scanners' reports (shards.py).
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any, Final

from delayq.contract.outages import remedy
from delayq.scaling.sentences import counted

from delayq_operator.base import names
from delayq_operator.base.phrases import listed
from delayq_operator.status.reasons import condition

if TYPE_CHECKING:
    from collections.abc import Iterable

    from delayq_operator.scrape.shards import Down, ShardMap, Shards
    from delayq_operator.status.reasons import Condition
    from delayq_operator.status.view import View

KIND: Final = "ReshardingComplete"
MOST_SERVERS: Final = 3  # named in one message


def resharding_complete(view: View) -> Condition | None:
    """Whether tasks are in spec.shards shards; None for a queue of one shard, unless it is being resharded."""
    verdict, asked = _verdict(view), view.queue.spec.shards if view.queue is not None else 1
    had_more = verdict.status != "True" and "resharding" in view.resource.status
    return verdict if asked > 1 or verdict.status == "False" or had_more else None


def _verdict(view: View) -> Condition:
    """Decide the condition. The progress is in status.resharding."""
    seen = view.shards
    if view.scanner.unwanted:
        return condition(
            KIND, "NoScanners", "spec.scanner.replicas is 0: no scanner migrates tasks to other shards."
        )
    if seen is None or seen.shard_map is None:
        return condition(KIND, "MetricsUnavailable", "No scanner reports the shard map.")
    shard_map, wanted = seen.shard_map, _wanted(view)
    if not shard_map.settled:
        return _under_way(view, seen, shard_map)
    where = f"Tasks are in {counted(shard_map.now, 'shard')}"
    if wanted in (None, shard_map.now):
        return condition(KIND, "Complete", f"{where}.")
    return condition(KIND, "Pending", f"{where}, spec.shards is {wanted}: {_awaited(view, seen)}")


def _under_way(view: View, seen: Shards, shard_map: ShardMap) -> Condition:
    what = _change(shard_map, _wanted(view))
    if obstacle := _obstacle(view, seen):
        return condition(KIND, "ReshardingStalled", f"{what} Resharding cannot continue: {obstacle}.")
    if shard_map.now != shard_map.target:
        return condition(KIND, "Preparing", f"{what} Workers and scanners first open the new shards.")
    return condition(KIND, "Migrating", f"{what} Tasks that fall due in the meantime run on time.")


def resharding(view: View) -> dict[str, Any] | None:
    """Return status.resharding; None while every task is in its home shard, or the shard map is unknown."""
    seen, verdict = view.shards, _verdict(view)
    if seen is None or seen.shard_map is None or verdict.status != "False":
        return None
    shard_map, wanted = seen.shard_map, _wanted(view)
    made: dict[str, Any] = {
        "fromShards": shard_map.was,
        "toShards": wanted if shard_map.settled and wanted is not None else shard_map.target,
        "checkedTasks": seen.checked,
        "movedTasks": seen.moved,
    }
    if seen.waiting:
        made["waitingTasks"] = seen.waiting
    if seen.tasks is not None:
        made["tasks"] = seen.tasks
    if verdict.reason in ("Pending", "ReshardingStalled"):
        made["message"] = verdict.message[:1024]
    return made


def _wanted(view: View) -> int | None:
    return view.queue.spec.shards if view.queue is not None else None


def _change(shard_map: ShardMap, wanted: int | None) -> str:
    what = f"Tasks move from {counted(shard_map.was, 'shard')} to {shard_map.target}"
    return f"{what}." if wanted in (None, shard_map.target) else f"{what}, and then to {wanted}."


def _awaited(view: View, seen: Shards) -> str:
    """Return what has to happen before a scanner with the new document starts resharding."""
    if view.resource.left_alone:
        return f"the annotation {names.SUSPEND_RECONCILIATION} keeps the operator from changing children."
    if view.scanner.stuck:
        return f"new scanners do not become ready. {view.scanner.stuck}"
    if obstacle := _obstacle(view, seen):
        return f"{obstacle}."
    return "the first scanner with the new document starts it."


def _obstacle(view: View, seen: Shards) -> str:
    """Name the shards that are missing for longer than a failover takes; empty if none is."""
    if view.backlog is None or not view.backlog.blind:
        return ""
    if seen.down:
        return f"Redis does not serve {unserved(seen.down)}"
    what = f"no scanner is the leader of shard {listed([str(shard) for shard in seen.leaderless])}"
    return f"{what}, or it cannot be read" if seen.leaderless else ""


def unserved(down: Iterable[Down]) -> str:
    """Name the shards that Redis does not serve, grouped by server and cause."""
    groups: dict[tuple[str, str], list[str]] = defaultdict(list)
    for each in down:
        groups[each.server, each.cause].append(str(each.shard))
    texts = [_group(*group, shards) for group, shards in groups.items()]
    more = len(texts) - MOST_SERVERS
    return "; ".join(texts[:MOST_SERVERS]) + (
        f"; and those of {counted(more, 'more server')}" if more > 0 else ""
    )


def _group(server: str, cause: str, shards: list[str]) -> str:
    where = f" at {server}" if server else ""
    return f"shard {listed(shards)}{where} ({remedy(cause)})"
