"""A shard of an older or a newer format: each writer reports it, and leaves every key as it is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from delayq import NewTask, UnsupportedFormat
from delayq.contract import Limits
from delayq.protocol import scripts
from delayq.protocol.keys import FORMAT
from delayq.protocol.results import BatchOutOfOrder, LostTask, MigratingTask, Selection, Ticket, Verdict
from delayq.protocol.results import State as Of
from delayq.protocol.shard_map import ShardMap
from delayq.protocol.write_durability import ConfirmCommands
from delayq.reaper.eraser import Erase
from delayq.reaper.reaper import INDEXES, Reconcile
from delayq.reaper.size_audit import SizeAudit

from tests.redis.state import NOW, PLENTY, Shard, State, envelope, seed, shard_on
from tests.redis.test_client_schedules import schedule as daily
from tests.unit.cli.runner import run

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from delayq.connection import AsyncConnection
    from delayq.protocol.commands import Call, Commands
    from redis import Redis

    from tests.redis.conftest import Make
    from tests.topologies.kinds import Servers

OTHERS = (None, FORMAT - 1, FORMAT + 1)  # no field: format 1
LATER = NOW + 60_000
# Something for every script to change: "held" is in no index, "ghost" in no hash, and the lease of "late" ran out.
FULL = State(
    delayed={"a": LATER, "due": NOW, "ghost": LATER},
    retry={"b": NOW},
    suspect={"s": 5},
    processing={"late:7": NOW - 1, "runs:8": LATER},
    dlq={"dead": NOW},
    parked={f"push 00001 {NOW:015d} p": 0},
    deadlines={"due": NOW - 1},
    tags={"x a": 0, "x ghost": 0},
    finished={"f": 5},
    finished_info={"f": "1 0 5 1"},
    tasks={name: envelope(NOW) for name in ("a", "due", "b", "s", "late", "runs", "dead", "p", "held")},
    attempts={"b": "1 0 no"},
    dlq_info={"dead": "1 0 buried no"},
    followups={"runs": envelope(LATER)},
    wake=1,
    alarm=2,
    leader=f"other {NOW - 1}",
)
VERBS: dict[str, Callable[[Commands], Call[Any]]] = {
    "schedule": lambda b: b.schedule(
        0, ["new", "+0", envelope()[:-6]], if_exists="keep", repeated=0, **PLENTY
    ),
    "cancel": lambda b: b.cancel("a"),
    "reschedule": lambda b: b.reschedule("a", "+5", max_delay_ms=99),
    "get": lambda b: b.get("a"),
    "bulk": lambda b: b.bulk(0, "cancel", Selection(tag="x")),
    "claim": lambda b: b.claim(0, 9, 1000, ticket=Ticket("one", 1, NOW + 99)),
    "isolate": lambda b: b.isolate(0, 9, 1000, ticket=Ticket("one", 1, NOW + 99)),
    "unclaim": lambda b: b.unclaim(0, "one", 1, 1000),
    "extend": lambda b: b.extend(0, [b"runs:8"], 5),
    "note_blocked": lambda b: b.note_blocked(0),
    "suspend": lambda b: b.suspend(0),
    "resume": lambda b: b.resume(0),
    "ack": lambda b: b.ack(0, [b"runs:8"]),
    "retry": lambda b: b.retry(0, ["runs:8", 5, 1, "no"], max_attempts=9),
    "bury": lambda b: b.bury(0, ["runs:8", "no"]),
    "release": lambda b: b.release(0, ["runs:8", NOW]),
    "park": lambda b: b.park(0, ["runs:8", ""]),
    "end_cancelled": lambda b: b.end_cancelled(0, [b"runs:8"]),
    "unpark": lambda b: b.unpark(0, None),
    "wake": lambda b: b.wake(0),
    "elect": lambda b: b.elect(0, "one", "", 1000),
    "reclaim": lambda b: b.reclaim(0, max_crashes=9),
    "expire": lambda b: b.expire(0),
    "trim_finished": lambda b: b.trim_finished(0),
    "recover": lambda b: b.recover(
        0, b"late:7", "one", Verdict.REQUEUE, expiry_ms=NOW - 1, reason="", wait_ms=1, max_crashes=9, failed=0
    ),
    "clamp_leases": lambda b: b.clamp_leases(0, 1),
    **{f"reconcile {name}": lambda b, name=name: b.reconcile(0, name, 0) for name in INDEXES},  # type: ignore[misc]
    "reconcile_tags": lambda b: b.reconcile_tags(0),
    "restore_orphans": lambda b: b.restore_orphans(0, [LostTask(b"held")]),
    "audit_size": lambda b: b.audit_size(0),
    "erase": lambda b: b.erase(0),
    "put_schedule": lambda b: b.put_schedule("@n", b"x", "one", max_length=9, max_bytes=0, shard=0),
    "clear_schedule": lambda b: b.clear_schedule("@n", 1, shard=0),
    "sync_shard_map": lambda b: b.sync_shard_map(0, ShardMap.first(1)),
    "retire_shard": lambda b: b.retire_shard(0),
    "scan": lambda b: b.scan(0, "0"),
    "migrate_done": lambda b: b.migrate_done(0),
    "migrate_out": lambda b: b.migrate_out(0, [b"a"], near_ms=1),
    "migrate_in": lambda b: b.migrate_in(
        0, 1, 7, [MigratingTask(0, (b"id", b"retry", b"9", b"body", b"1 0 ", b""))]
    ),
    "migrate_retoken": lambda b: b.migrate_retoken(0, 7, 1, BatchOutOfOrder(9)),
    "migrate_verify": lambda b: b.migrate_verify(0, 1, 7),
    "migrate_commit": lambda b: b.migrate_commit(0, 7),
    "publish_kinds": lambda b: b.publish_kinds("release", "[]"),
    "lock": lambda b: b.lock("a", "one", 99),
    "renew": lambda b: b.renew("runs", "mine", 99),
    "unlock": lambda b: b.unlock("runs", "mine"),
    "redrive": lambda b: b.redrive(0, ["dead", 0]),
    "purge": lambda b: b.purge(0, ["dead"]),
}


def dumped(redis: Redis) -> dict[bytes, object]:
    """Every key of a server as it is stored, and until when."""
    return {key: (redis.dump(key), redis.pttl(key)) for key in sorted(redis.scan_iter())}


def written_by(other: int | None, shard: Shard, index: int = 0, state: State = FULL) -> None:
    """Leave a shard as a delayq of another format does. Before format 2, there was no field."""
    keys, redis = shard.commands.keys(index), (shard.redises or (shard.redis,))[index]
    seed(redis, keys, state)
    redis.hset(keys.stats, "scheduled", 9)
    redis.set(keys.of("runs").lock, "mine")
    if other is None:
        redis.hdel(keys.stats, "format")
    else:
        redis.hset(keys.stats, "format", other)


def refusal(other: int | None, shard: int = 0) -> str:
    """What the error says: the queue, the shard, what was expected and found, and what to do."""
    cure = (
        "A newer delayq wrote it: update"
        if (other or 1) > FORMAT
        else "An older delayq wrote it: run its tasks"
    )
    return rf"queue [\w-]+, shard {shard}: expected format {FORMAT}, got {other or 1}; nothing was changed. {cure}"


def test_every_script_that_writes_is_here() -> None:
    writes = {verb for verb in scripts.names() if "check_format(stats" in scripts.load(verb).source}
    assert {verb.split()[0] for verb in VERBS} == writes - {"create_occurrences"}  # see below


@pytest.mark.parametrize("other", OTHERS)
@pytest.mark.parametrize("verb", VERBS)
def test_a_script_leaves_what_another_version_wrote_as_it_is(
    shard: Shard, verb: str, other: int | None
) -> None:
    written_by(other, shard)
    before = dumped(shard.redis)
    with pytest.raises(UnsupportedFormat, match=refusal(other)):
        shard.run(VERBS[verb](shard.commands))
    assert dumped(shard.redis) == before


@pytest.mark.parametrize("other", OTHERS)
def test_the_write_before_a_confirmation_changes_nothing_there(shard: Shard, other: int | None) -> None:
    confirm = ConfirmCommands((("WAIT", 1, 1),))
    mark, _ = confirm.commands(shard.keys.stats)
    shard.redis.execute_command(*mark)  # type: ignore[no-untyped-call] # redis-py
    found = shard.redis.hgetall(shard.keys.stats)
    assert found == {b"confirmations": b"1", b"format": b"%d" % FORMAT}
    written_by(other, shard)
    before = dumped(shard.redis)
    shard.redis.execute_command(*mark)  # type: ignore[no-untyped-call] # redis-py
    assert dumped(shard.redis) == before


@pytest.mark.parametrize("other", OTHERS)
def test_counts_say_which_format_was_found(shard: Shard, other: int | None) -> None:
    written_by(other, shard)
    counted = shard.run(shard.commands.counts(0))
    assert (counted.format, "format" in counted.stats) == (other or 1, False)


def test_the_first_write_of_a_shard_says_its_format(shard: Shard) -> None:
    shard.run(shard.commands.elect(0, "one", "", 1000))
    assert shard.run(shard.commands.claim(0, 9, 1000)).leases == []
    assert shard.run(shard.commands.counts(0)).format == FORMAT
    assert not shard.redis.exists(shard.keys.stats)
    shard.store("a", "+0", envelope()[:-6])
    assert int(shard.redis.hget(shard.keys.stats, "format") or 0) == FORMAT


@pytest.mark.parametrize(
    "verb",
    [
        "ack",
        "retry",
        "bury",
        "release",
        "park",
        "claim",
        "isolate",
        "reclaim",
        "note_blocked",
        "suspend",
        "purge",
        "cancel",
    ],
)
def test_a_shard_whose_counters_were_deleted_goes_on_with_new_ones(shard: Shard, verb: str) -> None:
    shard.seed(FULL)
    shard.redis.delete(shard.keys.stats)
    shard.run(VERBS[verb](shard.commands))
    assert int(shard.redis.hget(shard.keys.stats, "format") or 0) == FORMAT


@pytest.mark.parametrize("other", OTHERS)
def test_clients_change_nothing_and_say_what_to_do(
    make: Make, redis_server: Servers, queue_name: str, other: int | None
) -> None:
    with shard_on(redis_server, queue_name) as shard:
        written_by(other, shard)
        before, client = dumped(shard.redis), make(limits=Limits(max_length=99))
        for call in (
            lambda: client.schedule(1, delay_ms=5),
            lambda: client.schedule_many([NewTask(n, delay_ms=5) for n in range(2)]),
            lambda: client.cancel("a"),
            lambda: client.reschedule("a", delay_ms=5),
            lambda: client.get("a"),
            lambda: client.cancel_many(tag="x"),
            lambda: client.apply_schedule(daily()),
            lambda: client.delete_schedule("nightly"),
            lambda: client.dlq_redrive(["dead"]),
            lambda: client.dlq_purge(["dead"]),
        ):
            with pytest.raises(UnsupportedFormat, match=refusal(other)):
                call()
        assert client.counts().format == (other or 1)
        assert dumped(shard.redis) == before


@pytest.fixture
def pair(redis_server: Servers, queue_name: str) -> Iterator[Shard]:
    with shard_on(redis_server, queue_name, 2) as pair:
        yield pair


@pytest.mark.parametrize("other", OTHERS)
async def test_a_reaper_says_so_and_looks_after_the_other_shards(
    pair: Shard, connection: AsyncConnection, caplog: pytest.LogCaptureFixture, other: int | None
) -> None:
    written_by(other, pair, 0)
    written_by(FORMAT, pair, 1)
    before = pair.redises[0].dump(pair.commands.keys(0).delayed)
    reconcile, weighing = Reconcile(pair.commands, connection), SizeAudit(pair.commands, connection)
    while not (reconcile.repaired["adopted"] and reconcile.repaired["pruned"]):
        await reconcile.step()
    for _ in range(4):
        await weighing.step()
    assert pair.redises[0].dump(pair.commands.keys(0).delayed) == before
    refused = [record.fields for record in caplog.records if record.message == "shard_refused"]  # type: ignore[attr-defined]
    assert {(fields["loop"], fields["shard"]) for fields in refused} == {("reconcile", 0), ("size_audit", 0)}


@pytest.mark.parametrize("other", OTHERS)
async def test_a_queue_is_not_erased_in_part(
    pair: Shard, connection: AsyncConnection, other: int | None
) -> None:
    written_by(other, pair, 0)
    written_by(FORMAT, pair, 1)
    before = [dumped(redis) for redis in pair.redises]
    erase = Erase(pair.commands, connection, patience_seconds=9)
    with pytest.raises(UnsupportedFormat, match=refusal(other)):
        await erase.step()
    assert erase.ended.is_set()
    assert isinstance(erase.error, UnsupportedFormat)
    assert [dumped(redis) for redis in pair.redises] == before


@pytest.mark.parametrize("other", [None, FORMAT - 1])
async def test_what_is_left_of_an_older_format_without_tasks_can_be_erased(
    shard: Shard, connection: AsyncConnection, other: int | None
) -> None:
    written_by(other, shard, state=State(stats={"acked": 9}))
    with pytest.raises(UnsupportedFormat):
        shard.run(VERBS["claim"](shard.commands))
    erase = Erase(shard.commands, connection, patience_seconds=9)
    while not erase.ended.is_set():
        await erase.step()
    assert (erase.error, shard.redis.exists(shard.keys.stats)) == (None, 0)
    assert shard.run(VERBS["claim"](shard.commands)).leases == []


def test_what_is_left_of_a_newer_format_is_not_erased(shard: Shard) -> None:
    written_by(FORMAT + 1, shard, state=State(stats={"acked": 9}))
    with pytest.raises(UnsupportedFormat):
        shard.run(shard.commands.erase(0))


@pytest.mark.parametrize("other", OTHERS)
def test_commands_change_nothing_and_say_what_to_do(orders: Shard, other: int | None) -> None:
    written_by(other, orders)
    before = dumped(orders.redis)
    for args in (
        ("schedule", "orders", "1"),
        ("task", "cancel", "orders", "a"),
        ("task", "reschedule", "orders", "a", "--in", "5s"),
        ("task", "get", "orders", "a"),
        ("dlq", "redrive", "orders", "dead"),
        ("dlq", "purge", "orders", "dead", "--yes"),
    ):
        result = run(*args, "--redis", orders.server.url)
        assert (result.exit_code, f"got {other or 1}; nothing was changed." in result.stderr) == (1, True), (
            args
        )
    result = run("status", "orders", "--redis", orders.server.url)
    assert (result.exit_code, f"! expected format {FORMAT}, got {other or 1}" in result.stderr) == (0, True)
    assert dumped(orders.redis) == before


def test_states_are_read_and_listed_without_a_change(shard: Shard) -> None:
    written_by(FORMAT - 1, shard)
    before = dumped(shard.redis)
    page = shard.run(shard.commands.list(0, Of.DEAD, limit=9))
    assert [row.id for row in page.rows.values()] == ["dead"]
    assert dumped(shard.redis) == before
