"""What there is to say of a queue's shards: those that Redis does not serve, and those whose tasks move. Pure.

Not here: what scanners tell (shards.py).
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any, Final

from delayq.scaling.sentences import counted

from delayq_operator.base.words import OUTAGES, listed
from delayq_operator.status.reasons import told

if TYPE_CHECKING:
    from collections.abc import Iterable

    from delayq_operator.scrape.shards import Down, Layout, Shards
    from delayq_operator.status.reasons import Condition
    from delayq_operator.status.view import View

KIND: Final = "ShardsSettled"
MOST_SERVERS: Final = 3  # told of in one message


def shards_settled(view: View) -> Condition:
    """Whether tasks are where spec.shards says. How far they are is in status.resharding."""
    seen = view.backlog.shards if view.backlog is not None else None
    if view.scanner.exists and view.scanner.wanted == 0:
        return told(KIND, "NoScanners", "spec.scanner.replicas is 0: nobody moves tasks to other shards.")
    if seen is None or seen.layout is None:
        return told(KIND, "NotMeasured", "No scanner tells in how many shards the tasks are.")
    layout, wanted = seen.layout, _wanted(view)
    if not layout.settled:
        return _under_way(view, seen, layout)
    where = f"Tasks are in {counted(layout.now, 'shard')}"
    if wanted in (None, layout.now):
        return told(KIND, "Settled", f"{where}.")
    return told(KIND, "Waiting", f"{where}, spec.shards is {wanted}: {_awaited(view, seen)}")


def _under_way(view: View, seen: Shards, layout: Layout) -> Condition:
    what = _change(layout, _wanted(view))
    if obstacle := _obstacle(view, seen):
        return told(KIND, "ReshardingStalled", f"{what} It cannot go on: {obstacle}.")
    if layout.now != layout.target:
        return told(KIND, "Announced", f"{what} Workers and scanners look after the new shards first.")
    return told(KIND, "Moving", f"{what} Tasks that fall due meanwhile run in time.")


def resharding(view: View) -> dict[str, Any] | None:
    """Make status.resharding; None while tasks are where they belong, or nobody can tell."""
    seen, verdict = view.backlog.shards if view.backlog is not None else None, shards_settled(view)
    if seen is None or seen.layout is None or verdict.status != "False":
        return None
    layout, wanted = seen.layout, _wanted(view)
    made: dict[str, Any] = {
        "fromShards": layout.was,
        "toShards": wanted if layout.settled and wanted is not None else layout.target,
        "checkedTasks": seen.checked,
        "movedTasks": seen.moved,
    }
    if seen.waiting:
        made["waitingTasks"] = seen.waiting
    if seen.tasks is not None:
        made["tasks"] = seen.tasks
    if verdict.reason in ("Waiting", "ReshardingStalled"):
        made["message"] = verdict.message[:1024]
    return made


def unknown(view: View) -> bool:
    """Whether nobody can tell now."""
    return view.backlog is None or view.backlog.shards.layout is None


def _wanted(view: View) -> int | None:
    return view.queue.spec.shards if view.queue is not None else None


def _change(layout: Layout, wanted: int | None) -> str:
    what = f"Tasks move from {counted(layout.was, 'shard')} to {layout.target}"
    return f"{what}." if wanted in (None, layout.target) else f"{what}, and then to {wanted}."


def _awaited(view: View, seen: Shards) -> str:
    """Who has to act before it begins: a scanner that has read the new document, and leads shard 0."""
    if view.resource.paused:
        return "the children are left alone, by the annotation delayq.dev/paused."
    if view.scanner.stuck:
        return f"new scanners do not get ready. {view.scanner.stuck}"
    if obstacle := _obstacle(view, seen):
        return f"{obstacle}."
    return "the first scanner that has read the new document begins."


def _obstacle(view: View, seen: Shards) -> str:
    """Name what has been missing for longer than a fail-over takes; empty when nothing is."""
    if view.backlog is None or not view.backlog.blind:
        return ""
    if seen.down:
        return f"Redis does not serve {unserved(seen.down)}"
    what = f"no scanner leads shard {listed([str(shard) for shard in seen.unled])}"
    return f"{what}, or it cannot be read" if seen.unled else ""


def unserved(down: Iterable[Down]) -> str:
    """Name the shards that Redis does not serve, by server and cause: what one server holds fails together."""
    groups: dict[tuple[str, str], list[str]] = defaultdict(list)
    for each in down:
        groups[each.server, each.cause].append(str(each.shard))
    told_of = [_group(*group, shards) for group, shards in groups.items()]
    more = len(told_of) - MOST_SERVERS
    return "; ".join(told_of[:MOST_SERVERS]) + (f"; and those of {more} more servers" if more > 0 else "")


def _group(server: str, cause: str, shards: list[str]) -> str:
    where = f" at {server}" if server else ""
    return f"shard {listed(shards)}{where} ({OUTAGES.get(cause, OUTAGES['other'])})"
