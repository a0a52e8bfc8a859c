"""The status says when a condition turned, keeps what is unknown now, and is written when it says something new."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

import pytest
from delayq.contract.files import Reference
from delayq.scaling import Sample, sentence
from delayq_operator.base.phrases import timestamp
from delayq_operator.cache.workload import Workload
from delayq_operator.scaling.capacity_forecast import Rush
from delayq_operator.scaling.scaling import Observed, scale
from delayq_operator.scrape.changes import NUMBERS_SECONDS, bucket
from delayq_operator.scrape.shards import ShardMap, Shards
from delayq_operator.scrape.worker_reports import Seen
from delayq_operator.status.status import MOST_NUMBER, status, wait_seconds
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.operator.queues import queue
from tests.unit.operator.views import HEALTHY, NOW, RUNNING, decided, resource, scaled, view

if TYPE_CHECKING:
    from delayq_operator.scrape.backlog import Backlog
    from delayq_operator.status.view import View

ROLLING = Workload(exists=True, wanted=2, pods=3, updated=1, ready=2, current=True)
RUSH = Rush(at=NOW + 600, needed=63, late_seconds=660)
BUSY = replace(
    HEALTHY, due=12, scheduled=48_210, in_flight=31, dead=2, oldest_due_at=NOW - 3, next_due_at=NOW + 60
)
MOVING = replace(
    HEALTHY,
    whole_at=NOW,
    shards=Shards(shard_map=ShardMap(3, 4, 1, 4), tasks=300, checked=120, moved=90, waiting=5),
)


def entry(made: dict[str, Any], kind: str) -> dict[str, Any]:
    found: dict[str, Any] = next(each for each in made["conditions"] if each["type"] == kind)
    return found


def test_a_status_has_every_field() -> None:
    scanner = Workload(exists=True, wanted=3, pods=1, ready=1, current=True)
    seen = view(
        scanner=scanner, backlog=BUSY, reaper={"lastScheduleTime": "2026-01-01T00:00:00Z", "active": []}
    )
    made = status(seen, {}, NOW)
    conditions = made.pop("conditions")
    assert made == {
        "observedGeneration": 3,
        "replicas": 1,
        "readyReplicas": 1,
        "desiredReplicas": 1,
        "selector": "delayq.dev/queue=orders,app.kubernetes.io/component=worker",
        "scanner": {"replicas": 1, "readyReplicas": 1},
        "reaper": {"lastScheduleTime": "2026-01-01T00:00:00Z"},
        "backlog": {
            "due": 12,
            "scheduled": 48_210,
            "inFlight": 31,
            "retrying": 0,
            "dead": 2,
            "parked": 0,
            "oldestDueTime": timestamp(NOW - 3),
            "nextDueTime": timestamp(NOW + 60),
            "observedTime": timestamp(NOW),
        },
    }
    assert conditions[0] == {
        "type": "Ready",
        "status": "True",
        "observedGeneration": 3,
        "lastTransitionTime": timestamp(NOW),
        "reason": "AsExpected",
        "message": "Tasks run when they fall due.",
    }


def test_another_reason_is_no_transition() -> None:
    first = status(view(), {}, NOW)
    made = status(view(worker=ROLLING), first, NOW + 60)
    assert entry(made, "Progressing")["reason"] == "ReplicaSetUpdated"
    assert entry(made, "Progressing")["lastTransitionTime"] == timestamp(NOW)


def test_what_was_measured_stays_until_a_new_leader_has_read_the_scanners_once() -> None:
    kinds = ("BackendAvailable", "DurabilityMet", "ObjectiveMet")
    before = status(view(), {}, NOW)
    made = status(view(backlog=None), before, NOW + 60)
    assert [entry(made, kind) for kind in kinds] == [entry(before, kind) for kind in kinds]
    failed = status(view(backlog=None, unread="it does not answer"), before, NOW + 60)
    assert entry(failed, "DurabilityMet")["status"] == "Unknown"
    unknown = status(view(backlog=None, scanner=Workload(exists=True)), {}, NOW)
    assert entry(status(view(backlog=None), unknown, NOW), "BackendAvailable")["reason"] == "ScannersReady"


def test_another_status_is_a_transition_of_its_own_time() -> None:
    first = status(view(), {}, NOW)
    made = status(view(backlog=replace(HEALTHY, redis_up=False, whole=False)), first, NOW + 60)
    assert entry(made, "Ready")["lastTransitionTime"] == timestamp(NOW + 60)
    assert entry(made, "BackendAvailable")["lastTransitionTime"] == timestamp(NOW + 60)
    assert entry(made, "Accepted")["lastTransitionTime"] == timestamp(NOW)


@pytest.mark.parametrize("unknown", [None, replace(HEALTHY, whole=False, due=1)])
def test_numbers_and_parked_tasks_stay_while_scanners_are_not_read(unknown: Backlog | None) -> None:
    """With the time at which they were measured."""
    before = status(view(backlog=replace(BUSY, parked=3), long_parked=True), {}, NOW)
    assert entry(before, "Degraded")["reason"] == "TasksParked"
    later = status(view(backlog=unknown), before, NOW + 60)
    assert later["backlog"] == before["backlog"]
    assert entry(later, "Degraded") == entry(before, "Degraded")
    failing = status(view(backlog=unknown, taken=("ConfigMap orders-config",)), before, NOW + 60)
    assert entry(failing, "Degraded")["reason"] == "NameConflict"
    assert "backlog" not in status(view(backlog=unknown), {}, NOW)
    gone = status(view(backlog=BUSY), before, NOW)
    assert entry(gone, "Degraded")["reason"] == "AsExpected"


def test_a_change_of_shards_tells_how_far_it_is_until_it_is_over() -> None:
    four = queue(shards=4)
    asked = status(view(queue=four), {}, NOW)
    message = asked["resharding"].pop("message")
    assert message.startswith("Tasks are in 1 shard, spec.shards is 4:")
    assert asked["resharding"] == {"fromShards": 1, "toShards": 4, "checkedTasks": 0, "movedTasks": 0}
    under_way = status(view(queue=four, backlog=MOVING), asked, NOW)
    assert under_way["resharding"] == {
        "fromShards": 1,
        "toShards": 4,
        "checkedTasks": 120,
        "movedTasks": 90,
        "waitingTasks": 5,
        "tasks": 300,
    }
    assert status(view(queue=four, backlog=None), under_way, NOW)["resharding"] == under_way["resharding"]
    done = replace(HEALTHY, shards=Shards(shard_map=ShardMap(4, 4, 4, 4)))
    assert "resharding" not in status(view(queue=four, backlog=done), under_way, NOW)


# --- Whether to write.


def ran(minute: int, **more: str) -> dict[str, Any]:
    return {"lastScheduleTime": f"2026-01-01T00:{minute:02}:00Z", **more}


def moved(oldest: float = 0, following: float = 0) -> View:
    """A due time is read as so many seconds from now: what is left of a second would write every few seconds."""
    return view(backlog=replace(BUSY, oldest_due_at=NOW - 3 + oldest, next_due_at=NOW + 60 + following))


def failed(times: int) -> View:
    decision = decided(None)
    return view(**scaled(replace(decision, memory=replace(decision.memory, failures=times))))


FOUR = queue(shards=4)
LEARNT = Observed(evaluated=True, lead_seconds=7.2, handler_seconds=0.4371, scaled_at=NOW - 60)
WAKES = decided(Sample(next_due_seconds=7219, lead_seconds=7.2), replicas=0)
LATER = replace(WAKES, at=NOW + 60, sample=replace(WAKES.sample or Sample(), next_due_seconds=7159))
SAME_TIME = replace(LATER, wake_seconds=(WAKES.wake_seconds or 0) - 61)
ANEW = replace(LEARNT, lead_seconds=8.9, handler_seconds=0.47)
MANY = decided(Sample(overdue=5_000), replicas=10)
UNLIMITED = replace(MANY, limited_by="None")
WAKING = view(**scaled(WAKES), observed=LEARNT)
ASKED, FAR = view(queue=FOUR, backlog=MOVING), replace(MOVING.shards, checked=150)
STUCK = replace(MOVING, whole=False, whole_at=NOW - 60, shards=replace(MOVING.shards, leaderless=(1,)))
LATE = replace(BUSY, oldest_due_at=NOW - 100)
BLIND = view(backlog=None, unread="orders-scanner-1: no route")
AT_ONCE, NOW_AND_THEN, NEVER = 0.0, NUMBERS_SECONDS - 2, None
WRITES: dict[str, tuple[View, View, float | None]] = {
    "a worker more": (view(), view(worker=replace(RUNNING, pods=2)), AT_ONCE),
    "a missing Secret": (
        view(),
        view(workers=Seen(missing=(Reference("Secret", "shop-db", "url"),))),
        AT_ONCE,
    ),
    "measured later": (view(backlog=BUSY), view(backlog=replace(BUSY, read_at=NOW + 5)), NEVER),
    "a task more": (view(backlog=BUSY), view(backlog=replace(BUSY, due=13)), NOW_AND_THEN),
    "one of 48,210": (view(backlog=BUSY), view(backlog=replace(BUSY, scheduled=48_211)), NEVER),
    "a backlog appears": (view(backlog=None), view(backlog=replace(BUSY, oldest_due_at=None)), AT_ONCE),
    "a second earlier": (view(backlog=BUSY), moved(-1.5, -1.5), NEVER),
    "a second later": (view(backlog=BUSY), moved(0.9, 1.5), NEVER),
    "half a minute later": (view(backlog=BUSY), moved(0, 30), NOW_AND_THEN),
    "tasks that have moved": (
        ASKED,
        view(queue=FOUR, backlog=replace(MOVING, shards=FAR)),
        NOW_AND_THEN,
    ),
    "tasks that cannot": (ASKED, view(queue=FOUR, backlog=STUCK), AT_ONCE),
    "another number of shards": (
        ASKED,
        view(queue=FOUR, backlog=replace(MOVING, shards=Shards(shard_map=ShardMap(5, 4, 4, 8)))),
        AT_ONCE,
    ),
    # A thousand queues that do nothing would be a thousand writes a minute; that it ran at all is news.
    "a reaper's run nine minutes later": (view(reaper=ran(0)), view(reaper=ran(9)), NEVER),
    "ten minutes later": (view(reaper=ran(0)), view(reaper=ran(10)), NOW_AND_THEN),
    "its first success": (
        view(reaper=ran(0)),
        view(reaper=ran(1, lastSuccessfulTime="2026-01-01T00:01:55Z")),
        AT_ONCE,
    ),
    "why no scanner can be read": (
        BLIND,
        view(backlog=None, unread="orders-scanner-2: timed out"),
        NOW_AND_THEN,
    ),
    # Where no worker claims, the oldest task gets later for ever: the column OLDEST-DUE shows it without a write.
    "late for hours": (view(backlog=LATE), view(backlog=replace(LATE, read_at=NOW + 7200)), NEVER),
    # A busy queue claims something in one look and nothing in the next.
    "why tasks are late": (view(backlog=LATE), view(backlog=replace(LATE, in_flight=0)), NOW_AND_THEN),
    "another number of workers": (view(**scaled(MANY)), view(**scaled(WAKES)), AT_ONCE),
    "whether it is limited": (view(**scaled(MANY)), view(**scaled(UNLIMITED)), NOW_AND_THEN),
    "another time to wake": (WAKING, view(**scaled(LATER), observed=LEARNT), NOW_AND_THEN),
    "what is observed anew all the time": (WAKING, view(**scaled(SAME_TIME), observed=ANEW), NEVER),
    "a failure more": (failed(7), failed(8), NEVER),
    "on time again": (view(backlog=LATE), view(backlog=replace(LATE, oldest_due_at=None)), AT_ONCE),
}


@pytest.mark.parametrize("what", WRITES)
def test_a_fact_is_written_at_once_a_number_now_and_then_and_the_same_never(what: str) -> None:
    before, after, wait = WRITES[what]
    made = status(before, {}, NOW)
    later = status(after, made, NOW + 1)
    assert wait_seconds(later, made, since_write=2) == wait
    assert wait_seconds(later, made, since_write=1000) == (None if wait is None else 0)
    assert wait_seconds(later, later, since_write=1000) is None
    assert wait_seconds(made, {}, since_write=0) == 0


@given(st.integers(0, 10**15))
def test_a_bucket_is_within_five_percent_and_exact_for_small_numbers(number: int) -> None:
    assert bucket(number) == number if number <= 100 else abs(bucket(number) - number) <= number * 0.05
    assert bucket(bucket(number)) == bucket(number)


# --- What the operator decides on the number of workers.


def test_a_decision_is_reported_with_its_sentence_and_what_was_learnt() -> None:
    made = status(view(**scaled(WAKES), observed=LEARNT), {}, NOW)["scaling"]
    assert made == {
        "leadTimeSeconds": 8,
        "handlerMilliseconds": 440,
        "lastScaleTime": timestamp(NOW - 60),
        "recommendedReplicas": 0,
        "message": sentence(WAKES),
        "wakeTime": timestamp(NOW + 7219 - 11.2),
    }
    # Horizons are coarser than the lead time: the next longer one counts.
    look = Sample(due_within=((5.0, 3), (8.0, 40), (11.2, 41)), lead_seconds=7.2)
    assert status(view(**scaled(decided(look))), {}, NOW)["backlog"]["dueWithinLeadTime"] == 40
    for seen in (view(), view(**scaled(decided(None)))):
        assert "dueWithinLeadTime" not in status(seen, {}, NOW)["backlog"]


@pytest.mark.parametrize(
    ("seconds", "reported"), [(0.2, 1), (8, 8), (8.01, 9), (99.5, 100), (101, 110), (1234, 1300)]
)
def test_a_start_up_time_is_rounded_up(seconds: float, reported: int) -> None:
    seen = view(**scaled(WAKES), observed=replace(LEARNT, lead_seconds=seconds))
    assert status(seen, {}, NOW)["scaling"]["leadTimeSeconds"] == reported


@pytest.mark.parametrize("value", [float("inf"), float("nan"), 1e300, 2.0**63])
def test_no_number_is_beyond_what_the_api_can_write(value: float) -> None:
    """It would refuse the whole status, with all that is true in it."""
    odd = Observed(evaluated=True, lead_seconds=value, handler_seconds=value, scaled_at=value)
    made = status(view(**scaled(WAKES), observed=odd), {}, NOW)["scaling"]
    assert (made["leadTimeSeconds"], made["handlerMilliseconds"]) == (MOST_NUMBER, MOST_NUMBER)
    assert datetime.fromisoformat(made["lastScaleTime"]).year in (1970, 9999)
    assert wait_seconds(made, made, since_write=1000) is None


def test_what_was_learnt_stays_while_nothing_is_decided_and_goes_without_autoscaling() -> None:
    before = status(view(**scaled(WAKES), observed=LEARNT), {}, NOW)
    assert "scaling" not in status(view(), before, NOW)
    broken = view(queue=None, scale=None)
    assert status(broken, before, NOW)["scaling"] == before["scaling"]
    held = queue(autoscaling={"maxReplicas": 10}, suspend=True)
    made = status(view(queue=held, scale=scale(held, 3)), before, NOW)
    assert made["scaling"].keys() == {"lastScaleTime", "leadTimeSeconds", "handlerMilliseconds"}


def test_a_restart_changes_nothing() -> None:
    """Until the first look, what the last operator said stays as it was."""
    made = queue(autoscaling={"maxReplicas": 10})
    before = status(view(**scaled(WAKES), observed=replace(LEARNT, rush=RUSH)), {}, NOW)
    anew = status(view(queue=made, scale=scale(made, 0)), before, NOW + 60)
    assert wait_seconds(anew, before, since_write=1000) is None
    assert anew == before
    edited = status(view(queue=made, scale=scale(made, 0), resource=resource(generation=4)), before, NOW + 60)
    assert entry(edited, "ScalingActive")["observedGeneration"] == 3, "it was not evaluated for this one"
    assert entry(edited, "Ready")["observedGeneration"] == 4
    evaluated = status(
        view(queue=made, scale=scale(made, 0), observed=Observed(evaluated=True)), before, NOW + 60
    )
    assert entry(evaluated, "ScalingActive")["reason"] == "NotEvaluated"


def test_the_pods_of_the_api_are_counted_where_there_is_one() -> None:
    rules = [{"serviceAccount": {"namespace": "web", "name": "shop"}, "verbs": ["schedule"]}]
    seen = view(queue=queue(api={"access": rules, "allowPlainHttp": True}), api=ROLLING)
    assert status(seen, {}, NOW)["api"] == {"replicas": 3, "readyReplicas": 2}
    assert "api" not in status(view(), {}, NOW)
