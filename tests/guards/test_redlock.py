"""redlock: held by the majority of independent servers, also while a minority fails."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

import pytest
from delayq import guards
from delayq.connection import Address
from delayq.contract import parse
from delayq.errors import GuardBusy, GuardLost, GuardUnavailable, InvalidDocument
from delayq.guards import Redlock
from delayq.guards.locking import GONE, TOO_LATE
from delayq.guards.redlock import BUSY_MS, server_seconds
from delayq.protocol.keys import Keys

from tests.guards.locks import interrupted, until
from tests.guards.sql_bank import task
from tests.processes import PATIENCE_SECONDS
from tests.servers import RedisServer
from tests.unit.contract.documents import document

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from delayq.guards.locking import LockHold

    from tests.guards.conftest import Opened

KEY = Keys("delayq", "q", 0).of("order-7").lock


@pytest.fixture
def servers(flavour: str, tmp_path: Path) -> Iterator[list[RedisServer]]:
    """Five independent servers that keep nothing on disk."""
    with started(5, flavour, tmp_path) as servers:
        yield servers


@pytest.fixture
def three(flavour: str, tmp_path: Path) -> Iterator[list[RedisServer]]:
    with started(3, flavour, tmp_path) as servers:
        yield servers


@contextmanager
def started(count: int, flavour: str, folder: Path) -> Iterator[list[RedisServer]]:
    with ExitStack() as stack:
        servers = []
        for n in range(count):
            servers.append(RedisServer.start(flavour, dir=folder / f"redis-{n}"))
            stack.callback(servers[-1].stop)
        yield servers


def redlock(servers: Sequence[RedisServer], ttl_seconds: float = 30) -> Redlock:
    return Redlock([server.url for server in servers], queue="q", ttl_seconds=ttl_seconds)


def owners(servers: Sequence[RedisServer]) -> list[str | None]:
    """What each server, of those that run, says of the task's lock."""
    found = []
    for server in servers:
        with server.client() as redis:
            found.append(redis.get(KEY))
    return found


def forget(servers: Sequence[RedisServer]) -> None:
    """What a restart does, without its time."""
    for server in servers:
        with server.client() as redis:
            redis.delete(KEY)


async def test_all_servers_have_the_lock_while_the_task_runs_and_another_run_is_put_off(
    servers: list[RedisServer], opened: Opened
) -> None:
    """It leaves nothing behind, not even where it could have had the lock."""
    first, second = opened(redlock(servers)), redlock(servers)
    async with first(task(token=41)) as hold:
        await until(lambda: owners(servers) == [hold.owner] * 5)  # the last two are not waited for
        assert hold.owner.startswith("41:")
        forget(servers[:2])
        with pytest.raises(GuardBusy) as busy:
            await second.begin(task(token=42))
        assert BUSY_MS[0] <= (busy.value.delay_ms or 0) <= BUSY_MS[1]
        assert busy.value.charge is False
        await second.close()
        assert owners(servers) == [None, None, hold.owner, hold.owner, hold.owner]
    await until(lambda: owners(servers) == [None] * 5)


async def test_never_more_than_one_run_under_contention(servers: list[RedisServer]) -> None:
    several, inside, most = [redlock(servers) for _ in range(3)], 0, 0

    async def run(guard: Redlock, token: int) -> None:
        nonlocal inside, most
        while True:
            try:
                async with guard(task(token=token)):
                    inside += 1
                    most = max(most, inside)
                    await guard.check()  # a round trip: others have every chance to come in
                    inside -= 1
                    return
            except GuardBusy:
                await asyncio.sleep(random.uniform(0, 0.02))  # as a queue would, only sooner

    async with asyncio.timeout(PATIENCE_SECONDS * 2):
        await asyncio.gather(*(run(guard, token) for guard in several for token in range(3)))
    assert most == 1
    await asyncio.gather(*(each.close() for each in several))
    assert owners(servers) == [None] * 5


async def test_a_minority_that_is_away_delays_no_task_and_loses_no_lock(servers: list[RedisServer]) -> None:
    guard = redlock(servers, ttl_seconds=3)
    servers[3].kill()
    servers[4].pause()
    await guard.check()
    began = time.monotonic()
    for n in range(20):
        async with guard(task(token=n)):
            pass
    # Waiting for those two would take as long for each lock, and again for each release.
    assert time.monotonic() - began < 20 * server_seconds(3)
    async with guard(task(token=20)) as hold:
        first = hold.until
        await until(lambda: hold.until > first + 3)  # renewed for longer than it lasts
        assert owners(servers[:3]) == [hold.owner] * 3
    servers[4].resume()
    await guard.close()
    assert owners(servers[:3]) == [None] * 3


async def test_servers_may_be_restarted_empty_one_after_the_other(
    three: list[RedisServer], opened: Opened
) -> None:
    """Each gets the lock back at the next renewal that the others confirm."""
    guard = opened(redlock(three, ttl_seconds=6))
    async with guard(task()) as hold:
        for server in three:
            await until(lambda: owners(three) == [hold.owner] * 3)
            server.restart()
        await until(lambda: owners(three) == [hold.owner] * 3)
    await until(lambda: owners(three) == [None] * 3)


async def test_with_a_majority_down_the_guard_is_unavailable_until_they_are_back(
    servers: list[RedisServer],
    opened: Opened,
) -> None:
    guard = opened(redlock(servers))
    for server in servers[:3]:
        server.stop()
    for ask in (guard.check, lambda: guard.begin(task())):
        with pytest.raises(GuardUnavailable, match="3 of 5 servers must serve, 3 do not: cannot reach"):
            await ask()
    for server in servers[:3]:
        server.restart()
    await guard.check()
    async with guard(task()):
        pass


async def test_a_handler_is_interrupted_when_a_majority_has_lost_the_lock_or_is_away(
    three: list[RedisServer],
) -> None:
    guard, brief = redlock(three, ttl_seconds=9), redlock(three, ttl_seconds=3)

    def lose_it(hold: LockHold) -> None:
        asyncio.get_running_loop().create_task(lost_everywhere(hold))

    async def lost_everywhere(hold: LockHold) -> None:
        await until(lambda: owners(three) == [hold.owner] * 3)  # the last request may be under way still
        forget(three[1:])

    def take_away(_: LockHold) -> None:
        three[1].kill()
        three[2].pause()

    with pytest.raises(GuardLost, match=GONE):
        await interrupted(guard, lose_it)
    await guard.close()
    assert owners(three) == [None] * 3
    with pytest.raises(GuardLost, match=TOO_LATE):
        await interrupted(brief, take_away)
    three[2].resume()
    await brief.close()


async def test_a_second_run_comes_in_only_when_the_majority_forgot(
    three: list[RedisServer], opened: Opened
) -> None:
    """The known limit: servers that forget a lock within its life, as by a restart without persistence."""
    first, refused, second = (opened(redlock(three)) for _ in range(3))
    async with first(task(token=1)) as hold:
        await until(lambda: owners(three) == [hold.owner] * 3)
        forget(three[:1])
        with pytest.raises(GuardBusy):
            await refused.begin(task(token=2))
        await refused.close()  # its call to the server that forgot may be on its way, and its release
        forget(three[:2])
        async with second(task(token=2)):
            assert not hold.lost  # its next renewal detects it


async def test_looks_say_which_servers_are_away_when_that_changes(
    three: list[RedisServer], caplog: pytest.LogCaptureFixture, opened: Opened
) -> None:
    guard = opened(redlock(three))
    with caplog.at_level(logging.INFO, "delayq.guards.redlock"):
        await guard.check()
        three[1].stop()
        await guard.check()
        await guard.check()
        three[1].restart()
        await guard.check()
    reported = [(record.levelname, record.fields["away"]) for record in caplog.records]  # type: ignore[attr-defined]
    assert reported == [("WARNING", [f"127.0.0.1:{three[1].port}"]), ("INFO", [])]


def build(tmp_path: Path, content: bytes | None) -> Redlock:
    """The guard of a document whose Secret holds these URLs."""
    if content is not None:
        (tmp_path / "locks").mkdir()
        (tmp_path / "locks" / "urls").write_bytes(content)
    redlock = {"urlsSecretRef": {"name": "locks"}, "ttlSeconds": 77}
    queue = parse(document(queueName="q", guard={"redlock": redlock}))
    guard = guards.build(queue, Address.from_url("redis://elsewhere"), secrets_dir=tmp_path, apart=True)
    assert isinstance(guard, Redlock)
    return guard


async def test_a_document_names_a_secret_with_one_url_a_line(
    three: list[RedisServer], tmp_path: Path, opened: Opened
) -> None:
    lines = ["# in three data centres", "", *(f"  {server.url}\r" for server in three)]
    guard = opened(build(tmp_path, "\n".join(lines).encode()))
    async with guard(task()):
        left = []
        for server in three:
            with server.client() as redis:
                left.append(redis.pttl(KEY))
        # The slowest server may not have answered: two of three are enough to begin.
        assert sum(76_000 < each <= 77_000 for each in left) >= 2, left


PREFIX = "spec.guard.redlock.urlsSecretRef: Secret locks"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "expected its key urls as the file .*/locks/urls, found none"),
        (b"", "expected URLs of 3 or more independent Redis servers, one a line, got 0"),
        (b"rediss://a\nunix:///b.sock\n#redis://c", "expected URLs of 3 or more .*, got 2"),
        (
            b"redis://a\nredis://:hunter2@b\nredis://b/1",
            "expected independent Redis servers, got b:6379 more than once",
        ),
        (
            b"redis://a\nredis://b\nredis+sentinel://:hunter2@c/shop",
            "expected standalone Redis servers, got sentinel shop at c:26379: a failover can lose locks",
        ),
        (b"redis://a\n\nredis://:hun/ter2@b:1\nredis://c", "line 3: Redis URL: expected redis://"),
        (b"redis://a\n\xff\xfe\nredis://c", "line 2: Redis URL: expected redis://"),
    ],
)
def test_a_secret_that_names_no_majority_is_refused_and_not_quoted(
    tmp_path: Path, content: bytes | None, message: str
) -> None:
    with pytest.raises(InvalidDocument, match=f"{PREFIX}.*: {message}") as refused:
        build(tmp_path, content)
    assert "hun" not in str(refused.value)
    assert "hun" not in str(refused.value.__cause__)


async def test_an_even_number_is_no_better_than_one_less_and_is_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    await build(tmp_path, b"redis://a\nredis://b\nredis://c\nredis://d").close()
    assert [(record.getMessage(), record.fields) for record in caplog.records] == [  # type: ignore[attr-defined]
        ("redlock_servers_even", {"servers": 4, "as_good_as": 3})
    ]
