"""Routes of the queue as a whole, and of its recurring schedules."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from delayq.api import rendering
from delayq.api.calls import Answer
from delayq.api.problems import ApiError, invalid
from delayq.client.times import iso
from delayq.connection import AsyncConnection
from delayq.contract.words import OBJECT_NAME
from delayq.errors import ScheduleRefused
from delayq.forecast import DAY_MS, LONGEST_MS, spans
from delayq.schedules.unstored import unstored

if TYPE_CHECKING:
    from collections.abc import Callable

    from delayq.api.access import Verb
    from delayq.api.calls import Call
    from delayq.protocol.commands import Call as Script
    from delayq.protocol.results import Suspension
    from delayq.schedules.stored import Schedule


async def counts(call: Call) -> Answer:
    """Count the tasks of the queue by state."""
    call.allow_some("read", None)
    found = await call.client.counts(rendering.HORIZONS)
    suspended = rendering.suspension(found.suspension, document=call.served.queue.spec.suspend)
    return Answer(rendering.counts(call.client.queue, found, suspended))


async def forecast(call: Call) -> Answer:
    """Count the tasks that fall due in each part of the time to come, those of schedules included."""
    within = DAY_MS if call.query.within is None else call.query.within
    if not 0 < within <= LONGEST_MS:
        raise invalid("within", "expected a duration above 0 and up to 366d")
    call.allow_some("read", None)
    now_ms = (await call.client.counts()).now_ms
    parts = spans(now_ms, within, UTC)
    found = await call.client.counts(instants_ms=[now_ms, *(end for _, end in parts)])
    more = unstored([each.record for each in await call.client.schedules()], now_ms, now_ms + within)
    due = [found.due_by[at] + more.due_by(at) for at in (now_ms, *(end for _, end in parts))]
    listed = [
        {"from": iso(start), "to": iso(end), "tasks": after - before}
        for (start, end), (before, after) in zip(parts, pairwise(due), strict=True)
    ]
    cut = {name: iso(at) for name, at in more.counted_until_ms.items()}
    return Answer({"now": iso(now_ms), "overdue": due[0], "spans": listed, "schedulesCountedUntil": cut})


async def suspend(call: Call) -> Answer:
    """Stop the tasks of the queue."""
    body, commands = call.body, call.client.commands
    call.allow_some("suspend", None)
    await _in_each_shard(call, partial(commands.suspend, drain=body.drain, reason=body.reason))
    call.log("suspend", "suspend", 0, reason=body.reason)
    return await _suspension(call)


async def resume(call: Call) -> Answer:
    """Start them again."""
    call.allow_some("suspend", None)
    await _in_each_shard(call, call.client.commands.resume)
    call.log("suspend", "resume", 0)
    return await _suspension(call)


async def _suspension(call: Call) -> Answer:
    found = (await call.client.counts()).suspension
    return Answer(rendering.suspension(found, document=call.served.queue.spec.suspend))


async def _in_each_shard(call: Call, script: Callable[[int], Script[Suspension | None]]) -> None:
    """Send a call to shard 0, which decides, and in a Cluster to the copies in all other shards."""
    client = call.client
    await client.counts()  # reads the shard map
    copies = range(1, client.shard_map.widest if client.address.is_cluster else 1)
    connection = AsyncConnection(client.address)
    try:
        await connection.run([script(0)])
        answers = await connection.answers([script(shard) for shard in copies]) if copies else []
    finally:
        await connection.close()
    missed = [str(n) for n, each in zip(copies, answers, strict=False) if isinstance(each, Exception)]
    if missed:
        raise ApiError("redis-unavailable", f"shard {', '.join(missed)} not reached: repeat the request")


async def kinds(call: Call) -> Answer:
    """List the kinds that workers take, of those that the caller has the right on."""
    published = call.served.published
    if published is None:
        names = call.served.queue.spec.handler.kinds or ()
        found = [rendering.kind(name, None, []) for name in sorted(names)]
    else:
        await published.read()
        found = [rendering.kind(*key, schemas) for key, schemas in published.listed()]
    return Answer({"items": [each for each in found if call.caller.may("read", each["kind"])]})


async def schedules(call: Call) -> Answer:
    """List the recurring schedules of kinds that the caller has the right on."""
    found = [each for each in await call.client.schedules() if call.caller.may("read", each.kind)]
    return Answer({"items": [_view(each, 1) for each in found]})


async def schedule(call: Call) -> Answer:
    """Return a recurring schedule and its next times."""
    return Answer(_view(await _one(call, "read"), call.query.count))


async def run_schedule(call: Call) -> Answer:
    """Create an occurrence that is due now."""
    found = await _one(call, "run-schedules")
    occurrence = await call.client.run_schedule(found.name)
    call.log("run-schedules", "run_schedule", 1, schedule=found.name, task_id=occurrence)
    return Answer({"id": occurrence}, 201)


async def _one(call: Call, verb: Verb) -> Schedule:
    name = call.path["name"]
    found = await call.client.get_schedule(name) if OBJECT_NAME.fits(name) else None
    call.allow(verb, None if found is None else found.kind, on=f"on schedule {name}, if there is one")
    if found is None:
        raise ApiError("not-found", f"there is no schedule {name} in this queue: GET /schedules lists them")
    return found


def _view(found: Schedule, count: int) -> dict[str, Any]:
    try:
        times = found.next_times(count, after=datetime.now(UTC))
    except (ScheduleRefused, ValueError):  # a library or a time zone is missing on this machine
        times = []
    return rendering.schedule(found, times)
