"""Routes of dead letters."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

from delayq.api import rendering
from delayq.api.calls import Answer, page
from delayq.api.problems import ApiError
from delayq.client.dead_letters import fingerprint
from delayq.protocol.results import State

if TYPE_CHECKING:
    from delayq.api.calls import Call
    from delayq.protocol.results import DeadGroup, TaskRow


async def listed(call: Call) -> Answer:
    """List dead letters."""
    query = call.query
    call.allow_some("dead-letters", query.kind)
    return Answer(await page(call, State.DEAD, {"tag": query.tag, "kind": query.kind}))


async def groups(call: Call) -> Answer:
    """Group dead letters by kind and error: those of kinds that the caller has the right on."""
    kind = call.query.kind
    if kind is not None:
        call.allow("dead-letters", kind)
    found = [
        each
        for each in await call.client.dlq_groups()
        if kind in (None, each.kind) and call.caller.may("dead-letters", each.kind or None)
    ]
    return Answer({"items": [rendering.group(each, _key(each)) for each in found]})


def _key(group: DeadGroup) -> str:
    """Return a name of a group that stays the same while its dead letters change."""
    return hashlib.sha256(f"{group.kind}\n{fingerprint(group.error)}".encode()).hexdigest()[:16]


async def redrive(call: Call) -> Answer:
    """Schedule dead letters again."""
    body, chosen = call.body, await _chosen(call)
    done = await call.client.dlq_redrive(
        [*chosen], rate_per_second=body.rate_per_second, dry_run=body.dry_run
    )
    if not body.dry_run:
        call.log("dead-letters", "redrive", done.tasks, **_filter(call))
    return Answer({"tasks": done.tasks, "spreadMs": round(done.seconds * 1000), "dryRun": body.dry_run})


async def purge(call: Call) -> Answer:
    """Delete dead letters."""
    chosen, count = await _chosen(call), 0
    if call.body.dry_run:
        count = len(chosen)
    elif chosen:
        # One that was redriven since, and died again, is a new dead letter: it died after all that were listed.
        count = await call.client.dlq_purge([*chosen], before_ms=max(chosen.values()) + 1)
        call.log("dead-letters", "purge", count, **_filter(call))
    return Answer({"tasks": count, "dryRun": call.body.dry_run})


def _filter(call: Call) -> dict[str, Any]:
    body = call.body
    return {"group": body.group, "tag": body.tag, "all": body.all, "kind": body.kind}


async def _chosen(call: Call) -> dict[str, int]:
    """Return the IDs of the chosen dead letters, and their times of death."""
    body = call.body
    if body.tag is not None or body.all:
        call.allow_some("dead-letters", body.kind)
        return _died(await call.client.dlq_list(tag=body.tag, kind=body.kind))
    if body.group is not None:
        rows = await call.client.dlq_list(await _ids_of_group(call))
    else:
        rows = await call.client.dlq_list(list(body.ids))
    found = {row.id: row.kind for row in rows}
    for task_id in body.ids or found:
        # Of one that is not there, the ID tells the kind: so the answer does not tell whether it is there.
        kind = found.get(task_id, task_id.partition(":")[0] if ":" in task_id else "")
        call.allow("dead-letters", kind or None, on=f"on dead letter {task_id}, if there is one")
    return _died(rows)


async def _ids_of_group(call: Call) -> list[str]:
    """Return the IDs of a group, if the caller has the right on its kind."""
    group = call.body.group
    for each in await call.client.dlq_groups():
        if _key(each) == group and call.caller.may("dead-letters", each.kind or None):
            return list(each.ids)
    raise ApiError("not-found", f"there is no group {group}: GET /deadletters:groups lists them")


def _died(rows: list[TaskRow]) -> dict[str, int]:
    return {row.id: row.at_ms for row in rows}
