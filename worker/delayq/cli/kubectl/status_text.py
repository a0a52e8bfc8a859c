"""Format a DelayQueue's API objects as text. Pure; `now` is in Unix seconds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from delayq_operator.base import names
from delayq_operator.cache.pod import read

from delayq.cli.formats import clean, tasks
from delayq.cli.kubectl import queues
from delayq.cli.kubectl.times import ago, since, unix, until
from delayq.cli.output import Table, facts

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from delayq.cli.kubectl.kubectl import Object

EXPECTED: Final[Mapping[str, str]] = {
    "Ready": "True",
    "Accepted": "True",
    "BackendAvailable": "True",
    "DurabilityAtRisk": "False",
    "ReshardingComplete": "True",
    "GuardAvailable": "True",
    "UnknownKinds": "False",
    "Progressing": "True",
    "Degraded": "False",
    "ScalingLimited": "False",
    "FallbackActive": "False",
    "ObjectiveMet": "True",
    "CapacityShortfallExpected": "False",
    "Paused": "False",
}
"""Condition → its healthy status; other conditions have none."""

UNKNOWN: Final = "not known yet"

SILENT_SECONDS: Final = 60.0
"""A Lease is renewed every 3 s and lasts 15; the clock of the reader's machine may differ."""


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """The objects to show."""

    queue: Object
    pods: Sequence[Object]
    events: Sequence[Object]
    lease: queues.Lease | None = None
    """That of its operator; None if it cannot be read."""


def conditions(queue: Object) -> dict[str, Object]:
    """Return the conditions by type."""
    return {each["type"]: each for each in queue.get("status", {}).get("conditions") or ()}


def summary(queue: Object) -> Object:
    """Return the JSON view without pods and events."""
    namespace, name = queues.place(queue)
    return {"namespace": namespace, "name": name, "status": queue.get("status", {})}


def data(view: View) -> Object:
    """Return the JSON view."""
    return {
        **summary(view.queue),
        **({"operator": _operator_data(view.lease)} if view.lease else {}),
        "pods": [_pod_data(body) for body in view.pods],
        "events": [
            {field: event.get(field) for field in ("type", "reason", "message", "count")}
            | {"time": queues.when(event)}
            for event in view.events
        ],
    }


def _operator_data(lease: queues.Lease) -> Object:
    return {"lease": lease.name, "renewTime": lease.renew_time}


def _pod_data(body: Object) -> Object:
    pod = read(body)
    return {"name": pod.name, "component": pod.component, "ready": pod.ready, "trouble": pod.trouble}


def lines(view: View, now: float) -> Iterator[str]:
    """Yield the text of one queue, the most important first."""
    yield _headline(view.queue, now)
    if view.lease and (silence := silent(view.lease, now)):
        yield clean(silence)
    yield ""
    operator = [("operator", _operator(view.lease, now))] if view.lease else []
    yield facts([*_facts(view.queue, now), *operator])
    for table in (_conditions(view.queue, now), _pods(view.pods, now), _events(view.events, now)):
        if table.rows:
            yield ""
            yield from table.lines()


def silent(lease: queues.Lease, now: float) -> str:
    """Return what follows if no operator renews its Lease; empty if one does."""
    renewed = unix(lease.renew_time)
    if renewed is not None and now - renewed <= SILENT_SECONDS:
        return ""
    what = "does not answer" if lease.renew_time else "does not run"
    return (
        f"The operator {what}: it {_operator(lease, now)}. This status may be old. Tasks run on the workers that are "
        "ready; none is started for tasks that fall due, and nothing is repaired."
    )


def _operator(lease: queues.Lease, now: float) -> str:
    """Format the age of the last decision on a queue: an operator decides as long as it renews its Lease."""
    if lease.renew_time is None:
        return f"does not hold Lease {lease.name}"
    return f"renewed Lease {lease.name} {ago(lease.renew_time, now)}"


def _headline(queue: Object, now: float) -> str:
    namespace, name = queues.place(queue)
    ready = conditions(queue).get("Ready")
    if ready is None:
        return f"{name} in {namespace}: no operator has reconciled it yet. Does one serve this namespace?"
    how = {"True": "ready", "False": "not ready"}.get(ready["status"], "not known to be ready")
    why = "" if ready["status"] == "True" else f": {clean(ready.get('message', ''))}"
    if (degraded := _true(queue, "Degraded")) is not None and not why:
        why = f", but degraded: {clean(degraded.get('message', ''))}"
    return f"{name} in {namespace}: {how} for {since(ready.get('lastTransitionTime'), now)}{why}"


def _true(queue: Object, *types: str) -> Object | None:
    """Return the first of these conditions that is True."""
    found = conditions(queue)
    return next((found[each] for each in types if found.get(each, {}).get("status") == "True"), None)


def _facts(queue: Object, now: float) -> Iterator[tuple[str, str]]:
    spec, status = queue.get("spec", {}), queue.get("status", {})
    yield "tasks", _backlog(status.get("backlog"), now)
    scanner = status.get("scanner") or {}
    yield "scanners", f"{scanner.get('readyReplicas', 0)} of {scanner.get('replicas', 0)} ready"
    yield "workers", _workers(status)
    yield "scaling", _scaling(queue, now)
    if run := (status.get("reaper") or {}).get("lastSuccessfulTime"):
        yield "reaper", f"last success {ago(run, now)}"
    yield "redis", _redis(spec.get("redis") or {})
    if moving := status.get("resharding"):
        yield "shards", _shards(moving)
    if queue["metadata"].get("annotations", {}).get(names.PAUSED) == "true":
        yield "paused", "the operator changes no children; kubectl dq reconcile resume ends that"
    if (held := spec.get("stopPolicy", "None")) != "None":
        yield "held", f"spec.stopPolicy is {held}: no task is started; kubectl dq unhold ends that"
    if "deletionTimestamp" in queue["metadata"]:
        yield "deleted", f"{ago(queue['metadata']['deletionTimestamp'], now)}, not gone yet"


def _backlog(backlog: Mapping[str, Any] | None, now: float) -> str:
    if not backlog:
        return UNKNOWN
    oldest = f", the oldest for {since(backlog['oldestDueTime'], now)}" if "oldestDueTime" in backlog else ""
    following = f", the next {until(backlog['nextDueTime'], now)}" if "nextDueTime" in backlog else ""
    parked = f"{backlog['parked']:,} parked; " if "parked" in backlog else ""
    return (
        f"{backlog.get('due', 0):,} due{oldest}; {backlog.get('scheduled', 0):,} scheduled{following}; "
        f"{backlog.get('inFlight', 0):,} in flight; {backlog.get('retrying', 0):,} retrying; "
        f"{parked}{tasks(backlog.get('dead', 0), 'dead letter')} ({ago(backlog.get('observedTime'), now)})"
    )


def _workers(status: Mapping[str, Any]) -> str:
    ready = f"{status.get('readyReplicas', 0)} of {status.get('replicas', 0)} ready"
    return f"{ready}, {status['desiredReplicas']} desired" if "desiredReplicas" in status else ready


def _scaling(queue: Object, now: float) -> str:
    """Format the last scaling decision."""
    status = queue.get("status", {})
    scaling = status.get("scaling") or {}
    active = conditions(queue).get("ScalingActive") or {}
    message = clean(scaling.get("message") or active.get("message") or UNKNOWN)
    limited = f"; limited by {clean(scaling['limitedBy'])}" if scaling.get("limitedBy") else ""
    last = f" (last changed {ago(scaling['lastScaleTime'], now)})" if "lastScaleTime" in scaling else ""
    return f"{message}{limited}{last}"


def _redis(redis: Mapping[str, Any]) -> str:
    if "standalone" in redis:
        where = f"{redis['standalone'].get('host')}:{redis['standalone'].get('port', 6379)}"
        return f"{where}, database {redis.get('database', 0)}{', TLS' if 'tls' in redis else ''}"
    for kind in ("sentinel", "cluster"):
        if kind in redis:
            nodes = ", ".join(str(node.get("host")) for node in redis[kind].get("nodes") or ())
            of = f"{redis[kind]['masterName']}, of Sentinels at" if kind == "sentinel" else "Cluster of"
            return f"{of} {nodes}{', TLS' if 'tls' in redis else ''}"
    return UNKNOWN


def _shards(moving: Mapping[str, Any]) -> str:
    """Format the progress of resharding."""
    done, of = moving.get("checkedTasks", 0), moving.get("tasks")
    checked = f"{done:,} of {tasks(of)}" if of else tasks(done)
    progress = f"{moving.get('fromShards')} → {moving.get('toShards')}: checked {checked}"
    waiting = f", {moving['waitingTasks']:,} wait to run" if moving.get("waitingTasks") else ""
    return f"{progress}, moved {moving.get('movedTasks', 0):,}{waiting}"


def _conditions(queue: Object, now: float) -> Table:
    rows = [
        [
            _mark(each),
            each["type"],
            each["status"],
            each.get("reason", ""),
            since(each.get("lastTransitionTime"), now),
            each.get("message", ""),
        ]
        for each in conditions(queue).values()
    ]
    return Table(["", "CONDITION", "STATUS", "REASON", "FOR", "MESSAGE"], rows)


def _mark(condition: Object) -> str:
    status = condition["status"]
    if status == "Unknown":
        return "?"
    return "✓" if status == EXPECTED.get(condition["type"], status) else "!"


def _pods(bodies: Sequence[Object], now: float) -> Table:
    rows = []
    for body in sorted(bodies, key=lambda each: str(each["metadata"]["name"])):
        pod = read(body)
        if body.get("status", {}).get("phase") == "Succeeded":
            continue
        restarts = sum(
            c.get("restartCount", 0) for c in body.get("status", {}).get("containerStatuses") or ()
        )
        state = (
            "leaving" if pod.leaving else "ready" if pod.ready else "failed" if pod.failed else "not ready"
        )
        trouble = pod.trouble.removeprefix(f"{pod.name}: ")
        node = body.get("spec", {}).get("nodeName", "-")
        rows.append([pod.name, state, f"{restarts:,}", since(pod.created, now), node, trouble or "-"])
    return Table(["POD", "STATE", ">RESTARTS", "AGE", "NODE", "TROUBLE"], rows)


def _events(events: Sequence[Object], now: float) -> Table:
    rows = [
        [since(queues.when(each), now), each.get("type", ""), each.get("reason", ""), each.get("message", "")]
        for each in events
    ]
    return Table(["EVENT", "TYPE", "REASON", "MESSAGE"], rows)


WIDE: Final = (">PARKED", ">SCANNERS", "REDIS", "AGE")


def overview(found: Sequence[Object], now: float, *, everywhere: bool, wide: bool = False) -> Table | str:
    """Return a table of queues."""
    if not found:
        return "no DelayQueues here" if not everywhere else "no DelayQueues"
    hidden = {*(() if everywhere else ("NAMESPACE",)), *(() if wide else WIDE)}
    if any((queue.get("status", {}).get("backlog") or {}).get("parked") for queue in found):
        hidden.discard(">PARKED")
    cells = [_cells(queue, now) for queue in found]
    headings = [heading for heading in cells[0] if heading not in hidden]
    return Table(headings, [[each[heading] for heading in headings] for each in cells])


def _cells(queue: Object, now: float) -> dict[str, str]:
    """Return the cells of a queue by heading."""
    namespace, name = queues.place(queue)
    status = queue.get("status", {})
    backlog, scanner = status.get("backlog") or {}, status.get("scanner") or {}
    ready = conditions(queue).get("Ready") or {"status": "Unknown", "reason": "NoOperator"}
    attention = _true(queue, "Degraded", "UnknownKinds") or {"reason": "-"}

    def number(field: str) -> str:
        return f"{backlog[field]:,}" if field in backlog else "-"

    return {
        "NAMESPACE": namespace,
        "NAME": name,
        "READY": ready["status"],
        ">DUE": number("due"),
        ">SCHEDULED": number("scheduled"),
        ">IN-FLIGHT": number("inFlight"),
        ">RETRYING": number("retrying"),
        ">DEAD": number("dead"),
        ">PARKED": number("parked"),
        ">WORKERS": f"{status.get('readyReplicas', 0):,}",
        ">DESIRED": f"{status.get('desiredReplicas', '-')}",
        "NEXT-DUE": until(backlog["nextDueTime"], now) if "nextDueTime" in backlog else "-",
        "WHY": attention["reason"] if ready["status"] == "True" else ready.get("reason", ""),
        ">SCANNERS": f"{scanner.get('readyReplicas', 0):,}",
        "REDIS": _redis(queue["spec"].get("redis") or {}),
        "AGE": since(queue["metadata"].get("creationTimestamp"), now),
    }
