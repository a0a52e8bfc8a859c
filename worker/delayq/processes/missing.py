"""Waits, before a process begins, for the keys of Secrets and ConfigMaps that it reads when it begins.

The volume of a pod is optional, and a kubelet mounts a key that is created later within a minute or two. Until then the
process is not ready, and its metrics name the key. Not here: keys of HTTP services, which a worker waits for while
it runs (worker/awaited_files.py), and without which a check gives no verdict.
"""

from __future__ import annotations

import asyncio
import logging
import os
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Final

from delayq.contract.files import DATABASE_URL
from delayq.contract.references import references
from delayq.errors import InvalidDocument
from delayq.processes.signals import signals
from delayq.protocol.alarm import Alarm
from delayq.service import metrics
from delayq.service.counters import ProcessCounters
from delayq.service.loop import Loop
from delayq.service.probes import Probes

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence
    from pathlib import Path

    from delayq.contract import DelayQueue
    from delayq.contract.files import Reference
    from delayq.processes.runtime import Setting
    from delayq.service.exposition import Family

log = logging.getLogger(__name__)

LOOK_SECONDS: Final = 1.0
HINT: Final = "mount it there, or set $DELAYQ_SECRETS_DIR to the directory of the Secrets"


def needed(process: str, queue: DelayQueue, *, redis: bool) -> dict[Reference, str]:
    """Return the references that a process begins with, and their paths; `redis`: whether it uses spec.redis."""
    found = list(references(queue.spec.redis, "spec.redis")) if redis else []
    if _uses_guard(process, queue):
        found += references(queue.spec.guard, "spec.guard")
    if process == "api" and queue.spec.api is not None:
        found += references(queue.spec.api.tls, "spec.api.tls")
    return {each: path for path, each in found}


def _uses_guard(process: str, queue: DelayQueue) -> bool:
    guard, check = queue.spec.guard, queue.spec.recovery.check
    if guard is None or guard.sql is None:
        return process == "worker"
    asks = process == "scanner" and check is not None and check.guard is not None
    return DATABASE_URL not in os.environ and (asks or process in {"worker", "reaper"})


class Missing:
    """The keys that one process lacks: a process with one service, which looks for them."""

    name, blocks = "missing_references", False

    def __init__(self, process: str, needed: Mapping[str, dict[Reference, str]], secrets_dir: Path) -> None:
        """Look for the first time. `needed`: by queue, references and their paths in the document."""
        self._needed, self._secrets_dir = needed, secrets_dir
        self.alarm, self.found = Alarm(), asyncio.Event()
        self.loops = (Loop(self, ProcessCounters(process, ", ".join(needed))),)
        self.look()

    def look(self) -> None:
        """Look for the files."""
        self.by_queue = {
            queue: [each for each in keys if not each.file(self._secrets_dir).exists()]
            for queue, keys in self._needed.items()
        }

    @property
    def problems(self) -> list[str]:
        """What is expected, and where."""
        return [
            f"{self._needed[queue][each]}: expected {each} as the file {each.file(self._secrets_dir)}, found none; "
            f"{HINT}{_instead(self._needed[queue][each])}"
            for queue, found in self.by_queue.items()
            for each in found
        ]

    @property
    def waits_for(self) -> str:
        """The same for the readiness probe."""
        return "; ".join(self.problems)

    async def step(self) -> float:
        """Look again."""
        self.look()
        if not self.problems:
            self.found.set()
        return LOOK_SECONDS


def _instead(path: str) -> str:
    """Return the environment variable that makes a reference needless, for a hint."""
    return f"; or set ${DATABASE_URL} instead" if path.endswith(".databaseSecretRef") else ""


async def wait(process: str, settings: Sequence[Setting], patience_seconds: float | None = None) -> None:
    """Return when nothing is missing. InvalidDocument after SIGTERM, SIGINT or `patience_seconds`."""
    by_queue = {each.queue.queue: needed(process, each.queue, redis=each.url is None) for each in settings}
    missing = Missing(process, by_queue, settings[0].secrets_dir)
    if not missing.problems:
        return
    async with signals() as (stop, _), _served(missing, settings[0]):
        for problem in missing.problems:
            log.error("secret_awaited", extra={"fields": {"problem": problem}})
        await _either(missing.found, stop, patience_seconds)
    if missing.problems:
        raise InvalidDocument("; ".join(missing.problems))
    log.info("secrets_found")


@asynccontextmanager
async def _served(missing: Missing, setting: Setting) -> AsyncIterator[None]:
    """Look again and again, and answer the kubelet and the operator meanwhile."""

    async def families(_horizons: object) -> list[Family]:
        return [metrics.missing_references(missing.by_queue)]

    [loop] = missing.loops
    looking, probes = asyncio.create_task(loop.run()), Probes(missing, families)
    async with AsyncExitStack() as stack:
        stack.callback(looking.cancel)
        for port, server in (
            (setting.port, probes.server()),
            (setting.horizons_port, probes.horizons_server()),
        ):
            if port is not None:
                stack.push_async_callback(server.close)
                await server.start(setting.host, port)
        yield


async def _either(found: asyncio.Event, stop: asyncio.Event, seconds: float | None) -> None:
    """Wait for one of two events, for so long at most."""
    tasks = [asyncio.create_task(each.wait()) for each in (found, stop)]
    await asyncio.wait(tasks, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    for task in tasks:
        task.cancel()
