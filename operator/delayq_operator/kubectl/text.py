"""Format a DelayQueue's status as text. Pure; `now` is in Unix seconds."""

from __future__ import annotations

import re
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from delayq.cli.formats import clean, length, relative, tasks
from delayq.cli.output import Table, facts

from delayq_operator.kubectl import queues

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from delayq.kube.objects import Object

PRESSURE: Final = re.compile("Degraded|ScalingLimited|Capacity.*|Suspended")
"""Conditions that need attention if they are True; others do if they are False, but for ScalingActive."""
UNKNOWN: Final = "not known yet"

SILENT_SECONDS: Final = 60.0
"""A Lease is renewed every 3 s and lasts 15; the clock of the reader's machine may differ."""


def lines(queue: Object, lease: queues.Lease | None, now: float) -> Iterator[str]:
    """Yield the text of one queue, the most important first. `lease`: that of its operator, if it can be read."""
    yield _headline(queue, now)
    if lease and (silence := silent(lease, now)):
        yield clean(silence)
    yield ""
    yield facts([*_facts(queue, now), *([("operator", _operator(lease, now))] if lease else [])])
    if found := _conditions(queue):
        rows = [_condition(each, now) for each in found.values()]
        yield from ("", *Table(["", "CONDITION", "STATUS", "REASON", "FOR", "MESSAGE"], rows).lines())


def silent(lease: queues.Lease, now: float) -> str:
    """Return what follows if no operator renews its Lease; empty if one does."""
    if lease.renew_time and now - _unix(lease.renew_time) <= SILENT_SECONDS:
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
    return f"renewed Lease {lease.name} {_relative(lease.renew_time, now)}"


def _headline(queue: Object, now: float) -> str:
    namespace, name = queues.place(queue)
    ready, degraded = _conditions(queue).get("Ready"), _true(queue, "Degraded")
    if ready is None:
        return f"{name} in {namespace}: no operator has reconciled it yet. Does one serve this namespace?"
    how = {"True": "ready", "False": "not ready"}.get(ready["status"], "not known to be ready")
    why = "" if ready["status"] == "True" else f": {clean(ready.get('message', ''))}"
    if degraded is not None and not why:
        why = f", but degraded: {clean(degraded.get('message', ''))}"
    return f"{name} in {namespace}: {how} for {_age(ready, now)}{why}"


def _conditions(queue: Object) -> dict[str, Object]:
    """Return the conditions by type."""
    return {each["type"]: each for each in queue.get("status", {}).get("conditions") or ()}


def _true(queue: Object, type_: str) -> Object | None:
    """Return a condition if it is True."""
    found = _conditions(queue).get(type_, {})
    return found if found.get("status") == "True" else None


def _facts(queue: Object, now: float) -> Iterator[tuple[str, str]]:
    status, deleted = queue.get("status", {}), queue["metadata"].get("deletionTimestamp")
    scanner = status.get("scanner") or {}
    desired = f", {status['desiredReplicas']} desired" if "desiredReplicas" in status else ""
    yield "tasks", _backlog(status.get("backlog"), now)
    yield "scanners", f"{scanner.get('readyReplicas', 0)} of {scanner.get('replicas', 0)} ready"
    yield "workers", f"{status.get('readyReplicas', 0)} of {status.get('replicas', 0)} ready{desired}"
    if (api := status.get("api")) is not None:
        yield "API", f"{api.get('readyReplicas', 0)} of {api.get('replicas', 0)} ready"
    yield "scaling", _scaling(queue, now)
    if run := (status.get("reaper") or {}).get("lastSuccessfulTime"):
        yield "reaper", f"last success {_relative(run, now)}"
    if moving := status.get("resharding"):
        yield "resharding", ", ".join(f"{field} {value}" for field, value in moving.items())
    if deleted:
        yield "deleted", f"{_relative(deleted, now)}, not gone yet"


def _backlog(backlog: Mapping[str, Any] | None, now: float) -> str:
    if not backlog:
        return UNKNOWN
    oldest, following = (backlog.get(each) for each in ("oldestDueTime", "nextDueTime"))
    due = f", the oldest {_relative(oldest, now)}" if oldest else ""
    scheduled = f", the next {_relative(following, now)}" if following else ""
    parked = f"{backlog['parked']:,} parked; " if "parked" in backlog else ""
    return (
        f"{backlog.get('due', 0):,} due{due}; {backlog.get('scheduled', 0):,} scheduled{scheduled}; "
        f"{backlog.get('inFlight', 0):,} in flight; {backlog.get('retrying', 0):,} retrying; {parked}"
        f"{tasks(backlog.get('dead', 0), 'dead letter')} ({_relative(backlog['observedTime'], now)})"
    )


def _scaling(queue: Object, now: float) -> str:
    """Format the last scaling decision."""
    scaling = queue.get("status", {}).get("scaling") or {}
    active = _conditions(queue).get("ScalingActive") or {}
    limited = f"; limited by {scaling['limitedBy']}" if scaling.get("limitedBy") else ""
    last = f" (last changed {_relative(scaling['lastScaleTime'], now)})" if "lastScaleTime" in scaling else ""
    return f"{scaling.get('message') or active.get('message') or UNKNOWN}{limited}{last}"


def _condition(each: Object, now: float) -> list[str]:
    type_, status = each["type"], each["status"]
    well = type_ == "ScalingActive" or (status == "True") != bool(PRESSURE.fullmatch(type_))
    mark = "?" if status == "Unknown" else "✓" if well else "!"
    return [mark, type_, status, each.get("reason", ""), _age(each, now), each.get("message", "")]


def overview(found: Sequence[Object], now: float, *, everywhere: bool) -> Table | str:
    """Return a table of queues."""
    if not found:
        return "no DelayQueues" if everywhere else "no DelayQueues here"
    cells = [_cells(queue, now) for queue in found]
    parked = any(each[">PARKED"] not in ("-", "0") for each in cells)
    hidden = {*(() if everywhere else ("NAMESPACE",)), *(() if parked else (">PARKED",))}
    headings = [heading for heading in cells[0] if heading not in hidden]
    return Table(headings, [[each[heading] for heading in headings] for each in cells])


def _cells(queue: Object, now: float) -> dict[str, str]:
    """Return the cells of a queue by heading."""
    (namespace, name), status = queues.place(queue), queue.get("status", {})
    backlog = status.get("backlog") or {}
    ready = _conditions(queue).get("Ready") or {"status": "Unknown", "reason": "NoOperator"}
    counts = ("due", "scheduled", "inFlight", "retrying", "dead", "parked")
    shown = {each: f"{backlog[each]:,}" if each in backlog else "-" for each in counts}
    return {
        "NAMESPACE": namespace,
        "NAME": name,
        "READY": ready["status"],
        **{f">{each.replace('F', '-f').upper()}": cell for each, cell in shown.items()},
        ">WORKERS": f"{status.get('readyReplicas', 0):,}",
        ">DESIRED": f"{status.get('desiredReplicas', '-')}",
        "NEXT-DUE": _relative(backlog["nextDueTime"], now) if "nextDueTime" in backlog else "-",
        "WHY": _why(queue, ready),
    }


def _why(queue: Object, ready: Object) -> str:
    """Return the reason of Ready, or of Degraded if Ready is True; a dash if both are as expected."""
    degraded = _true(queue, "Degraded") if ready["status"] == "True" else None
    reason: str = (degraded or ready).get("reason", "")
    return "-" if reason == "AsExpected" else reason


def _unix(time: str) -> float:
    return datetime.fromisoformat(time).timestamp()


def _age(condition: Object, now: float) -> str:
    """Format how long a condition has its status. Clocks differ, so a future time counts as now."""
    return length(max(0.0, now - _unix(condition["lastTransitionTime"])) * 1000)


def _relative(time: str, now: float) -> str:
    """Format a time of the API: in 3m, 2m ago; one less than a second away is now."""
    at = _unix(time)
    return relative(int(at * 1000), int(now * 1000)) if abs(at - now) >= 1 else "now"
