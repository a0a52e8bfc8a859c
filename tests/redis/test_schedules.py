"""Schedules in Redis: what is written of them, that each occurrence is created once, and which of them begin."""

from __future__ import annotations

from dataclasses import replace
from math import inf
from typing import TYPE_CHECKING, Any

import pytest
from delayq.contract.document import parse_schedule
from delayq.protocol.commands import FULL_AGAIN_MS, Commands, Move
from delayq.protocol.envelope import NO_LIMIT_MS, Further, Occurrence, with_fields
from delayq.protocol.results import LostTask, ScheduleRecord, Selection, Ticket
from delayq.protocol.shard_map import TaskMigrating
from delayq.schedules.record import Definition, decode, encode, occurrence_id, task_body

from tests.redis.state import NOW, Shard, State
from tests.redis.test_migration import MOVING, at, commit, migrate_in, migrate_out, pair

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from delayq.contract.schedule import DelaySchedule
    from delayq.protocol.results import Claimed, Lease, ScheduleWritten

__all__ = ["pair"]
ROOM = {"max_length": 1000, "max_bytes": 0}
MINUTE = 60_000
LEASE_MS = 30_000
RECORD = "@nightly"


def schedule(**spec: object) -> DelaySchedule:
    meta = {"apiVersion": "delayq.dev/v1alpha1", "kind": "DelaySchedule", "metadata": {"name": "nightly"}}
    when = {} if "cron" in spec or "times" in spec else {"everySeconds": 60}
    return parse_schedule({**meta, "spec": {"queueRef": {"name": "orders"}, **when, **spec}})


def put(shard: Shard, of: DelaySchedule | None, owner: str = "client", **room: int) -> ScheduleWritten:
    body = b"" if of is None else encode(Definition(of, {}))
    return shard.run(shard.commands.put_schedule(RECORD, body, owner, shard=0, **{**ROOM, **room}))


def record(shard: Shard) -> ScheduleRecord:
    [found] = shard.run(shard.commands.list_schedules(0)).records
    return found


def create(
    shard: Shard,
    times_ms: Sequence[int],
    *,
    seen: ScheduleRecord | None = None,
    within_ms: int = NO_LIMIT_MS,
    alone: bool = False,
    look_ms: int | None = None,
    room: Mapping[str, int] = ROOM,
) -> int | str:
    """Create occurrences that are due at their nominal times, and move the cursor behind the last one."""
    flat: list[Any] = []
    for at_ms in times_ms:
        body = task_body(schedule(), Occurrence(at_ms, within_ms, alone))
        flat += occurrence_id("nightly", at_ms), at_ms, body
    move = Move(max(times_ms, default=NOW), look_ms)
    return shard.run(shard.commands.create_occurrences(0, seen or record(shard), flat, room=room, move=move))


def look(shard: Shard, cursor_ms: int, look_ms: int) -> None:
    """Move the cursor, and create nothing."""
    move = Move(cursor_ms, look_ms)
    shard.run(shard.commands.create_occurrences(0, record(shard), [], room=ROOM, move=move))


def ids(*times_ms: int) -> list[str]:
    return [occurrence_id("nightly", at_ms) for at_ms in times_ms]


def claim(shard: Shard, limit: int = 10) -> Claimed:
    return shard.run(shard.commands.claim(0, limit, LEASE_MS))


def clear(shard: Shard, version: int, *, limit: int = 50) -> int:
    removed, cursor = 0, b""
    while True:
        some, cursor = shard.run(shard.commands.clear_schedule(RECORD, version, cursor, shard=0, limit=limit))
        removed += some
        if not cursor:
            return removed


def test_a_definition_is_written_and_read_and_an_equal_one_changes_nothing(shard: Shard) -> None:
    definition = schedule(task={"payload": '{"report": 7}', "kind": "report"})
    assert put(shard, definition) == ("created", 1, "client")
    found = record(shard)
    assert found == ScheduleRecord(RECORD, found.body, 1, "on", "client", NOW)
    read = decode(found)
    assert read is not None
    assert read.schedule == definition
    state = shard.whole()
    assert (state.schedules, state.alarm) == ({RECORD: NOW}, 1)
    assert put(shard, definition) == ("unchanged", 1, "client")
    assert shard.whole() == state


def test_only_its_owner_writes_a_schedule(shard: Shard) -> None:
    put(shard, schedule(), owner="kubernetes")
    before = shard.whole()
    assert put(shard, schedule(suspend=True), owner="file") == ("owned", 1, "kubernetes")
    assert put(shard, None, owner="file").outcome == "owned"
    assert shard.whole() == before


def test_a_schedule_takes_a_place_of_the_queue_and_an_edit_takes_none(shard: Shard) -> None:
    shard.seed(State(delayed={"task": NOW}))
    assert put(shard, schedule(), max_length=1).outcome == "full"
    assert put(shard, schedule(), max_bytes=100).outcome == "heavy"
    assert shard.whole().schedules == {}
    assert put(shard, schedule(), max_length=2).outcome == "created"
    assert put(shard, schedule(suspend=True), max_length=2).outcome == "updated"
    assert put(shard, None, max_length=1).outcome == "deleting"


def test_occurrences_are_created_ahead_as_tasks_and_the_cursor_moves_with_them(shard: Shard) -> None:
    put(shard, schedule())
    times = [NOW + MINUTE, NOW + 2 * MINUTE]
    assert create(shard, times, within_ms=MINUTE - 1, look_ms=NOW + 30_000) == 2
    state = shard.whole()
    assert state.delayed == dict(zip(ids(*times), times, strict=True))
    assert state.deadlines == {each: at + MINUTE for each, at in state.delayed.items()}
    assert set(state.tags) == {f"{RECORD} {each}" for each in ids(*times)}
    assert (state.schedules, record(shard).cursor_ms) == ({RECORD: NOW + 30_000}, times[1])
    shard.clock(times[0])
    [lease] = claim(shard).leases
    assert (lease.task.schedule, lease.task.nominal_ms, lease.task.tags) == ("nightly", times[0], ())
    assert record(shard) == replace(
        record(shard), last_id=ids(times[0])[0], last_began_ms=times[0], last_late_ms=0
    )


def test_a_scanner_with_another_cursor_or_definition_creates_nothing(shard: Shard) -> None:
    put(shard, schedule())
    first = record(shard)
    assert create(shard, [NOW + MINUTE], seen=first) == 1
    shard.clock(NOW + MINUTE)
    [lease] = claim(shard).leases
    shard.run(shard.commands.ack(0, [lease.member]))
    before = shard.whole()
    assert create(shard, [NOW + MINUTE], seen=first) == "changed"  # though the ID is free again
    second = record(shard)
    put(shard, schedule(suspend=True))
    assert create(shard, [NOW + 2 * MINUTE], seen=second) == "changed"
    assert shard.whole().delayed == before.delayed == {}


def test_a_full_shard_keeps_the_cursor_and_is_tried_again_later(shard: Shard) -> None:
    put(shard, schedule())
    for room in ({"max_length": 2, "max_bytes": 0}, {"max_length": 1000, "max_bytes": 400}):
        assert create(shard, [NOW + MINUTE, NOW + 2 * MINUTE], room=room) == "full"
        assert record(shard).cursor_ms == NOW
        assert shard.whole().schedules == {RECORD: NOW + FULL_AGAIN_MS}
    assert create(shard, [NOW + MINUTE, NOW + 2 * MINUTE], room={"max_length": 3, "max_bytes": 0}) == 2


def test_a_schedule_without_further_times_is_not_looked_at(shard: Shard) -> None:
    put(shard, schedule())
    assert shard.run(shard.commands.wake(0)).look_seconds == 0
    create(shard, [], look_ms=NOW + 1500)
    assert shard.run(shard.commands.wake(0)).look_seconds == pytest.approx(
        1.5, abs=0.001
    )  # a server's clock has µs
    assert shard.run(shard.commands.list_schedules(0, due=True)).records == []
    create(shard, [], look_ms=None)
    assert shard.whole().schedules == {RECORD: inf}
    assert shard.run(shard.commands.wake(0)).look_seconds is None


@pytest.mark.parametrize("limit", [2, 50])
def test_an_edit_removes_what_was_created_ahead_and_a_deletion_all_that_has_not_begun(
    shard: Shard, limit: int
) -> None:
    put(shard, schedule())
    times = [NOW - MINUTE, NOW, *(NOW + n * MINUTE for n in range(1, 4))]
    create(shard, times)
    [running] = claim(shard, 1).leases
    done = put(shard, schedule(suspend=True))
    assert (record(shard).phase, record(shard).cursor_ms) == ("clearing", NOW)
    assert create(shard, [NOW + MINUTE]) == "changed"
    assert clear(shard, done.version, limit=limit) == 3
    assert record(shard).phase == "on"
    assert set(shard.whole().delayed) == set(ids(NOW))  # its time has come
    assert clear(shard, done.version) == 0, "once is enough"
    done = put(shard, None)
    assert clear(shard, done.version, limit=limit) == 1
    state = shard.whole()
    assert (state.schedules, set(state.tasks or ())) == ({}, set(ids(NOW - MINUTE)))
    assert shard.run(shard.commands.ack(0, [running.member])) == ["acked"]
    assert put(shard, None) == ("not_found", 0, "client")


def test_a_change_whose_reply_was_lost_is_completed_by_the_second_try(shard: Shard) -> None:
    put(shard, schedule())
    create(shard, [NOW + MINUTE])
    first, second = put(shard, schedule(suspend=True)), put(shard, schedule(suspend=True))
    assert first == second == ("updated", 2, "client")
    assert clear(shard, second.version) == 1


def test_two_changes_without_a_look_between_them_drop_no_time(shard: Shard) -> None:
    put(shard, schedule())
    create(shard, [NOW + MINUTE, NOW + 2 * MINUTE], look_ms=NOW + MINUTE)
    put(shard, schedule(task={"payload": "1"}))
    clear(shard, 2)
    shard.clock(NOW + 90_000)
    put(shard, schedule(task={"payload": "2"}))
    put(shard, schedule(task={"payload": "3"}))
    assert record(shard).cursor_ms == NOW
    clear(shard, 4)
    assert shard.run(shard.commands.wake(0)).look_seconds == 0


def test_a_change_is_not_about_times_before_it_that_were_looked_at(shard: Shard) -> None:
    """A daily schedule: the scanner has found that nothing is before the next occurrence."""
    put(shard, schedule())
    look(shard, NOW + 600 * MINUTE, NOW + 590 * MINUTE)
    shard.clock(NOW + 30 * MINUTE)
    put(shard, schedule(everySeconds=7))
    assert record(shard).cursor_ms == NOW + 30 * MINUTE


def test_a_change_drops_no_time_whose_creation_was_put_off(shard: Shard) -> None:
    """As in a full queue: the next look is later than times that are not created."""
    put(shard, schedule())
    look(shard, NOW, NOW + 10 * MINUTE)
    shard.clock(NOW + 5 * MINUTE)
    put(shard, schedule(task={"payload": "1"}))
    assert record(shard).cursor_ms == NOW


def test_what_a_change_is_about_to_remove_does_not_begin_meanwhile(shard: Shard) -> None:
    """It would be created again, at its time. Also after a second change, as long as none of them is complete."""
    put(shard, schedule())
    create(shard, [NOW + nth * MINUTE for nth in (0, 1, 2)], look_ms=NOW + MINUTE)
    put(shard, schedule(task={"payload": "1"}))
    shard.clock(NOW + MINUTE)
    assert [lease.task.id for lease in claim(shard).leases] == ids(NOW)
    shard.clock(NOW + MINUTE + 1001)
    put(shard, schedule(task={"payload": "2"}))
    assert claim(shard).leases == []
    assert clear(shard, 3) == 2
    assert record(shard).cursor_ms == NOW
    create(shard, [NOW + MINUTE], look_ms=NOW + 2 * MINUTE)
    assert [lease.task.id for lease in claim(shard).leases] == ids(NOW + MINUTE)


def test_times_while_a_schedule_is_suspended_are_not_made_up_for_though_nothing_looked(shard: Shard) -> None:
    put(shard, schedule())
    put(shard, schedule(suspend=True))
    clear(shard, 2)
    shard.clock(NOW + 5 * MINUTE)
    put(shard, schedule())
    assert record(shard).cursor_ms == NOW + 5 * MINUTE


@pytest.mark.parametrize(("minutes", "cursor_ms"), [(10, NOW + 10 * MINUTE), (2000, NOW)])
def test_what_ran_before_the_clock_stepped_back_is_not_created_again_by_a_change(
    shard: Shard, minutes: int, cursor_ms: int
) -> None:
    """But a clock that was wrong by more than a day does not stop a schedule."""
    put(shard, schedule())
    create(
        shard, [NOW + minutes * MINUTE, NOW + (minutes + 1) * MINUTE], look_ms=NOW + (minutes + 2) * MINUTE
    )
    shard.clock(NOW + minutes * MINUTE)
    assert len(claim(shard).leases) == 1
    shard.clock(NOW)
    put(shard, schedule(task={"payload": "1"}))
    assert record(shard).cursor_ms == cursor_ms


def test_a_change_keeps_what_was_due_before_it_though_the_scanner_was_behind(shard: Shard) -> None:
    """Such as an occurrence of `schedules run`."""
    put(shard, schedule())
    now_ms = NOW + 5 * MINUTE
    run_now: list[Any] = [*ids(now_ms), now_ms, task_body(schedule(), Occurrence(now_ms))]
    shard.run(shard.commands.create_occurrences(0, record(shard), run_now, room=ROOM))
    shard.clock(now_ms + 1)
    put(shard, schedule(task={"payload": "1"}))
    assert (clear(shard, 2), record(shard).cursor_ms) == (0, NOW)


def test_a_schedule_that_was_deleted_halfway_can_be_created_again(shard: Shard) -> None:
    put(shard, schedule())
    create(shard, [NOW + MINUTE])
    put(shard, None)
    assert put(shard, schedule(), owner="file").outcome == "created"
    assert clear(shard, record(shard).version) == 1
    assert (record(shard).phase, record(shard).owner) == ("on", "file")


def test_an_occurrence_that_comes_too_late_is_deleted_and_counted_unless_it_has_begun_before(
    shard: Shard,
) -> None:
    put(shard, schedule())
    create(shard, [NOW + n * MINUTE for n in range(3)], within_ms=MINUTE - 1)
    [first] = claim(shard).leases
    shard.run(shard.commands.retry(0, [first.member, 0, 1, "boom"], max_attempts=5))
    shard.clock(NOW + 2 * MINUTE)
    assert [lease.task.id for lease in claim(shard).leases] == ids(NOW, NOW + 2 * MINUTE)
    state = shard.whole()
    assert (record(shard).missed, state.stats["missed"]) == (1, 1)
    assert (state.delayed, state.dlq) == ({}, {})
    assert "orphans" not in state.stats


def test_the_scanner_ends_occurrences_that_no_worker_claims(shard: Shard) -> None:
    put(shard, schedule())
    create(shard, [NOW, NOW + MINUTE], within_ms=999)
    shard.clock(NOW + 1000)
    assert shard.run(shard.commands.wake(0)).expiry_seconds == 0
    assert shard.run(shard.commands.expire(0)) == (1, 1)
    assert (record(shard).missed, shard.whole().stats["missed"]) == (1, 1)
    assert set(shard.whole().delayed) == set(ids(NOW + MINUTE))


def test_with_forbid_an_occurrence_does_not_begin_while_another_one_runs_or_will_be_tried_again(
    shard: Shard,
) -> None:
    put(shard, schedule())
    create(shard, [NOW + n * MINUTE for n in range(5)], alone=True)
    shard.clock(NOW + MINUTE)
    [first] = claim(shard).leases  # of two in one claim, the second is skipped
    assert (first.task.id, record(shard).skipped) == (ids(NOW)[0], 1)
    shard.run(shard.commands.retry(0, [first.member, 10 * MINUTE, 1, "boom"], max_attempts=5))
    shard.clock(NOW + 2 * MINUTE)
    assert claim(shard).leases == []
    assert (record(shard).skipped, shard.whole().stats["skipped"]) == (2, 2)
    shard.clock(NOW + 11 * MINUTE)
    [again] = claim(shard).leases
    assert (again.task.id, record(shard).skipped) == (first.task.id, 4)
    shard.run(shard.commands.ack(0, [again.member]))
    create(shard, [NOW + 12 * MINUTE], alone=True)
    shard.clock(NOW + 12 * MINUTE)
    assert [lease.task.id for lease in claim(shard).leases] == ids(NOW + 12 * MINUTE)


def park(shard: Shard, *leases: Lease) -> None:
    flat = [item for lease in leases for item in (lease.member, lease.run_before)]
    assert shard.run(shard.commands.park(0, flat)) == ["parked"] * len(leases)


@pytest.mark.parametrize("alone", [False, True])
def test_an_occurrence_that_is_parked_has_not_begun_and_the_run_before_stays_the_last(
    shard: Shard, *, alone: bool
) -> None:
    put(shard, schedule())
    create(shard, [NOW + n * MINUTE for n in range(3)], within_ms=MINUTE - 1, alone=alone)
    [unknown] = claim(shard).leases
    park(shard, unknown)
    assert record(shard).last_id is None
    shard.run(shard.commands.unpark(0, None))
    [ran] = claim(shard).leases
    shard.run(shard.commands.ack(0, [ran.member]))
    last = record(shard)
    assert last.last_id == ran.task.id
    shard.clock(NOW + MINUTE)
    park(shard, *claim(shard).leases)
    assert replace(record(shard), missed=0) == last
    shard.clock(NOW + 2 * MINUTE)
    shard.run(shard.commands.expire(0))
    assert record(shard) == replace(last, missed=1)
    park(shard, *claim(shard).leases)
    assert record(shard) == replace(last, missed=1)


@pytest.mark.parametrize(("first", "named"), [(None, True), (1, True), (0, False)])
def test_occurrences_that_are_parked_together_or_by_two_workers_have_not_begun(
    shard: Shard, first: int | None, *, named: bool
) -> None:
    """If the earlier claim is parked first, the run before it is known to its worker only."""
    put(shard, schedule())
    create(shard, [NOW - MINUTE])
    [ran] = claim(shard).leases
    shard.run(shard.commands.ack(0, [ran.member]))
    create(shard, [NOW, NOW + 1])
    shard.clock(NOW + 1)
    leases = [*claim(shard, 1).leases, *claim(shard, 1).leases]
    if first is None:
        park(shard, *leases)
    else:
        park(shard, leases[first])
        park(shard, leases[1 - first])
    assert record(shard).last_id == (ran.task.id if named else None)


def test_an_occurrence_that_is_returned_before_the_next_is_parked_has_not_begun(shard: Shard) -> None:
    """Two workers claim one each, the first parks its own, and a third returns it: no run is named until it begins."""
    put(shard, schedule())
    create(shard, [NOW, NOW + 1])
    shard.clock(NOW + 1)
    first, second = [*claim(shard, 1).leases, *claim(shard, 1).leases]
    park(shard, first)
    shard.run(shard.commands.unpark(0, None))
    park(shard, second)
    assert record(shard).last_id is None
    assert [lease.task.id for lease in claim(shard).leases] == [first.task.id]
    assert record(shard).last_id == first.task.id


def test_a_retry_that_is_parked_leaves_the_first_attempt_the_last_run(shard: Shard) -> None:
    put(shard, schedule())
    create(shard, [NOW])
    [lease] = claim(shard).leases
    began = record(shard)
    shard.run(shard.commands.retry(0, [lease.member, MINUTE, 1, "boom"], max_attempts=5))
    shard.clock(NOW + MINUTE)
    park(shard, *claim(shard).leases)
    assert record(shard) == began


def test_a_suspect_that_is_parked_leaves_the_run_that_crashed_the_last(shard: Shard) -> None:
    put(shard, schedule())
    create(shard, [NOW])
    assert len(claim(shard).leases) == 1
    began = record(shard)
    shard.clock(NOW + LEASE_MS + 1)
    shard.run(shard.commands.reclaim(0, limit=9, max_crashes=3))
    park(shard, *shard.run(shard.commands.isolate(0, 9, LEASE_MS)).leases)
    assert record(shard) == began


def test_a_task_that_is_tried_again_is_the_one_that_others_wait_for(shard: Shard) -> None:
    put(shard, schedule())
    create(shard, [NOW, NOW + MINUTE], alone=True)
    [first] = claim(shard).leases
    shard.run(shard.commands.retry(0, [first.member, 0, 1, "boom"], max_attempts=5))
    [again] = claim(shard).leases
    shard.clock(NOW + MINUTE)
    assert claim(shard).leases == []
    assert (again.task.id, record(shard).skipped) == (first.task.id, 1)


@pytest.mark.parametrize("unclaimed", [False, True])
def test_an_occurrence_that_is_handed_back_has_begun(shard: Shard, *, unclaimed: bool) -> None:
    """A drain, or a claim whose reply was lost: it runs however late it is by then, and the next one waits for it."""
    put(shard, schedule())
    create(shard, [NOW, NOW + MINUTE], within_ms=MINUTE - 1, alone=True)
    [lease] = shard.run(shard.commands.claim(0, 10, LEASE_MS, ticket=Ticket("w", 1, FAR))).leases
    if unclaimed:
        assert shard.run(shard.commands.unclaim(0, "w", 1, LEASE_MS)) == 1
    else:
        assert shard.run(shard.commands.release(0, [lease.member, NOW])) == ["released"]
    shard.clock(NOW + 5 * MINUTE)
    assert shard.run(shard.commands.expire(0))[0] == 1, "the other one is missed"
    [again] = claim(shard).leases
    assert (again.task.id, again.task.attempt, record(shard).missed) == (lease.task.id, 1, 1)


def test_with_forbid_a_run_that_is_a_retry_is_seen_though_no_deadline_is_left(shard: Shard) -> None:
    put(shard, schedule())
    create(shard, [NOW], alone=True, within_ms=MINUTE)
    [first] = claim(shard).leases
    shard.run(shard.commands.retry(0, [first.member, 2 * MINUTE, 1, "boom"], max_attempts=5))
    shard.clock(NOW + 2 * MINUTE)
    shard.run(shard.commands.expire(0))
    assert shard.whole().deadlines == {}
    assert len(claim(shard).leases) == 1
    create(shard, [NOW + 2 * MINUTE], alone=True)
    assert (claim(shard).leases, record(shard).skipped) == ([], 1)


def test_a_dead_letter_that_is_redriven_begins_though_another_occurrence_runs(shard: Shard) -> None:
    put(shard, schedule())
    create(shard, [NOW, NOW + MINUTE], alone=True)
    [lease] = claim(shard).leases
    shard.run(shard.commands.retry(0, [lease.member, 0, 1, "boom"], max_attempts=1))
    shard.clock(NOW + MINUTE)
    assert len(claim(shard).leases) == 1
    assert shard.run(shard.commands.redrive(0, [lease.task.id, 0])) == 1
    assert [lease.task.id for lease in claim(shard).leases] == ids(NOW)


@pytest.mark.parametrize("claims", [False, True])
def test_an_occurrence_that_is_too_late_is_missed_also_if_its_deadline_has_passed(
    shard: Shard, *, claims: bool
) -> None:
    put(shard, schedule())
    body = task_body(schedule(), Occurrence(NOW, MINUTE), deadline_ms=MINUTE)
    found: list[Any] = [*ids(NOW), NOW, body]
    move = Move(NOW, None)
    shard.run(shard.commands.create_occurrences(0, record(shard), found, room=ROOM, move=move))
    shard.clock(NOW + 2 * MINUTE)
    if claims:
        assert claim(shard).leases == []
    else:
        assert shard.run(shard.commands.expire(0)) == (1, 1)
    assert (record(shard).missed, shard.whole().dlq) == (1, {})


def test_an_occurrence_that_lost_its_index_does_not_begin_later_than_it_may(shard: Shard) -> None:
    put(shard, schedule())
    create(shard, [NOW], within_ms=MINUTE)
    state = shard.whole()
    shard.seed(state.but(delayed={}))
    shard.clock(NOW + 2 * MINUTE)
    shard.run(shard.commands.restore_orphans(0, [LostTask(ids(NOW)[0].encode(), b"")]))
    assert shard.whole().delayed == {ids(NOW)[0]: NOW + 2 * MINUTE}
    assert (claim(shard).leases, record(shard).missed) == ([], 1)


def test_an_occurrence_that_arrives_before_its_record_waits_for_it_for_a_minute(shard: Shard) -> None:
    put(shard, schedule())
    create(shard, [NOW], alone=True)
    state = shard.whole()
    tasks = {name: body for name, body in state.envelopes.items() if name != RECORD}
    shard.seed(state.but(schedules={}, attempts={}, tasks=tasks))
    assert claim(shard).leases == []
    assert shard.whole().delayed == {ids(NOW)[0]: NOW + 1000}
    shard.clock(NOW + MINUTE - 1)
    assert claim(shard).leases == []
    shard.clock(NOW + MINUTE + 1000)
    assert [lease.task.id for lease in claim(shard).leases] == ids(NOW)


def test_a_record_that_lost_its_index_gets_it_back(shard: Shard) -> None:
    put(shard, schedule())
    state = shard.whole()
    shard.seed(state.but(schedules={"@gone": NOW}))
    assert shard.run(shard.commands.reconcile(0, "schedules", 0)).tasks == [("@gone", "pruned")]
    page = shard.run(shard.commands.reconcile(0, "tasks", 0))
    assert page.homeless == [RECORD.encode()]
    lost = shard.run(shard.commands.restore_orphans(0, [LostTask(RECORD.encode(), b"")]))
    assert lost.ids == [RECORD.encode()]
    assert shard.whole().schedules == {RECORD: NOW}
    assert shard.run(shard.commands.reconcile(0, "tasks", 0)).tasks == []


def test_bulk_operations_are_about_tasks_only(shard: Shard) -> None:
    put(shard, schedule())
    create(shard, [NOW + MINUTE])
    page = shard.run(shard.commands.bulk(0, "cancel", Selection(), b"", count=10))
    assert (page.found.tasks, page.found.in_flight) == (1, 0)
    assert set(shard.whole().envelopes) == {RECORD}


def test_erasing_a_queue_erases_its_schedules(shard: Shard) -> None:
    put(shard, schedule())
    shard.run(shard.commands.erase(0))
    assert shard.run(shard.commands.list_schedules(0)).records == []


NAME = next(name for name in "abcdefgh" if MOVING.home(f"@{name}") == 1)
FAR = NOW + 60 * MINUTE


def test_a_record_leaves_its_shard_after_its_occurrences_and_nothing_is_created_meanwhile(
    pair: Shard,
) -> None:
    """The occurrences belong where the record belongs."""
    before, record_id, occurrence = Commands(pair.commands.queue), f"@{NAME}", occurrence_id(NAME, FAR)
    assert MOVING.home(occurrence) == 1
    pair.run(before.put_schedule(record_id, encode(Definition(schedule(), {})), "client", shard=0, **ROOM))
    [written] = pair.run(before.list_schedules(0)).records
    alone = Occurrence(FAR, alone=True)
    tagged = with_fields(b"\x11null", Further(tags=(record_id,), occurrence=alone))
    move = Move(FAR, None)
    assert (
        pair.run(before.create_occurrences(0, written, [occurrence, FAR, tagged], room=ROOM, move=move)) == 1
    )
    [written] = pair.run(before.list_schedules(0)).records

    batch = migrate_out(pair, record_id, occurrence)
    assert ([task.arguments[0] for task in batch.tasks], batch.stay) == (
        [occurrence.encode()],
        [record_id.encode()],
    )
    migrate_in(pair, batch)
    commit(pair, batch)
    batch = migrate_out(pair, record_id)
    with pytest.raises(TaskMigrating):
        pair.run(pair.commands.create_occurrences(0, written, [], room=ROOM, move=move))
    migrate_in(pair, batch)
    commit(pair, batch)
    assert pair.run(pair.commands.list_schedules(0)).records == []
    assert pair.run(pair.commands.list_schedules(1)).records == [written]
    assert at(pair, 1).delayed == {occurrence: FAR}


@pytest.mark.parametrize("alone", [False, True])
def test_a_run_that_takes_long_keeps_only_the_record_that_needs_it(pair: Shard, *, alone: bool) -> None:
    """With Allow, occurrences do not depend on each other: creation goes on in the new shard."""
    before, record_id = Commands(pair.commands.queue), f"@{NAME}"
    pair.run(before.put_schedule(record_id, encode(Definition(schedule(), {})), "client", shard=0, **ROOM))
    [written] = pair.run(before.list_schedules(0)).records
    fields = Further(tags=(record_id,), occurrence=Occurrence(NOW, alone=alone))
    flat: list[Any] = [occurrence_id(NAME, NOW), NOW, with_fields(b"\x11null", fields)]
    pair.run(before.create_occurrences(0, written, flat, room=ROOM, move=Move(NOW, None)))
    assert len(pair.run(before.claim(0, 10, LEASE_MS)).leases) == 1
    batch = migrate_out(pair, record_id)
    assert ([task.arguments[0] for task in batch.tasks], batch.stay) == (
        ([], [record_id.encode()]) if alone else ([record_id.encode()], [])
    )


def test_a_schedule_is_changed_where_it_is_and_created_only_where_it_belongs(pair: Shard) -> None:
    body, record_id = encode(Definition(schedule(), {})), f"@{NAME}"

    def put_in(shard: int, content: bytes) -> str:
        return pair.run(pair.commands.put_schedule(record_id, content, "client", shard=shard, **ROOM)).outcome

    assert put_in(0, body) == "not_found"
    pair.run(Commands(pair.commands.queue).put_schedule(record_id, body, "client", shard=0, **ROOM))
    assert put_in(0, encode(Definition(schedule(suspend=True), {}))) == "updated"
    assert put_in(1, body) == "created"
