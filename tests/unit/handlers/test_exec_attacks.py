"""exec handlers against commands that misbehave: nothing outlives its task, nothing fills memory."""

from __future__ import annotations

import asyncio
import os
import sys
import tracemalloc
from typing import TYPE_CHECKING, Any

import pytest
from delayq.handlers.exec import ExecFailed

from tests.unit.handlers.commands import command, shell
from tests.unit.handlers.support import PATIENCE_SECONDS, a_task

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from delayq.handlers.exec import ExecHandler

    from tests.unit.handlers.support import Lifeline

HOLD = 'exec 9>"$1"; '  # a process with descriptor 9 keeps the lifeline open
READY = "echo ready >&9; "
FOR_EVER = "while :; do sleep 3600; done"


async def cancel_once_ready(handler: ExecHandler, lifeline: Lifeline) -> asyncio.Task[None]:
    running = asyncio.ensure_future(handler.call(a_task()))
    assert await lifeline.line() == "ready"
    running.cancel()
    return running


async def test_a_cancelled_command_is_asked_to_end_first(lifeline: Lifeline) -> None:
    script = HOLD + 'trap "echo cleaned up >&9; exit 0" TERM; ' + READY + "sleep 3600 & wait"
    async with shell(script, str(lifeline.path)) as handler:
        running = await cancel_once_ready(handler, lifeline)
        assert await lifeline.line() == "cleaned up"
        with pytest.raises(asyncio.CancelledError):
            await running
        await lifeline.ended()


async def test_a_command_that_ignores_sigterm_is_killed_after_the_grace(lifeline: Lifeline) -> None:
    script = HOLD + f'trap "" TERM; {READY} {FOR_EVER} & exec cat /dev/zero'  # also while its output is read
    async with shell(script, str(lifeline.path), grace_seconds=0.1) as handler:
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(await cancel_once_ready(handler, lifeline), PATIENCE_SECONDS)
        await lifeline.ended()


async def test_a_second_cancellation_kills_at_once(lifeline: Lifeline) -> None:
    script = HOLD + f'trap "echo termed >&9" TERM; {READY} {FOR_EVER}'
    async with shell(
        script.replace("sleep 3600", "sleep 0.01"), str(lifeline.path), grace_seconds=3600
    ) as handler:
        running = await cancel_once_ready(handler, lifeline)
        assert await lifeline.line() == "termed"
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        await lifeline.ended()


async def test_a_call_cancelled_as_it_starts_leaves_nothing(lifeline: Lifeline) -> None:
    async with shell(HOLD + FOR_EVER, str(lifeline.path)) as handler:
        running = asyncio.ensure_future(handler.call(a_task()))
        await asyncio.sleep(0)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
    lifeline.close_own()
    await lifeline.ended()


async def test_grandchildren_end_with_the_command(lifeline: Lifeline) -> None:
    """A command that puts work into the background and exits 0 has acked: what it left is killed."""
    async with shell(HOLD + READY + f"({FOR_EVER}) & exit 0", str(lifeline.path)) as handler:
        await handler.call(a_task())
        assert await lifeline.line() == "ready"
        await lifeline.ended()


async def test_a_grandchild_that_got_away_with_the_pipes_does_not_hold_the_slot(
    lifeline: Lifeline,
) -> None:
    """A daemon in a session of its own cannot be found, but the task is settled without it."""
    daemon = "setsid sh -c 'echo $$ >&9; while :; do sleep 3600; done' & read -r _ < \"$2\"; exit 3"
    gate = lifeline.path.with_name("gate")
    os.mkfifo(gate)
    async with shell(HOLD + READY + daemon, str(lifeline.path), str(gate)) as handler:
        running = asyncio.ensure_future(handler.call(a_task()))
        assert await lifeline.line() == "ready"
        daemon_group = int(await lifeline.line())
        try:
            await asyncio.to_thread(gate.write_text, "go\n")
            with pytest.raises(ExecFailed, match="exit code 3"):
                await asyncio.wait_for(running, PATIENCE_SECONDS)
        finally:
            os.killpg(daemon_group, 9)
    await lifeline.ended()


async def test_a_flood_of_output_is_read_dropped_and_counted(
    events: Callable[[str], list[dict[str, Any]]],
) -> None:
    """64 MiB on both streams never block the command; the log keeps the end, memory its bound."""
    script = "head -c 33554432 /dev/zero; head -c 33554432 /dev/zero >&2; echo the end >&2; exit 1"
    async with shell(script, maxOutputBytes=1000) as handler:
        tracemalloc.start()
        with pytest.raises(ExecFailed, match="the end"):
            await handler.call(a_task())
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    [event] = events("command_exited")
    assert len(event["output"]) == 1000
    assert event["output_dropped_bytes"] == 64 * 1024 * 1024 + len("the end\n") - 1000
    assert peak < 8 * 1024 * 1024


async def test_no_descriptor_of_the_worker_reaches_a_command(tmp_path: Path) -> None:
    script = "import os, sys; open(sys.argv[1], 'w').write(' '.join(sorted(os.listdir('/proc/self/fd'))))"
    async with command(sys.executable, "-c", script, str(tmp_path / "fds")) as handler:
        await handler.call(a_task())
    assert set((tmp_path / "fds").read_text().split()) <= {"0", "1", "2", "3", "4"}
