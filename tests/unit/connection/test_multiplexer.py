"""Leaving a server that keeps a caller waiting: at any moment, with nothing left behind, and for good."""

from __future__ import annotations

import asyncio
import errno
import socket
from typing import TYPE_CHECKING, Any

import pytest
from delayq.connection import Address, BlockingReads
from delayq.connection.connectors import Connector
from delayq.connection.multiplexer import Multiplexer
from delayq.errors import Unavailable

from tests.unit.connection.silent import silent

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def at_its_end(timeout: asyncio.Timeout, reported: Callable[[], None]) -> asyncio.Future[None]:
    """Tell right behind the time-out, before a caller has noticed it."""
    loop, done = asyncio.get_running_loop(), asyncio.get_running_loop().create_future()

    def tell() -> None:
        if not timeout.expired():
            loop.call_soon(tell)
            return
        try:
            reported()
            done.set_result(None)
        except RuntimeError as error:
            done.set_exception(error)

    tell()
    return done


async def begun(found: Callable[[], asyncio.Timeout | None]) -> asyncio.Timeout:
    for _ in range(100):
        if (timeout := found()) is not None:
            return timeout
        await asyncio.sleep(0)
    raise TimeoutError


async def test_a_line_that_is_dropped_as_its_time_out_ends_just_fails() -> None:
    with silent() as [hung]:
        line = Multiplexer(Connector(Address.from_url(f"redis://{hung}")), 0.05)
        sending = asyncio.create_task(line.send([("PING",)]))
        await at_its_end(await begun(lambda: line._timeout), line.drop)
        with pytest.raises(Unavailable):
            await sending
        await line.close()


async def test_a_wait_that_is_interrupted_as_it_ends_just_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("delayq.connection.blocking_reads.WATCHDOG_SECONDS", 0.05)
    with silent() as [hung]:
        blocking_reads = BlockingReads(Address.from_url(f"redis://{hung}"))
        waiting = asyncio.create_task(blocking_reads.wait(["a"]))
        await at_its_end(await begun(lambda: blocking_reads._timeout), blocking_reads._interrupt)
        assert await waiting is None
        await blocking_reads.close()


def line_to(url: str, seconds: float = 0.05) -> Multiplexer:
    return Multiplexer(Connector(Address.from_url(url)), seconds)


async def connected(line: Multiplexer) -> Any:  # noqa: ANN401 -- redis-py's
    for _ in range(1000):
        if line._connection is not None and line._connection.is_connected:
            return line._connection
        await asyncio.sleep(0.001)
    raise TimeoutError


@pytest.mark.parametrize("kind", ["tcp", "unix"])
async def test_what_a_server_did_not_take_is_thrown_away(tmp_path: Path, kind: str) -> None:
    """The socket is closed with it; what was still to be sent would keep it open for as long as the server hangs."""
    path = str(tmp_path / "redis.sock")
    with silent() as [hung], socket.socket(socket.AF_UNIX) as listening:
        listening.bind(path)
        listening.listen()
        line = line_to(f"redis://{hung}" if kind == "tcp" else f"unix://{path}", 1.0)
        sending = asyncio.create_task(line.send([("SET", "key", b"x" * (32 << 20))]))
        transport = (await connected(line))._writer.transport
        with pytest.raises(Unavailable):
            await sending
        await asyncio.sleep(0)  # in which it is closed
        assert transport.get_extra_info("socket").fileno() == -1
        await line.close()


async def test_a_connection_that_the_kernel_gave_up_has_no_answers() -> None:
    """ETIMEDOUT, of a peer that keepalive found gone, is no reply to what was asked."""
    with silent() as [hung]:
        line = line_to(f"redis://{hung}", 30.0)
        sending = asyncio.create_task(line.send([("PING",), ("PING",)]))
        connection = await connected(line)
        connection._reader.set_exception(TimeoutError(errno.ETIMEDOUT, "Connection timed out"))
        with pytest.raises(Unavailable) as raised:
            await sending
        assert raised.value.outage == "timeout"
        assert not connection.is_connected
        await line.close()


async def test_a_line_that_was_closed_does_not_connect_again() -> None:
    with silent() as [hung]:
        line = line_to(f"redis://{hung}")
        await line.close()
        with pytest.raises(Unavailable, match="connection closed"):
            await line.send([("PING",)])
        assert line.connects == 0


async def test_a_round_trip_is_bounded_in_commands_and_in_bytes() -> None:
    """Each has the whole time-out to itself. A larger request goes alone."""
    line = Multiplexer(Connector(Address.from_url("redis://not-used")), 1.0)
    answered: asyncio.Future[list[Any]] = asyncio.get_running_loop().create_future()
    for commands, size, batches in (
        (3, [100] * 900, [333, 333, 234]),
        (1, [300_000] * 10 + [3_000_000] + [10] * 500, [3, 3, 3, 1, 1, 500]),
    ):
        line._waiting = [(b"x" * each, commands, None, 0.0, answered) for each in size]
        assert [len(line._next_batch()) for _ in batches] == batches
        assert line._waiting == []
