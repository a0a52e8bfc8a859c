"""A client's operations on schedules: what they refuse, what a lost reply does, and which of them are an owner's."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

import pytest
from delayq import Client, Schedule, SyncClient
from delayq.client.operations import Operations
from delayq.client.recurring import RecurringSchedules
from delayq.contract import Limits
from delayq.contract.document import parse_schedule
from delayq.errors import NoSuchSchedule, ScheduleRefused, Unavailable
from delayq.protocol.commands import BATCH

from tests.redis.state import NOW, Shard

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from delayq.client.routing import Operation
    from delayq.contract.schedule import DelaySchedule
    from delayq.protocol.commands import Call

MINUTE = 60_000


def schedule(name: str = "nightly", **spec: Any) -> DelaySchedule:  # noqa: ANN401
    meta = {"apiVersion": "delayq.dev/v1alpha1", "kind": "DelaySchedule", "metadata": {"name": name}}
    return parse_schedule({**meta, "spec": {"queueRef": {"name": "orders"}, "everySeconds": 60, **spec}})


def at(ms: int) -> datetime:
    return datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=ms)


@pytest.fixture
def client(shard: Shard) -> Iterator[SyncClient]:
    with SyncClient(shard.server.url, queue=shard.commands.queue) as client:
        yield client


def drive(shard: Shard, operation: Operation[Any], after: Callable[[Call[Any]], None]) -> Any:  # noqa: ANN401
    """Run an operation; `after` each call, something happens: an error is raised in its place."""
    answers: Any = None
    error: Exception | None = None
    while True:
        try:
            asked = operation.throw(error) if error else operation.send(answers)
        except StopIteration as done:
            return done.value
        answers, error = None, None
        for call in asked if isinstance(asked, list) else []:
            answers = [*(answers or []), shard.run(call)]
            try:
                after(call)
            except Unavailable as raised:
                error = raised


def recurring(shard: Shard) -> RecurringSchedules:
    return RecurringSchedules(Operations(shard.commands, Limits()))


def test_a_run_whose_reply_was_lost_is_the_run_that_was_asked_for(shard: Shard, client: SyncClient) -> None:
    client.apply_schedule(schedule())
    lost = ["create_occurrences"]

    def lose(call: Call[Any]) -> None:
        if call.script.name in lost:
            lost.clear()
            raise Unavailable("test", "the reply is lost")

    task_id = drive(shard, recurring(shard).run_now("nightly"), lose)
    assert shard.whole().delayed == {task_id: NOW}, "by Redis' clock"


def test_a_record_that_goes_to_the_end_while_they_are_listed_hides_no_other(
    shard: Shard, client: SyncClient
) -> None:
    names = [f"s-{number:03}" for number in range(BATCH + 50)]
    client.sync_schedules([schedule(name) for name in names], owner="client")

    def tend(call: Call[Any]) -> None:
        """As a scanner does: the first ones are looked at again later."""
        if call.script.name == "list_schedules":
            shard.redis.zadd(shard.keys.schedules, {f"@{name}": NOW + MINUTE for name in names[:10]})

    found = drive(shard, recurring(shard).records(), tend)
    assert [record.name for record in found] == names


def test_a_backfill_leaves_the_times_to_the_scanner_that_are_its(shard: Shard, client: SyncClient) -> None:
    client.apply_schedule(schedule())
    shard.clock(NOW + 5 * MINUTE)
    hour: dict[str, Any] = {"since_ms": NOW - 2 * MINUTE, "before_ms": NOW + 60 * MINUTE}
    ids = [
        f"@nightly@{time}Z" for time in ("2029-12-31T23:58:00", "2029-12-31T23:59:00", "2030-01-01T00:00:00")
    ]
    assert client.backfill_schedule("nightly", **hour, dry_run=True).ids == ids, "the cursor is behind"
    client.apply_schedule(schedule(suspend=True))
    shard.clock(NOW + 7 * MINUTE)
    assert len(client.backfill_schedule("nightly", **hour, dry_run=False).ids) == 10, (
        "none is created meanwhile"
    )
    assert set(shard.whole().delayed.values()) == {NOW + 7 * MINUTE}


def test_a_backfilled_occurrence_is_not_the_run_that_others_wait_for(
    shard: Shard, client: SyncClient
) -> None:
    client.apply_schedule(schedule(concurrencyPolicy="Forbid"))
    first = client.run_schedule("nightly")
    assert len(shard.run(shard.commands.claim(0, 1, MINUTE)).leases) == 1
    minute: dict[str, Any] = {"since": at(NOW - MINUTE), "before": at(NOW)}
    client.backfill_schedule("nightly", **minute)
    assert len(shard.run(shard.commands.claim(0, 1, MINUTE)).leases) == 1
    shard.clock(NOW + 1)
    client.run_schedule("nightly")
    assert shard.run(shard.commands.claim(0, 1, MINUTE)).leases == []
    [schedule_] = client.schedules()
    assert schedule_.last_run is not None
    assert (schedule_.last_run.id, schedule_.skipped) == (first, 1)


@pytest.mark.parametrize("owner", ["", "my owner", "a\nb", "ü"])
def test_an_owner_is_one_word(client: SyncClient, owner: str) -> None:
    with pytest.raises(ScheduleRefused, match="owner of schedule nightly: expected"):
        client.sync_schedules([schedule()], owner=owner)
    assert client.schedules() == []


@pytest.mark.parametrize(
    ("limits", "task", "what"),
    [
        (Limits(max_payload_bytes=1024), {"payload": f'"{"x" * 1024}"'}, "payload"),
        (Limits(max_header_bytes=256), {"headers": {"a": "x" * 256}}, "headers"),
    ],
)
def test_a_task_that_the_queue_would_refuse_is_refused(
    shard: Shard, limits: Limits, task: dict[str, Any], what: str
) -> None:
    with SyncClient(shard.server.url, queue=shard.commands.queue, limits=limits) as client:
        with pytest.raises(ScheduleRefused, match=f"schedule nightly: {what}"):
            client.apply_schedule(schedule(task=task))
        assert client.schedules() == []


def test_one_schedule_that_is_refused_does_not_keep_back_the_others(client: SyncClient) -> None:
    client.apply_schedule(schedule("b"))
    client.sync_schedules([schedule("gone")], owner="file")
    zone = {"everySeconds": None, "cron": "@daily", "timeZone": "Mars/Olympus"}
    schedules = [schedule("b"), schedule("a", **zone), schedule("c")]
    with pytest.raises(ScheduleRefused, match=r"schedule b belongs to a client.*spec.timeZone"):
        client.sync_schedules(schedules, owner="file")
    assert {each.name: each.owner for each in client.schedules()} == {"b": "client", "c": "file"}


def test_a_schedule_that_another_process_deletes_meanwhile_is_no_error(
    shard: Shard, client: SyncClient
) -> None:
    client.sync_schedules([schedule("a"), schedule("b")], owner="file")

    def delete(call: Call[Any]) -> None:
        if call.script.name == "list_schedules" and "a" in {each.name for each in client.schedules()}:
            drive(shard, recurring(shard).delete("a", owner="file"), lambda _: None)

    drive(shard, recurring(shard).sync([], "file", ""), delete)
    assert client.schedules() == []


def test_two_files_do_not_delete_each_others_schedules(client: SyncClient) -> None:
    client.sync_schedules([schedule("a"), schedule("c")], owner="file", source="/one.yaml")
    client.sync_schedules([schedule("b")], owner="file", source="/two.yaml")
    client.sync_schedules([schedule("a")], owner="file", source="/one.yaml")
    assert [each.name for each in client.schedules()] == ["a", "b"]
    client.sync_schedules([schedule("a")], owner="file", source="/two.yaml")  # it has moved to this one
    client.sync_schedules([], owner="file", source="/one.yaml")
    assert [each.name for each in client.schedules()] == ["a"]


def test_what_does_not_exist_is_named(client: SyncClient) -> None:
    with pytest.raises(NoSuchSchedule):
        client.run_schedule("nightly")


LISBON = ZoneInfo("Europe/Lisbon")


def test_a_schedule_is_read_as_it_was_written_with_its_next_times(shard: Shard, client: SyncClient) -> None:
    task = {"kind": "report", "version": 2, "payload": '{"region": "eu"}'}
    daily = {"everySeconds": None, "cron": "0 3 * * *", "timeZone": "Europe/Lisbon"}
    client.apply_schedule(schedule("daily", **daily, task=task))
    client.apply_schedule(schedule("poll", everySeconds=90, jitterSeconds=80, suspend=True))
    client.apply_schedule(schedule("twice", everySeconds=None, times=["2030-01-01T01:00:00+01:00"]))
    began = client.run_schedule("daily")
    shard.clock(NOW + 1500)
    assert len(shard.run(shard.commands.claim(0, 1, MINUTE)).leases) == 1
    daily_, poll, twice = client.schedules()
    assert client.get_schedule("daily") == daily_
    assert (daily_.cron, daily_.time_zone, daily_.every) == ("0 3 * * *", "Europe/Lisbon", None)
    assert (daily_.kind, daily_.version, daily_.payload) == ("report", 2, {"region": "eu"})
    assert (daily_.owner, daily_.suspended, daily_.deleting) == ("client", False, False)
    spring = datetime(2030, 3, 30, 12, tzinfo=UTC)
    assert daily_.next_times(2, after=spring) == [
        datetime(2030, 3, 31, 3, tzinfo=LISBON),
        datetime(2030, 4, 1, 3, tzinfo=LISBON),
    ]
    assert [each.utcoffset() for each in daily_.next_times(1, after=spring)] == [timedelta(hours=1)]
    assert daily_.last_run is not None
    assert (daily_.last_run.id, daily_.last_run.lateness) == (began, timedelta(seconds=1.5))
    assert daily_.last_run.began == datetime(2030, 1, 1, 0, 0, 1, 500_000, tzinfo=UTC)
    assert (poll.every, poll.suspended, poll.next_times(3), poll.last_run) == (
        timedelta(seconds=90),
        True,
        [],
        None,
    )
    assert twice.times == (datetime(2030, 1, 1, tzinfo=UTC),)
    assert twice.next_times(2, after=datetime(2029, 12, 31, tzinfo=UTC)) == [datetime(2030, 1, 1, tzinfo=UTC)]
    assert [each.when for each in (daily_, poll, twice)] == [
        "0 3 * * * Europe/Lisbon",
        "every 90 s, suspended",
        "1 time",
    ]
    assert client.get_schedule("other") is None


def test_a_next_time_is_when_the_occurrence_is_due_with_its_jitter(client: SyncClient) -> None:
    """Also of an occurrence whose nominal time is past, and whose due time is not."""
    client.apply_schedule(schedule(everySeconds=3600, jitterSeconds=3000))
    found = client.get_schedule("nightly")
    assert found is not None
    after = datetime(2030, 1, 1, tzinfo=UTC)
    due = found.next_times(48, after=after)
    assert due == sorted(due)
    late = next(each for each in due if each.minute > 10)
    assert found.next_times(1, after=late - timedelta(minutes=5)) == [late]
    assert found.next_times(1, after=late) == [due[due.index(late) + 1]]


async def test_an_asyncio_client_reads_the_same(shard: Shard, client: SyncClient) -> None:
    client.apply_schedule(schedule())
    async with Client(shard.server.url, queue=shard.commands.queue) as other:
        [found] = await other.schedules()
        assert isinstance(found, Schedule)
        assert [found, await other.get_schedule("nightly")] == [*client.schedules()] * 2


def test_what_a_newer_delayq_wrote_is_listed_without_its_content(shard: Shard, client: SyncClient) -> None:
    client.apply_schedule(schedule())
    body: Any = shard.redis.hget(shard.keys.tasks, "@nightly")
    shard.redis.hset(shard.keys.tasks, "@nightly", body.replace(b"everySeconds", b"everyAeonss!"))
    [found] = client.schedules()
    assert (found.name, found.definition, found.when) == ("nightly", None, "written by a newer delayq")
    assert found.next_times() == []


def test_a_sync_says_what_became_of_each(client: SyncClient) -> None:
    client.sync_schedules([schedule("a"), schedule("b"), schedule("c")], owner="file")
    done = client.sync_schedules([schedule("b"), schedule("c", everySeconds=30), schedule("d")], owner="file")
    assert {name: each.outcome for name, each in done.items()} == {
        "a": "deleted",
        "b": "unchanged",
        "c": "updated",
        "d": "created",
    }
