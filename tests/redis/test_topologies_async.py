"""Calls by asyncio while masters die, hang, come back and hand over slots: they continue with the current master."""

from __future__ import annotations

import asyncio
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
from tests.topologies.kinds import stopping
from tests.topologies.sentinels import Sentinels
from tests.topologies.waiting import until
from tests.unit.connection.silent import reply, telling

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

    from delayq.protocol.keys import Keys

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("topologies")]  # one worker starts the Cluster
SHARDS = 6
# From a promotion until all is answered again: about one, on a machine with nothing else to do.
SOON_SECONDS = 15.0
PATIENT = 60


@pytest.fixture(scope="module")
def shared_cluster(flavour: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with stopping(Cluster.start(flavour, dir=tmp_path_factory.mktemp("cluster"))) as cluster:
        yield cluster


@pytest.fixture
def cluster(shared_cluster: Cluster) -> Iterator[Cluster]:
    """An empty one. A test leaves every server running and every slot at one place."""
    for node in shared_cluster.primaries():
        node.reset()
    yield shared_cluster
    shared_cluster.wait_well()


@pytest.fixture
def sentinels(flavour: str, tmp_path: Path) -> Iterator[Sentinels]:
    with stopping(Sentinels.start(flavour, dir=tmp_path)) as sentinels:
        yield sentinels


@asynccontextmanager
async def reading(url: str) -> AsyncIterator[BlockingReads]:
    blocking_reads = BlockingReads(Address.from_url(url))
    try:
        yield blocking_reads
    finally:
        await blocking_reads.close()


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
    """As a listener does: wait again after every end of the wait."""
    while True:
        try:
            if await blocking_reads.wait([key]) == key:
                return
        except Unavailable:
            await asyncio.sleep(0.05)


async def blocked(server: RedisServer) -> None:
    """Until a client waits there."""
    with server.client() as client:
        await asyncio.to_thread(
            until, lambda: client.info("clients")["blocked_clients"], "a client waits", timeout_s=PATIENT
        )


def token(server: RedisServer, key: str) -> None:
    with server.client() as client:
        client.lpush(key, "1")


# a master fails


async def test_calls_and_waits_go_on_soon_after_sentinels_have_promoted_another(sentinels: Sentinels) -> None:
    """The old master hangs: it closes no connection."""
    commands = Commands("orders", shards=SHARDS)
    key, other_key = (keys.wake for keys in commands.shards[:2])
    async with (
        connected(sentinels.url) as connection,
        Asking(connection, commands) as asking,
        reading(sentinels.url) as waiting,
        reading(sentinels.url) as later,
    ):
        old = sentinels.primary()
        token(old, other_key)
        await heard(later, other_key)  # has a connection to the old master, and does not wait there now
        listening = asyncio.create_task(heard(waiting, key))
        await blocked(old)
        with sentinels.promoting() as promotion:
            old.pause()
            port = await asyncio.to_thread(promotion.wait)
        await asking.all_answered(time.monotonic(), SOON_SECONDS)
        new = next(server for server in sentinels.servers if server.port == port)
        assert [held.where for held in await connection.servers(commands.shards)] == [f"127.0.0.1:{port}"]
        await blocked(new)
        token(new, key)
        await asyncio.wait_for(listening, PATIENT)
        token(new, other_key)
        await asyncio.wait_for(heard(later, other_key), WATCHDOG_SECONDS / 2)


async def test_calls_go_on_soon_after_a_cluster_has_promoted_another_and_others_are_not_held_up(
    cluster: Cluster,
) -> None:
    """The old master hangs: it closes no connection. When it comes back, it gets no calls."""
    commands = Commands("orders", shards=SHARDS)
    keys = commands.shards[0]
    async with (
        connected(cluster.url) as connection,
        Asking(connection, commands) as asking,
        reading(cluster.url) as waiting,
    ):
        listening = asyncio.create_task(heard(waiting, keys.wake))
        old = cluster.serving(keys.slot)
        replica = cluster.replica_of(old)
        await blocked(old)
        harmed = {each.shard for each in commands.shards if cluster.serving(each.slot) is old}
        old.pause()
        before = asking.answers.copy()
        await asyncio.to_thread(cluster.wait_promoted, replica)
        others = [asking.answers[shard] - before[shard] for shard in set(range(SHARDS)) - harmed]
        assert others
        assert min(others) > 5
        await asking.all_answered(time.monotonic(), SOON_SECONDS)
        await blocked(replica)
        token(replica, keys.wake)
        await asyncio.wait_for(listening, PATIENT)
        asking.failed.clear()
        old.resume()
        with old.client() as client:

            def is_replica() -> bool:
                return str(client.execute_command("ROLE")[0]) == "slave"

            await asyncio.to_thread(until, is_replica, "it follows the new master", timeout_s=PATIENT)
        await asking.all_answered(time.monotonic())
        assert [error for _, error in asking.failed if str(old.port) in error.where] == []


async def test_a_stale_master_that_goes_on_answering_is_left(
    sentinels: Sentinels, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sentinels cannot log in there any more, neither to see that it lives nor to tell it that it was replaced.

    Looking for a new master, which a client does again and again, takes no new connections.
    """
    with monkeypatch.context() as patch, sentinels.sentinels[0].client() as sentinel:
        patch.setattr("delayq.connection.discovery.REFRESH_SECONDS", 0.0)
        async with connected(sentinels.url) as connection:
            await connection.send([("PING",)])
            opened, commands_before = received(sentinel)
            while received(sentinel)[1] - commands_before < 100:
                await connection.send([("PING",)])
            assert received(sentinel)[0] - opened < 10  # others may connect anew meanwhile
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


async def test_an_idle_client_looks_up_the_master_before_the_next_call(
    aof_server: RedisServer, flavour: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A master that was replaced meanwhile continues to answer, and its writes are lost."""
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


def received(sentinel: Any) -> tuple[int, int]:  # noqa: ANN401  a client without types
    """Connections and commands so far."""
    found = sentinel.info("stats")
    return int(found["total_connections_received"]), int(found["total_commands_processed"])


# slots move


def finish_move(cluster: Cluster, keys: Keys, source: RedisServer, target: RedisServer) -> None:
    while cluster.move_keys(keys.slot, source, target):
        pass
    cluster.end_move(keys.slot, target)


async def test_no_script_is_torn_by_a_move_that_it_empties_a_key_under(cluster: Cluster) -> None:
    """Redis runs a script while all keys that it names are there, and refuses those that go in the middle of it."""
    commands = Commands("orders")
    keys, address = commands.shards[0], replace(Address.from_url(cluster.url), timeout_seconds=3.0)
    asynchronous, blocking = AsyncConnection(address), SyncConnection(address)
    async with Client(cluster.url, queue="orders") as client:
        await client.schedule_many([NewTask(1, delay_ms=0, task_id=task_id) for task_id in "ab"])
    claimed = await asynchronous.one(commands.claim(0, 2, 600_000))
    ack = commands.ack(0, [lease.member for lease in claimed.leases])
    with cluster.on(keys) as source:
        source.hset(keys.attempts, "a", "1 0 failed")
        before = source.hgetall(keys.tasks), source.zrange(keys.processing, 0, -1)
        target = next(node for node in cluster.primaries() if node is not cluster.serving(keys.slot))
        server = cluster.begin_move(keys.slot, target)
        with pytest.raises(Unavailable, match="slot of this shard is moving"):
            await asynchronous.one(ack)
        with pytest.raises(Unavailable, match="slot of this shard is moving"):
            await asyncio.to_thread(blocking.run, [ack])
        assert (source.hgetall(keys.tasks), source.zrange(keys.processing, 0, -1)) == before
    finish_move(cluster, keys, server, target)
    assert await asynchronous.one(ack) == [Settled.ACKED, Settled.ACKED]
    await asynchronous.close()
    blocking.close()


async def test_a_slot_without_a_server_is_reported_and_costs_no_other_shard(
    flavour: str, tmp_path: Path
) -> None:
    commands = Commands("orders", shards=SHARDS)
    with stopping(Cluster.start(flavour, dir=tmp_path, replicas=False)) as cluster:
        cluster.lose(commands.shards[0].slot)
        connection = AsyncConnection(Address.from_url(cluster.url))
        answers = await connection.answers([commands.counts(shard) for shard in range(SHARDS)])
        servers = await connection.servers(commands.shards)
        await connection.close()
    assert isinstance(answers[0], Unavailable)
    assert answers[0].outage == "cluster_down"
    assert [answer.scheduled for answer in answers[1:]] == [0] * (SHARDS - 1)
    held = {keys.shard: server.where for server in servers for keys in server.shards}
    assert (held.pop(0), len(held), "" in held.values()) == ("", SHARDS - 1, False)


async def test_a_wait_for_wake_tokens_goes_along_with_their_slot(cluster: Cluster) -> None:
    keys = Commands("orders").shards[0]
    async with reading(cluster.url) as waiting:
        listening = asyncio.create_task(heard(waiting, keys.wake))
        await blocked(cluster.serving(keys.slot))
        target = next(node for node in cluster.primaries() if node is not cluster.serving(keys.slot))
        await asyncio.to_thread(cluster.move, keys.slot, target)
        await blocked(target)
        token(target, keys.wake)
        await asyncio.wait_for(listening, PATIENT)


# confirmations


async def test_each_server_confirms_what_it_has_and_the_worst_counts(cluster: Cluster) -> None:
    many = [NewTask(n, delay_ms=600_000, task_id=f"t{n}") for n in range(300)]
    commands = Commands("orders", shards=SHARDS)
    primary = cluster.serving(commands.shards[0].slot)
    (replica := cluster.replica_of(primary)).pause()
    hasty = Durability("Replicated", timeout_ms=200)
    async with Client(cluster.url, queue="orders", shards=SHARDS, durability=hasty) as client:
        with pytest.raises(NotConfirmed) as raised:
            await client.schedule_many(many, if_exists="keep")
        assert (raised.value.confirmed, len(raised.value.scheduled)) == (0, 300)
        served = next(each for each in commands.shards if cluster.serving(each.slot) is not primary)
        there = next(f"x{n}" for n in range(1000) if commands.shard_of(f"x{n}") == served.shard)
        assert (await client.schedule(1, delay_ms=600_000, task_id=there)).id == there
    replica.resume()
