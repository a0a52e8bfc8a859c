"""The handlers under test: every start and end is in the ledger before anything else happens.

Runs inside the worker processes, with this directory as the current one. One file per process, opened with O_APPEND
and written without a buffer, so a SIGKILL takes nothing back. A task's payload says what to do: {"do": name, …}.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from delayq.errors import Bury, Retry
from redis import Redis

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from delayq.protocol.envelope import Task

LEDGER = Path(os.environ["LEDGER"])
_ledger = os.open(LEDGER / f"{os.getpid()}.txt", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
# Redis reads the clock of this machine, so that is asked: it answers while Redis is down, too. Only a Redis whose
# clock a test moves has to be asked itself.
_clock = Redis.from_url(os.environ["LEDGER_CLOCK"]) if "LEDGER_CLOCK" in os.environ else None
_BASE = {each.__name__: each for each in (SystemExit, KeyboardInterrupt, GeneratorExit, BaseException)}


class UnknownError(BaseException):
    """Something no framework has a rule for."""


def now_ms() -> int:
    if _clock is None:
        return time.time_ns() // 1_000_000
    seconds, micros = _clock.time()
    return int(seconds) * 1000 + int(micros) // 1000


def note(event: str, task: Task) -> None:
    line = f"{event} {task.id} {task.token} {task.attempt} {task.due_ms} {now_ms()} {os.getpid()}\n"
    os.write(_ledger, line.encode())


async def handle(task: Task) -> None:
    note("start", task)
    payload: dict[str, Any] = dict(task.payload or {})
    try:
        await ACTIONS[payload.pop("do", "nothing")](task, **payload)
    except asyncio.CancelledError:
        note("cancelled", task)
        raise
    note("end", task)


async def handle_any(task: Task) -> None:
    """Bytes are no orders: only the run is noted."""
    if isinstance(task.payload, bytes):
        note("start", task)
        note("end", task)
    else:
        await handle(task)


def handle_sync(task: Task) -> None:
    """A plain function: the worker gives it a thread."""
    note("start", task)
    payload: dict[str, Any] = dict(task.payload or {})
    time.sleep(payload.get("seconds", 0))
    if payload.get("fork"):
        child = os.fork()
        if not child:
            note("child", task)
            return
        note(f"exited-{os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])}", task)
    if payload.get("do") == "break_threads":
        sys.excepthook = None  # type: ignore[assignment]  # as hostile code does
    if "error" in payload:
        raise _BASE.get(payload["error"], ValueError)("sync")
    note("end", task)


async def nothing(_task: Task) -> None:
    pass


async def fork(task: Task, *, awaits: bool = False) -> None:
    """The child forgets to end, and the parent waits for it."""
    child = os.fork()
    if not child:
        note("child", task)
        if awaits:
            await asyncio.sleep(0)
        return
    _, status = await asyncio.to_thread(os.waitpid, child, 0)
    note(f"exited-{os.waitstatus_to_exitcode(status)}", task)


async def stop_loop(_task: Task) -> None:
    asyncio.get_running_loop().stop()
    await asyncio.sleep(0)


async def ignore_signals(_task: Task) -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)


async def sleep(_task: Task, *, seconds: float) -> None:
    await asyncio.sleep(seconds)


async def fail(task: Task, *, times: int = 1_000_000) -> None:
    if task.attempt <= times:
        raise ValueError(f"attempt {task.attempt} fails as it should")


async def bury(_task: Task) -> None:
    raise Bury("never to succeed")


async def retry(task: Task, *, delay_ms: int, charge: bool = True) -> None:
    """Until a file of the task's name appears beside the ledger."""
    if not (LEDGER / f"{task.id}.enough").exists():
        raise Retry("not yet", delay_ms=delay_ms, charge=charge)


async def swallow(task: Task, *, seconds: float) -> None:
    """Cancel me, and I return as if all were well."""
    try:
        await asyncio.sleep(seconds)
    except asyncio.CancelledError:
        note("swallowed", task)


async def ignore(task: Task, *, seconds: float) -> None:
    """Cancel me as often as you like."""
    deadline = time.monotonic() + seconds
    while (left := deadline - time.monotonic()) > 0:
        try:
            await asyncio.sleep(left)
        except asyncio.CancelledError:
            note("ignored", task)


async def block(_task: Task, *, seconds: float) -> None:
    """What a coroutine must not do: hold the event loop."""
    time.sleep(seconds)  # noqa: ASYNC251  on purpose


async def throw(task: Task, *, error: str) -> None:
    if task.attempt > 1:
        return
    if error == "CancelledError":
        raise asyncio.CancelledError
    raise _BASE.get(error, UnknownError)(f"{error} from a handler")


async def hang_once(task: Task) -> None:
    """Until this worker is killed; the next one is done at once."""
    if task.attempt == 1:
        await asyncio.sleep(600)


async def exit_(_task: Task) -> None:
    """End the process, as a segmentation fault does or the kernel without memory."""
    os._exit(3)


ACTIONS: dict[str, Callable[..., Awaitable[None]]] = {
    each.__name__: each
    for each in (
        *(nothing, fork, stop_loop, sleep, fail, bury, retry, swallow, ignore, block, throw),
        *(hang_once, exit_, ignore_signals),
    )
}
