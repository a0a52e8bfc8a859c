"""Three queues at work on a Redis of their own: what the pictures of the documentation show."""

from __future__ import annotations

import random
import tempfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Final

from delayq import NewTask, SyncClient

from tests.processes import delayq
from tests.servers import RedisServer

ROOT: Final = Path(__file__).parents[2]

if TYPE_CHECKING:
    from collections.abc import Iterator

QUEUES: Final = {"orders": 400, "invoices": 40, "reminders": 4}
"""Names, and how many tasks a second are scheduled."""
PORTS: Final = {name: 19_100 + 10 * number for number, name in enumerate(QUEUES)}
"""First metrics port of each queue: the worker's; the scanner has the next one."""
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


def _schedule(clients: dict[str, SyncClient], stop: Event) -> None:
    """Schedule tasks that are due at once, soon, and later, at the rates of QUEUES."""
    chance = random.Random(7)  # noqa: S311 -- which tasks are due when
    while not stop.wait(0.1):
        for name, rate in QUEUES.items():
            count = rate // 10 or chance.random() < rate / 10
            clients[name].schedule_many(
                NewTask({}, delay_ms=chance.choice((0, 2_000, 30_000, 600_000))) for _ in range(count)
            )


@contextmanager
def queues_at_work() -> Iterator[str]:
    """Run QUEUES and schedule tasks until the block ends; gives the URL of their Redis."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        redis = RedisServer.start("7.0", dir=folder)
        stack.callback(redis.stop)
        (folder / "handlers.py").write_text(HANDLERS)
        clients = {name: stack.enter_context(SyncClient(redis.url, queue=name)) for name in QUEUES}
        for name, port in PORTS.items():
            document = folder / f"{name}.yaml"
            document.write_text(DOCUMENT.format(name=name))
            options = (f"--redis={redis.url}", f"--data-dir={folder}/{name}", f"--metrics-port={port}")
            run = delayq("run", str(document), *options, cwd=folder)
            stack.callback(run.stop)
            run.wait_line(r"1 of 1 up|^worker +\d+ slots")
        pool = stack.enter_context(ThreadPoolExecutor(1))
        stop = Event()
        stack.callback(stop.set)
        pool.submit(_schedule, clients, stop)
        yield redis.url
