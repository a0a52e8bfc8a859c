"""What scanners say of a queue's shards, and what counts as all of them while their number changes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from delayq.contract import metrics as table
from delayq_operator.scrape.backlog import Reading, backlog
from delayq_operator.scrape.shards import Down, ShardMap

from tests.unit.operator.scrape.test_backlog import scanner

if TYPE_CHECKING:
    from delayq_operator.base.objects import Sample

NOW = 1_800_000_000.0
QUEUE = {"queue": "orders"}


def shard_map(epoch: float, now: float, was: float, target: float) -> list[Sample]:
    shards = zip(table.SHARD_MAP_VERSIONS, (now, was, target), strict=True)
    return [
        (table.SHARD_MAP_EPOCH.name, QUEUE, epoch),
        *((table.SHARD_MAP_SHARDS.name, {**QUEUE, "version": which}, number) for which, number in shards),
    ]


def leads(*shards: int, of: int, reported: list[Sample]) -> list[Sample]:
    """What a scanner says that leads these shards."""
    return [*scanner({shard: shard in shards for shard in range(of)}), *reported]


def down(shard: object, cause: str = "timeout", server: str = "10.0.0.7:6379") -> Sample:
    return table.SHARD_DOWN.name, {**QUEUE, "shard": str(shard), "cause": cause, "server": server}, 1.0


def progress(shard: int, tasks: int, checked: int, moved: int, *, waiting: int = 0) -> list[Sample]:
    metrics = (
        *(table.RESHARDING_TASKS, table.RESHARDING_CHECKED_TASKS),
        *(table.RESHARDING_MIGRATED_TASKS, table.RESHARDING_WAITING_TASKS),
    )
    labels = {**QUEUE, "shard": str(shard)}
    return [
        (metric.name, labels, number)
        for metric, number in zip(metrics, (tasks, checked, moved, waiting), strict=True)
    ]


@pytest.mark.parametrize("reported", [(3, 4, 1, 4), (2, 1, 1, 4), (5, 1, 4, 1)])
def test_all_shards_are_looked_after_until_the_change_is_over(reported: tuple[int, int, int, int]) -> None:
    reading = Reading([leads(0, of=1, reported=shard_map(*reported))])
    assert (reading.whole, reading.sharding().leaderless) == (False, (1, 2, 3))
    reading.take(leads(1, 2, 3, of=4, reported=shard_map(*reported)))
    assert reading.whole


def test_the_newest_shard_map_counts_in_any_order_of_scrapes() -> None:
    """Scanners learn within a second; a shard that was dropped meanwhile has no leader and is not reported."""
    old, new = leads(0, of=4, reported=shard_map(3, 1, 4, 1)), leads(of=1, reported=shard_map(4, 1, 1, 1))
    for scanners in ((old, new), (new, old)):
        reading = Reading(scanners)
        assert reading.shard_map == ShardMap(4, 1, 1, 1)
        assert reading.whole


def test_a_shard_that_is_down_is_named_unless_a_scanner_leads_it() -> None:
    """One scanner may be cut off from a server that serves the others."""
    cut_off = leads(0, of=3, reported=[*shard_map(1, 3, 3, 3), down(1), down(2)])
    other = leads(1, of=3, reported=[*shard_map(1, 3, 3, 3), down(2)])
    found = backlog(Reading([cut_off, other]), NOW)
    assert found.shards.down == (Down(2, "timeout", "10.0.0.7:6379"),)
    assert (found.whole, found.redis_up, found.shards.leaderless) == (False, True, ())


def test_a_shard_that_serves_a_scanner_that_does_not_lead_it_is_not_down() -> None:
    """A scanner that has just started is not served yet; for a moment, the shards of the last one have no leader."""
    new, standby = (
        leads(of=2, reported=[*shard_map(1, 2, 2, 2), down(0), down(1)]),
        leads(0, of=2, reported=shard_map(1, 2, 2, 2)),
    )
    for scanners in ((new, standby), (standby, new)):
        found = Reading(scanners).sharding()
        assert (found.down, found.leaderless) == ((), (1,))
    assert [each.shard for each in Reading([new, new]).sharding().down] == [0, 1]


SERVERS = ("10.0.0.7:6379", "[fd00::1]:6379", "redis-0.redis.shop.svc:7000")


@pytest.mark.parametrize(
    ("said", "repeated"),
    [
        *((down(shard), ()) for shard in ("-1", "256", "9" * 400, "²")),
        (down(1, "because"), ()),
        *((down(1, server=server), (Down(1, "timeout", server),)) for server in SERVERS),
        *((down(1, server=server), (Down(1, "timeout", ""),)) for server in ("-", "x" * 300, 'evil"}\n')),
    ],
)
def test_what_no_scanner_of_ours_says_of_a_shard_is_not_repeated(
    said: Sample, repeated: tuple[Down, ...]
) -> None:
    assert Reading([leads(0, of=2, reported=[*shard_map(1, 2, 2, 2), said])]).sharding().down == repeated


@pytest.mark.parametrize(
    "reported",
    [
        shard_map(1, 2, 2, 2)[1:],
        shard_map(1, 2, 2, 2)[:-1],
        shard_map(1, 0, 2, 2),
        shard_map(1, float("nan"), 2, 2),
    ],
)
def test_half_a_shard_map_is_none(reported: list[Sample]) -> None:
    assert Reading([leads(0, of=2, reported=reported)]).shard_map is None


def test_progress_adds_up_over_shards_and_its_end_is_unknown_until_each_has_reported() -> None:
    reported = shard_map(3, 2, 1, 2)
    first = leads(0, of=2, reported=[*reported, *progress(0, 300, 120, 60)])
    found = Reading([first]).sharding()
    assert (found.tasks, found.checked, found.moved) == (None, 120, 60)
    second = leads(1, of=2, reported=[*reported, *progress(1, 7, 7, 0, waiting=7)])
    found = Reading([first, second]).sharding()
    assert (found.tasks, found.checked, found.moved, found.waiting) == (307, 127, 60, 7)
