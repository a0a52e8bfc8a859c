"""The shard map: what follows what, who may ask for another, and where a task is looked for."""

from __future__ import annotations

import logging
from itertools import zip_longest

import pytest
from delayq.protocol.commands import Commands
from delayq.protocol.quota import part
from delayq.protocol.shard_map import ShardMap
from delayq.resharding.coordinator import DesiredShards
from hypothesis import given
from hypothesis import strategies as st

COUNTS = st.integers(1, 64)


def test_a_change_goes_through_its_steps_and_nothing_else_follows() -> None:
    settled = ShardMap.first(4, "u:1")
    announced = settled.announcing(8, "u:2")
    assert announced == ShardMap(2, 4, 4, 8, 8, "u:2")
    moving = announced.next_step()
    assert moving == ShardMap(3, 8, 4, 8, 8, "u:2")
    assert moving.announcing(2, "u:3") is None, "it is asked for again when tasks have moved"
    done = moving.next_step()
    assert done == ShardMap(4, 8, 8, 8, 8, "u:2")
    assert done.next_step() is None
    fewer = done.announcing(3, "u:3")
    assert fewer is not None
    assert (fewer.shards_in_use, fewer.widest) == (8, 8)


def test_what_is_announced_may_change_for_nothing_has_moved() -> None:
    announced = ShardMap(2, 4, 4, 256, 256)
    assert announced.announcing(5, "u:9") == ShardMap(3, 4, 4, 5, 256, "u:9")
    back = announced.announcing(4, "u:9")
    assert back is not None
    assert back.settled


@given(COUNTS, COUNTS, COUNTS, st.text("ab:1-", min_size=1))
def test_it_is_read_as_it_was_written(shards: int, was: int, target: int, asked: str) -> None:
    shard_map = ShardMap(7, shards, was, target, max(shards, was, target), asked)
    assert ShardMap.parse(str(shard_map)) == shard_map


@pytest.mark.parametrize(
    "text", ["", "1", "1 2 3", "0 1 1 1 1 -", "1 0 1 1 1 -", "1 4 4 8 4 -", "x 1 1 1 1 -"]
)
def test_what_is_no_shard_map_is_refused(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011  any message of int()
        ShardMap.parse(text)


@given(COUNTS, COUNTS, st.integers(0, 10_000))
def test_a_task_is_looked_for_where_it_was_before_where_it_goes(was: int, now: int, nth: int) -> None:
    shard_map, task_id = ShardMap(3, now, was, now, 64), f"order-{nth}"
    homes = shard_map.homes(task_id)
    assert homes[0] == ShardMap.first(was).home(task_id)
    assert homes[-1] == shard_map.home(task_id)
    assert shard_map.first_lookup(task_id) == (homes[0], homes[0] != homes[-1])
    assert all(home < shard_map.shards_in_use for home in homes)


@given(COUNTS, COUNTS, st.integers(64, 100_000))
def test_limits_are_the_documents_before_and_after_a_change_and_less_than_twice_that_while_tasks_move(
    was: int, now: int, limit: int
) -> None:
    """And no shard has less than its part where its tasks were, or go: none waits because of the change."""

    def parts(shard_map: ShardMap) -> list[int]:
        return [part(limit, shard, shard_map.quota_shards(shard)) for shard in range(shard_map.shards_in_use)]

    old, new = parts(ShardMap.first(was)), parts(ShardMap.first(now))
    assert sum(old) == sum(new) == limit
    announced = parts(ShardMap(2, was, was, now, 64))
    assert announced[:was] == old, "all tasks are still where they were"
    moving = parts(ShardMap(3, now, was, now, 64))
    assert moving[:was] == [max(pair) for pair in zip_longest(old, new[:was], fillvalue=0)]
    assert moving[was:] == new[was:]
    assert sum(moving) < 2 * limit


@pytest.mark.parametrize(
    ("stamp", "asked", "found", "may", "why"),
    [
        ("u:2", "u:1", "", True, ""),
        ("u:2", "u:1", "u:1", True, ""),
        ("u:10", "u:9", "", True, ""),
        ("u:1", "-", "", True, ""),
        ("v:1", "u:9", "", True, ""),
        ("-", "-", "-", True, ""),
        ("u:2", "u:2", "", False, ""),
        ("u:1", "u:2", "u:2", False, ""),  # a pod of the document of before, in a roll-out
        ("-", "u:1", "", False, "in Kubernetes (u:1)"),
        ("u:1", "v:1", "u:1", False, "of uid v, asked later"),  # a pod of a deleted DelayQueue
    ],
)
def test_only_a_newer_document_may_ask_and_another_gets_the_reason(
    *, stamp: str, asked: str, found: str, may: bool, why: str
) -> None:
    wish = DesiredShards(8, stamp)
    wish.found = found
    refused = wish.refused(ShardMap.first(4, asked))
    assert why in refused
    assert bool(refused) is bool(why)
    assert wish.refused(ShardMap.first(8, asked)) == "", "it is as it should be"
    assert (wish.next(ShardMap.first(4, asked)) is not None) is may


def test_a_document_without_a_stamp_asks_once() -> None:
    wish = DesiredShards(8, "-")
    assert wish.next(ShardMap.first(8)) is None
    assert wish.next(ShardMap.first(4)) is None
    assert "asked later" in wish.refused(ShardMap.first(4))


@pytest.mark.parametrize(
    ("assumed", "read", "logged"),
    [
        (4, ["1 4 4 4 4 u:1"], []),
        (1, ["1 4 4 4 4 u:1"], [(1, 4, 4, 4)]),
        (4, ["2 4 4 8 8 u:2"], [(2, 4, 4, 8)]),
        (4, ["1 4 4 4 4 u:1", "2 4 4 8 8 u:2", "3 8 4 8 8 u:2"], [(2, 4, 4, 8), (3, 8, 4, 8)]),
        (8, ["3 8 4 8 8 u:2", "4 8 8 8 8 u:2"], [(3, 8, 4, 8), (4, 8, 8, 8)]),
    ],
)
def test_only_changes_of_the_shard_map_are_logged(
    assumed: int, read: list[str], logged: list[tuple[int, ...]], caplog: pytest.LogCaptureFixture
) -> None:
    """Not that a process which starts reads what its document says."""
    caplog.set_level(logging.INFO, "delayq")
    commands = Commands("orders", shards=assumed)
    for text in read:
        assert commands.apply_shard_map(ShardMap.parse(text))
    events = [record.__dict__["fields"] for record in caplog.records if record.message == "shard_map_changed"]
    assert [tuple(each[name] for name in ("epoch", "now", "was", "target")) for each in events] == logged
