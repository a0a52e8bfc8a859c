"""A process ends, even if a part of it hangs."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.processes import PATIENCE_SECONDS

FRAME = """
import asyncio, logging, sys, threading, time
from delayq.service import logs, shutdown
logs.configure("json", "info")
shutdown.EXIT_SECONDS = 0.2

async def deaf():
    while True:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            pass

async def exits():
    sys.exit("from a task that a handler left behind")

def hold_the_log():
    logging.getLogger().handlers[0].acquire()
    time.sleep(3600)

async def main():
    loop, left = asyncio.get_running_loop(), []
    {body}
    print("done", flush=True)

shutdown.run(main())
"""
A_DEAF_TASK = "left.append(loop.create_task(deaf())); "
HANGS = {
    "a_thread_of_the_executor": "loop.run_in_executor(None, time.sleep, 3600)",
    "a_thread": "threading.Thread(target=time.sleep, args=(3600,)).start()",
    "the_log": "threading.Thread(target=hold_the_log).start()",
    "task_that_exits": "left.append(loop.create_task(exits())); await asyncio.sleep(0.01)",
    "loop_stopped_beside_a_deaf_task": A_DEAF_TASK + "loop.stop(); await asyncio.sleep(0)",
}
LEAVING = """
import sys
from delayq.service import shutdown
print("the handler's last word")
sys.stderr.write("and its last error")
shutdown.leave()
"""


def run(code: str) -> subprocess.CompletedProcess[str]:
    buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    argv = [sys.executable, "-c", code]
    return subprocess.run(
        argv, env=buffered, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False
    )


@pytest.mark.parametrize("body", HANGS.values(), ids=HANGS)
def test_a_process_that_is_done_ends_even_if_a_thread_hangs(body: str) -> None:
    """With the exit code of its work; what stopped the event loop stopped nothing else."""
    process = run(FRAME.format(body=body))
    assert (process.returncode, process.stdout) == (0, "done\n"), process.stderr


def test_a_process_that_fails_ends_with_1_even_if_a_thread_hangs() -> None:
    process = run(FRAME.format(body=f"{HANGS['a_thread']}; raise ValueError('failed')"))
    assert (process.returncode, process.stdout) == (1, "")


def test_a_process_that_does_not_get_around_to_its_end_is_ended() -> None:
    process = run(FRAME.format(body="shutdown.end_within(0.2, 1); time.sleep(3600)"))
    assert process.returncode == 1
    assert "exit_forced" in process.stderr


def test_a_process_that_leaves_at_once_prints_first_what_it_had_to_say() -> None:
    """And a closed stdout does not keep it."""
    left = run(LEAVING)
    assert (left.stdout, left.stderr) == ("the handler's last word\n", "and its last error")
    assert run("import os\nos.close(1)\n" + LEAVING).stderr == "and its last error"
