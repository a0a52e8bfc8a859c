"""What status shows of a DelayQueue: how its conditions are marked, how its tasks are, whether its operator answers."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from delayq.cli.output import Table
from delayq_operator.kubectl import queues
from delayq_operator.kubectl.queues import Lease
from delayq_operator.kubectl.text import lines, overview
from delayq_operator.status.reasons import REASONS

METADATA = {"namespace": "shop", "name": "orders"}
SINCE = {"lastTransitionTime": "1970-01-01T00:00:00Z"}


def reported(status: dict[str, Any]) -> list[str]:
    queue = {"metadata": METADATA, "status": status}
    return "\n".join(lines(queue, None, 100.0)).splitlines()


def test_a_condition_is_marked_by_whether_all_is_well() -> None:
    """The reasons of which all is well, of every condition. ScalingActive may be either, but it has to be known."""
    well = {
        "AsExpected",
        "Valid",
        "Connected",
        "ScannersReady",
        "NoRiskFound",
        "NotSuspended",
        "Complete",
        "NewReplicaSetAvailable",
    }
    well |= {"ReplicaSetUpdated", "DesiredWithinRange", "WithinObjective", "WaitingForDeletion", "Erasing"}
    for type_, reasons in REASONS.items():
        for reason, status in reasons.items():
            fine = (
                reason in well
                or (type_, reason) == ("Ready", "Suspended")
                or type_ == "ScalingActive"
                or (type_, status) == ("GuardAvailable", "True")
            )
            mark = "?" if status == "Unknown" else "✓" if fine else "!"
            shown = reported(
                status={"conditions": [{"type": type_, "status": status, "reason": reason, **SINCE}]}
            )
            assert [each for each in shown if each.startswith(f"{mark}  {type_} ")], (type_, reason)


def test_a_degraded_queue_says_so_in_the_headline_and_in_the_overview() -> None:
    degraded = {"type": "Degraded", "status": "True", "reason": "QueueConflict", "message": "Two share one."}
    ready = {"type": "Ready", "status": "True", "reason": "AsExpected", **SINCE}
    conditions = [ready, degraded | SINCE]
    queue: dict[str, Any] = {"metadata": METADATA, "spec": {}, "status": {"conditions": conditions}}
    assert (
        next(iter(lines(queue, None, 100.0)))
        == "orders in shop: ready for 100s, but degraded: Two share one."
    )
    table = overview([queue], 0.0, everywhere=False)
    assert isinstance(table, Table)
    assert table.rows[0][-1] == "QueueConflict"


def test_the_overview_has_a_column_and_the_reason_of_parked_tasks_if_a_queue_has_some() -> None:
    """Any count but that of parked tasks may be 0. What keeps a queue from being Ready comes first."""
    unknown = {"type": "Degraded", "status": "True", "reason": "TasksParked"}

    def shown(ready: str, *conditions: dict[str, Any], parked: int = 0) -> dict[str, str]:
        first = {
            "type": "Ready",
            "status": ready,
            "reason": "AsExpected" if ready == "True" else "Unreachable",
        }
        backlog = {"due": 0, "inFlight": 2} | ({"parked": parked} if parked else {})
        status = {"conditions": [first, *conditions], "backlog": backlog}
        table = overview([{"metadata": METADATA, "spec": {}, "status": status}], 0.0, everywhere=False)
        assert isinstance(table, Table)
        return dict(zip(table.headings, table.rows[0], strict=True))

    assert shown("True").keys() == shown("True", unknown, parked=1).keys() - {">PARKED"}
    assert (shown("True")[">DUE"], shown("True")[">IN-FLIGHT"], shown("True")[">DEAD"]) == ("0", "2", "-")
    found = shown("True", unknown, parked=4000)
    assert (found[">PARKED"], found["WHY"]) == ("4,000", "TasksParked")
    assert shown("True", unknown | {"status": "False"}, parked=1)["WHY"] == "-"
    assert shown("True", {"type": "Ready", "status": "True", "reason": "Suspended"})["WHY"] == "Suspended"
    assert shown("False", unknown)["WHY"] == "Unreachable"


@pytest.mark.parametrize(
    ("renew_time", "age", "sentence"),
    [
        ("1970-01-01T00:01:40.5Z", "now", ""),
        ("1970-01-01T00:00:41.000000Z", "59s ago", ""),
        (
            "1970-01-01T00:00:39Z",
            "61s ago",
            "The operator does not answer: it renewed Lease system/delayq 61s ago. ",
        ),
        (None, None, "The operator does not run: it does not hold Lease system/delayq. "),
    ],
)
def test_the_age_of_the_operators_lease_is_reported(
    renew_time: str | None, age: str | None, sentence: str
) -> None:
    """The operator writes nothing while nothing changes, so only its Lease shows whether it still decides."""
    lease = Lease(name="system/delayq", renew_time=renew_time)
    found = "\n".join(lines({"metadata": METADATA}, lease, 100.0)).splitlines()
    assert found[1].startswith(sentence)
    assert bool(found[1]) == bool(sentence)
    reported = f"renewed Lease system/delayq {age}" if age else "does not hold Lease system/delayq"
    assert f"operator  {reported}" in found


def test_a_name_of_a_lease_that_is_none_reaches_no_kubectl() -> None:
    """Who may write a ConfigMap chooses it, and kubectl would take it for an option."""
    asked: list[tuple[str, ...]] = []

    class Answering:
        def run(self, *args: str, namespace: str | None = None) -> SimpleNamespace:
            asked.append((*args[:3], str(namespace)))
            names = ("ns/--server=https://elsewhere", "--as=admin/x", "n s/x", "ns/x\x1b[2J", "system/delayq")
            return SimpleNamespace(
                returncode=0, stdout="" if args[1] == "lease" else "".join(f"1 {each}\n" for each in names)
            )

    kubectl: Any = Answering()
    assert [each.name for each in queues.leases(kubectl)] == ["system/delayq"]
    assert asked[1:] == [("get", "lease", "delayq", "system")]


def line(name: str, **status: dict[str, Any]) -> str:
    """What follows a name, among the facts; ready comes first, or there are none."""
    ready = {"conditions": [{"type": "Ready", "status": "True", **SINCE}]}
    found = [each for each in reported(ready | status) if each.startswith(f"{name} ")]
    return found[0].partition(" ")[2].strip() if found else ""


def test_the_progress_of_a_migration_is_shown() -> None:
    assert line("resharding") == ""
    moving = {"fromShards": 4, "toShards": 8, "checkedTasks": 1200}
    assert line("resharding", resharding=moving) == "fromShards 4, toShards 8, checkedTasks 1200"


def test_times_of_the_backlog_are_ages() -> None:
    backlog = {"due": 1, "oldestDueTime": "1970-01-01T00:00:40Z", "nextDueTime": "1970-01-01T01:01:40Z"}
    shown = line("tasks", backlog=backlog | {"observedTime": "1970-01-01T00:01:35Z"})
    assert shown.startswith("1 due, the oldest 1m ago; 0 scheduled, the next in 1h; ")
    assert shown.endswith("0 dead letters (5s ago)")
