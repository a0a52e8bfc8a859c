"""Routes of single tasks and of batches."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from delayq.api import rendering
from delayq.api.calls import Answer, offset_of, page
from delayq.api.models import either
from delayq.api.problems import ApiError, invalid, of
from delayq.client.encoding import new_id, new_ids
from delayq.client.times import iso
from delayq.contract.problems import Problem, SpecError
from delayq.errors import InvalidTask, NotConfirmed, PayloadTooLarge, Refused, TasksRefused
from delayq.protocol.results import Cancelled, Outcome, Scheduled, State

if TYPE_CHECKING:
    from collections.abc import Sequence

    from delayq.api.calls import Call
    from delayq.client.encoding import NewTask

STATUS: Final = {Outcome.CREATED: 201, Outcome.REPEATED: 201, Outcome.FOLLOWS: 202}
"""All other outcomes: 200."""
AT_ONCE: Final = 100
"""Tasks of a batch that are checked without a pause for other requests."""


async def put(call: Call) -> Answer:
    """Schedule a task under its ID."""
    return await _schedule(call, call.body.new_task(call.task_id, call.kind))


async def post(call: Call) -> Answer:
    """Schedule a task."""
    body = call.body
    return await _schedule(call, body.new_task(_fresh(body.id), body.kind))


def _fresh(task_id: str | None) -> str:
    """Return the ID or a new one: the client would store a generated one without the kind, which paths need."""
    return new_id() if task_id is None else task_id


async def _schedule(call: Call, task: NewTask) -> Answer:
    _allow_schedule(call, task)
    call.served.check(task)
    done = await call.client.schedule(**task._asdict(), if_exists=call.query.if_exists)
    if done.outcome is not Outcome.KEPT:
        call.log("schedule", "schedule", 1, task_id=done.id, outcome=str(done.outcome))
    return Answer(_stored(done), STATUS.get(done.outcome, 200))


def _allow_schedule(call: Call, task: NewTask) -> None:
    """Refuse also a task without a kind whose ID is one of a kind that the caller has no right on."""
    call.allow("schedule", task.kind)
    prefix, colon, _ = (task.task_id or "").partition(":")
    if task.kind is None and colon:
        call.allow("schedule", prefix)


def _stored(done: Scheduled) -> dict[str, Any]:
    outcome = Outcome.CREATED if done.outcome is Outcome.REPEATED else done.outcome
    return {"id": done.id, "due": iso(done.due_ms), "outcome": str(outcome)}


async def batch(call: Call) -> Answer:
    """Schedule many tasks, once all of them are checked."""
    tasks = [each.new_task(_fresh(each.id), each.kind) for each in call.body.tasks]
    for kind in {task.kind for task in tasks}:
        call.allow("schedule", kind)
    await _check(call, tasks)
    refused: dict[int, Refused] = {}
    unconfirmed = set[str]()
    try:
        stored: Sequence[object] = await call.client.schedule_many(tasks, if_exists=call.query.if_exists)
    except TasksRefused as some:
        stored, refused = some.scheduled, some.refused
    except NotConfirmed as some:
        stored, refused = some.scheduled, some.refused
        unconfirmed = {each.id for each in some.unconfirmed if isinstance(each, Scheduled)}
    results, left = [], iter(stored)
    for at in range(len(tasks)):
        done = None if at in refused else next(left)
        results.append(_stored(done) if isinstance(done, Scheduled) else _refused(tasks[at], refused[at]))
        if isinstance(done, Scheduled) and done.id in unconfirmed:
            results[-1]["confirmed"] = False
    call.log("schedule", "schedule_batch", len(stored), refused=len(refused))
    return Answer({"results": results, "stored": len(stored), "refused": len(refused)})


def _refused(task: NewTask, error: Refused) -> dict[str, Any]:
    view = (of(error) or ApiError("internal", "")).view()
    return {"id": task.task_id, "error": {name: view[name] for name in ("type", "status", "detail")}}


async def _check(call: Call, tasks: Sequence[NewTask]) -> None:
    """Raise SpecError with everything that is wrong with the tasks of a batch."""
    checking, problems = call.served.encoder, list[Problem]()
    fresh, debounces = new_ids(), call.query.if_exists == "debounce"
    for at, task in enumerate(tasks):
        if at % AT_ONCE == 0:
            await asyncio.sleep(0)
        try:
            _allow_schedule(call, task)
            checking.prepare(task, fresh, debounces=debounces)
            call.served.check(task)
        except (InvalidTask, PayloadTooLarge) as error:
            problems += _of_batch(at, error)
    if problems:
        raise SpecError(tuple(problems))


def _of_batch(at: int, error: Refused) -> list[Problem]:
    """Return what is wrong with a task of a batch."""
    found = of(error)
    fields = [Problem(f"tasks[{at}].{path}", message) for path, message in found.errors] if found else []
    return fields or [Problem(f"tasks[{at}]", str(error))]


async def get(call: Call) -> Answer:
    """Return a task."""
    found = await call.client.get(call.task_id, kind=call.kind)
    kind = call.kind if found is None else found.kind or None
    call.allow("read", kind)
    if found is None:
        raise _missing(call)
    return Answer(rendering.task(found, payload=call.caller.may("read-payloads", kind)))


def _missing(call: Call) -> ApiError:
    kind = f" of kind {call.kind}" if call.kind else ""
    return ApiError("not-found", f"the queue has no task {call.task_id}{kind}")


async def cancel(call: Call) -> Answer:
    """Cancel a task; if the request says so, a running one, too."""
    await call.allow_task("cancel", call.kind, call.task_id)
    done = await call.client.cancel(call.task_id, kind=call.kind, running=call.query.running)
    if done is Cancelled.NOT_FOUND:
        raise _missing(call)
    if done is Cancelled.IN_FLIGHT:
        hint = "its handler runs; ?running=true cancels the run, too"
        raise ApiError("in-flight", f"task {call.task_id} is in flight: {hint}")
    if done is Cancelled.DEAD:
        raise ApiError(
            "dead-letter", f"task {call.task_id} is a dead letter: POST /deadletters:purge deletes it"
        )
    call.log("cancel", "cancel", 1, kind=call.kind, task_id=call.task_id, outcome=str(done))
    return Answer({"outcome": str(done)}, 202 if done is Cancelled.CANCELLING else 200)


async def reschedule(call: Call) -> Answer:
    """Change the due time of a task."""
    body = call.body
    delay_ms, due_ms = either(body.delay, body.delay_ms), either(body.due, body.due_ms)
    await call.allow_task("reschedule", call.kind, call.task_id)
    done = await call.client.reschedule(call.task_id, kind=call.kind, delay_ms=delay_ms, due_ms=due_ms)
    if done.outcome == "not_found":
        raise _missing(call)
    if done.outcome == "in_flight":
        raise ApiError("in-flight", f"task {call.task_id} is in flight: its handler runs")
    if done.outcome == "dead":
        raise ApiError(
            "dead-letter", f"task {call.task_id} is a dead letter: POST /deadletters:redrive runs it again"
        )
    call.log("reschedule", "reschedule", 1, kind=call.kind, task_id=call.task_id)
    return Answer({"outcome": done.outcome, "due": iso(done.due_ms)})


async def listed(call: Call) -> Answer:
    """List the tasks in a state."""
    query, offset = call.query, offset_of(call)
    call.allow_some("read", query.kind)
    state, chosen = State(query.state), query.chosen
    if state is State.IN_FLIGHT and chosen:
        raise invalid(
            "state", "expected no filter beside in_flight: such tasks cannot be selected; list them all"
        )
    rows = await call.client.list(state, offset=offset, limit=query.limit + 1, **chosen)
    return Answer(page(call, [rendering.row(each) for each in rows], offset))


async def count(call: Call) -> Answer:
    """Count tasks."""
    call.allow_some("read", call.query.kind)
    return Answer(rendering.bulk(await call.client.count_many(**call.query.chosen)))


async def cancel_many(call: Call) -> Answer:
    """Cancel tasks by filters."""
    body = call.body
    call.allow_some("cancel", body.kind)
    act = call.client.count_many if body.dry_run else call.client.cancel_many
    found = await act(**body.chosen)
    if not body.dry_run:
        call.log("cancel", "cancel_many", found.tasks + found.follow_ups, **body.chosen)
    return Answer(rendering.bulk(found, dry_run=body.dry_run))


async def reschedule_many(call: Call) -> Answer:
    """Change the due times of tasks by filters."""
    body = call.body
    call.allow_some("reschedule", body.kind)
    due_ms, shift_ms = either(body.due, body.due_ms), either(body.shift, body.shift_ms)
    if body.dry_run:
        found = await call.client.count_many(**body.chosen)
    else:
        found = await call.client.reschedule_many(due_ms=due_ms, shift_ms=shift_ms, **body.chosen)
        call.log(
            "reschedule", "reschedule_many", found.tasks, due_ms_new=due_ms, shift_ms=shift_ms, **body.chosen
        )
    return Answer(rendering.bulk(found, dry_run=body.dry_run))
