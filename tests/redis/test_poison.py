"""Malformed content of a queue's keys: no verb crashes on it, and no task beside it is lost."""

from __future__ import annotations

import random
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest
from delayq.contract import Finished
from delayq.errors import DelayQError
from delayq.protocol.commands import Commands
from delayq.protocol.envelope import JSON_TYPE, Task, encode
from delayq.protocol.keys import FORMAT
from delayq.protocol.results import LostTask, Verdict
from delayq.protocol.results import State as In

from tests.redis.state import NOW, PLENTY, Shard, State, envelope

if TYPE_CHECKING:
    from collections.abc import Callable

    from delayq.protocol.commands import Call
    from redis import Redis

TEXTS = ("a", "b:1", ":", "c:", ":7", "no-token", "d:x", "e\n:3", "x" * 300)
NAMES = [*(text.encode() for text in TEXTS), b"\xff\xfe", b"\xff:9"]
ODD_SCORES = (0, -1, NOW, NOW + 5, -NOW - 9, 1.5, 1e18, float("inf"), float("-inf"))


def nonsense(chance: random.Random) -> bytes:
    texts = [
        b"",
        b" ",
        b"1",
        b"1 2",
        b"x y z",
        b"1 2 3 4",
        b"1 2 x 999999999",
        b"-1 -1 ",
        b"9" * 5000 + b" 0 x",
        b"\xff \xff \xff",
    ]
    return chance.choice([*texts, chance.randbytes(chance.randrange(40)), envelope()])


def poisoned(redis: Redis, commands: Commands, chance: random.Random) -> None:
    """Any names with any scores, envelopes, attempts and dead letter info."""
    keys = commands.shards[0]
    for name in ("delayed", "retry", "processing", "dlq", "finished"):
        chosen = chance.sample(NAMES, chance.randrange(len(NAMES)))
        if chosen:
            scores: dict[Any, Any] = {each: chance.choice(ODD_SCORES) for each in chosen}
            redis.zadd(getattr(keys, name), scores)
    for name in ("tasks", "attempts", "dlq_info", "cursors", "finished_info"):
        for each in chance.sample(NAMES, chance.randrange(len(NAMES))):
            redis.hset(getattr(keys, name), each, nonsense(chance))
    redis.hset(
        keys.stats,
        chance.choice(["largest", "bytes", "acked", "strange", "finished_bytes"]),
        chance.choice(["", "x", "1.5", "7"]),
    )
    redis.hsetnx(keys.stats, "format", str(FORMAT))
    redis.set(keys.rate, chance.choice(["", "x", "1e300", "-5"]))


def every_verb(commands: Commands, member: bytes) -> list[Call[Any]]:
    task_id, body = member.rpartition(b":")[0].decode(errors="replace") or "a", encode(1, None, None)[0]
    options: dict[str, Any] = {"if_exists": "replace", "repeated": 1, "max_bytes": 10**6, **PLENTY}
    recovering: dict[str, Any] = {"expiry_ms": NOW, "reason": "", "wait_ms": 1, "max_crashes": 2, "failed": 0}
    history = Commands(commands.queue, shards=len(commands.shards), finished=Finished(seconds=9, count=3))
    task = Task(task_id, "q", 1, 7, NOW, 0, body, JSON_TYPE, {})
    walks = ("tasks", "delayed", "retry", "processing", "dlq", "attempts", "dlq_info")
    return [
        commands.schedule(0, [task_id, "+1", body], **options),
        commands.schedule(0, [task_id, "+1", body], **options | {"if_exists": "keep"}),
        *(commands.list(0, state, limit=100) for state in (In.SCHEDULED, In.RETRYING, In.IN_FLIGHT, In.DEAD)),
        commands.counts(0, [1000]),
        commands.get(task_id),
        commands.wake(0),
        commands.examine(0, member),
        commands.expired(0, offset=0, limit=100),
        commands.extend(0, [member], 1000),
        commands.reschedule(task_id, "+1", max_delay_ms=10),
        commands.recover(0, member, "me", Verdict.REQUEUE, **recovering),
        commands.retry(0, [member, 1, 1, "no"], max_attempts=3),
        commands.release(0, [member, NOW]),
        commands.bury(0, [member, "no"]),
        commands.reclaim(0, max_crashes=2),
        commands.clamp_leases(0, 1000),
        commands.restore_orphans(0, [LostTask(member), LostTask(b"a")]),
        *(commands.reconcile(0, index, 0, count=1000) for index in walks),
        commands.audit_size(0),
        commands.redrive(0, [task_id, 0]),
        commands.claim(0, 100, 1000),
        history.ack(0, [member], [task]),
        history.trim_finished(0, limit=1),
        commands.cancel(task_id),
        commands.purge(0, [task_id]),
    ]


@pytest.mark.parametrize("seed", range(6))
def test_no_verb_crashes_on_anything_that_is_of_the_right_type(shard: Shard, seed: int) -> None:
    chance = random.Random(seed)
    poisoned(shard.redis, shard.commands, chance)
    for member in NAMES:
        for call in every_verb(shard.commands, member):
            shard.run(call)


@pytest.mark.parametrize("seed", range(3))
def test_good_tasks_run_beside_poisoned_ones(shard: Shard, seed: int) -> None:
    """Every task that is due is claimed; what cannot be read comes separately, with the reason."""
    chance = random.Random(seed)
    shard.seed(State(delayed={f"good-{n}": NOW - 1 for n in range(20)}))
    poisoned(shard.redis, shard.commands, chance)
    found: set[str] = set()
    more = True
    while more:
        claimed = shard.run(shard.commands.claim(0, 7, 60_000))
        more = claimed.more
        found |= {lease.task.id for lease in claimed.leases}
        for lease, error in claimed.unreadable:
            assert str(error)
            shard.run(shard.commands.bury(0, [lease.member, f"unreadable: {error}"]))
    assert found >= {f"good-{n}" for n in range(20)}


@pytest.mark.parametrize("poison", ["1.5", "9" * 30, "9223372036854775807", "-7"])
def test_counters_that_hold_no_number_begin_anew_and_cost_no_task(shard: Shard, poison: str) -> None:
    """And the next token is a new one, by Redis' clock."""
    counters = ("claimed", "acked", "retried", "buried", "bytes", "bytes_in", "orphans", "token", "scheduled")
    shard.seed(
        State(delayed={"a": NOW, "b": NOW, "c": NOW, "lost": NOW}, tasks=dict.fromkeys("abc", envelope()))
    )
    shard.redis.hset(shard.keys.stats, mapping=dict.fromkeys(counters, poison))
    leases = shard.run(shard.commands.claim(0, 10, 1000)).leases
    assert [lease.task.id for lease in leases] == ["a", "b", "c"]
    first = leases[0].task.token
    assert 0 <= first - NOW * 1000 < 1000, "Valkey's clock stands still within its millisecond only"
    assert [lease.task.token for lease in leases] == [first, first + 1, first + 2]
    a, b, c = (lease.member for lease in leases)
    shard.connection.run(
        [
            shard.commands.ack(0, [a]),
            shard.commands.retry(0, [b, 1000, 1, "no"], max_attempts=3),
            shard.commands.bury(0, [c, "no"]),
            shard.commands.schedule(0, ["new", "+1", b"body"], **NEW),
        ]
    )
    stats: Any = shard.redis.hgetall(shard.keys.stats)
    before = -7 if poison == "-7" else 0
    expected = {"claimed": 3, "acked": 1, "retried": 1, "buried": 1, "scheduled": 1}
    assert {name: int(stats[name.encode()]) - before for name in expected} == expected
    zsets = (shard.keys.delayed, shard.keys.retry, shard.keys.processing, shard.keys.dlq)
    assert [shard.redis.zrange(key, 0, -1) for key in zsets] == [[b"new"], [b"b"], [], [b"c"]]


def test_a_lease_without_a_token_is_dropped_by_the_reaper(shard: Shard) -> None:
    """No worker could settle it, and it would count under limits.maxInFlight for ever."""
    shard.redis.zadd(shard.keys.processing, {"nobody": float("inf"), "a:7": NOW + 9})
    shard.redis.hset(shard.keys.tasks, "a", envelope())
    shard.redis.hset(shard.keys.stats, mapping={"format": FORMAT, "bytes": 1 + len(envelope())})
    found = shard.run(shard.commands.reconcile(0, "processing", 0))
    assert found.tasks == [("nobody", "pruned")]
    assert shard.whole().processing == {"a:7": NOW + 9}


@pytest.mark.parametrize("raw", [b"\x00", b"\x1f garbage", b"\x31{}" + bytes(6), b"\xff" * 40], ids=repr)
def test_rescheduling_leaves_bytes_that_it_cannot_read_as_they_are(shard: Shard, raw: bytes) -> None:
    shard.seed(State(delayed={"a": NOW}, tasks={"a": raw}))
    shard.run(shard.commands.reschedule("a", "+500", max_delay_ms=1000))
    after = shard.whole()
    assert (after.delayed, after.tasks) == ({"a": NOW + 500}, {"a": raw})


WRONG: list[Callable[[Redis, str], object]] = [
    lambda redis, key: redis.set(key, "not ours"),
    lambda redis, key: redis.rpush(key, "not ours"),
    lambda redis, key: redis.sadd(key, "not ours"),
]


def _members(redis: Redis, key: str) -> list[bytes]:
    found: Any = redis.zrange(key, 0, -1)
    return list(found)


NEW: dict[str, Any] = {"if_exists": "keep", "repeated": 0, **PLENTY}
FULL = State(
    delayed={"due": NOW, "later": NOW + 9},
    retry={"again": NOW},
    processing={"run:7": NOW + 9, "over:8": NOW - 9},
    dlq={"dead": NOW},
    attempts={"again": "1 0 x", "run": "1 0 x"},
    dlq_info={"dead": "1 0 buried x"},
)
INDEXES = ("delayed", "retry", "suspect", "processing", "dlq")


def spoilt(shard: Shard, name: str) -> str:
    """Replace one key of a shard, which has tasks in every state, by a string."""
    shard.seed(FULL)
    key: str = getattr(shard.keys, name)
    shard.redis.delete(key)
    shard.redis.set(key, "not ours")
    return key


@pytest.mark.parametrize("name", ["delayed", "retry", "processing", "tasks", "attempts", "stats"])
def test_a_claim_that_meets_a_key_of_the_wrong_type_takes_nothing(shard: Shard, name: str) -> None:
    """Workers repeat the claim: a task that is taken without a lease would be lost from its index."""
    spoilt(shard, name)
    kept = [getattr(shard.keys, each) for each in INDEXES]
    before = [shard.redis.dump(key) for key in kept]
    with pytest.raises(DelayQError, match="WRONGTYPE"):
        shard.run(shard.commands.claim(0, 10, 1000))
    assert [shard.redis.dump(key) for key in kept] == before


@pytest.mark.parametrize("name", ["delayed", "retry", "processing", "attempts", "dlq", "dlq_info", "stats"])
def test_tasks_of_a_call_that_failed_half_way_are_restored_once_the_key_is_gone(
    shard: Shard, name: str
) -> None:
    """However far each verb came, a task with an envelope is in one index."""
    key, commands = spoilt(shard, name), shard.commands
    calls: list[Call[Any]] = [
        commands.retry(0, [b"run:7", 1, 1, "no"], max_attempts=3),
        commands.bury(0, [b"run:7", "no"]),
        commands.reclaim(0, max_crashes=2),
        commands.redrive(0, ["dead", 0]),
        commands.schedule(0, ["new", "+1", b"b"], **NEW),
    ]
    for call in calls:
        with suppress(DelayQError):
            shard.run(call)
    shard.redis.delete(key)
    leased = {member.rpartition(b":")[0] for member in _members(shard.redis, shard.keys.processing)}
    for index in ("tasks", *INDEXES, "attempts", "dlq_info"):
        homeless = shard.run(commands.reconcile(0, index, 0, count=1000)).homeless
        shard.run(commands.restore_orphans(0, [LostTask(raw) for raw in homeless if raw not in leased]))
    found = [member for index in INDEXES for member in _members(shard.redis, getattr(shard.keys, index))]
    ids = [member.rpartition(b":")[0] or member for member in found]
    assert sorted(ids) == sorted(shard.redis.hkeys(shard.keys.tasks))
    assert {b"due", b"later", b"again", b"run", b"over", b"dead"} <= set(ids)


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        *zip(("delayed", "retry", "processing", "tasks", "attempts", "dlq"), WRONG * 2, strict=True),
        ("wake", WRONG[0]),
    ],
)
def test_a_key_of_the_wrong_type_is_a_clear_error_and_the_other_shards_go_on(
    shard: Shard, name: str, wrong: Callable[[Redis, str], object]
) -> None:
    commands = Commands(shard.commands.queue, shards=2)
    wrong(shard.redis, getattr(commands.shards[0], name))
    refused = 0
    for call in every_verb(commands, b"a:7"):
        try:
            shard.run(call)
        except DelayQError as error:
            assert "WRONGTYPE" in str(error)  # noqa: PT017  which verbs touch the key is not the point
            refused += 1
    assert refused
    with suppress(DelayQError):
        shard.connection.run([commands.wake(0), commands.wake(1)])
    assert shard.run(commands.claim(1, 1, 1000)).leases == []
