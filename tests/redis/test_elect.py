"""elect: each shard has one leader among the scanners, and the shards are spread evenly over them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from delayq.protocol.commands import SERVES_MS
from delayq.protocol.results import Leadership
from delayq.reaper.eraser import Erase

from tests.redis.state import NOW, Shard, State

if TYPE_CHECKING:
    from delayq.connection import AsyncConnection

LEASE_MS = 10_000
MINE = f"me {NOW + LEASE_MS}"


def elect(shard: Shard, owner: str = "me", lease_ms: int = LEASE_MS, uid: str = "") -> Leadership:
    return shard.run(shard.commands.elect(0, owner, uid, lease_ms))


def scanners(shard: Shard) -> dict[str, int]:
    """Those that are counted, and until when."""
    found: Any = shard.redis.zrange(shard.keys.scanners, 0, -1, withscores=True)
    return {name.decode(): int(until_ms) for name, until_ms in found}


@pytest.mark.parametrize(
    ("leader", "stepped_back_ms"),
    [
        ("", 0),
        (f"me {NOW + 77}", 0),
        (f"other {NOW}", 0),
        (
            f"other {NOW + LEASE_MS + 5000}",
            5000,
        ),  # longer than any lease: written before the clock stepped back
        ("nonsense", 0),
    ],
    ids=["none", "renewed", "expired", "too long", "unreadable"],
)
def test_a_scanner_becomes_leader_of_a_shard_without_one(
    shard: Shard, leader: str, stepped_back_ms: int
) -> None:
    """Also with full memory. The keys expire once no scanner runs."""
    shard.seed(State(leader=leader))
    with shard.full_memory():
        assert elect(shard) == Leadership(
            leads=True, others_ms=0, stepped_back_ms=stepped_back_ms, again_ms=LEASE_MS
        )
    assert (shard.whole(), scanners(shard)) == (State(leader=MINE), {"me": NOW + LEASE_MS})
    for key in (shard.keys.leader, shard.keys.scanners):
        assert 0 < shard.redis.pttl(key) <= LEASE_MS * 10
    assert elect(shard, lease_ms=0) == Leadership(leads=False, others_ms=0, stepped_back_ms=0, again_ms=0)
    assert (shard.whole(), scanners(shard)) == (State(), {})


@pytest.mark.parametrize(("lease_ms", "again_ms"), [(LEASE_MS, 1), (0, 0)])
def test_no_scanner_takes_a_shard_from_its_leader_or_gives_it_up_for_it(
    shard: Shard, lease_ms: int, again_ms: int
) -> None:
    """The reply says how long the other one leads, and when the next scanner may count as dead."""
    shard.redis.zadd(shard.keys.scanners, {"a": NOW + 1})
    before = shard.seed(State(leader=f"other {NOW + 77}"))
    reported = elect(shard, lease_ms=lease_ms)
    assert reported == Leadership(leads=False, others_ms=77, stepped_back_ms=0, again_ms=again_ms)
    assert shard.whole() == before


def test_a_scanner_counts_until_its_lease_expires_or_for_a_lease_after_a_step_back(shard: Shard) -> None:
    """A scanner that was counted before the clock stepped back is likely to live, but maybe not for an hour."""
    shard.redis.zadd(shard.keys.scanners, {"a": NOW, "b": NOW + 1, "c": NOW + 3_600_000})
    elect(shard)
    assert scanners(shard) == {"b": NOW + 1, "c": NOW + LEASE_MS, "me": NOW + LEASE_MS}


def test_a_leader_stays_until_the_scanner_that_should_lead_comes(shard: Shard) -> None:
    elect(shard, "one")
    shard.redis.zadd(shard.keys.scanners, {"a": NOW + LEASE_MS})
    reported = elect(shard, "one")
    assert (reported.leads, reported.again_ms) == (True, 500), "it soon asks whether the other has come"
    assert elect(shard, "a").leads
    reported = elect(shard, "one")
    assert reported == Leadership(leads=False, others_ms=LEASE_MS, stepped_back_ms=0, again_ms=LEASE_MS)


def test_a_step_back_is_reported_until_leases_are_shortened_though_replies_are_lost(shard: Shard) -> None:
    elect(shard)
    shard.seed(State(leader=MINE, processing={"a:7": NOW + 30_000}))
    shard.clock(NOW - 3_600_000)
    assert [elect(shard, name).stepped_back_ms for name in ("me", "me")] == [3_600_000, 3_600_000]
    while shard.run(shard.commands.clamp_leases(0, 30_000)).shortened:
        assert elect(shard).stepped_back_ms == 3_600_000
    assert elect(shard).stepped_back_ms == 0
    assert shard.whole().processing == {"a:7": NOW - 3_600_000 + 30_000}


# --- Two DelayQueues of one queue.


def delayqueues(shard: Shard) -> dict[str, int]:
    """Those that serve the queue, and until when."""
    found: Any = shard.redis.zrange(shard.keys.delayqueues, 0, -1, withscores=True)
    return {uid.decode(): int(until_ms) for uid, until_ms in found}


def test_scanners_of_two_delayqueues_find_each_other_and_those_of_none_write_nothing(shard: Shard) -> None:
    """Also the one that leads nothing. Scanners of one DelayQueue are no conflict."""
    elect(shard, "plain")
    assert delayqueues(shard) == {}
    assert elect(shard, "a", uid="ours").others == ()
    assert elect(shard, "b", uid="ours").others == ()
    assert elect(shard, "c", uid="theirs").others == ("ours",)
    assert elect(shard, "a", uid="ours").others == ("theirs",)
    assert elect(shard, "plain").others == ("ours", "theirs")
    assert delayqueues(shard) == dict.fromkeys(("ours", "theirs"), NOW + SERVES_MS)
    assert 0 < shard.redis.pttl(shard.keys.delayqueues) <= SERVES_MS


def test_a_delayqueue_counts_until_its_pods_should_have_restarted(shard: Shard) -> None:
    """By Redis' clock, and also after a scanner has resigned: another of its DelayQueue may just be starting."""
    elect(shard, "c", uid="theirs")
    elect(shard, "c", uid="theirs", lease_ms=0)
    shard.clock(NOW + SERVES_MS - 1)
    assert elect(shard, uid="ours").others == ("theirs",)
    shard.clock(NOW + SERVES_MS)
    assert elect(shard, uid="ours").others == ()
    assert delayqueues(shard) == {"ours": NOW + 2 * SERVES_MS}


def test_a_time_from_before_a_step_back_of_the_clock_does_not_count(shard: Shard) -> None:
    """Those that live write theirs again within two seconds."""
    elect(shard, "c", uid="theirs")
    shard.clock(NOW - 1)
    assert elect(shard, uid="ours").others == ()
    assert elect(shard, "c", uid="theirs").others == ("ours",)


async def test_tasks_are_not_erased_while_another_delayqueue_serves_them(
    shard: Shard, connection: AsyncConnection
) -> None:
    """The check and the deletion are one step. A DelayQueue that is gone for a while holds nothing back."""
    elect(shard, "a", uid="ours")
    elect(shard, "c", uid="theirs")
    before = shard.seed(State(delayed={"task": NOW}, leader=shard.whole().leader))
    erase = Erase(shard.commands, connection, patience_seconds=60, uid="ours")
    await erase.step()
    assert (shard.whole(), erase.ended.is_set()) == (before, False)
    impatient = Erase(shard.commands, connection, patience_seconds=0, uid="ours")
    await impatient.step()
    assert "another DelayQueue, of uid theirs, serve it" in str(impatient.error)
    assert shard.whole() == before
    shard.clock(NOW + SERVES_MS)
    while not erase.ended.is_set():
        await erase.step()
    assert (erase.error, erase.tasks, shard.redis.exists(shard.keys.delayqueues)) == (None, 1, 0)


async def test_a_person_who_erases_a_queue_is_not_held_back(
    shard: Shard, connection: AsyncConnection
) -> None:
    elect(shard, "c", uid="theirs")
    shard.seed(State(delayed={"task": NOW}))
    erase = Erase(shard.commands, connection, patience_seconds=0)
    while not erase.ended.is_set():
        await erase.step()
    assert (erase.error, erase.tasks) == (None, 1)
