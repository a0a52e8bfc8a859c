"""Which occurrences are created and which are missed: against a model that walks through all nominal times."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import pytest
from delayq.contract.document import parse_schedule
from delayq.protocol import envelope
from delayq.protocol.envelope import NO_LIMIT_MS, Occurrence
from delayq.schedules import cron
from delayq.schedules import plan as plans
from delayq.schedules import times as times_of
from delayq.schedules.plan import AHEAD_MS, MOST, Plan, most_ahead, planned
from delayq.schedules.record import flat, task_body
from hypothesis import given
from hypothesis import strategies as st

if TYPE_CHECKING:
    from delayq.contract.schedule import DelaySchedule

NOW = 1_893_456_000_000
SECOND = 1000


def schedule(**spec: Any) -> DelaySchedule:  # noqa: ANN401
    meta = {"apiVersion": "delayq.dev/v1alpha1", "kind": "DelaySchedule", "metadata": {"name": "poll"}}
    when = {} if "cron" in spec or "times" in spec else {"everySeconds": 60}
    return parse_schedule({**meta, "spec": {"queueRef": {"name": "orders"}, **when, **spec}})


async def plan(of: DelaySchedule, cursor_ms: int, now_ms: int = NOW) -> Plan:
    return await planned(of, cursor_ms, now_ms)


async def test_occurrences_are_created_for_twice_ten_minutes_and_looked_at_again_ten_minutes_before_the_next() -> (
    None
):
    found = await plan(schedule(everySeconds=60), NOW)
    assert [due.nominal_ms for due in found.create] == [NOW + n * 60 * SECOND for n in range(1, 21)]
    assert (found.missed, found.cursor_ms) == (0, NOW + 2 * AHEAD_MS + 60 * SECOND - 1)
    assert found.look_ms == NOW + 2 * AHEAD_MS + 60 * SECOND - AHEAD_MS
    again = await plan(schedule(everySeconds=60), found.cursor_ms, found.look_ms)
    assert again.create[0].nominal_ms == found.cursor_ms + 1


async def test_a_distant_occurrence_is_not_created_and_the_cursor_is_just_before_it() -> None:
    found = await plan(schedule(cron="0 3 * * *"), NOW - 5 * SECOND)
    assert (found.create, found.missed, found.cursor_ms) == ([], 0, NOW + 3 * 3600 * SECOND - 1)
    assert found.look_ms == NOW + 3 * 3600 * SECOND - AHEAD_MS


async def test_a_frequent_schedule_has_a_bounded_number_of_occurrences() -> None:
    found = await plan(schedule(everySeconds=1), NOW)
    assert (len(found.create), found.cursor_ms) == (MOST, NOW + MOST * SECOND)
    assert found.look_ms == NOW + MOST * SECOND - AHEAD_MS
    assert found.look_ms is not None
    again = await plan(schedule(everySeconds=1), found.cursor_ms, found.look_ms)
    assert again.cursor_ms == found.look_ms + MOST * SECOND  # with those that exist


@pytest.mark.parametrize("now_ms", [NOW, NOW + 1, NOW + 9999])
async def test_where_the_bound_is_nearer_than_the_operator_asks_for_looks_are_ten_seconds_apart(
    now_ms: int,
) -> None:
    found = await planned(schedule(everySeconds=1), now_ms, now_ms, ahead_ms=3_600_000)
    assert found.look_ms is not None
    assert 0 < found.look_ms - now_ms <= 10 * SECOND
    assert len(found.create) == MOST


@pytest.mark.parametrize("most", [1, 2, 16])
@pytest.mark.parametrize("period", [1, 7, 90])
async def test_where_few_may_exist_ahead_each_is_created_before_it_is_due(most: int, period: int) -> None:
    of, now_ms, found = schedule(everySeconds=period), NOW + 1, list[int]()
    cursor_ms = now_ms
    while len(found) < 50:
        made = await planned(of, cursor_ms, now_ms, most=most)
        found += [due.nominal_ms for due in made.create]
        assert all(due.nominal_ms > now_ms for due in made.create), now_ms
        assert sum(nominal_ms > now_ms for nominal_ms in found) <= most
        assert made.look_ms is not None
        cursor_ms, now_ms = made.cursor_ms, max(now_ms, made.look_ms)
    first = -(-(NOW + 1) // (period * SECOND)) * period * SECOND
    assert found == [first + nth * period * SECOND for nth in range(len(found))]


def test_occurrences_ahead_are_bounded_in_bytes_for_each_schedule_and_queue() -> None:
    assert most_ahead(200, schedules=1, shards=1) == MOST
    assert most_ahead(65_000, schedules=1, shards=1) == 16  # 1 MiB
    assert most_ahead(65_000, schedules=64, shards=1) == 16
    assert most_ahead(65_000, schedules=128, shards=1) == 8  # of the 64 MiB of a queue
    assert most_ahead(65_000, schedules=64, shards=2) == 8
    assert most_ahead(2_000_000, schedules=10_000, shards=4) == 1


async def test_a_list_that_has_ended_and_a_suspended_schedule_are_not_looked_at_again() -> None:
    ended = await plan(schedule(times=["2030-01-01T00:01:00Z"]), NOW)
    assert ([due.nominal_ms for due in ended.create], ended.look_ms) == ([NOW + 60 * SECOND], None)
    assert await plan(schedule(suspend=True), NOW - 5) == ((), 0, NOW - 5, None)


@pytest.mark.parametrize(
    ("misfire", "begin", "missed"),
    [
        ({"policy": "RunOnce"}, [0], 10),
        ({"policy": "RunAll"}, [*range(-10, 1)], 0),
        ({"policy": "RunAll", "maxRuns": 3}, [-2, -1, 0], 8),
        ({"policy": "Skip", "maxLatenessSeconds": 90}, [-1, 0], 9),
        ({"policy": "RunOnce", "maxLatenessSeconds": 1}, [0], 10),
        ({"policy": "RunAll", "maxLatenessSeconds": 150}, [-2, -1, 0], 8),
    ],
)
async def test_after_an_outage_of_ten_minutes(misfire: dict[str, Any], begin: list[int], missed: int) -> None:
    found = await plan(schedule(misfire=misfire), NOW - 11 * 60 * SECOND)
    past = [(due.nominal_ms - NOW) // 60_000 for due in found.create if due.nominal_ms <= NOW]
    assert (past, found.missed) == (begin, missed)


async def test_after_a_long_outage_at_most_a_thousand_of_the_past_run() -> None:
    found = await plan(schedule(everySeconds=1, misfire={"policy": "RunAll"}), NOW - 5000 * SECOND)
    past = [due for due in found.create if due.nominal_ms <= NOW]
    assert (len(past), past[-1].nominal_ms, found.missed) == (MOST, NOW, 4000)


def test_others_run_after_each_time_that_a_plan_computes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also while it looks at the times after which an occurrence does not begin any more, up to 1,000."""
    monkeypatch.setattr(times_of, "SLICE_SECONDS", -1)
    of = schedule(cron="0 3 * * *", jitterSeconds=60, misfire={"policy": "RunAll", "maxRuns": 1000})
    with patch.object(cron.Cron, "after", autospec=True, side_effect=cron.Cron.after) as times:
        steps = plans._planning(of, NOW, NOW, AHEAD_MS, most=MOST)
        assert sum(1 for _ in steps) == 1001
    assert times.call_count == 1, "it was checked when it was written"


def test_the_content_of_occurrences_is_encoded_once() -> None:
    with patch.object(envelope, "encode", side_effect=envelope.encode) as encode:
        found = flat(schedule(), ((Occurrence(NOW + n), NOW + n) for n in range(250)), deadline_ms=None)
    assert (len(found), encode.call_count) == (750, 1)
    assert found[2] == task_body(schedule(), Occurrence(NOW))


@st.composite
def misfires(draw: st.DrawFn) -> dict[str, Any]:
    found: dict[str, Any] = {"policy": draw(st.sampled_from(["RunOnce", "RunAll", "Skip"]))}
    if found["policy"] == "RunAll" and draw(st.booleans()):
        found["maxRuns"] = draw(st.integers(1, 5))
    if found["policy"] == "Skip" or draw(st.booleans()):
        found["maxLatenessSeconds"] = draw(st.integers(1, 400))
    return found


@given(misfire=misfires(), jitter=st.integers(0, 59), late=st.integers(0, 2000))
async def test_what_begins_late_is_what_the_claim_lets_begin(
    misfire: dict[str, Any], jitter: int, late: int
) -> None:
    """A plan that comes late creates what a plan in time, whose occurrences no worker claimed, would still start."""
    of = schedule(misfire=misfire, jitterSeconds=jitter)
    then = NOW + late * SECOND
    in_time = (await plan(of, NOW)).create
    due = [each for each in in_time if each.nominal_ms <= then]
    if len(due) == len(in_time):
        return
    late_plan = await plan(of, NOW, then)
    assert [each for each in late_plan.create if each.nominal_ms <= then] == [
        each for each in due if then <= each.due_ms + each.within_ms
    ]
    assert late_plan.missed == sum(then > each.due_ms + each.within_ms for each in due)


async def test_the_last_occurrence_has_no_successor_that_ends_it() -> None:
    found = await plan(schedule(times=["2030-01-01T00:01:00Z", "2030-01-01T00:02:00Z"]), NOW)
    assert [due.within_ms for due in found.create] == [60 * SECOND - 1, NO_LIMIT_MS]
