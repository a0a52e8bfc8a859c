"""spec.durability.confirm: schedule returns when replicas, or the disk, have the task; else it says what is known."""

from __future__ import annotations

import asyncio
import threading
import time
from contextlib import contextmanager, suppress
from dataclasses import replace
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
from delayq.connection import Address
from delayq.protocol.results import Outcome
from redis.exceptions import ResponseError

from tests.process.fleet import until
from tests.redis.proxy import proxy_to
from tests.redis.state import known, tasks
from tests.servers import RedisServer
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
        until(lambda: online(server) == 1, "the replica is online", timeout_s=60)
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


def test_a_replica_that_hangs_fails_the_call_and_the_task_is_stored(
    make: Make, aof_server: RedisServer, replica: RedisServer
) -> None:
    client = make(aof_server.url, durability=replicated(SHORT))
    replica.pause()
    with pytest.raises(NotConfirmed) as raised:
        client.schedule(1, delay_ms=60_000, task_id="a")
    assert str(raised.value) == (
        "task a is stored on the primary, but 0 of 1 replicas confirmed within 200 ms: until then it may be lost at a "
        'fail-over; call again with the same id and if_exists="keep" to confirm it; '
        "a task that is done by then runs once more"
    )
    assert raised.value.scheduled == raised.value.unconfirmed
    assert (raised.value.confirmed, raised.value.wanted) == (0, 1)
    assert known(client, "a").body == b"1"


def test_a_confirmation_may_take_longer_than_any_other_answer(
    make: Make, aof_server: RedisServer, replica: RedisServer
) -> None:
    """Redis answers: that it takes its time is no outage, after which nobody would know whether the task is stored."""
    hasty = replace(Address.from_url(aof_server.url), timeout_seconds=1.0)
    client = make(hasty, durability=replicated(timeout_ms=1100))
    replica.pause()
    with pytest.raises(NotConfirmed):
        client.schedule(1, delay_ms=60_000, task_id="a")


def test_a_task_that_is_there_already_is_not_taken_for_confirmed(
    make: Make, aof_server: RedisServer, replica: RedisServer
) -> None:
    """From a connection that has written nothing of its own, which newer servers find confirmed in any case."""
    replica.pause()
    make(aof_server.url).schedule(1, delay_ms=60_000, task_id="a")
    again = make(aof_server.url, durability=replicated(SHORT))
    with pytest.raises(NotConfirmed) as raised:
        again.schedule(1, delay_ms=60_000, task_id="a", if_exists="keep")
    assert raised.value.scheduled[0].outcome is Outcome.KEPT  # type: ignore[attr-defined]  # the exception knows no Scheduled
    replica.resume()
    patient = make(aof_server.url, durability=replicated())
    assert patient.schedule(1, delay_ms=60_000, task_id="a", if_exists="keep").outcome is Outcome.KEPT


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
        assert raised.value.scheduled[0].outcome is Outcome.REPEATED  # type: ignore[attr-defined]  # as above


def test_many_are_each_accounted_for(make: Make, aof_server: RedisServer, replica: RedisServer) -> None:
    client = make(aof_server.url, durability=replicated(SHORT), shards=3)
    make(aof_server.url, shards=3).schedule(0, delay_ms=60_000, task_id="t7")
    replica.pause()
    began = time.monotonic()
    with pytest.raises(NotConfirmed, match="9,999 tasks are stored on the primary") as raised:
        client.schedule_many(tasks(10_000))
    print(f"took {time.monotonic() - began:.2f} s")
    found = {each.id for each in raised.value.unconfirmed}  # type: ignore[attr-defined]  # as above
    assert [each.id for each in raised.value.scheduled] == [f"t{n}" for n in range(10_000) if n != 7]  # type: ignore[attr-defined]  # as above
    assert found == {f"t{n}" for n in range(10_000)} - {"t7"}
    assert {at: type(error) for at, error in raised.value.refused.items()} == {7: TaskExists}
    assert client.counts().waiting == 10_000


def test_too_few_replicas_are_counted(make: Make, aof_server: RedisServer, replica: RedisServer) -> None:
    client = make(aof_server.url, durability=replicated(SHORT, replicas=2))
    with pytest.raises(NotConfirmed, match="of 2 replicas confirmed") as raised:
        client.schedule(1, delay_ms=60_000)
    assert raised.value.wanted == 2
    assert online(aof_server) == 1
    assert replica.process.alive


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


def test_a_redis_without_waitaof_is_told_before_anything_is_stored(
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


def test_fsynced_is_confirmed_by_a_server_that_always_syncs(make: Make, fsyncing: RedisServer) -> None:
    client = make(fsyncing.url, durability=fsynced())
    assert client.schedule(1, delay_ms=60_000, task_id="a").id == "a"
    assert len(client.schedule_many(tasks(1200))) == 1200


def test_a_server_that_confirms_before_it_syncs_is_found_out(make: Make, fsyncing: RedisServer) -> None:
    """Valkey 9.1 does, between two syncs a second apart. One that waits for its disk may be used."""
    with fsyncing.client() as redis:
        redis.config_set("appendfsync", "everysec")
        redis.config_set("hz", 100)  # the faster it goes round, the sooner it is found out
    client = make(fsyncing.url, durability=fsynced())
    with pytest.raises(DelayQError, match="answers WAITAOF before its file is on the disk"):
        client.schedule(1, delay_ms=60_000)
    assert client.counts().waiting == 0


@pytest.mark.parametrize(
    ("setting", "value", "said"),
    [
        ("appendfsync", "no", "appendfsync no and never forces"),
        ("appendonly", "no", "appendonly is disabled"),
    ],
)
def test_a_server_that_never_syncs_is_told_before_anything_is_stored(
    make: Make, fsyncing: RedisServer, *, setting: str, value: str, said: str
) -> None:
    with fsyncing.client() as redis:
        redis.config_set(setting, value)
    client = make(fsyncing.url, durability=fsynced(SHORT))
    with pytest.raises(DelayQError, match=rf"{said}.*; nothing was stored"):
        client.schedule(1, delay_ms=60_000)
    assert client.counts().waiting == 0


def test_a_setting_changed_later_is_a_confirmation_that_does_not_come(
    make: Make, fsyncing: RedisServer
) -> None:
    client = make(fsyncing.url, durability=fsynced())
    client.schedule(0, delay_ms=60_000)
    with fsyncing.client() as redis:
        redis.config_set("appendonly", "no")
    with pytest.raises(NotConfirmed, match=r"its disk did not confirm within 30,000 ms \(.*appendonly"):
        client.schedule_many([NewTask(1, delay_ms=60_000)])
    assert client.counts().waiting == 2


@pytest.mark.parametrize("writable", [False, True])
@pytest.mark.parametrize("asked", [replicated(), Durability("Fsynced")])
def test_a_replica_is_left_for_the_master_that_the_address_has_by_then(
    make: Make, fsyncing: RedisServer, tmp_path: Path, asked: Durability, *, writable: bool
) -> None:
    """Right after a fail-over, a name may still lead to the old master: the first call of a client meets it."""
    with replica_of(fsyncing, tmp_path / "replica") as replica, proxy_to(replica.port) as proxy:
        with replica.client() as redis:
            redis.config_set("replica-read-only", "no" if writable else "yes")
        client = make(proxy.url, durability=asked)
        with pytest.raises(Unavailable, match=r"READONLY|cannot be used with replica"):
            client.schedule(1, delay_ms=60_000, task_id="a")
        proxy.target = fsyncing.port
        assert client.schedule(1, delay_ms=60_000, task_id="a").outcome is Outcome.CREATED


def test_what_will_pass_is_tried_again_and_then_is_unavailable(
    make: Make, aof_server: RedisServer, replica: RedisServer
) -> None:
    """A Redis that is busy with somebody's script when a client first asks what it can confirm."""
    client = make(aof_server.url, durability=replicated())
    with busy(aof_server), pytest.raises(Unavailable, match="BUSY"):
        client.schedule(1, delay_ms=60_000, task_id="a")
    assert client.schedule(1, delay_ms=60_000, task_id="a").outcome is Outcome.CREATED
    assert online(aof_server) == 1
    assert replica.process.alive


@contextmanager
def busy(server: RedisServer) -> Iterator[None]:
    """It runs a script that never ends, and says so."""

    def run_for_ever() -> None:
        with server.client() as redis, suppress(ResponseError):  # it is killed
            redis.eval("while true do end", 0)

    def is_busy() -> bool:
        try:
            redis.ping()
        except ResponseError as error:
            return "BUSY" in str(error)
        return False

    with server.client() as redis:
        redis.config_set("lua-time-limit", 100)
        script = threading.Thread(target=run_for_ever)
        script.start()
        until(is_busy, "it is busy", timeout_s=60)
        try:
            yield
        finally:
            redis.execute_command("SCRIPT", "KILL")
            script.join()


@pytest.mark.parametrize("wrong", [{"kind": "None"}, {"replicas": 0}, {"timeout_ms": 1.5}])
def test_what_no_redis_could_do_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="durability: "):
        Durability(**{"kind": "Fsynced", **wrong})  # type: ignore[arg-type]  # on purpose


DOCUMENT = """\
apiVersion: delayq.dev/v1alpha1
kind: DelayQueue
metadata: {name: QUEUE}
spec:
  redis: {standalone: {host: 127.0.0.1, port: PORT}}
  handler: {python: {callable: "shop.orders:cancel_unpaid"}}
  durability: {confirm: Replicated, timeoutMilliseconds: 200}
"""


def test_the_command_says_what_is_stored_and_that_nobody_confirmed_it(
    redis_server: RedisServer, queue_name: str, tmp_path: Path
) -> None:
    document = tmp_path / "queue.yaml"
    document.write_text(DOCUMENT.replace("PORT", str(redis_server.port)).replace("QUEUE", queue_name))
    result = run("schedule", str(document), "1", "--id", "a", "--in", "1m")
    assert (result.exit_code, result.stdout) == (7, "")
    error, hint = result.stderr.splitlines()
    assert error.startswith(
        "error: task a is stored on the primary, but 0 of 1 replicas confirmed within 200 ms"
    )
    assert hint.startswith(
        "hint:  repeat it with --id ID --if-exists keep: a task that has already finished runs once more; "
        f"delayq doctor {document} "
    )
    lines = b'{"payload": 1, "id": "b", "in": "30m"}\n{"payload": 2, "id": "c", "in": "30m"}'
    many = run("schedule", str(document), "--many", "-", stdin=lines)
    assert many.exit_code == 7
    assert "note: lines up to 0 are done; of lines 1 to 2 some are stored" in many.stderr
    with SyncClient.from_document(document) as client:
        assert client.counts().waiting == 3
