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
# One line per task: how late it ran.
HANDLER = """\
import time
from pathlib import Path

async def note(task):
    with Path("handled.txt").open("a") as out:
        out.write(f"{time.time_ns() // 1_000_000 - task.due_ms}\\n")
"""


def main(url: str) -> None:
    Path("queue.yaml").write_text(DOCUMENT)
    Path("smoke_handler.py").write_text(HANDLER)
    handled = Path("handled.txt")
    handled.touch()
    command = [str(Path(sys.executable).with_name("delayq")), "run", "queue.yaml", "--redis", url]
    with subprocess.Popen(command, stdout=sys.stderr) as runner:
        try:
            with SyncClient(url, queue="smoke") as client:
                for task in range(TASKS):
                    client.schedule({"task": task}, delay_ms=task * 50)
            deadline = time.monotonic() + 60
            while handled.read_text().count("\n") < TASKS:
                if runner.poll() is not None or time.monotonic() > deadline:
                    sys.exit(f"delayq run, which ended with {runner.poll()}, handled: {handled.read_text()}")
                time.sleep(0.05)
        finally:
            runner.terminate()
    late_ms = [int(line) for line in handled.read_text().splitlines()]
    print(json.dumps({"handled": len(late_ms), "early": sum(each < 0 for each in late_ms)}))


if __name__ == "__main__":
    main(sys.argv[1])
