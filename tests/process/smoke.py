"""Schedules 20 tasks and has `delayq run` handle them: `python smoke.py REDIS_URL`, in an empty directory.

Run by test_wheel.py with an interpreter that has the wheel and nothing of this source tree, so it imports
nothing from the tests.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

from delayq import SyncClient

TASKS = 20
DOCUMENT = """\
apiVersion: delayq.dev/v1alpha1
kind: DelayQueue
metadata: {name: smoke}
spec:
  redis: {standalone: {host: given-by-option}}
  handler: {python: {callable: "smoke_handler:note"}}
"""
# One line per task: when it was due, and when it ran.
HANDLER = """\
import time
from pathlib import Path

async def note(task):
    with Path("handled.txt").open("a") as out:
        out.write(f"{task.payload['task']} {task.due_ms} {time.time_ns() // 1_000_000}\\n")
"""


def handled() -> list[list[int]]:
    out = Path("handled.txt")
    return (
        [[int(word) for word in line.split()] for line in out.read_text().splitlines()]
        if out.exists()
        else []
    )


def wait_for_all(runner: subprocess.Popen[bytes], deadline_s: float) -> None:
    while len(handled()) < TASKS:
        if runner.poll() is not None or time.monotonic() > deadline_s:
            sys.exit(f"handled {len(handled())} of {TASKS} tasks; delayq run: {runner.poll()}")
        time.sleep(0.05)


def main(url: str) -> None:
    Path("queue.yaml").write_text(DOCUMENT)
    Path("smoke_handler.py").write_text(HANDLER)
    command = [str(Path(sys.executable).with_name("delayq")), "run", "queue.yaml", "--redis", url]
    with subprocess.Popen(command, stdout=sys.stderr) as runner:
        try:
            with SyncClient(url, queue="smoke") as client:
                for task in range(TASKS):
                    client.schedule({"task": task}, delay_ms=task * 50)
            wait_for_all(runner, time.monotonic() + 60)
        finally:
            runner.terminate()
    early = sum(ran_ms < due_ms for _, due_ms, ran_ms in handled())
    print(json.dumps({"handled": len({task for task, *_ in handled()}), "early": early}))


if __name__ == "__main__":
    main(sys.argv[1])
