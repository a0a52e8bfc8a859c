"""Calls by asyncio while masters die, hang, come back and hand over slots: they go on with whoever is master now."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections import Counter
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self

import pytest
from delayq import Client, Durability, NewTask, NotConfirmed, Unavailable
from delayq.connection import Address, AsyncConnection, BlockingReads, SyncConnection
from delayq.connection.blocking_reads import WATCHDOG_SECONDS
from delayq.protocol.commands import Commands
from delayq.protocol.results import Settled

from tests.servers import PASSWORD, USER, RedisServer
from tests.topologies.cluster import Cluster
from tests.topologies.sentinels import Sentinels
from tests.topologies.waiting import until
from tests.unit.connection.silent import reply, telling

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator
    from pathlib import Path

pytestmark = pytest.mark.slow
SHARDS = 6
# From a promotion until all is answered again: about one, on a machine with nothing else to do.
SOON_SECONDS = 15.0
PATIENT = 60


each_harm = pytest.mark.parametrize("harm", [RedisServer.kill, RedisServer.pause])


@pytest.fixture
def cluster(flavour: str, tmp_path: Path) -> Iterator[Cluster]:
    cluster = Cluster.start(flavour, dir=tmp_path)
    yield cluster
    cluster.stop()


@pytest.fixture
def sentinels(flavour: str, tmp_path: Path) -> Iterator[Sentinels]:
    sentinels = Sentinels.start(flavour, dir=tmp_path)
    yield sentinels
    sentinels.stop()


@asynccontextmanager
async def connected(url: str) -> AsyncIterator[AsyncConnection]:
    """So patient that no time-out of its own ends a wait."""
    connection = AsyncConnection(replace(Address.from_url(url), timeout_seconds=PATIENT))
    try:
        yield connection
    finally:
        await connection.close()


class Asking:
    """Asks each shard again and again, and notes what came of it."""

    def __init__(self, connection: AsyncConnection, commands: Commands) -> None:
        self.connection, self.commands = connection, commands
        self.answered = dict.fromkeys(range(SHARDS), 0.0)  # when each was answered last
        self.answers = Counter[int]()
        self.failed: list[tuple[int, Unavailable]] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._news = asyncio.Event()

    async def __aenter__(self) -> Self:
        self._tasks = [asyncio.create_task(self._ask(shard)) for shard in range(SHARDS)]
        await self.all_answered(time.monotonic())
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _ask(self, shard: int) -> None:
        while True:
            try:
                await self.connection.one(self.commands.counts(shard))
                self.answered[shard] = time.monotonic()
                self.answers[shard] += 1
                self._news.set()
            except Unavailable as error:
                self.failed.append((shard, error))
            await asyncio.sleep(0.02)

    async def all_answered(self, since: float, within: float = PATIENT) -> None:
        async with asyncio.timeout(within):
            while min(self.answered.values()) < since:
                self._news.clear()
                await self._news.wait()


async def heard(blocking_reads: BlockingReads, key: str) -> None:
    """As a listener does: wait again, whatever ended the wait."""
    while True:
        try:
            if await blocking_reads.wait([key]) == key:
                return
        except Unavailable:
            await asyncio.sleep(0.05)


async def blocked(server: RedisServer) -> None:
    """Until somebody waits there."""
    with server.client() as client:
        await asyncio.to_thread(
            until, lambda: client.info("clients")["blocked_clients"], "somebody waits", timeout_s=PATIENT
        )


def token(server: RedisServer, key: str) -> None:
    with server.client() as client:
        client.lpush(key, "1")


# a master fails


@each_harm
async def test_calls_go_on_soon_after_sentinels_have_promoted_another(
    sentinels: Sentinels, harm: Callable[[RedisServer], None]
) -> None:
    commands = Commands("orders", shards=SHARDS)
    async with connected(sentinels.url) as connection, Asking(connection, commands) as asking:
        blocking_reads, key = BlockingReads(Address.from_url(sentinels.url)), commands.shards[0].wake
        listening = asyncio.create_task(heard(blocking_reads, key))
        await blocked(sentinels.primary())
        old = sentinels.primary()
        with sentinels.promoting() as promotion:
            harm(old)
            port = await asyncio.to_thread(promotion.wait)
        await asking.all_answered(time.monotonic(), SOON_SECONDS)
        new = next(server for server in sentinels.servers if server.port == port)
        assert [held.where for held in await connection.servers(commands.shards)] == [f"127.0.0.1:{port}"]
        await blocked(new)
        token(new, key)
        await asyncio.wait_for(listening, PATIENT)
        await blocking_reads.close()


@each_harm
async def test_calls_go_on_soon_after_a_cluster_has_promoted_another_and_others_are_not_held_up(
    cluster: Cluster, harm: Callable[[RedisServer], None]
) -> None:
    commands = Commands("orders", shards=SHARDS)
    keys = commands.shards[0]
    async with connected(cluster.url) as connection, Asking(connection, commands) as asking:
        blocking_reads = BlockingReads(Address.from_url(cluster.url))
        listening = asyncio.create_task(heard(blocking_reads, keys.wake))
        old = cluster.serving(keys.slot)
        replica = cluster.replica_of(old)
        await blocked(old)
        harmed = {each.shard for each in commands.shards if cluster.serving(each.slot) is old}
        harm(old)
        before = asking.answers.copy()
        await asyncio.to_thread(cluster.wait_promoted, replica)
        others = [asking.answers[shard] - before[shard] for shard in set(range(SHARDS)) - harmed]
        assert others
        assert min(others) > 5
        await asking.all_answered(time.monotonic(), SOON_SECONDS)
        await blocked(replica)
        token(replica, keys.wake)
        await asyncio.wait_for(listening, PATIENT)
        await blocking_reads.close()


async def test_a_master_that_hung_and_comes_back_is_not_asked_any_more(cluster: Cluster) -> None:
    commands = Commands("orders", shards=SHARDS)
    async with connected(cluster.url) as connection, Asking(connection, commands) as asking:
        old = cluster.serving(commands.shards[0].slot)
        replica = cluster.replica_of(old)
        old.pause()
        await asyncio.to_thread(cluster.wait_promoted, replica)
        await asking.all_answered(time.monotonic(), SOON_SECONDS)
        asking.failed.clear()
        old.resume()
        with old.client() as client:
            await asyncio.to_thread(
                until,
                lambda: str(client.execute_command("ROLE")[0]) == "slave",
                "it has understood",
                timeout_s=PATIENT,
            )
        await asking.all_answered(time.monotonic())
        assert [error for _, error in asking.failed if str(old.port) in error.where] == []


async def test_who_begins_to_wait_after_a_fail_over_does_not_wait_at_the_old_master(
    sentinels: Sentinels,
) -> None:
    commands = Commands("orders", shards=SHARDS)
    async with connected(sentinels.url) as connection, Asking(connection, commands) as asking:
        blocking_reads, key, old = (
            BlockingReads(Address.from_url(sentinels.url)),
            commands.shards[0].wake,
            sentinels.primary(),
        )
        token(old, key)
        await heard(blocking_reads, key)
        with sentinels.promoting() as promotion:
            old.pause()
            port = await asyncio.to_thread(promotion.wait)
        await asking.all_answered(time.monotonic(), SOON_SECONDS)
        token(next(server for server in sentinels.servers if server.port == port), key)
        await asyncio.wait_for(heard(blocking_reads, key), WATCHDOG_SECONDS / 2)
        await blocking_reads.close()


async def test_a_stale_master_that_goes_on_answering_is_left(sentinels: Sentinels) -> None:
    """Sentinels cannot log in there any more, neither to see that it lives nor to tell it that it was replaced."""
    commands = Commands("orders", shards=SHARDS)
    async with connected(sentinels.url) as connection, Asking(connection, commands) as asking:
        old = sentinels.primary()
        with sentinels.promoting() as promotion, old.client() as client:
            client.execute_command("ACL", "SETUSER", "default", "off")
            client.execute_command("CLIENT", "KILL", "TYPE", "normal", "USER", "default", "SKIPME", "yes")
            port = await asyncio.to_thread(promotion.wait)
            promoted = time.monotonic()
            while (await connection.servers(commands.shards))[0].where != f"127.0.0.1:{port}":
                await asking.all_answered(time.monotonic())
                assert time.monotonic() - promoted < SOON_SECONDS
            await asking.all_answered(time.monotonic())
            before = calls_of(client)
            await asking.all_answered(time.monotonic())
            assert calls_of(client) == before
            assert str(client.execute_command("ROLE")[0]) == "master"


def calls_of(client: Any) -> int:  # noqa: ANN401  a client without types
    return int(client.info("commandstats").get("cmdstat_evalsha", {"calls": 0})["calls"])


async def test_whoever_was_idle_asks_who_the_master_is_before_the_next_call(
    aof_server: RedisServer, flavour: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A master that was replaced meanwhile goes on answering, and what it was told is lost."""
    for module in ("discovery", "multiplexer"):
        monkeypatch.setattr(f"delayq.connection.{module}.REFRESH_SECONDS", -1.0)  # idle at once
    other, call = RedisServer.start(flavour, dir=tmp_path / "other"), Commands("orders").counts(0)
    masters = [aof_server]
    try:
        with telling(lambda: reply("127.0.0.1", str(masters[-1].port), len(masters))) as one:
            async with connected(f"redis+sentinel://{USER}:{PASSWORD}@{one}/mymaster") as connection:
                await connection.one(call)
                masters.append(other)
                with aof_server.client() as client:
                    before = client.info("commandstats")["cmdstat_evalsha"]["calls"]
                    await connection.one(call)
                    assert client.info("commandstats")["cmdstat_evalsha"]["calls"] == before
                assert connection.connects == 2
    finally:
        other.stop()


# Sentinels fail


async def test_looking_for_a_stale_master_takes_no_new_connections(
    sentinels: Sentinels, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("delayq.connection.discovery.REFRESH_SECONDS", 0.0)
    async with connected(sentinels.url) as connection:
        await connection.send([("PING",)])
        connector: Any = connection._transport._multiplexer.connector  # type: ignore[union-attr]  # with Sentinels, there is one
        before, looks = received(sentinels), set[float]()
        while len(looks) < 20:
            await connection.send([("PING",)])
            looks.add(connector.discovery._queried_at)
        assert received(sentinels) - before < 10  # others may connect anew meanwhile


def received(sentinels: Sentinels) -> int:
    """How many connections the Sentinel that is asked first has been asked for."""
    with sentinels.sentinels[0].client() as client:
        found: Any = client.info("stats")
    return int(found["total_connections_received"])


# slots move


async def test_tasks_are_stored_once_each_while_their_slot_moves_to_and_fro(cluster: Cluster) -> None:
    async with Client(cluster.url, queue="orders") as client:
        stored: asyncio.Queue[str] = asyncio.Queue()
        some = itertools.count()

        async def store() -> None:
            for number in some:
                stored.put_nowait((await client.schedule(1, delay_ms=600_000, task_id=f"t{number}")).id)

        storing = [asyncio.create_task(store()) for _ in range(3)]
        slot, ids = Commands("orders").shards[0].slot, set[str]()
        for target in [node for node in cluster.primaries() if node is not cluster.serving(slot)] * 2:
            await asyncio.to_thread(cluster.move, slot, target)
            for _ in range(30 + stored.qsize()):
                ids.add(await asyncio.wait_for(stored.get(), PATIENT))
        for task in storing:
            assert not task.done()
            task.cancel()
        await asyncio.gather(*storing, return_exceptions=True)
        assert len(ids) >= 120
        assert [view for task_id in sorted(ids) if (view := await client.get(task_id)) is None] == []


def put_off(*servers: RedisServer) -> bool:
    """Whether any has told somebody to try again: the source, and with 6.2 the target."""
    for server in servers:
        with server.client() as client:
            if "errorstat_TRYAGAIN" in client.info("errorstats"):
                return True
    return False


async def test_closing_ends_a_call_that_waits_for_its_slot_to_move(cluster: Cluster) -> None:
    commands = Commands("orders")
    slot = commands.shards[0].slot
    async with Client(cluster.url, queue="orders") as client, connected(cluster.url) as connection:
        await client.schedule(1, delay_ms=600_000, task_id="a")
        target = next(node for node in cluster.primaries() if node is not cluster.serving(slot))
        source = cluster.begin_move(slot, target)
        cluster.move_keys(slot, source, target, most=1)
        calling = asyncio.create_task(connection.one(commands.get("a")))
        await asyncio.to_thread(until, lambda: put_off(source, target), "it was put off", timeout_s=PATIENT)
        await connection.close()
        with pytest.raises(Unavailable, match="connection closed"):
            await asyncio.wait_for(calling, SOON_SECONDS)


@pytest.mark.parametrize("kind", ["async", "sync"])
async def test_no_script_is_torn_by_a_move_that_it_empties_a_key_under(cluster: Cluster, kind: str) -> None:
    """Redis runs a script while all keys that it names are there, and refuses those that go in the middle of it."""
    commands = Commands("orders")
    keys, address = commands.shards[0], replace(Address.from_url(cluster.url), timeout_seconds=3.0)
    asynchronous, blocking = AsyncConnection(address), SyncConnection(address)

    async def ack(members: list[bytes]) -> list[Settled]:
        call = commands.ack(0, members)
        if kind == "async":
            return await asynchronous.one(call)
        found: list[list[Settled]] = await asyncio.to_thread(blocking.run, [call])
        return found[0]

    async with Client(cluster.url, queue="orders") as client:
        await client.schedule_many([NewTask(1, delay_ms=0, task_id=task_id) for task_id in "ab"])
    claimed = await asynchronous.one(commands.claim(0, 2, 600_000))
    members = [lease.member for lease in claimed.leases]
    with cluster.on(keys) as source:
        source.hset(keys.attempts, "a", "1 0 failed")
        before = source.hgetall(keys.tasks), source.zrange(keys.processing, 0, -1)
        target = next(node for node in cluster.primaries() if node is not cluster.serving(keys.slot))
        server = cluster.begin_move(keys.slot, target)
        with pytest.raises(Unavailable, match="slot of this shard is moving"):
            await ack(members)
        assert (source.hgetall(keys.tasks), source.zrange(keys.processing, 0, -1)) == before
    while cluster.move_keys(keys.slot, server, target):
        pass
    cluster.end_move(keys.slot, target)
    assert await ack(members) == [Settled.ACKED, Settled.ACKED]
    await asynchronous.close()
    blocking.close()


async def test_a_slot_that_nobody_serves_is_told_and_costs_no_other_shard(cluster: Cluster) -> None:
    commands = Commands("orders", shards=SHARDS)
    cluster.lose(commands.shards[0].slot)
    connection = AsyncConnection(Address.from_url(cluster.url))
    answers = await connection.answers([commands.counts(shard) for shard in range(SHARDS)])
    assert isinstance(answers[0], Unavailable)
    assert answers[0].outage == "cluster_down"
    assert [answer.scheduled for answer in answers[1:]] == [0] * (SHARDS - 1)
    held = {
        keys.shard: held.where for held in await connection.servers(commands.shards) for keys in held.shards
    }
    assert (held.pop(0), len(held), "" in held.values()) == ("", SHARDS - 1, False)
    await connection.close()


async def test_who_waits_for_hints_goes_along_with_their_slot(cluster: Cluster) -> None:
    keys = Commands("orders").shards[0]
    blocking_reads = BlockingReads(Address.from_url(cluster.url))
    listening = asyncio.create_task(heard(blocking_reads, keys.wake))
    await blocked(cluster.serving(keys.slot))
    target = next(node for node in cluster.primaries() if node is not cluster.serving(keys.slot))
    await asyncio.to_thread(cluster.move, keys.slot, target)
    await blocked(target)
    token(target, keys.wake)
    await asyncio.wait_for(listening, PATIENT)
    await blocking_reads.close()


# confirmations


async def test_each_server_confirms_what_it_has_and_the_worst_counts(cluster: Cluster) -> None:
    many = [NewTask(n, delay_ms=600_000, task_id=f"t{n}") for n in range(300)]
    commands = Commands("orders", shards=SHARDS)
    primary = cluster.serving(commands.shards[0].slot)
    cluster.replica_of(primary).pause()
    hasty = Durability("Replicated", timeout_ms=200)
    async with Client(cluster.url, queue="orders", shards=SHARDS, durability=hasty) as client:
        with pytest.raises(NotConfirmed) as raised:
            await client.schedule_many(many, if_exists="keep")
        assert (raised.value.confirmed, len(raised.value.scheduled)) == (0, 300)
        served = next(each for each in commands.shards if cluster.serving(each.slot) is not primary)
        there = next(f"x{n}" for n in range(1000) if commands.shard_of(f"x{n}") == served.shard)
        assert (await client.schedule(1, delay_ms=600_000, task_id=there)).id == there
