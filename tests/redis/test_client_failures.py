"""Both clients when things go wrong between them and Redis: nothing is lost, doubled or left hanging."""

from __future__ import annotations

import asyncio
import gc
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from delayq import Client, DelayQError, NewTask, SyncClient, Unavailable
from delayq.connection import Address, AsyncConnection
from delayq.connection.aio import Single
from delayq.connection.multiplexer import ended
from delayq.connection.round_trip import round_trip, translated
from delayq.protocol.commands import Commands
from delayq.protocol.results import Outcome
from redis._parsers.base import BaseParser
from redis.exceptions import NoScriptError

from tests.redis.proxy import proxy_to
from tests.redis.recovering import until
from tests.redis.state import known, tasks
from tests.servers import RedisServer
from tests.topologies.kinds import flavour_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from delayq.connection.multiplexer import Multiplexer
    from redis.exceptions import ResponseError

    from tests.redis.conftest import Make

pytestmark = pytest.mark.slow

SECRET = "hunter2-s3cret"  # noqa: S105  what must not be seen


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("delayq.client.routing.PAUSES_SECONDS", (0.01, 0.02, 0.05))


def impatient(url: str, *, seconds: float = 0.2, connections: int = 20) -> Address:
    return replace(Address.from_url(url), timeout_seconds=seconds, max_connections=connections)


# lost replies and connections


@pytest.mark.one_server
@pytest.mark.parametrize("shards", [1, 3])
def test_calls_whose_replies_were_lost_are_repeated_and_stored_once(
    make: Make, redis_server: RedisServer, shards: int
) -> None:
    def losing() -> Iterator[NewTask]:
        for n, task in enumerate(tasks(3000)):
            if n in {700, 1900}:
                proxy.drop = 1
            yield task

    with proxy_to(redis_server.port) as proxy:
        client = make(proxy.url, shards=shards)
        assert [each.id for each in client.schedule_many(losing())] == [f"t{n}" for n in range(3000)]
        proxy.drop = 1
        assert client.schedule(1, delay_ms=60_000, task_id="a").outcome is Outcome.REPEATED
        assert proxy.dropped == 3
        assert client.counts().stats["scheduled"] == 3001


def test_killed_connections_and_forgotten_scripts_are_no_failure(
    make: Make, redis_server: RedisServer
) -> None:
    client = make()
    with redis_server.client() as redis:
        for n in range(5):
            redis.script_flush()
            client.schedule(n, delay_ms=60_000, task_id=f"t{n}")
            redis.client_kill_filter(_type="normal", skipme=True)
            redis.script_flush()
            known(client, f"t{n}")
    assert client.counts().stats["scheduled"] == 5


@pytest.mark.one_server
async def test_an_idle_connection_that_the_server_has_closed_is_no_failure(redis_server: RedisServer) -> None:
    """As `timeout` of Redis closes it. The call was not sent, so that its result is known."""
    commands, connection = Commands("orders"), AsyncConnection(Address.from_url(redis_server.url))
    await connection.one(commands.counts(0))
    multiplexer: Any = connection._transport._multiplexer
    with redis_server.client() as redis:
        redis.client_kill_filter(_type="normal", skipme=True)
    await until(lambda: ended(multiplexer._connection))
    await connection.one(commands.counts(0))
    assert connection.connects == 2
    await connection.close()


async def test_many_coroutines_share_one_connection_and_bring_a_forgotten_script_once(
    redis_server: RedisServer, queue_name: str
) -> None:
    def used(redis: Any) -> tuple[int, int]:  # noqa: ANN401  a client without types
        evals = redis.info("commandstats").get("cmdstat_eval", {"calls": 0})["calls"]
        return redis.info("stats")["total_connections_received"], evals

    async with Client(redis_server.url, queue=queue_name) as client:
        with redis_server.client() as redis:
            before = used(redis)
            storing = [client.schedule(n, delay_ms=60_000, task_id=f"t{n}") for n in range(300)]
            assert [each.id for each in await asyncio.gather(*storing)] == [f"t{n}" for n in range(300)]
            connections, evals = used(redis)
            assert (connections - before[0], evals > before[1]) == (1, True)
            redis.script_flush()
            views = await asyncio.gather(*[client.get(f"t{n}") for n in range(300)])
            assert [view.body for view in views if view] == [b"%d" % n for n in range(300)]
            assert used(redis) == (connections, evals + 1)


def test_a_script_forgotten_while_it_is_brought_is_brought_to_each() -> None:
    """SCRIPT FLUSH, or a lost connection, may come between the source and those that rely on it."""
    calls = [Commands("q").cancel(task_id) for task_id in "abc"]
    steps = round_trip(calls, "there:6379")
    unknown = NoScriptError("No matching script. Please use EVAL.")
    assert [command[0] for command in next(steps)] == ["EVALSHA"] * 3
    assert [command[0] for command in steps.send([unknown] * 3)] == ["EVAL", "EVALSHA", "EVALSHA"]
    last = steps.send([b"cancelled", unknown, unknown])
    assert [(command[0], command[-1]) for command in last] == [
        ("EVAL", calls[1].arguments[-1]),
        ("EVAL", calls[2].arguments[-1]),
    ]
    with pytest.raises(StopIteration) as done:
        steps.send([b"gone", b"cancelled"])
    assert len(done.value.value) == 3


@pytest.mark.parametrize(("code", "stale"), [("READONLY", "yes"), ("MASTERDOWN", "no")])
def test_a_demoted_master_is_left_for_the_new_one(
    make: Make, redis_server: RedisServer, aof_server: RedisServer, *, code: str, stale: str
) -> None:
    """The connection is in good order; only what is at the other end changed."""
    with proxy_to(aof_server.port) as proxy, aof_server.client() as old:
        client = make(proxy.url)
        client.schedule(1, delay_ms=60_000, task_id="a")
        old.config_set("replica-serve-stale-data", stale)
        old.replicaof("127.0.0.1", redis_server.port if code == "READONLY" else 1)
        with pytest.raises(Unavailable, match=code):
            client.schedule(2, delay_ms=60_000, task_id="b")
        proxy.target = redis_server.port
        assert client.schedule(2, delay_ms=60_000, task_id="b").outcome is Outcome.CREATED
        assert client.counts().waiting == 1
        assert client.get("a") is None


# no Redis


def test_a_server_that_is_absent_or_has_another_password_is_named_without_ours(
    make: Make, aof_server: RedisServer
) -> None:
    where = f"127.0.0.1:{aof_server.port}"
    with aof_server.client() as redis:
        redis.config_set("requirepass", "right")
    with pytest.raises(DelayQError, match=where) as refused:
        make(f"redis://:{SECRET}@{where}/0").counts()
    assert "password" in str(refused.value)
    with pytest.raises(DelayQError, match="Authentication required"):
        make(aof_server.open_url).counts()
    aof_server.stop()
    client = make(f"redis://user:{SECRET}@{where}/0")
    with pytest.raises(Unavailable, match=f"cannot reach Redis at {where}") as away:
        client.schedule(None, delay_ms=1)
    for error in (refused.value, away.value):
        assert SECRET not in f"{error} {error!r} {error.__cause__!r} {client.address!r}"


def test_a_server_without_passwords_quotes_ours_and_we_do_not(
    make: Make, flavour: str, tmp_path: Path
) -> None:
    """As one behind a proxy may be."""
    renamed = tmp_path / "renamed.conf"
    renamed.write_text('rename-command AUTH ""')
    server = RedisServer.start(flavour_of(flavour), dir=tmp_path / "redis", config={"include": str(renamed)})
    try:
        client = make(f"redis://user:{SECRET}@127.0.0.1:{server.port}/0")
        with pytest.raises(DelayQError, match=r"unknown command ['`]AUTH['`]") as error:
            client.counts()
        assert SECRET not in "".join(traceback.format_exception(error.value))
    finally:
        server.stop()


def test_a_server_that_never_answers_is_given_up_within_the_timeout(
    make: Make, aof_server: RedisServer
) -> None:
    client = make(impatient(aof_server.url))
    client.schedule(None, delay_ms=60_000, task_id="a")
    aof_server.pause()
    began = time.monotonic()
    with pytest.raises(Unavailable, match=f"127.0.0.1:{aof_server.port}"):
        client.schedule(None, delay_ms=60_000, task_id="b")
    assert time.monotonic() - began < 30  # a few time-outs of 0.2 s, on a machine with other work
    aof_server.resume()
    known(client, "a")
    assert client.schedule(None, delay_ms=60_000, task_id="b", if_exists="keep").id == "b"


def test_failures_use_up_no_connections(aof_server: RedisServer, queue_name: str) -> None:
    """Neither while writing, nor while reading, nor with a second chunk under way."""
    with SyncClient(impatient(aof_server.url, connections=2), queue=queue_name) as client:
        client.schedule_many(tasks(1))
        aof_server.stop()
        for _ in range(3):  # more often than there are connections
            with pytest.raises(Unavailable):
                client.schedule_many(tasks(1200), if_exists="keep")
        aof_server.restart()
        assert len(client.schedule_many(tasks(1200), if_exists="keep")) == 1200


class Stop(BaseException):
    """As KeyboardInterrupt, but an event loop lives on."""


def interrupted(with_what: type[BaseException], *, after: int) -> Iterator[NewTask]:
    yield from tasks(after)
    raise with_what


@pytest.mark.parametrize("connections", [1, 3])
def test_interrupts_use_up_no_connections(redis_url: str, queue_name: str, connections: int) -> None:
    """Also where a chunk could not be sent yet, for want of a connection."""
    address = impatient(redis_url, seconds=2, connections=connections)
    with SyncClient(address, queue=queue_name) as client:
        for what in (KeyboardInterrupt, GeneratorExit):
            for after in (600, 1200, 600, 1200):
                with pytest.raises(what):
                    client.schedule_many(interrupted(what, after=after), if_exists="keep")
        assert len(client.schedule_many(tasks(1200), if_exists="keep")) == 1200
        assert client.counts().waiting == 1200
        call = client._operations.commands.get("t1")
        tickets = [client._connection.start([call]) for _ in range(connections)]
        assert not any(ticket.unsent for ticket in tickets)  # each was sent at once
        assert all(client._connection.finish(ticket) for ticket in tickets)


async def test_an_interrupt_leaves_no_unhandled_error_in_the_event_loop(
    aof_server: RedisServer, queue_name: str
) -> None:
    unheard: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: unheard.append(context))
    async with Client(impatient(aof_server.url), queue=queue_name) as client:
        await client.schedule(None, delay_ms=60_000)
        aof_server.pause()
        for what in (GeneratorExit, Stop):
            with pytest.raises(what):
                await client.schedule_many(interrupted(what, after=600))
        await asyncio.sleep(0.4)
        gc.collect()
        await asyncio.sleep(0)
        aof_server.resume()
    assert unheard == []


def test_more_threads_than_connections_wait_their_turn(redis_server: RedisServer, queue_name: str) -> None:
    """schedule_many has two calls under way: were the second to wait for a connection, all might wait for ever."""
    address = impatient(redis_server.url, seconds=5, connections=3)
    with SyncClient(address, queue=queue_name) as client, redis_server.client() as redis:

        def fill(thread: int) -> int:
            many = (NewTask(n, delay_ms=60_000, task_id=f"{thread}-{n}") for n in range(1200))
            return len(client.schedule_many(many))

        before = redis.info("stats")["total_connections_received"]
        with ThreadPoolExecutor(6) as threads:
            assert list(threads.map(fill, range(6))) == [1200] * 6
        assert client.counts().waiting == 6 * 1200
        assert redis.info("stats")["total_connections_received"] - before <= 3


# many at once


@pytest.mark.one_server
def test_threads_draw_ids_of_their_own(redis_url: str, queue_name: str) -> None:
    """Nothing is named here: each of 8 threads that share a client, or have one each, draws ids at the same time."""

    def fill(client: SyncClient) -> None:
        for n in range(25):
            client.schedule(n, delay_ms=60_000)
            client.schedule_many(NewTask(n, delay_ms=60_000) for n in range(3))

    with SyncClient(redis_url, queue=queue_name) as shared, ThreadPoolExecutor(8) as threads:
        with SyncClient(redis_url, queue=queue_name) as own:
            list(threads.map(fill, [shared, own] * 4))
        assert shared.counts().waiting == 8 * 25 * 4


async def test_a_cancelled_coroutine_harms_no_other(redis_url: str, queue_name: str) -> None:
    """Its answer still comes over the shared connection, and must not be taken for the answer to another call."""
    async with Client(redis_url, queue=queue_name) as client:
        await client.schedule_many(tasks(100))
        for at in range(8):
            running = [asyncio.create_task(client.get(f"t{n}")) for n in range(100)]
            for _ in range(at % 4):
                await asyncio.sleep(0)
            for task in running[::3]:
                task.cancel()
            views = await asyncio.gather(*running, return_exceptions=True)
            found = [None if isinstance(view, BaseException) or view is None else view.id for view in views]
            assert [task_id for n, task_id in enumerate(found) if n % 3] == [
                f"t{n}" for n in range(100) if n % 3
            ]


async def test_what_cannot_be_sent_fails_for_its_own_caller_only(redis_url: str, queue_name: str) -> None:
    async with Client(redis_url, queue=queue_name) as client:
        await client.schedule(1, delay_ms=60_000, task_id="a")
        async with asyncio.timeout(5):
            bad, good = await asyncio.gather(
                client.dlq_purge(["\ud800"]), client.get("a"), return_exceptions=True
            )
    assert isinstance(bad, UnicodeEncodeError)
    assert not isinstance(good, BaseException)
    assert good is not None


def line_of(connection: AsyncConnection) -> Multiplexer:
    """Where all of it goes: to the one server."""
    assert isinstance(connection._transport, Single)
    return connection._transport._multiplexer


async def test_an_unforeseen_failure_ends_every_wait(redis_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    connection = AsyncConnection(Address.from_url(redis_url))
    with monkeypatch.context() as patch:

        async def broken(**_: object) -> None:
            raise KeyError(SECRET)

        await connection.send([("PING",)])
        patch.setattr(line_of(connection)._connection, "read_response", broken)
        async with asyncio.timeout(5):
            failures = await asyncio.gather(
                *[connection.send([("PING",)]) for _ in range(2)], return_exceptions=True
            )
    for failure in failures:
        assert isinstance(failure, Unavailable)
        assert "KeyError" in str(failure)
        assert SECRET not in str(failure)
        assert isinstance(failure.__cause__, KeyError)
    assert await connection.send([("PING",)]) == [b"PONG"]
    await connection.close()


# what Redis answers


@pytest.mark.parametrize(
    ("reply", "kind", "shown"),
    [
        ("OOM command not allowed", Unavailable, "OOM command not allowed"),
        ("BUSY Redis is busy running a script", Unavailable, "BUSY Redis is busy"),
        ("MISCONF Errors writing to the AOF file", Unavailable, "MISCONF Errors"),
        ("NOREPLICAS Not enough good replicas", Unavailable, "NOREPLICAS Not"),
        ("CLUSTERDOWN The cluster is down", Unavailable, "CLUSTERDOWN The"),
        ("ERR Error running script (call to f_1): @user_script:4: @user_script: 4: -OOM command not allowed",
         Unavailable, "(OOM command not allowed)"),
        ("ERR Error running script (call to f_1): @user_script:4: attempt to index nil", DelayQError, "attempt"),
        ("NOPERM this user has no permissions", DelayQError, "NOPERM this user"),
        ("ERR unknown task BUSY", DelayQError, "unknown task BUSY"),
        ("ERR unknown command 'AUTH', with args beginning with: 'alice' 'hunter2-s3cret' ",
         DelayQError, "unknown command 'AUTH'"),
        ("ERR unknown command `AUTH`, with args beginning with: `alice`, `hunter2-s3cret`, ",
         DelayQError, "unknown command `AUTH`"),
    ],
)  # fmt: skip
def test_what_may_pass_is_unavailable_and_all_else_a_refusal(reply: str, kind: type, shown: str) -> None:
    """As Redis sends it, through redis-py's own reading of it."""
    answered: ResponseError = BaseParser.parse_error(reply)  # type: ignore[no-untyped-call]
    error = translated(answered, "there:6379", "claim")
    assert type(error) is kind
    assert SECRET not in str(error)
    assert shown in str(error)
    assert "there:6379" in str(error)
