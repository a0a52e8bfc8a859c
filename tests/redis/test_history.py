"""The history of finished tasks: what it says, how it is bounded, that it costs nothing without, and fails no ack."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from delayq.client.operations import Operations
from delayq.contract import Finished, Limits
from delayq.errors import DelayQError
from delayq.protocol.commands import BATCH, Commands
from delayq.protocol.results import Cancelled, Outcome, Settled
from delayq.protocol.results import State as In
from delayq.protocol.shard_map import ShardMap
from delayq.reaper.reaper import Sweep
from delayq.worker.settlements import Settlement, settle_call

from tests.redis.paced import Operating
from tests.redis.state import NOW, PLENTY, Shard, State, envelope, history_weight, shard_on
from tests.redis.test_reaper import spec

if TYPE_CHECKING:
    from collections.abc import Iterator

    from delayq.connection import AsyncConnection

    from tests.topologies.kinds import Servers

HOUR = Finished(seconds=3600)
ENTRY = "1 0 1893456000000 3600"  # of a task that was due NOW, began then and took one attempt
BODY = envelope()[:-6]


def keeping(shard: Shard, finished: Finished | None = HOUR, shards: int = 1) -> Commands:
    return Commands(shard.commands.queue, shards=shards, finished=finished)


def schedule(
    shard: Shard, *ids: str, if_exists: str = "keep", when: str = "+0", repeated: int = 0
) -> list[Outcome]:
    flat = [item for task_id in ids for item in (task_id, when, BODY)]
    notes = shard.store(*flat, if_exists=if_exists, repeated=repeated).notes
    return [notes.get(nth, Outcome.CREATED) for nth in range(len(ids))]


def run(shard: Shard, commands: Commands) -> list[Settled]:
    """Claim what is due and ack it, as a worker does."""
    leases = shard.run(commands.claim(0, 250, 60_000)).leases
    return shard.run(settle_call(commands, [Settlement("ack", lease) for lease in leases], 1))


def finish(shard: Shard, *ids: str, finished: Finished | None = HOUR) -> None:
    assert set(schedule(shard, *ids, if_exists="reject")) == {Outcome.CREATED}
    assert run(shard, keeping(shard, finished)) == [Settled.ACKED] * len(ids)


def test_get_says_when_a_task_was_done_how_late_it_began_and_after_how_many_attempts(shard: Shard) -> None:
    commands = keeping(shard)
    schedule(shard, "a")
    shard.clock(NOW + 70)
    [lease] = shard.run(commands.claim(0, 1, 60_000)).leases
    shard.run(commands.retry(0, [lease.member, 1000, 1, "boom"], max_attempts=3))
    shard.clock(NOW + 1100)
    [lease] = shard.run(commands.claim(0, 1, 60_000)).leases
    shard.clock(NOW + 1500)
    view = shard.view("a")
    assert (view.state, view.finished_ms, view.attempts, view.late_ms) == (In.IN_FLIGHT, None, None, None)
    shard.run(settle_call(commands, [Settlement("ack", lease)], 3))
    view = shard.view("a")
    assert (view.state, view.finished_ms, view.attempts, view.late_ms) == (In.DONE, NOW + 1500, 2, 30)
    assert (view.id, view.scheduled_ms, view.body, view.token) == ("a", NOW + 1070, b"", None)
    assert shard.run(commands.cancel("a")) == Cancelled.NOT_FOUND
    assert shard.run(commands.reschedule("a", "+1", max_delay_ms=9)).outcome == "not_found"


def test_without_a_history_an_ack_reads_nothing_of_it_and_only_keep_looks_once_for_one(shard: Shard) -> None:
    """As Redis counts the commands of each call."""
    calls: dict[str, dict[str, int]] = {}
    schedule(shard, "wakes a worker")
    for if_exists in ("reject", "keep"):
        shard.redis.config_resetstat()
        schedule(shard, f"{if_exists} a", f"{if_exists} b", if_exists=if_exists)
        calls[if_exists] = _calls(shard)
    assert calls["keep"] == calls["reject"] | {"exists": calls["reject"]["exists"] + 1}
    members = [lease.member for lease in shard.run(shard.commands.claim(0, 9, 60_000)).leases]
    shard.redis.config_resetstat()
    shard.run(shard.commands.ack(0, members))
    each = {"zrem": 5, "hstrlen": 5}
    assert _calls(shard) == each | {"exists": 1, "hdel": 2, "hincrby": 2, "hmget": 1}


def _calls(shard: Shard) -> dict[str, int]:
    found: Any = shard.redis.info("commandstats")
    counted = {name.removeprefix("cmdstat_"): each["calls"] for name, each in found.items()}
    return {
        name: count
        for name, count in counted.items()
        if not name.startswith(
            ("eval", "config", "script", "info", "ping", "publish", "replconf")
        )  # of Sentinels
    }


def test_a_worker_keeps_a_history_only_if_the_document_says_so(shard: Shard) -> None:
    finish(shard, "a", finished=None)
    assert shard.run(shard.commands.get("a")) is None
    after = shard.whole()
    assert after.but(stats={}, alarm=0, wake=0) == State()
    finish(shard, "a")
    after = shard.whole()
    assert (after.finished, after.finished_info) == ({"a": NOW}, {"a": ENTRY})


@pytest.mark.parametrize(
    ("if_exists", "outcome"), [("keep", "kept"), ("reject", "created"), ("replace", "created")]
)
@pytest.mark.parametrize("full", [False, True])
def test_only_keep_does_not_store_a_finished_task_again(
    shard: Shard, if_exists: str, outcome: str, *, full: bool
) -> None:
    finish(shard, "a", "ü:1")
    before = shard.whole()
    if full and if_exists == "keep":  # also of a queue that would take no other task
        stored = shard.store("a", "+5", BODY, if_exists="keep", repeated=1, max_length=0)
        assert stored.notes == {0: Outcome.KEPT}
    else:
        assert schedule(shard, "a", "ü:1", "new", if_exists=if_exists) == [outcome, outcome, "created"]
    after = shard.whole()
    assert "a" not in after.envelopes if outcome == "kept" else "a" in after.envelopes
    assert (after.finished, after.finished_info) == (before.finished, before.finished_info)


def test_keep_stores_a_task_again_from_the_ms_on_in_which_its_entry_is_too_old(shard: Shard) -> None:
    """Trimmed or not: no user of the window sees it longer than the document says."""
    finish(shard, "a")
    shard.clock(NOW + 3_599_999)
    assert schedule(shard, "a", when="+60000") == [Outcome.KEPT]
    view = shard.view("a")
    assert view.state is In.DONE
    shard.clock(NOW + 3_600_000)
    assert shard.run(shard.commands.get("a")) is None
    assert schedule(shard, "a", when="+60000") == [Outcome.CREATED]
    assert shard.whole().finished == {"a": NOW}


def test_a_keep_call_whose_reply_was_lost_does_not_store_a_task_that_ran_meanwhile(shard: Shard) -> None:
    assert schedule(shard, "a") == [Outcome.CREATED]
    assert schedule(shard, "a", repeated=1) == [Outcome.REPEATED]
    run(shard, keeping(shard))
    assert schedule(shard, "a", repeated=1) == [Outcome.KEPT]
    assert shard.whole().tasks == {}


def test_a_task_that_exists_comes_before_its_history_and_its_next_end_replaces_the_entry(
    shard: Shard,
) -> None:
    """Also one that takes the place of a task as its follow-up."""
    schedule(shard, "a")
    commands = keeping(shard)
    [lease] = shard.run(commands.claim(0, 1, 60_000)).leases
    assert schedule(shard, "a", if_exists="replace", when="+500") == [Outcome.FOLLOWS]
    shard.run(settle_call(commands, [Settlement("ack", lease)], 1))
    view = shard.view("a")
    assert (view.state, view.at_ms) == (In.SCHEDULED, NOW + 500)
    assert schedule(shard, "a") == [Outcome.KEPT]
    assert shard.whole().finished == {"a": NOW}
    shard.clock(NOW + 2500)
    run(shard, commands)
    after = shard.whole()
    assert after.finished == {"a": NOW + 2500}
    assert after.finished_info == {"a": f"1 2000 {NOW + 500} 3600"}


def test_a_lost_lease_leaves_no_entry(shard: Shard) -> None:
    schedule(shard, "a", "b")
    commands = keeping(shard)
    leases = shard.run(commands.claim(0, 9, 60_000)).leases
    shard.redis.zrem(shard.keys.processing, leases[0].member)
    outcomes = shard.run(settle_call(commands, [Settlement("ack", lease) for lease in leases], 1))
    assert outcomes == [Settled.LEASE_LOST, Settled.ACKED]
    assert list(shard.whole().finished) == [leases[1].task.id]


def test_an_ack_succeeds_when_memory_is_full(shard: Shard) -> None:
    """Redis lets a script that has deleted something write."""
    schedule(shard, "a", "b", "c")
    commands = keeping(shard)
    leases = shard.run(commands.claim(0, 9, 60_000)).leases
    with shard.full_memory():
        assert (
            shard.run(settle_call(commands, [Settlement("ack", lease) for lease in leases], 1))
            == [Settled.ACKED] * 3
        )
        assert shard.run(shard.commands.get("a")) is not None
        with pytest.raises(DelayQError, match="OOM"):
            schedule(shard, "new")
        assert schedule(shard, "a") == [Outcome.KEPT]
    after = shard.whole()
    assert (after.tasks, after.processing, after.stats["acked"]) == ({}, {}, 3)
    assert list(after.finished) == ["a", "b", "c"]


@pytest.mark.parametrize("key", ["finished", "finished_info"])
def test_an_ack_succeeds_when_a_key_of_the_history_has_another_type(shard: Shard, key: str) -> None:
    schedule(shard, "a")
    shard.redis.set(getattr(shard.keys, key), "not ours")
    assert run(shard, keeping(shard)) == [Settled.ACKED]
    assert shard.redis.hlen(shard.keys.tasks) == 0
    assert shard.redis.get(getattr(shard.keys, key)) == b"not ours"
    other = "finished" if key == "finished_info" else "finished_info"
    assert not shard.redis.exists(getattr(shard.keys, other)), "no half of an entry"


def test_ten_thousand_leases_in_one_call_are_acked_without_entries(shard: Shard) -> None:
    """Workers send 250 at most."""
    members = [f"t{n}:{n}" for n in range(10_000)]
    [task] = [lease.task for lease in _claimed(shard, "a")]
    shard.seed(State(processing=dict.fromkeys(members, NOW)))
    call = keeping(shard).ack(0, [each.encode() for each in members], [task] * len(members))
    assert shard.run(call) == [Settled.ACKED] * 10_000
    assert shard.whole() == State(stats={"acked": 10_000})


def _claimed(shard: Shard, task_id: str) -> Any:  # noqa: ANN401
    schedule(shard, task_id)
    return shard.run(shard.commands.claim(0, 1, 60_000)).leases


def aged(count: int, age_ms: int = 0) -> State:
    """A history of tasks t0, t1, … of which each was done a ms after the one before, the last `age_ms` ago."""
    names = [f"t{n}" for n in range(count)]
    done = {name: NOW - age_ms - count + 1 + n for n, name in enumerate(names)}
    return State(finished=done, finished_info=dict.fromkeys(names, ENTRY))


ENTRY_BYTES = history_weight({"t0": ENTRY})


@pytest.mark.parametrize(
    ("finished", "left"),
    [
        (Finished(seconds=3600, count=3), ["t8", "t9", "a"]),
        (Finished(seconds=3600, bytes=3 * ENTRY_BYTES), ["t8", "t9", "a"]),
        (Finished(seconds=1), ["a"]),
        (HOUR, [*(f"t{n}" for n in range(10)), "a"]),
    ],
    ids=["count", "bytes", "seconds", "none"],
)
def test_each_bound_removes_the_oldest_when_a_task_is_added(
    shard: Shard, finished: Finished, left: list[str]
) -> None:
    shard.seed(aged(10, 1000))
    finish(shard, "a", finished=finished)
    after = shard.whole()
    assert list(after.finished) == list(after.finished_info) == left


def test_one_ack_removes_few_of_a_history_that_is_far_above_its_bounds(shard: Shard) -> None:
    shard.seed(aged(1000))
    finish(shard, "a", "b", finished=Finished(seconds=3600, count=1))
    assert len(shard.whole().finished) == 1000 + 2 - 12


@pytest.mark.parametrize(
    ("finished", "left"),
    [
        (Finished(seconds=3600, count=3), 3),
        (Finished(seconds=3600, bytes=3 * history_weight({"t999": ENTRY})), 3),
        (Finished(seconds=1), 10),
        (None, 0),
    ],
    ids=["count", "bytes", "seconds", "no history in the document"],
)
async def test_a_sweep_enforces_the_bounds_of_an_idle_queue(
    shard: Shard, connection: AsyncConnection, finished: Finished | None, left: int
) -> None:
    """In calls of at most 250, and then with no further call for a history that is empty."""
    shard.seed(aged(1000, 990))
    sweep = Sweep(keeping(shard, finished), connection, spec())
    while await sweep.step() == 0:
        pass
    after = shard.whole()
    assert list(after.finished) == [f"t{n}" for n in range(1000 - left, 1000)]
    assert sweep.done["trimmed"] == 1000 - left
    assert shard.redis.exists(shard.keys.finished_info) == int(left > 0)
    shard.redis.config_resetstat()
    await sweep.step()
    assert _calls(shard).get("unlink", 0) == 0


def test_any_number_of_entries_is_trimmed_in_bounded_calls(shard: Shard) -> None:
    shard.seed(aged(10_000))
    trim = keeping(shard, None).trim_finished(0)
    assert [shard.run(trim) for _ in range(41)] == [BATCH] * 40 + [0]
    assert shard.whole() == State()


@pytest.mark.parametrize("key", ["finished", "finished_info"])
def test_a_key_of_another_type_fails_keep_before_any_task_is_stored(shard: Shard, key: str) -> None:
    finish(shard, "done")
    shard.redis.delete(getattr(shard.keys, key))
    shard.redis.set(getattr(shard.keys, key), "of another program")
    with pytest.raises(DelayQError, match="WRONGTYPE"):
        schedule(shard, "new", "done", "newer")
    assert shard.redis.hlen(shard.keys.tasks) == 0


def test_a_wrong_counter_of_bytes_ends_with_the_entries_that_it_is_wrong_about(shard: Shard) -> None:
    shard.seed(aged(10))
    shard.redis.hset(shard.keys.stats, "finished_bytes", 10**12)
    finish(shard, "a")  # is above all bounds, as it seems
    finish(shard, "b")
    assert shard.whole().finished == {"b": NOW}


def test_the_bounds_are_divided_by_the_number_of_shards() -> None:
    commands = Commands("q", shards=3, finished=Finished(seconds=9, count=10, bytes=3_000_001))
    bounds = [commands.trim_finished(at).arguments[-4:] for at in range(3)]
    assert bounds == [[9, 4, 1_000_001, BATCH], [9, 3, 1_000_000, BATCH], [9, 3, 1_000_000, BATCH]]


@pytest.fixture
def pair(redis_server: Servers, queue_name: str) -> Iterator[Shard]:
    with shard_on(redis_server, queue_name, 2) as pair:
        yield pair


def test_while_tasks_migrate_one_in_its_new_shard_comes_before_its_history_in_the_old_one(
    pair: Shard,
) -> None:
    moving = ShardMap(3, 2, 1, 2, 2)
    task_id = next(name for name in "abcdefgh" if len(moving.homes(name)) == 2)
    keys = pair.commands.shards[0]
    pair.redises[0].zadd(keys.finished, {task_id: NOW})
    pair.redises[0].hset(keys.finished_info, task_id, ENTRY)
    commands = Commands(pair.commands.queue)
    commands.use_shard_map(moving)
    operations = Operations(commands, Limits())

    def state() -> Any:  # noqa: ANN401
        return Operating(pair.run, operations.get(task_id)).whole().result.state

    assert state() is In.DONE
    options = {"if_exists": "reject", "repeated": 0, **PLENTY}
    pair.run(commands.schedule(1, [task_id, "+5000", BODY], **options))
    assert state() is In.SCHEDULED


def test_a_shard_with_a_history_is_retired_and_erased(shard: Shard) -> None:
    for end in ("retire", "erase"):
        shard.seed(aged(3))
        if end == "erase":
            shard.run(shard.commands.erase(0))
        else:
            shard.commands.use_shard_map(ShardMap.first(1))
            assert shard.run(shard.commands.retire_shard(0)).tasks == 0
        assert not shard.redis.exists(shard.keys.finished, shard.keys.finished_info)
