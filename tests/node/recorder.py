"""The handlers of tests on a node: every start and end is in the ledger before anything else happens.

Runs inside worker pods, mounted from a ConfigMap. The ledger is a list in Redis, and Redis itself writes the time, so
what runs early by its clock shows. A task's payload says what to do: {"do": name, …}.
"""

from __future__ import annotations

import asyncio
import os
from functools import cache
from typing import TYPE_CHECKING, Any

from delayq.errors import Bury
from redis.asyncio import Redis
from redis.exceptions import RedisError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from delayq.protocol.envelope import Task

NOTE = """
local now = redis.call('TIME')
local at = ' ' .. now[1] * 1000 + math.floor(now[2] / 1000)
for place, line in ipairs(ARGV) do
  ARGV[place] = line .. at
end
redis.call('RPUSH', KEYS[1], unpack(ARGV))
"""
LEDGER, OPEN = "ledger", "open"
waiting: list[tuple[str, asyncio.Future[None]]] = []
writers: set[asyncio.Task[None]] = set()


@cache
def redis() -> Redis:
    return Redis.from_url(os.environ["LEDGER"])


async def note(event: str, task: Task) -> None:
    line = f"{event} {task.id} {task.token} {task.attempt} {task.due_ms} {os.environ['HOSTNAME']}"
    written: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    waiting.append((line, written))
    if not writers:
        writers.add(asyncio.create_task(write()))
    await written


async def write() -> None:
    """Write what waits, and what comes meanwhile: hundreds of handlers that start at once need no connection each."""
    try:
        while waiting:
            lines, those = zip(*waiting, strict=True)
            waiting.clear()
            error = None
            try:
                await redis().eval(NOTE, 1, LEDGER, *lines)
            except RedisError as found:
                error = found
            for each in those:
                if each.done():
                    continue  # cancelled, and written all the same
                if error is None:
                    each.set_result(None)
                else:
                    each.set_exception(error)
    finally:
        writers.clear()


async def handle(task: Task) -> None:
    await note("start", task)
    payload: dict[str, Any] = dict(task.payload or {})
    try:
        await ACTIONS[payload.pop("do", "nothing")](task, **payload)
    except asyncio.CancelledError:
        await note("cancelled", task)
        raise
    await note("end", task)


async def nothing(_task: Task) -> None:
    pass


async def sleep(_task: Task, *, seconds: float) -> None:
    await asyncio.sleep(seconds)


async def bury(_task: Task) -> None:
    raise Bury("never to succeed")


async def hold(_task: Task) -> None:
    """Until the test releases all handlers, and longer than any pod has to stop.

    asyncio.wait_for of Python 3.11, through which the client of Redis sends, loses a cancellation that comes in the
    moment when all is sent: the task has the exact one.
    """
    me = asyncio.current_task()
    while not await redis().exists(OPEN):
        if me is not None and me.cancelling():
            raise asyncio.CancelledError
        await asyncio.sleep(0.1)


async def deaf(task: Task) -> None:
    """The same, despite any cancellation at any time."""
    opened = False
    while not opened:
        try:
            opened = bool(await redis().exists(OPEN))
            await asyncio.sleep(0.1)
        except asyncio.CancelledError:
            await note("ignored", task)


async def devour(_task: Task) -> None:
    """More memory than a worker has."""
    hoard = []
    while True:
        hoard.append(os.urandom(1 << 22))
        await asyncio.sleep(0)


ACTIONS: dict[str, Callable[..., Awaitable[None]]] = {
    each.__name__: each for each in (nothing, sleep, bury, hold, deaf, devour)
}
