#!/usr/bin/env python3
"""Draw docs/images/top.svg from a real `delayq top`: `.venv/bin/python tools/top-picture.py`.

Three queues run on a Redis of their own while tasks are scheduled. It takes half a minute.
"""

from __future__ import annotations

import os
import pty
import random
import re
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event

from delayq import NewTask, SyncClient
from rich.console import Console
from rich.text import Text

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))
from tests.processes import DELAYQ, delayq  # noqa: E402 -- after the path is known
from tests.servers import RedisServer  # noqa: E402 -- as above

FILE = ROOT / "docs" / "images" / "top.svg"
QUEUES = {"orders": 400, "invoices": 40, "reminders": 4}
"""Names, and how many tasks a second are scheduled."""
SECONDS, WIDTH = 20, 64
HANDLERS = """
import asyncio, random
async def handle(task):
    await asyncio.sleep(random.uniform(0.01, 0.1))
    if random.random() < 0.02:
        raise RuntimeError("the service answered 500")
"""
DOCUMENT = """
apiVersion: delayq.dev/v1alpha1
kind: DelayQueue
metadata: {{name: {name}}}
spec:
  redis: {{standalone: {{host: redis}}}}
  handler: {{python: {{callable: "handlers:handle"}}}}
  delivery: {{maxAttempts: 2}}
"""


def shown(*command: str) -> str:
    """What the command prints on a terminal."""
    ours, theirs = pty.openpty()
    environment = os.environ | {"TERM": "xterm-256color", "COLUMNS": str(WIDTH)}
    process = subprocess.Popen(command, stdout=theirs, stderr=theirs, stdin=theirs, env=environment)  # noqa: S603 -- ours
    os.close(theirs)
    output = b""
    try:
        while chunk := os.read(ours, 4096):
            output += chunk
    except OSError:  # the terminal is closed
        pass
    os.close(ours)
    if process.wait():
        raise SystemExit(output.decode())
    return output.decode().replace("\r\n", "\n")


def schedule(clients: dict[str, SyncClient], seen: Event) -> None:
    """Tasks that are due at once, soon, and later, as fast as QUEUES says, until the picture is made."""
    chance = random.Random(7)  # noqa: S311 -- which tasks are due when
    while not seen.wait(0.1):
        for name, rate in QUEUES.items():
            count = rate // 10 or chance.random() < rate / 10
            clients[name].schedule_many(
                NewTask({}, delay_ms=chance.choice((0, 2_000, 30_000, 600_000))) for _ in range(count)
            )


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        redis = RedisServer.start("7.0", dir=Path(folder))
        (Path(folder) / "handlers.py").write_text(HANDLERS)
        runs = []
        for name in QUEUES:
            document = Path(folder) / f"{name}.yaml"
            document.write_text(DOCUMENT.format(name=name))
            data = f"--data-dir={folder}/{name}"
            runs.append(delayq("run", str(document), f"--redis={redis.url}", data, cwd=Path(folder)))
        clients = {name: SyncClient(redis.url, queue=name) for name in QUEUES}
        try:
            for client in clients.values():
                client.open()
            for run in runs:
                run.wait_line(r"1 of 1 up|^worker +\d+ slots")
            with ThreadPoolExecutor(1) as pool:
                scheduling = pool.submit(schedule, clients, seen := Event())
                time.sleep(SECONDS)
                output = shown(DELAYQ, "top", *QUEUES, f"--redis={redis.url}", "--once")
                seen.set()
                scheduling.result()
        finally:
            for client in clients.values():
                client.close()
            for run in runs:
                run.stop()
            redis.stop()
    console = Console(record=True, width=WIDTH)
    console.print(Text.from_ansi(output))
    picture = console.export_svg(title=f"delayq top {' '.join(QUEUES)}")
    FILE.write_text(
        re.sub(r"@font-face \{.*?\}\s*|<!--.*?-->\s*", "", picture, flags=re.DOTALL)
    )  # fonts of the reader


if __name__ == "__main__":
    main()
