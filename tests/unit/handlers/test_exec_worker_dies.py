"""exec handlers when the worker cannot clean up itself: killed, or process 1 of a container."""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.unit.handlers.support import PATIENCE_SECONDS

if TYPE_CHECKING:
    from tests.unit.handlers.support import Lifeline

ROOT = Path(__file__).parents[3]

WORKER = """
import asyncio, sys
from tests.unit.handlers.commands import shell
from tests.unit.handlers.support import a_task
async def main():
    async with shell(sys.argv[2], sys.argv[1]) as handler:
        await handler.call(a_task())
asyncio.run(main())
"""

INHERITS_ORPHANS = """
import asyncio, ctypes, os, sys, time
from tests.unit.handlers.commands import shell
from tests.unit.handlers.support import a_task
PR_SET_CHILD_SUBREAPER = 36
async def main():
    async with shell("sleep 3600 & sleep 3600 & exit 0") as handler:
        for _ in range(5):
            await handler.call(a_task())
        patience = time.monotonic() + 10
        while handler._groups.ended and time.monotonic() < patience:
            await handler.call(a_task(b"", task_id="next"))
    try:
        sys.exit(f"left: {os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG)}")
    except ChildProcessError:
        print("no children left")
assert ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0
asyncio.run(main())
"""

IGNORES_CHILDREN = """
import asyncio, signal
from tests.unit.handlers.commands import shell
from tests.unit.handlers.support import a_task
async def main():
    async with shell("exit 3") as handler:
        try:
            await handler.call(a_task())
        except Exception as error:
            print(error)
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
asyncio.run(main())
"""


async def python(source: str, *arguments: str) -> asyncio.subprocess.Process:
    pipe = asyncio.subprocess.PIPE
    return await asyncio.create_subprocess_exec(
        sys.executable, "-c", source, *arguments, cwd=ROOT, stdout=pipe
    )


@pytest.mark.parametrize("script", ["exec sleep 3600", "trap '' TERM HUP; sleep 3600 & wait"])
async def test_commands_die_with_a_killed_worker(lifeline: Lifeline, script: str) -> None:
    payload_read = 'exec 9>"$1"; cat >&9; echo >&9; '
    worker = await python(WORKER, str(lifeline.path), payload_read + script)
    assert await lifeline.line() == '{"order":7}'
    worker.send_signal(signal.SIGKILL)
    await lifeline.ended()
    await worker.communicate()


async def test_a_worker_that_inherits_orphans_collects_them() -> None:
    """As process 1 of a container it becomes the parent of killed grandchildren: no zombies pile up."""
    worker = await python(INHERITS_ORPHANS)
    async with asyncio.timeout(PATIENCE_SECONDS):
        out, _ = await worker.communicate()
    assert (worker.returncode, out.decode().strip()) == (0, "no children left")


async def test_exit_codes_are_seen_though_the_worker_was_started_with_sigchld_ignored() -> None:
    worker = await python(IGNORES_CHILDREN)
    async with asyncio.timeout(PATIENCE_SECONDS):
        out, _ = await worker.communicate()
    assert out.decode().strip() == "exit code 3"
