"""How free slots are shared among shards that may hold due tasks, in any shard group."""

from __future__ import annotations

from delayq.protocol.commands import Commands
from delayq.protocol.shard_map import ShardMap
from delayq.service.counters import WorkerCounters
from delayq.service.shard_groups import ShardGroup, groups
from delayq.worker.slots import GroupState, Reservation, Slots

from tests.unit.handlers.support import document


def group_states(shards: int, concurrency: int, *, is_cluster: bool = True) -> list[GroupState]:
    """One for each shard group; no shard is hinted at."""
    queue = document({"python": {"callable": "unused:unused"}}, worker={"concurrency": concurrency})
    slots = Slots(queue.spec, WorkerCounters("worker", "q"))
    found = [
        GroupState(slots, group) for group in groups(Commands("q", shards=shards), is_cluster=is_cluster)
    ]
    slots.hinted.clear()
    return found


def claimed(group_state: GroupState) -> tuple[list[tuple[int, int]], Reservation]:
    """What it claims now, and the slots reserved for that; the hints are used up."""
    shares = group_state.slots.shares(group_state)
    for shard, _ in shares:
        del group_state.slots.hinted[shard]
    return shares, group_state.begin_exchange(sum(limit for _, limit in shares))


async def test_slots_are_shared_among_shards_within_a_group_and_across_groups() -> None:
    [group_state] = group_states(4, 10, is_cluster=False)
    group_state.hint_all()
    assert sorted(limit for _, limit in group_state.slots.shares(group_state)) == [1, 3, 3, 3]
    first, second, third = group_states(3, 10)
    first.hint(0)
    assert first.slots.shares(first) == [(0, 10)], "it alone may have tasks"
    for shard, group_state in enumerate((first, second, third)):
        group_state.hint(shard)
    assert [claimed(group_state)[0] for group_state in (first, second, third)] == [
        [(0, 4)],
        [(1, 3)],
        [(2, 3)],
    ]
    assert first.slots.free == 0


async def test_with_fewer_slots_than_shards_they_take_turns() -> None:
    first, second, third = group_states(3, 1)
    for shard, group_state in enumerate((first, second, third)):
        group_state.hint(shard)
    turns = []
    for _ in range(6):
        [(shard, limit)] = [
            share for group_state in (first, second, third) for share in group_state.slots.shares(group_state)
        ]
        group_state = (first, second, third)[shard]
        shares, reservation = claimed(group_state)
        assert (shares, limit) == ([(shard, 1)], 1)
        group_state.end_exchange(reservation, served=True)
        group_state.hint(shard)  # there is more
        turns.append(shard)
    assert turns == [0, 1, 2, 0, 1, 2]


async def test_a_group_that_is_no_more_waits_for_what_it_has_to_settle() -> None:
    commands = Commands("q", shards=2)
    queue = document({"python": {"callable": "unused:unused"}})
    group_state = GroupState(Slots(queue.spec, WorkerCounters("worker", "q")), ShardGroup(commands, 1))
    assert not group_state.idle
    commands.use_shard_map(ShardMap.assumed(1))
    reservation = group_state.begin_exchange(1)
    assert not group_state.idle
    group_state.end_exchange(reservation, served=True)
    group_state.outbox.sent = 1
    assert not group_state.idle
    group_state.outbox.sent = 0
    assert group_state.idle
    group_state.close()
    assert (group_state.slots.group_states, group_state.slots.hinted) == ([], {})


async def test_a_group_whose_server_may_hang_takes_no_suspects() -> None:
    """Its call might be answered late, and until then the worker claims nothing anywhere."""
    first, second = group_states(2, 5)
    for shard in range(2):
        first.slots.suspects.note(shard, 1, 0.0)
    reservation = first.begin_exchange(1)
    first.end_exchange(reservation, served=False)
    assert (first.slots.isolates(first), second.slots.isolates(second)) == (None, 1)
