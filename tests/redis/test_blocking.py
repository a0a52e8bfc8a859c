"""Clients of Clusters and Sentinels: who is asked, what is sent on; and what a lost server costs blocking ones."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from delayq import Durability, NewTask, SyncClient, Unavailable
from delayq.connection import Address, SyncConnection
from delayq.connection.deadline import Deadline
from delayq.protocol.commands import Commands
from delayq.protocol.results import State

from tests.redis.conftest import clients
from tests.redis.state import tasks
from tests.servers import PASSWORD, PREFERRED, USER, RedisServer
from tests.topologies.cluster import Cluster
from tests.topologies.kinds import stopping
from tests.topologies.secured import cut
from tests.topologies.sentinels import Sentinels
from tests.topologies.waiting import until
from tests.unit.connection.silent import reply, telling

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from delayq.protocol.keys import Keys

    from tests.redis.conftest import Make

pytestmark = pytest.mark.slow
SHARDS = 12
PATIENT_SECONDS = 60.0


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with stopping(Cluster.start(PREFERRED, dir=tmp_path_factory.mktemp("cluster"))) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A Cluster without replicas: what one server holds is away with it."""
    directory = tmp_path_factory.mktemp("bare")
    with stopping(Cluster.start(PREFERRED, dir=directory, replicas=False)) as cluster:
        yield cluster


@pytest.fixture
def sentinels(tmp_path: Path) -> Iterator[Sentinels]:
    """Each test loses servers."""
    with stopping(Sentinels.start(PREFERRED, dir=tmp_path)) as sentinels:
        yield sentinels


@pytest.fixture(params=["async", "sync"])
def make(request: pytest.FixtureRequest, queue_name: str) -> Iterator[Make]:
    """Clients of either kind, called in the same way; the servers are those of this module."""
    with clients(request.param, "", queue_name) as make:
        yield make


def patient(url: str) -> Address:
    return replace(Address.from_url(url), timeout_seconds=PATIENT_SECONDS)


@contextmanager
def connected(url: str) -> Iterator[SyncConnection]:
    with closing(SyncConnection(patient(url))) as connection:
        yield connection


def place(server: RedisServer) -> str:
    return f"{server.host}:{server.port}"


def elsewhere(cluster: Cluster, keys: Keys) -> RedisServer:
    """A primary that does not hold these keys."""
    held = cluster.serving(keys.slot)
    return next(node for node in cluster.primaries() if node is not held)


def test_calls_go_to_the_servers_that_hold_their_shards(
    make: Make, cluster: Cluster, queue_name: str
) -> None:
    client = make(cluster.url, shards=SHARDS)
    assert len(client.schedule_many(tasks(200))) == 200
    assert client.counts().waiting == 200
    assert {row.id for row in client.list(State.SCHEDULED, limit=200)} == {f"t{n}" for n in range(200)}
    assert client.get("t7") is not None
    commands = Commands(queue_name, shards=SHARDS)
    with connected(cluster.url) as connection:
        found = connection.servers(commands.shards)
    assert {holding.where: set(holding.shards) for holding in found} == {
        place(node): {keys for keys in commands.shards if cluster.serving(keys.slot) is node}
        for node in cluster.primaries()
    }


def test_a_moved_slot_is_followed_and_confirmed_where_it_is(
    make: Make, cluster: Cluster, queue_name: str
) -> None:
    client = make(cluster.url, shards=SHARDS, durability=Durability("Replicated", timeout_ms=30_000))
    client.schedule_many(tasks(10))
    for keys in Commands(queue_name, shards=SHARDS).shards[:3]:
        cluster.move(keys.slot, elsewhere(cluster, keys))
    assert len(client.schedule_many(tasks(100), if_exists="keep")) == 100
    assert client.counts().waiting == 100


def test_raw_commands_and_what_is_asked_behind_no_calls_follow_a_moved_slot(
    cluster: Cluster, queue_name: str
) -> None:
    commands = Commands(queue_name, shards=SHARDS)
    behind = Durability("Replicated", timeout_ms=30_000).confirm_commands()
    moved = commands.shards[:3]
    with connected(cluster.url) as connection:
        asked = len(connection.run((), behind, commands.shards))
        assert asked == len(cluster.primaries())
        assert connection.send([("GET", moved[0].leader)], moved[0]) == [None]
        for keys in moved:
            cluster.move(keys.slot, elsewhere(cluster, keys))
        assert connection.send([("GET", moved[0].leader), ("PING",)], moved[0]) == [None, b"PONG"]
        replies = connection.run((), behind, commands.shards)
        assert len(replies) >= asked
        assert all(replicas >= 1 for _, replicas in replies)
        connection.run([commands.counts(0)])
        [holding] = connection.servers([moved[0]])
        assert holding.where == place(cluster.serving(moved[0].slot))


def test_what_a_migration_holds_up_is_done_when_it_is_over_or_is_unavailable(
    cluster: Cluster, queue_name: str
) -> None:
    [keys] = Commands(queue_name).shards
    address = patient(cluster.url)
    with (
        SyncClient(address, queue=queue_name) as client,
        SyncClient(replace(address, timeout_seconds=0.5), queue=queue_name) as hasty,
        ThreadPoolExecutor(1) as threads,
    ):
        target = elsewhere(cluster, keys)
        client.schedule_many(tasks(10))
        source = cluster.begin_move(keys.slot, target)
        cluster.move_keys(keys.slot, source, target, most=1)
        storing = threads.submit(client.schedule_many, tasks(20), if_exists="keep")
        with pytest.raises(Unavailable, match="slot of this shard is moving") as error:
            hasty.counts()
        assert error.value.outage == "migrating"
        assert not storing.done()
        while cluster.move_keys(keys.slot, source, target):
            pass
        cluster.end_move(keys.slot, target)
        assert len(storing.result(timeout=PATIENT_SECONDS)) == 20
        assert client.counts().waiting == hasty.counts().waiting == 20


def held_by(cluster: Cluster, server: RedisServer, commands: Commands) -> list[bool]:
    held = [cluster.serving(keys.slot) is server for keys in commands.shards]
    assert any(held)
    assert not all(held)
    return held


def test_a_server_that_is_gone_costs_the_calls_of_its_shards_only(bare: Cluster, queue_name: str) -> None:
    commands, lost = Commands(queue_name, shards=SHARDS), bare.nodes[1]
    calls = [commands.counts(shard) for shard in range(SHARDS)]
    held = held_by(bare, lost, commands)
    with connected(bare.url) as connection:
        assert not any(isinstance(answer, Unavailable) for answer in connection.answers(calls))
        lost.stop()
        for _ in range(3):
            answers = connection.answers(calls)
            assert [isinstance(answer, Unavailable) for answer in answers] == held
        with pytest.raises(Unavailable, match=str(lost.port)):
            connection.run(calls)
        lost.restart()
        bare.wait_well()
        assert not any(isinstance(answer, Unavailable) for answer in connection.answers(calls))


def test_a_server_that_hangs_holds_up_the_calls_of_its_shards_only(bare: Cluster, queue_name: str) -> None:
    """The time-out is a minute: who waited for that server would be seen."""
    commands, lost = Commands(queue_name, shards=SHARDS), bare.nodes[1]
    hanging = held_by(bare, lost, commands)
    with connected(bare.url) as connection, ThreadPoolExecutor(1) as threads:
        connection.run([commands.counts(shard) for shard in range(SHARDS)])
        lost.pause()
        waiting = threads.submit(connection.run, [commands.counts(hanging.index(True))])
        began = time.monotonic()
        for _ in range(5):
            connection.run([commands.counts(shard) for shard in range(SHARDS) if not hanging[shard]])
        assert time.monotonic() - began < PATIENT_SECONDS / 2
        assert not waiting.done()
        lost.resume()
        assert waiting.result(timeout=PATIENT_SECONDS)
    bare.wait_well()


def test_a_server_that_accepts_no_connection_delays_the_others_by_its_part_of_the_time(
    bare: Cluster, queue_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its kernel takes connections while it hangs. Nothing can be had in no time, which is all there would be."""
    monkeypatch.setattr("delayq.connection.deadline.LEAST_SECONDS", 0.0)
    commands, lost = Commands(queue_name, shards=SHARDS), bare.nodes[1]
    hanging = held_by(bare, lost, commands)
    first = sorted(range(SHARDS), key=lambda shard: not hanging[shard])
    address = replace(Address.from_url(bare.url), timeout_seconds=3.0)
    with closing(SyncConnection(address)) as connection:
        connection.servers(commands.shards)  # learns where they are, and keeps no connection for it
        lost.pause()
        try:
            answers = connection.answers([commands.counts(shard) for shard in first])
        finally:
            lost.resume()
    bare.wait_well()
    assert [isinstance(answer, Unavailable) for answer in answers] == [hanging[shard] for shard in first]


def test_a_new_master_is_found_by_sentinels_and_ends_the_wait_for_one_that_hangs(
    sentinels: Sentinels, queue_name: str
) -> None:
    """The old one hangs: it closes no connection, and the time-out is a minute."""
    commands = Commands(queue_name)
    with connected(sentinels.url) as connection, ThreadPoolExecutor(1) as threads:
        connection.run([commands.counts(0)])
        old = sentinels.primary()
        with sentinels.promoting() as promotion:
            old.pause()
            asking = threads.submit(connection.run, [commands.counts(0)])
            port = promotion.wait()
        began = time.monotonic()
        with pytest.raises(Unavailable, match="is the master now"):
            asking.result(timeout=PATIENT_SECONDS)
        assert time.monotonic() - began < PATIENT_SECONDS / 2
        connection.run([commands.counts(0)])
        [holding] = connection.servers(commands.shards)
        assert holding.where == f"127.0.0.1:{port}"
        old.resume()


def test_a_known_master_serves_without_sentinels_and_an_unknown_one_is_an_error(
    make: Make, sentinels: Sentinels
) -> None:
    other = make(replace(Address.from_url(sentinels.url), master_name="other"))
    with pytest.raises(Unavailable, match="no such master") as error:
        other.counts()
    assert error.value.outage == "no_master"
    first, *others = sentinels.sentinels
    first.kill()
    client, primary = make(sentinels.url), sentinels.primary()
    client.schedule(None, delay_ms=60_000)
    for sentinel in others:
        sentinel.kill()
    cut(primary)
    assert client.counts().waiting == 1
    with pytest.raises(Unavailable, match="sentinel other at") as error:
        other.counts()
    assert error.value.outage == "refused"


class Interrupted(BaseException):
    """As a KeyboardInterrupt would be."""


@pytest.mark.parametrize("why", [Interrupted, LookupError])
def test_a_client_that_is_closed_meanwhile_does_not_hide_why_a_call_failed(
    cluster: Cluster, queue_name: str, why: type[BaseException]
) -> None:
    def some() -> Iterator[NewTask]:
        yield from tasks(1000)  # some of them are under way by the end
        client.__exit__()
        raise why

    with SyncClient(cluster.url, queue=queue_name) as client, pytest.raises(why):
        client.schedule_many(some())


def test_connections_to_a_former_master_are_closed(aof_server: RedisServer, tmp_path: Path) -> None:
    """Sentinels name another; the old one goes on answering."""
    masters = [aof_server]
    with (
        stopping(RedisServer.start(PREFERRED, dir=tmp_path / "other")) as other,
        telling(lambda: reply("127.0.0.1", str(masters[-1].port), len(masters))) as one,
        connected(f"redis+sentinel://{USER}:{PASSWORD}@{one}/mymaster") as connection,
        aof_server.client() as old,
    ):
        pool = connection._servers.pool(connection._servers.discovery.holder())
        for line in [pool.wait(Deadline(60)) for _ in range(5)]:
            pool.give(line)
        assert len(ours(old)) == 5
        masters.append(other)
        connection._servers.discovery.query()
        assert connection._servers.discovery.holder().port == other.port
        until(lambda: not ours(old), "they are closed", timeout_s=PATIENT_SECONDS)
        connection.run([Commands("orders").counts(0)])


def ours(client: Any) -> list[Any]:  # noqa: ANN401  a client without types
    return [each for each in client.client_list() if each["user"] == USER]
