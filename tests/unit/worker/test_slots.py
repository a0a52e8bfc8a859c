"""How free slots are shared among shards that may hold due tasks, whatever lane they are of."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from delayq.protocol.commands import Broker
from delayq.protocol.shard_map import Layout
from delayq.service.counters import WorkerTally
from delayq.service.shard_groups import Lane, lanes
from delayq.worker import slots
from delayq.worker.slots import Desk, Slots

from tests.unit.handlers.support import document

if TYPE_CHECKING:
    import pytest


def desks(shards: int, concurrency: int, *, apart: bool = True) -> list[Desk]:
    """One for each lane; no shard is hinted at."""
    queue = document({"python": {"callable": "unused:unused"}}, worker={"concurrency": concurrency})
    slots = Slots(queue.spec, WorkerTally("worker", "q"))
    found = [Desk(slots, lane) for lane in lanes(Broker("q", shards=shards), apart=apart)]
    slots.hinted.clear()
    return found


def claimed(desk: Desk) -> list[tuple[int, int]]:
    """What it claims now; the hints are used up."""
    shares = desk.slots.shares(desk)
    for shard, _ in shares:
        del desk.slots.hinted[shard]
    desk.asks(sum(limit for _, limit in shares))
    return shares


async def test_one_lane_shares_its_slots_among_all_its_shards() -> None:
    [desk] = desks(4, 10, apart=False)
    desk.look()
    assert sorted(limit for _, limit in desk.slots.shares(desk)) == [1, 3, 3, 3]


async def test_a_shard_that_alone_has_tasks_gets_all_slots() -> None:
    first, *_ = desks(4, 10)
    first.hint(0)
    assert first.slots.shares(first) == [(0, 10)]


async def test_slots_are_shared_among_lanes_as_among_shards() -> None:
    first, second, third = desks(3, 10)
    for shard, desk in enumerate((first, second, third)):
        desk.hint(shard)
    assert [claimed(desk) for desk in (first, second, third)] == [[(0, 4)], [(1, 3)], [(2, 3)]]
    assert first.slots.free == 0


async def test_with_fewer_slots_than_shards_they_take_turns() -> None:
    first, second, third = desks(3, 1)
    for shard, desk in enumerate((first, second, third)):
        desk.hint(shard)
    turns = []
    for _ in range(6):
        [(shard, limit)] = [share for desk in (first, second, third) for share in desk.slots.shares(desk)]
        desk = (first, second, third)[shard]
        assert (claimed(desk), limit) == ([(shard, 1)], 1)
        desk.answered(well=True)
        desk.hint(shard)  # there is more
        turns.append(shard)
    assert turns == [0, 1, 2, 0, 1, 2]


async def test_a_desk_that_waits_for_an_answer_or_failed_keeps_no_slot_from_others() -> None:
    first, second, third = desks(3, 9)
    first.asks(0)
    second.answered(well=False)
    for shard, desk in enumerate((first, second, third)):
        desk.hint(shard)
    assert third.slots.shares(third) == [(2, 9)]
    assert second.slots.shares(second) == [(1, 5)]  # it may try, with nothing reserved
    second.asks(5)
    assert third.slots.free == 9


async def test_what_is_reserved_is_given_back_when_no_answer_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slots, "PATIENCE_SECONDS", 0.01)
    first, second = desks(2, 5)
    first.hint(0)
    claimed(first)
    second.hint(1)
    assert (second.slots.free, second.slots.shares(second)) == (0, [])
    second.exchange_alarm = type(second.exchange_alarm)()  # forget the hint's ring
    async with asyncio.timeout(10):
        await second.exchange_alarm.wait(60)
    assert second.slots.shares(second) == [(1, 5)]
    first.answered(well=True)
    assert (first.slots.free, first.doubtful) == (5, True)


async def test_a_lane_that_is_no_more_waits_for_what_it_has_to_settle() -> None:
    broker = Broker("q", shards=2)
    queue = document({"python": {"callable": "unused:unused"}})
    desk = Desk(Slots(queue.spec, WorkerTally("worker", "q")), Lane(broker, 1))
    assert not desk.idle
    broker.follow(Layout.guess(1))
    desk.asks(1)
    assert not desk.idle
    desk.answered(well=True)
    desk.outbox.sent = 1
    assert not desk.idle
    desk.outbox.sent = 0
    assert desk.idle
    desk.close()
    assert (desk.slots.desks, desk.slots.hinted) == ([], {})


async def test_a_lane_whose_server_may_hang_takes_no_suspects() -> None:
    """Its call might be answered late, and until then the worker claims nothing anywhere."""
    first, second = desks(2, 5)
    for shard in range(2):
        first.slots.suspects.note(shard, 1, 0.0)
    first.answered(well=False)
    assert (first.slots.isolates(first), second.slots.isolates(second)) == (None, 1)
