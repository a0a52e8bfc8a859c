"""spec.durability.confirm: schedule returns when replicas, or the disk, have the task; else it says what is known."""

from __future__ import annotations

import asyncio
import logging
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from itertools import product
from typing import TYPE_CHECKING

import pytest
from delayq import (
    Client,
    DelayQError,
    Durability,
    NewTask,
    NotConfirmed,
    SyncClient,
    TaskExists,
    Unavailable,
)
from delayq.client.document import read
from delayq.connection import Address, AsyncConnection
from delayq.protocol.commands import Commands
from delayq.protocol.due_histogram import ALWAYS
from delayq.protocol.results import Outcome
from delayq.scanner.durability_check import DurabilityCheck
from delayq.scanner.exporter import Exporter
from delayq.scanner.scanner import Scanner

from tests.process import fleet
from tests.redis.commands import document
from tests.redis.proxy import proxy_to
from tests.redis.recovering import until
from tests.redis.state import known, tasks
from tests.servers import USER, RedisServer
from tests.unit.cli.runner import run

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.redis.conftest import Make

pytestmark = pytest.mark.slow

PATIENT = 30_000  # for what will be confirmed: however slow the machine, it is not the time-out that decides
SHORT = 200  # for what will not


def replicated(timeout_ms: int = PATIENT, replicas: int = 1) -> Durability:
    return Durability("Replicated", replicas=replicas, timeout_ms=timeout_ms)


def online(server: RedisServer) -> int:
    with server.client() as redis:
        return str(redis.info("replication")).count("'state': 'online'")


@contextmanager
def replica_of(server: RedisServer, directory: Path) -> Iterator[RedisServer]:
    """A second server that has all of the first."""
    replica = RedisServer.start(server.flavour, dir=directory)
    try:
        with server.client() as redis:
            redis.config_set("repl-diskless-sync-delay", 0)  # it would wait for more replicas to come
        with replica.client() as redis:
            redis.replicaof("127.0.0.1", server.port)
        fleet.until(lambda: online(server) == 1, "the replica is online", timeout_s=60)
        yield replica
    finally:
        replica.resume()
        replica.stop()


@pytest.fixture
def replica(aof_server: RedisServer, tmp_path: Path) -> Iterator[RedisServer]:
    with replica_of(aof_server, tmp_path / "replica") as replica:
        yield replica


def test_what_is_confirmed_is_on_the_replica(
    make: Make, aof_server: RedisServer, replica: RedisServer
) -> None:
    client = make(aof_server.url, durability=replicated())
    assert client.schedule(1, delay_ms=60_000, task_id="a").outcome is Outcome.CREATED
    assert len(client.schedule_many(tasks(1200))) == 1200
    aof_server.kill()
    with replica.client() as redis:
        redis.replicaof("NO", "ONE")
    assert make(replica.url).counts().waiting == 1201


def test_a_replica_that_hangs_confirms_nothing_and_the_task_is_stored(
    make: Make, aof_server: RedisServer, replica: RedisServer
) -> None:
    plain, client = make(aof_server.url), make(aof_server.url, durability=replicated(SHORT))
    replica.pause()
    with pytest.raises(NotConfirmed) as raised:
        client.schedule(1, delay_ms=60_000, task_id="a")
    assert str(raised.value) == (
        "task a is stored on the primary, but 0 of 1 replica confirmed within 200 ms: until then it may be lost at a "
        'fail-over; call again with the same id and if_exists="keep" to confirm it; '
        "a task that is done by then runs once more"
    )
    assert raised.value.scheduled == raised.value.unconfirmed
    assert (raised.value.confirmed, raised.value.wanted) == (0, 1)
    assert known(client, "a").body == b"1"
    # From a connection that has written nothing of its own, which newer servers find confirmed in any case.
    plain.schedule(1, delay_ms=60_000, task_id="b")
    again = make(aof_server.url, durability=replicated(SHORT))
    with pytest.raises(NotConfirmed) as raised:
        again.schedule(1, delay_ms=60_000, task_id="b", if_exists="keep")
    assert raised.value.scheduled[0].outcome is Outcome.KEPT
    # A confirmation may take longer than any other answer: Redis answers, so the time-out of calls does not count.
    hasty = replace(Address.from_url(aof_server.url), timeout_seconds=1.0)
    with pytest.raises(NotConfirmed):
        make(hasty, durability=replicated(timeout_ms=1100)).schedule(1, delay_ms=60_000)
    replica.resume()
    patient = make(aof_server.url, durability=replicated())
    assert patient.schedule(1, delay_ms=60_000, task_id="b", if_exists="keep").outcome is Outcome.KEPT
    with pytest.raises(NotConfirmed, match="of 2 replicas confirmed") as raised:
        make(aof_server.url, durability=replicated(SHORT, replicas=2)).schedule(1, delay_ms=60_000)
    assert raised.value.wanted == 2


def test_a_lost_reply_is_asked_for_again_and_confirmed_for_what_it_found(
    make: Make, aof_server: RedisServer, replica: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("delayq.client.routing.PAUSES_SECONDS", (0.01, 0.02, 0.05))
    with proxy_to(aof_server.port) as proxy:
        client = make(proxy.url, durability=replicated(SHORT))
        replica.pause()
        client.counts()
        with pytest.raises(NotConfirmed):
            client.schedule(0, delay_ms=60_000)
        proxy.drop = 1
        with pytest.raises(NotConfirmed) as raised:
            client.schedule(1, delay_ms=60_000, task_id="a")
        assert proxy.dropped == 1
        assert raised.value.scheduled[0].outcome is Outcome.REPEATED


def test_many_are_each_accounted_for(make: Make, aof_server: RedisServer, replica: RedisServer) -> None:
    client = make(aof_server.url, durability=replicated(SHORT), shards=3)
    make(aof_server.url, shards=3).schedule(0, delay_ms=60_000, task_id="t7")
    replica.pause()
    with pytest.raises(NotConfirmed, match="2,999 tasks are stored on the primary") as raised:
        client.schedule_many(tasks(3000))
    found = {each.id for each in raised.value.unconfirmed}
    stored = [f"t{n}" for n in range(3000) if n != 7]
    assert [each.id for each in raised.value.scheduled] == stored
    assert found == set(stored)
    assert {at: type(error) for at, error in raised.value.refused.items()} == {7: TaskExists}
    assert client.counts().waiting == 3000


def test_calls_that_wait_share_one_confirmation_and_hold_up_nothing_else(
    aof_server: RedisServer, replica: RedisServer, queue_name: str
) -> None:
    """200 calls one after the other would take forty seconds; a look at the queue goes another way."""

    async def all_at_once() -> list[BaseException | object]:
        async with Client(aof_server.url, queue=queue_name, durability=replicated(SHORT)) as client:
            waiting = [
                asyncio.ensure_future(client.schedule(n, delay_ms=60_000, task_id=f"t{n}"))
                for n in range(200)
            ]
            async with asyncio.timeout(20):
                while (await client.counts()).waiting < 200:
                    pass  # each look is a round trip of its own
                assert (await client.get("t0")) is not None
                return await asyncio.gather(*waiting, return_exceptions=True)

    replica.pause()
    assert {type(each) for each in asyncio.run(all_at_once())} == {NotConfirmed}


def test_a_redis_without_waitaof_is_reported_before_anything_is_stored(
    make: Make, redis_server: RedisServer
) -> None:
    if redis_server.version >= (7, 2):
        pytest.skip("it has WAITAOF")
    client = make(durability=Durability("Fsynced"))
    with pytest.raises(DelayQError, match=r"durability Fsynced: .*unknown command.*; nothing was stored"):
        client.schedule(1, delay_ms=60_000)
    assert client.counts().waiting == 0


@pytest.fixture
def fsyncing(tmp_path: Path) -> Iterator[RedisServer]:
    server = RedisServer.start(
        "valkey9",
        dir=tmp_path / "fsyncing",
        appendonly=True,
        config={"appendfsync": "always"},
        config_get=True,
    )
    yield server
    server.stop()


def fsynced(timeout_ms: int = PATIENT) -> Durability:
    return Durability("Fsynced", timeout_ms=timeout_ms)


def test_a_disk_confirms_only_where_redis_waits_for_it(make: Make, fsyncing: RedisServer) -> None:
    """Valkey 9.1 confirms with `everysec` between two syncs a second apart. One that waits for its disk may be used."""
    client = make(fsyncing.url, durability=fsynced())
    assert client.schedule(1, delay_ms=60_000, task_id="a").id == "a"
    assert len(client.schedule_many(tasks(1200))) == 1200
    with fsyncing.client() as redis:
        redis.config_set("appendonly", "no")
        with pytest.raises(NotConfirmed, match=r"its disk did not confirm within 30,000 ms \(.*appendonly"):
            client.schedule_many([NewTask(1, delay_ms=60_000)])
        redis.config_set("hz", 100)  # the faster it goes round, the sooner an early confirmation is found out
        for settings, said in (
            ({"appendonly": "no"}, "appendonly is disabled.*; nothing was stored"),
            (
                {"appendonly": "yes", "appendfsync": "no"},
                "appendfsync no and never forces.*; nothing was stored",
            ),
            ({"appendfsync": "everysec"}, "answers WAITAOF before its file is on the disk"),
        ):
            for name, value in settings.items():
                redis.config_set(name, value)
            with pytest.raises(DelayQError, match=said):
                make(fsyncing.url, durability=fsynced()).schedule(1, delay_ms=60_000)
    assert client.counts().waiting == 1202


async def test_scanner_and_doctor_find_out_what_a_client_does(
    fsyncing: RedisServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The risk does not depend on the server's version: it is reported exactly where a client refuses."""
    caplog.set_level(logging.INFO)
    path = document(tmp_path, fsyncing.port, "  durability: {confirm: Fsynced, timeoutMilliseconds: 30000}\n")
    queue = read(path)
    commands, address = Commands(queue.queue), Address.from_url(fsyncing.url)
    scanner = Scanner(queue.spec, commands, address, owner="me")
    connection = AsyncConnection(address)
    exporter = Exporter(scanner, commands, connection, queue.spec)
    check = next(loop.service for loop in scanner.loops if isinstance(loop.service, DurabilityCheck))
    stop = asyncio.Event()
    running = asyncio.create_task(scanner.run(stop, stop))
    await until(lambda: check._next_at > 0 and not scanner.down)
    with fsyncing.client() as redis:
        redis.config_set("hz", 100)
        for appendfsync, right, refused in (
            ("always", "+", ""),
            ("everysec", "+", "before its file is on the disk"),
            ("always", "+", ""),
            ("always", "-", "this user may not run CONFIG GET"),
        ):
            redis.execute_command("ACL", "SETUSER", USER, f"{right}config|get")
            redis.config_set("appendfsync", appendfsync)
            check._next_at = exporter._read_at = 0.0
            check.alarm.ring()
            await until(lambda: check._next_at > 0)
            risk = next(
                each for each in await exporter.families(ALWAYS) if each.name == "delayq_durability_risk"
            )
            at_risk = {each.labels["risk"] for each in risk.samples if each.value}
            assert ("fsync_unconfirmed" in at_risk) is bool(refused)
            reported = await asyncio.to_thread(run, "doctor", path, DELAYQ_REDIS_URL=fsyncing.url)
            assert ("✓ durability  Fsynced, within 30,000 ms" in reported.stdout) is not bool(refused)
            assert "nothing was stored" not in reported.stdout + check.problem, "neither stores a task"
            async with Client.from_document(queue, url=address) as client:
                with pytest.raises(DelayQError, match=refused) if refused else nullcontext():
                    await client.schedule(1, delay_ms=60_000)
    stop.set()
    await running
    await connection.close()
    events = [record.message for record in caplog.records if record.message.startswith("writes_")]
    assert events == ["writes_unconfirmed", "writes_confirmed", "writes_unconfirmed"]


def test_a_replica_is_left_for_the_master_that_the_address_has_by_then(
    make: Make, fsyncing: RedisServer, tmp_path: Path
) -> None:
    """Right after a fail-over, a name may still lead to the old master: the first call of a client meets it."""
    with replica_of(fsyncing, tmp_path / "replica") as replica, proxy_to(replica.port) as proxy:
        for read_only, asked in product(("no", "yes"), (replicated(), fsynced())):
            with replica.client() as redis:
                redis.config_set("replica-read-only", read_only)
            proxy.target = replica.port
            client = make(proxy.url, durability=asked)
            with pytest.raises(Unavailable, match=r"READONLY|cannot be used with replica"):
                client.schedule(1, delay_ms=60_000, task_id="a")
            proxy.target = fsyncing.port
            assert client.schedule(1, delay_ms=60_000, task_id="a").outcome is Outcome.CREATED
            assert client.cancel("a") == "cancelled"


def test_what_will_pass_is_tried_again_and_then_is_unavailable(
    make: Make, aof_server: RedisServer, replica: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A Redis that takes no writes when a client first asks what it can confirm."""
    monkeypatch.setattr("delayq.client.routing.PAUSES_SECONDS", (0.01, 0.02, 0.05))
    client = make(aof_server.url, durability=replicated())
    with aof_server.client() as redis:
        redis.config_set("min-replicas-to-write", 2)
        with pytest.raises(Unavailable, match="NOREPLICAS"):
            client.schedule(1, delay_ms=60_000, task_id="a")
        redis.config_set("min-replicas-to-write", 1)
    assert client.schedule(1, delay_ms=60_000, task_id="a").outcome is Outcome.CREATED
    assert replica.process.alive


@pytest.mark.parametrize("wrong", [{"kind": "None"}, {"replicas": 0}, {"timeout_ms": 1.5}])
def test_what_no_redis_could_do_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="durability: "):
        Durability(**{"kind": "Fsynced", **wrong})  # type: ignore[arg-type]  # on purpose


def test_the_command_says_what_is_stored_and_not_confirmed(redis_server: RedisServer, tmp_path: Path) -> None:
    durability = "  durability: {confirm: Replicated, timeoutMilliseconds: 200}\n"
    path = document(tmp_path, redis_server.port, durability)
    result = run("schedule", path, "1", "--id", "a", "--in", "1m")
    assert (result.exit_code, result.stdout) == (7, "")
    error, hint = result.stderr.splitlines()
    assert error.startswith(
        "error: task a is stored on the primary, but 0 of 1 replica confirmed within 200 ms"
    )
    assert hint.startswith(
        "hint:  repeat it with --id ID --if-exists keep: a task that has already finished runs once more; "
        f"delayq doctor {path} "
    )
    lines = b'{"payload": 1, "id": "b", "in": "30m"}\n{"payload": 2, "id": "c", "in": "30m"}'
    many = run("schedule", path, "--many", "-", stdin=lines)
    assert many.exit_code == 7
    assert "note: lines up to 0 are done; of lines 1 to 2 some are stored" in many.stderr
    with SyncClient.from_document(path) as client:
        assert client.counts().waiting == 3
