"""Who is asked for a master, how long for, and who is believed: by Sentinels that answer wrongly, or never."""

from __future__ import annotations

import asyncio
import itertools
import socket
import time
from contextlib import ExitStack, closing
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from delayq.connection import Address, AsyncConnection, SyncConnection
from delayq.connection.blocking_discovery import BlockingDiscovery
from delayq.connection.discovery import discovery_of
from delayq.connection.place import Place
from delayq.connection.routing import Redirect
from delayq.errors import Unavailable
from delayq.protocol.commands import Commands

from tests.unit.connection.silent import reply, silent, telling

if TYPE_CHECKING:
    from collections.abc import Iterator

    from delayq.connection.discovery import Discovery

OLD, NEW = Place("10.0.0.1", 6379), Place("10.0.0.2", 6379)
CALL = Commands("orders").counts(0)
SENTINELS = 3


def said(place: Place, epoch: int) -> bytes:
    return reply(place.host, str(place.port), epoch)


def watched_by(places: list[str]) -> Address:
    return Address.from_url(f"redis+sentinel://{','.join(places)}/mymaster")


class Subscriber:
    """Records that it was called, and may fail."""

    def __init__(self, *, fails: bool = False) -> None:
        self.fails, self.times = fails, 0

    def topology_changed(self) -> None:
        self.times += 1
        if self.fails:
            raise RuntimeError


@pytest.fixture
def one_is_stale(monkeypatch: pytest.MonkeyPatch) -> Iterator[Address]:
    """The first that is asked, and for ever: it has no news of a fail-over. It waits for late calls here."""
    for module in ("discovery", "blocking_discovery"):
        monkeypatch.setattr(f"delayq.connection.{module}.NEXT_SERVER_SECONDS", 60.0)
    with ExitStack() as stack:
        replies = [said(OLD, 0), said(NEW, 1), said(NEW, 1)]
        yield watched_by([stack.enter_context(telling(each)) for each in replies])


async def reported(directory: Discovery) -> Place:
    await directory.query()
    return await directory.holder()


async def test_a_sentinel_that_missed_a_fail_over_is_not_believed_while_others_know_better(
    one_is_stale: Address,
) -> None:
    directory = discovery_of(one_is_stale)
    assert [await reported(directory) for _ in range(2)] == [NEW, NEW]
    await directory.unsubscribe(Subscriber())
    with closing(BlockingDiscovery(one_is_stale)) as blocking:
        for _ in range(2):
            await asyncio.to_thread(blocking.query)
            assert await asyncio.to_thread(blocking.holder) == NEW


def test_a_thread_learns_a_new_master_from_sentinels_that_are_all_slow() -> None:
    """Their connections are open: an answer within a moment is expected of them, and one within a second taken."""
    calls = itertools.count()

    def slow() -> bytes:
        if next(calls) < SENTINELS:
            return said(OLD, 0)
        time.sleep(0.4)
        return said(NEW, 1)

    with ExitStack() as stack:
        discovery = BlockingDiscovery(
            watched_by([stack.enter_context(telling(slow)) for _ in range(SENTINELS)])
        )
        assert discovery.holder() == OLD
        discovery.suspect(OLD)
        assert discovery.holder() == NEW
        discovery.close()


async def test_sentinels_that_never_answer_are_not_waited_for_behind_one_that_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("delayq.connection.query.CONCURRENT_REPLY_SECONDS", 60.0)
    with silent(2) as hung, telling(said(NEW, 1)) as one:
        address = watched_by([*hung, one])
        directory = discovery_of(address)
        async with asyncio.timeout(30):  # each that hangs has a minute to answer
            assert await reported(directory) == NEW
        await directory.unsubscribe(Subscriber())


async def test_an_abandoned_call_finds_no_server_available() -> None:
    with silent() as hung:
        directory = discovery_of(watched_by(hung))
        waiting = asyncio.create_task(directory.holder())
        await asyncio.sleep(0)
        await directory.unsubscribe(Subscriber())
        with pytest.raises(Unavailable, match="connection closed"):
            await waiting


async def test_a_failing_subscriber_does_not_stop_the_others_and_all_are_called_once() -> None:
    found = list[object]()
    asyncio.get_running_loop().set_exception_handler(lambda _, context: found.append(context["exception"]))
    with telling(said(NEW, 1)) as one:
        directory, watching = (
            discovery_of(watched_by([one])),
            [Subscriber(fails=True), Subscriber(), Subscriber(fails=True)],
        )
        directory.watchers.update(watching)
        for _ in range(2):
            await directory.query()
        assert [each.times for each in watching] == [1, 1, 1]
        assert [type(each) for each in found] == [RuntimeError, RuntimeError]
        for each in watching:
            await directory.unsubscribe(each)


async def test_a_slot_that_moved_is_news_even_if_no_node_answers() -> None:
    with socket.create_server(("127.0.0.1", 0)) as gone:
        port = gone.getsockname()[1]
    directory, watching = discovery_of(Address.from_url(f"redis+cluster://127.0.0.1:{port}")), Subscriber()
    directory.watchers.add(watching)
    directory.apply_redirect(Redirect("MOVED", 5, Place("127.0.0.1", port)))
    await directory.query()
    assert watching.times == 1
    await directory.unsubscribe(watching)


async def test_connections_that_share_a_directory_have_their_own_patience() -> None:
    with silent() as hung:
        patient = watched_by(hung)
        hasty = replace(patient, timeout_seconds=0.05)
        directory = discovery_of(patient)
        assert discovery_of(hasty) is directory
        holding = asyncio.create_task(directory.holder(within=60))
        with pytest.raises(Unavailable):
            await directory.holder(within=hasty.timeout_seconds)
        assert not holding.done(), "the hasty one does not wait for as long as the patient one"
        holding.cancel()
        await directory.unsubscribe(Subscriber())


@pytest.mark.parametrize("kind", ["sentinel", "cluster"])
def test_a_call_by_a_thread_takes_no_longer_than_its_time_out_with_any_silent_server(kind: str) -> None:
    with silent(8) as hung:
        path = "/mymaster" if kind == "sentinel" else ""
        address = Address.from_url(f"redis+{kind}://{','.join(hung)}{path}")
        with closing(SyncConnection(replace(address, timeout_seconds=1.0))) as connection:
            began = time.monotonic()
            with pytest.raises(Unavailable):
                connection.one(CALL)
            assert time.monotonic() - began < 6.0, "eight one after the other would take 8 s"


def test_a_call_by_a_thread_to_a_master_that_never_answers_takes_one_time_out() -> None:
    """Replies are waited for, connections are, and Sentinels asked meanwhile: all of that within one."""
    with silent() as [hung], telling(reply("127.0.0.1", hung.rpartition(":")[2], 1)) as one:
        address = replace(watched_by([one]), timeout_seconds=2.0)
        with closing(SyncConnection(address)) as connection:
            began = time.monotonic()
            with pytest.raises(Unavailable):
                connection.run([CALL] * 3)
            assert time.monotonic() - began < 3.9, "a second time-out would make it 4 s"


def test_an_unreadable_reply_of_a_sentinel_is_no_answer() -> None:
    with (
        telling(reply("127.0.0.1", "abc", 1)) as one,
        closing(SyncConnection(watched_by([one]))) as connection,
        pytest.raises(Unavailable, match="malformed reply"),
    ):
        connection.one(CALL)


@pytest.mark.parametrize("host", ["a..b", "a" * 64])
async def test_a_host_that_no_name_server_could_be_asked_for_is_not_reached(host: str) -> None:
    address = Address((Place(host, 6379),))
    with closing(SyncConnection(address)) as blocking, pytest.raises(Unavailable):
        blocking.one(CALL)
    connection = AsyncConnection(address)
    with pytest.raises(Unavailable):
        await connection.one(CALL)
    await connection.close()


async def test_calls_that_wait_behind_a_server_that_hangs_have_one_time_out_together() -> None:
    """8,000 calls are eight round trips. All fail with the first: a second one would need a new connection."""
    accepted: list[asyncio.StreamWriter] = []
    async with await asyncio.start_server(
        lambda _, writer: accepted.append(writer), "127.0.0.1", 0
    ) as server:
        host, port = server.sockets[0].getsockname()
        address = replace(Address.from_url(f"redis://{host}:{port}"), timeout_seconds=0.5)
        connection = AsyncConnection(address)
        answers = await asyncio.gather(*(connection.one(CALL) for _ in range(8000)), return_exceptions=True)
        assert {type(each) for each in answers} == {Unavailable}
        await connection.close()
        for writer in accepted:
            writer.close()
    assert len(accepted) == 1
