"""The options of `delayq run`, and the command lines of its processes."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from delayq.client.document import named
from delayq.connection import Address
from delayq.connection.address import secrets_dir
from delayq.contract.files import RUN_DIR
from delayq.errors import InvalidDocument
from delayq.handlers.credentials import lacking
from delayq.local import app_schedules
from delayq.local.datadir import LOOPBACK
from delayq.local.process import Command
from delayq.processes.missing import Missing, needed

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from delayq.client.document import Document
    from delayq.connection.place import Place
    from delayq.contract import DelayQueue
    from delayq.contract.schedule import DelaySchedule
    from delayq.service.logs import LogFormat

SPEC = "spec"  # in place of a URL: the Redis of spec.redis
REAPER_SECONDS = 300.0  # from one pass of a reaper to the next, as the CronJob's schedule
URL_VARIABLE = "DELAYQ_REDIS_URL"  # other users can read command lines, but not the environment


@dataclass(frozen=True, kw_only=True)
class Served:
    """A queue of a run, and its workers."""

    document: Document
    workers: int
    schedules: Sequence[DelaySchedule] = ()

    @property
    def queue(self) -> DelayQueue:
        """The parsed document."""
        return self.document.queue

    @property
    def place(self) -> tuple[str, str]:
        """Its file, and its name there."""
        return str(self.document.path), self.queue.queue

    @property
    def source(self) -> str:
        """Where its schedules come from; those of other files are not its own."""
        return str(Path(self.document.path).resolve())


@dataclass(frozen=True)
class Helpers:
    """The scanners and the reaper of some queues; each of these processes serves all of them."""

    queues: tuple[Served, ...]
    scanner_names: list[str]
    reaper_names: list[str]

    def label(self, served: Served) -> str:
        """Return how log events of these processes name the queue; empty if they serve no other."""
        return served.queue.queue if self.queues[1:] else ""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """One run of one queue or several."""

    queues: tuple[Served, ...]
    redis_url: str | None  # None: embedded
    data_dir: Path | None  # None: beside the document
    scanners: int  # for each Redis
    reaper: bool
    log_format: LogFormat
    log_level: str
    status_seconds: float | None  # None: 1 s on a terminal, 5 s else
    metrics_port: int | None = None  # of the first process; None: free ones
    host: str = LOOPBACK  # where all servers of the run listen

    @property
    def directories(self) -> list[Path]:
        """Directories of the data of an embedded Redis: where other commands look for the URL of a queue's Redis."""
        paths = [self.data_dir or Path(each.document.path).parent / RUN_DIR for each in self.queues]
        return list(dict.fromkeys(path.absolute() for path in paths))

    @property
    def name(self) -> str:
        """The names of all queues."""
        return ", ".join(each.queue.queue for each in self.queues)

    @property
    def drain_seconds(self) -> int:
        """How long handlers may run on after a signal."""
        return max(each.queue.spec.worker.drain_timeout_seconds for each in self.queues)

    @cached_property
    def helpers(self) -> list[Helpers]:
        """Scanners and reapers: one set for each Redis.

        A queue whose check is in Python has its own: a user's code runs in no process that serves another queue.
        """
        shared: dict[tuple[object, ...], list[Served]] = {}
        for each in self.queues:
            check = each.queue.spec.recovery.check
            own = each.queue.queue if check is not None and check.python is not None else ""
            shared.setdefault((self._redis_of(each), own), []).append(each)
        several = len(shared) > 1
        return [
            Helpers(
                tuple(queues),
                [f"scanner-{at * self.scanners + n + 1}" for n in range(self.scanners)],
                [f"reaper-{at + 1}" if several else "reaper"] if self.reaper else [],
            )
            for at, queues in enumerate(shared.values())
        ]

    @cached_property
    def workers(self) -> dict[str, list[Served]]:
        """Names of the workers, and the queues of each.

        Queues on one Redis that need one worker share it, if their handlers allow it.
        """
        if not self.queues[1:]:
            return {f"worker-{n + 1}": [*self.queues] for n in range(self.queues[0].workers)}
        shared: dict[object, list[Served]] = {}
        for each in self.queues:
            if each.workers == 1 and each.queue.spec.shares_workers:
                shared.setdefault(self._redis_of(each), []).append(each)
        several = [queues for queues in shared.values() if queues[1:]]
        alone = [each for each in self.queues if not any(each in queues for queues in several)]
        return {
            f"{each.queue.queue}/worker-{n + 1}": [each] for each in alone for n in range(each.workers)
        } | {f"worker-{n}": queues for n, queues in enumerate(several, 1)}

    def worker_names(self, served: Served) -> list[str]:
        """Return the workers of a queue."""
        return [name for name, queues in self.workers.items() if served in queues]

    def _redis_of(self, served: Served) -> tuple[object, ...]:
        return where(served.document) if self.redis_url == SPEC else ()

    def commands(self, url: str | None) -> Iterator[tuple[str, Command]]:
        """Yield name and command of each process, workers first; the metrics ports have this order."""
        verbs: list[tuple[str, Sequence[Served], tuple[str, ...]]] = []
        verbs += [(name, queues, ("worker",)) for name, queues in self.workers.items()]
        verbs += [(name, each.queues, ("scanner",)) for each in self.helpers for name in each.scanner_names]
        # Scanners reclaim expired leases: beside them a reaper is needed as rarely as on Kubernetes.
        reaper = ("reaper",) if self.scanners else ("reaper", "--for", "0s")
        verbs += [(name, each.queues, reaper) for each in self.helpers for name in each.reaper_names]
        for number, (name, queues, verb) in enumerate(verbs):
            port = 0 if self.metrics_port is None else self.metrics_port + number
            yield name, self._command(url, port, queues, *verb)

    def checks(self, url: str | None) -> Iterator[Command]:
        """Yield a command for each set of workers, which imports their handlers as they do, and ends."""
        python = (sys.executable, "-P", "-m", "delayq.local.check", str(os.getpid()))
        argvs = {
            (*python, _beside(queues), *(word for each in queues for word in each.place))
            for queues in self.workers.values()
        }
        for argv in sorted(argvs):
            yield Command(argv, _environment(url))

    def app_command(self, served: Served, url: str | None) -> Command | None:
        """Return the command that prints the schedules of the queue's App; None without an App."""
        python = served.queue.spec.handler.python
        if python is None or python.app is None:
            return None
        argv = (sys.executable, "-P", "-m", app_schedules.MODULE, str(os.getpid()), _beside([served]))
        return Command((*argv, served.queue.metadata.name, python.app), _environment(url))

    def _command(self, url: str | None, port: int, queues: Sequence[Served], *verb: str) -> Command:
        python = (sys.executable, "-P", "-m", "delayq.local.child", str(os.getpid()))
        files = list(dict.fromkeys(str(each.document.path) for each in queues))
        names = [each.queue.queue for each in queues] if self.queues[1:] else []
        chosen = [word for name in names for word in ("--queue", name)]
        # Relay filters by level. It needs the `info` events for the status panel.
        level = "debug" if self.log_level == "debug" else "info"
        listening = ("--host", self.host, "--port", str(port))
        options = (*files, *chosen, *listening, "--log-format", "json", "--log-level", level)
        every_seconds = REAPER_SECONDS if verb == ("reaper",) else None
        argv = (*python, _beside(queues), *verb, *options)
        return Command(argv, _environment(url), every_seconds=every_seconds)


def _beside(queues: Sequence[Served]) -> str:
    """Return the directory of the first document, which is on the path of a process."""
    return str(Path(queues[0].document.path).absolute().parent)


def _environment(url: str | None) -> dict[str, str]:
    env = {name: value for name, value in os.environ.items() if name != URL_VARIABLE}
    return env if url is None else env | {URL_VARIABLE: url}


def check_redis(documents: Iterable[Document]) -> None:
    """InvalidDocument if two documents describe one server in different ways."""
    seen: dict[Place, tuple[str, str]] = {}
    for each in documents:
        try:
            address = Address.of(each.queue.spec.redis, secrets_dir(), url=None)
        except InvalidDocument as error:
            raise named(error, each) from error
        what = f"{address.kind} {'without' if address.tls is None else 'with'} TLS"
        for place in address.places:
            other, before = seen.setdefault(place, (each.name, what))
            if before != what:
                raise InvalidDocument(f"{each.name}: spec.redis: {place} is {what}, and {before} in {other}")


def check_files(documents: Iterable[Document]) -> None:
    """InvalidDocument for a mounted file that a process would wait for: here nothing mounts it later."""
    for each in documents:
        of_guard = {each.queue.queue: needed("worker", each.queue, redis=False)}
        if problems := Missing("worker", of_guard, secrets_dir()).problems:
            raise named(InvalidDocument("; ".join(problems)), each)
        if lacks := lacking(each.queue.spec.http_services, secrets_dir()):
            raise named(InvalidDocument("; ".join(lacks)), each)


def where(document: Document) -> tuple[object, ...]:
    """Return what identifies the Redis of spec.redis: its servers, without the login."""
    address = Address.of(document.queue.spec.redis, secrets_dir(), url=None)
    return address.kind, address.master_name, address.places
