"""The service of the scanner that looks at schedules, on a real Redis: one schedule does not hold up the others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from delayq.contract.document import parse_schedule
from delayq.scanner.schedule_keeper import PAGE, ScheduleKeeper
from delayq.schedules.record import CLIENT, KUBERNETES, Definition, encode
from delayq.service.shard_groups import ShardGroup

from tests.redis.state import NOW, Shard
from tests.unit.handlers.support import document

if TYPE_CHECKING:
    from collections.abc import Mapping

    from delayq.connection import AsyncConnection

MINUTE = 60_000


def put(
    shard: Shard,
    name: str,
    *,
    owner: str = CLIENT,
    notes: Mapping[str, object] | None = None,
    **spec: Any,  # noqa: ANN401
) -> None:
    meta = {"apiVersion": "delayq.dev/v1alpha1", "kind": "DelaySchedule", "metadata": {"name": name}}
    of = parse_schedule({**meta, "spec": {"queueRef": {"name": "orders"}, "everySeconds": 60, **spec}})
    commands, record_id, body = shard.commands, f"@{name}", encode(Definition(of, notes or {}))
    at, room = commands.shard_of(record_id), {"max_length": 10_000, "max_bytes": 0}
    shard.run(commands.put_schedule(record_id, body, owner, shard=at, **room))


async def look(
    shard: Shard, connection: AsyncConnection, max_length: int = 10_000, *, refuses: str | None = None
) -> None:
    spec = document({"exec": {"command": ["true"]}}, limits={"maxLength": max_length}).spec
    keeper = ScheduleKeeper(ShardGroup(shard.commands), connection, spec, lambda: {0}, refuses=refuses)
    keeper.look(0)
    await keeper.step()


def created(shard: Shard) -> set[str]:
    return {task.split("@")[1] for task in shard.whole().delayed}


async def test_a_schedule_that_this_image_cannot_compute_does_not_hold_up_the_others(
    shard: Shard, connection: AsyncConnection, caplog: pytest.LogCaptureFixture
) -> None:
    zone: dict[str, Any] = {"everySeconds": None, "cron": "0 3 * * *", "timeZone": "Mars/Olympus"}
    put(shard, "a-bad", **zone)
    put(shard, "b-good")
    await look(shard, connection)
    assert created(shard) == {"b-good"}
    assert shard.whole().schedules["@a-bad"] == NOW + 60_000
    assert [each.message for each in caplog.records] == ["schedule_failed"]


async def test_records_that_cannot_be_read_do_not_hold_up_the_others(
    shard: Shard, connection: AsyncConnection
) -> None:
    put(shard, "good")
    unreadable = {f"@bad-{n:02}": NOW - 1 for n in range(2 * PAGE)}
    shard.seed(shard.whole().but(schedules={**unreadable, "@good": NOW}))
    await look(shard, connection)
    assert created(shard) == {"good"}


@pytest.mark.parametrize("free", [7, 1, 0])
async def test_a_shard_that_is_almost_full_takes_as_many_as_it_has_room_for(
    shard: Shard, connection: AsyncConnection, caplog: pytest.LogCaptureFixture, free: int
) -> None:
    put(shard, "poll")
    await look(shard, connection, max_length=1 + free)
    assert len(shard.whole().delayed) == free
    assert [each.message for each in caplog.records] == ["occurrences_refused"]
    await look(shard, connection)
    assert len(shard.whole().delayed) == free, "not looked at again for ten seconds"
    shard.clock(NOW + MINUTE)
    await look(shard, connection)
    assert len(shard.whole().delayed) == 21


async def test_what_was_missed_is_counted_though_the_shard_is_full(
    shard: Shard, connection: AsyncConnection
) -> None:
    put(shard, "another", suspend=True)
    put(shard, "poll", misfire={"policy": "Skip", "maxLatenessSeconds": 1}, endTime="2030-01-01T00:02:00Z")
    shard.clock(NOW + 10 * MINUTE)
    await look(shard, connection, max_length=1)
    missed = {each.name: each.missed for each in shard.run(shard.commands.list_schedules(0)).records}
    assert missed == {"another": 0, "poll": 2}


async def test_a_record_that_migrates_does_not_hold_up_the_others(
    shard: Shard, connection: AsyncConnection
) -> None:
    """For as long as its new shard is down. Nothing is created for it meanwhile."""
    put(shard, "a-away")
    put(shard, "b-away")
    put(shard, "c-good")
    put(shard, "b-away", everySeconds=90)  # and has a change to clear
    shard.redis.zadd(shard.commands.keys(0).moving, {"@a-away": 7, "@b-away": 7})
    await look(shard, connection)
    assert created(shard) == {"c-good"}


async def test_occurrences_ahead_of_a_large_payload_are_few_and_each_is_there_before_it_is_due(
    shard: Shard, connection: AsyncConnection
) -> None:
    put(shard, "large", everySeconds=1, task={"payload": f'"{"x" * 65_000}"'})
    for second in range(40):
        shard.clock(NOW + second * 1000)
        before = shard.whole().delayed
        await look(shard, connection)
        assert all(
            due > NOW + second * 1000 for task, due in shard.whole().delayed.items() if task not in before
        )
    ahead = [due for due in shard.whole().delayed.values() if due > NOW + 39_000]
    assert 6 <= len(ahead) <= 16
    assert len(shard.whole().delayed) - len(ahead) == 39


async def test_many_schedules_share_the_bytes_ahead_of_a_queue(
    shard: Shard, connection: AsyncConnection
) -> None:
    put(shard, "large", everySeconds=1, task={"payload": f'"{"x" * 65_000}"'})
    others = {f"@other-{n}": NOW + MINUTE for n in range(499)}
    shard.seed(shard.whole().but(schedules={**others, "@large": NOW}))
    await look(shard, connection)
    assert len(shard.whole().delayed) == 2  # 64 MiB / 500


async def test_of_a_queue_that_accepts_none_any_more_those_of_its_namespace_go_with_what_they_have_stored(
    shard: Shard, connection: AsyncConnection
) -> None:
    """Also those that have no further look, and more than a page. Other owners and other namespaces stay."""
    mine = {f"mine-{number:02}" for number in range(PAGE + 10)}
    for name in mine:
        put(shard, name, owner=KUBERNETES, notes={"namespace": "shop"}, everySeconds=3600)
    put(
        shard,
        "over",
        owner=KUBERNETES,
        notes={"namespace": "shop"},
        everySeconds=None,
        times=["2020-01-01T00:00:00Z"],
    )
    put(shard, "others", owner=KUBERNETES, notes={"namespace": "bank"})
    put(shard, "client", notes={"namespace": "shop"})
    await look(shard, connection)
    assert created(shard) >= {"others", "client"}
    put(shard, "new", owner=KUBERNETES, notes={"namespace": "shop"})
    await look(shard, connection, refuses="shop")
    assert created(shard) == {"others", "client"}
    assert set(shard.whole().schedules) == {"@others", "@client"}
