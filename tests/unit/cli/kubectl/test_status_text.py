"""What is told of a DelayQueue: how its conditions are marked, where its Redis is, how far its tasks have moved."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from delayq.cli.kubectl import queues
from delayq.cli.kubectl.queues import Lease
from delayq.cli.kubectl.status_text import View, data, lines, overview
from delayq.cli.output import Table

METADATA = {"namespace": "shop", "name": "orders"}


def told(*, spec: dict[str, Any] | None = None, status: dict[str, Any]) -> list[str]:
    queue = {"metadata": METADATA, "spec": spec or {}, "status": status}
    return "\n".join(lines(View(queue=queue, pods=[], events=[]), 0.0)).splitlines()


def test_a_condition_is_marked_by_whether_all_is_well() -> None:
    """ScalingActive may be either, but whether it is has to be known."""
    for type_, status, mark in (
        ("Ready", "Unknown", "?"),
        ("Paused", "False", "✓"),
        ("ReshardingComplete", "False", "!"),
        ("ScalingActive", "False", "✓"),
    ):
        condition = {"type": type_, "status": status}
        assert [
            each for each in told(status={"conditions": [condition]}) if each.startswith(f"{mark}  {type_} ")
        ]


def test_a_degraded_queue_says_so_in_the_headline_and_in_the_overview() -> None:
    degraded = {"type": "Degraded", "status": "True", "reason": "QueueConflict", "message": "Two share one."}
    ready = {"type": "Ready", "status": "True", "reason": "AsExpected"}
    queue: dict[str, Any] = {"metadata": METADATA, "spec": {}, "status": {"conditions": [ready, degraded]}}
    headline = next(iter(lines(View(queue=queue, pods=[], events=[]), 0.0)))
    assert headline.endswith(", but degraded: Two share one.")
    table = overview([queue], 0.0, everywhere=False)
    assert isinstance(table, Table)
    assert table.rows[0][-1] == "QueueConflict"


def test_the_overview_has_a_column_and_the_reason_of_parked_tasks_if_a_queue_has_some() -> None:
    """Any count but that of parked tasks may be 0. What keeps a queue from being Ready comes first."""
    unknown = {"type": "UnknownKinds", "status": "True", "reason": "TasksParked"}

    def shown(ready: str, *conditions: dict[str, Any], parked: int = 0, wide: bool = False) -> dict[str, str]:
        first = {"type": "Ready", "status": ready, "reason": "Unreachable"}
        backlog = {"due": 0} | ({"parked": parked} if parked else {})
        status = {"conditions": [first, *conditions], "backlog": backlog}
        table = overview(
            [{"metadata": METADATA, "spec": {}, "status": status}], 0.0, everywhere=False, wide=wide
        )
        assert isinstance(table, Table)
        return dict(zip(table.headings, table.rows[0], strict=True))

    assert shown("True").keys() == shown("True", unknown, parked=1).keys() - {">PARKED"}
    assert shown("True", wide=True)[">PARKED"] == "-"
    found = shown("True", unknown, parked=4000)
    assert (found[">PARKED"], found["WHY"]) == ("4,000", "TasksParked")
    assert shown("True", unknown | {"status": "False"}, parked=1)["WHY"] == "-"
    degraded = {"type": "Degraded", "status": "True", "reason": "QueueConflict"}
    assert shown("True", unknown, degraded)["WHY"] == "QueueConflict"
    assert shown("False", unknown)["WHY"] == "Unreachable"


@pytest.mark.parametrize(
    ("renew_time", "age", "sentence"),
    [
        ("1970-01-01T00:01:40.5Z", "just now", ""),
        ("1970-01-01T00:00:41.000000Z", "59s ago", ""),
        (
            "1970-01-01T00:00:39Z",
            "61s ago",
            "The operator does not answer: it renewed Lease system/delayq 61s ago. ",
        ),
        (
            "soon",
            "at an unknown time",
            "The operator does not answer: it renewed Lease system/delayq at an unknown",
        ),
        (None, None, "The operator does not run: it does not hold Lease system/delayq. "),
    ],
)
def test_the_age_of_the_operators_lease_is_told(
    renew_time: str | None, age: str | None, sentence: str
) -> None:
    """The operator writes nothing while nothing changes, so only its Lease shows whether it still decides."""
    lease = Lease(name="system/delayq", renew_time=renew_time)
    view = View(queue={"metadata": METADATA}, pods=[], events=[], lease=lease)
    found = "\n".join(lines(view, 100.0)).splitlines()
    assert found[1].startswith(sentence)
    assert bool(found[1]) == bool(sentence)
    told = f"renewed Lease system/delayq {age}" if age else "does not hold Lease system/delayq"
    assert f"operator  {told}" in found
    assert data(view)["operator"] == {"lease": "system/delayq", "renewTime": renew_time}


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


def line(name: str, *, spec: dict[str, Any] | None = None, status: dict[str, Any] | None = None) -> str:
    """What follows a name, among the facts; ready comes first, or there are none."""
    ready = {"conditions": [{"type": "Ready", "status": "True"}]}
    found = [each for each in told(spec=spec, status=ready | (status or {})) if each.startswith(f"{name} ")]
    return found[0].partition(" ")[2].strip() if found else ""


@pytest.mark.parametrize(
    ("redis", "words"),
    [
        ({"standalone": {"host": "redis", "port": 6380}, "tls": {}}, "redis:6380, database 0, TLS"),
        (
            {"sentinel": {"masterName": "main", "nodes": [{"host": "s-0"}, {"host": "s-1"}]}, "tls": {}},
            "main, of Sentinels at s-0, s-1, TLS",
        ),
        ({"cluster": {"nodes": [{"host": "n-0"}, {"host": "n-1"}]}}, "Cluster of n-0, n-1"),
        ({}, "not known yet"),
    ],
)
def test_where_redis_is_is_told_whatever_it_is(redis: dict[str, Any], words: str) -> None:
    assert line("redis", spec={"redis": redis}) == words


@pytest.mark.parametrize(
    ("moving", "words"),
    [
        (None, ""),
        (
            {"fromShards": 1, "toShards": 4, "checkedTasks": 0, "movedTasks": 0},
            "1 → 4: checked 0 tasks, moved 0",
        ),
        (
            {
                "fromShards": 4,
                "toShards": 8,
                "checkedTasks": 1200,
                "tasks": 3000,
                "movedTasks": 600,
                "waitingTasks": 7,
            },
            "4 → 8: checked 1,200 of 3,000 tasks, moved 600, 7 wait to run",
        ),
    ],
)
def test_how_far_tasks_have_moved_is_told_while_they_do(moving: dict[str, Any] | None, words: str) -> None:
    assert line("shards", status={"resharding": moving} if moving else {}) == words
