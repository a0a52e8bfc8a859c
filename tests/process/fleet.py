"""A queue's processes on one Redis, the ledger of their handlers' runs, and what Redis holds at one instant."""

from __future__ import annotations

import json
import os
import time
from collections import Counter, defaultdict
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple
from urllib.error import HTTPError
from urllib.request import urlopen

import yaml
from delayq import SyncClient
from delayq.protocol.keys import Keys
from prometheus_client.parser import text_string_to_metric_families

from tests.processes import DELAYQ, PATIENCE_SECONDS, Gone, Process, poll_pause
from tests.servers import RedisServer
from tests.upgrade.baselines import naming

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from redis import Redis

    NewFleet = Callable[..., "Fleet"]

HERE = Path(__file__).parent
Role = Literal["worker", "scanner", "reaper"]
# What is read at one instant. Scripts and not MULTI, which a full Redis refuses even for reading.
WHOLE = """
local found = {}
for at = 1, 5 do found[at] = redis.call('ZRANGE', KEYS[at], 0, -1) end
for at = 6, 7 do found[at] = redis.call('HKEYS', KEYS[at]) end
return found
"""
UNSETTLED = """
local found = 0
for _, key in ipairs(KEYS) do found = found + redis.call('ZCARD', key) end
return found
"""
ENDLESS: dict[Role, tuple[str, ...]] = {"worker": (), "scanner": (), "reaper": ("--for", "0s")}


class Entry(NamedTuple):
    """One line of the ledger."""

    event: str
    id: str
    token: int
    attempt: int
    due_ms: int
    at_ms: int
    pid: int


@dataclass
class Fleet:
    """Everything runs the same document; processes that are alive at the end of the test are killed.

    Processes find Redis by --redis, unless `spec` says how to connect.
    """

    server: RedisServer
    dir: Path
    queue: str
    spec: dict[str, Any]
    environment: dict[str, str] = field(default_factory=dict)
    processes: list[Process] = field(default_factory=list)
    forked: bool = True
    """Whether its processes are forks: not if a test is about what others see of them."""

    def __post_init__(self) -> None:
        self.ledger_dir = self.dir / "ledger"
        self.ledger_dir.mkdir()
        self.config = self.dir / "queue.yaml"
        self.keys = Keys("delayq", self.queue, 0)
        spec = {"handler": {"python": {"callable": "recorder:handle"}}} | self.spec
        document = {
            "apiVersion": "delayq.dev/v1alpha1",
            "kind": "DelayQueue",
            "metadata": {"name": self.queue},
            "spec": {"redis": {"standalone": {"host": "127.0.0.1"}}} | spec,
        }
        self.config.write_text(yaml.safe_dump(document))

    def start(self, role: Role, *options: str, ready: bool = True, before: Sequence[str] = ()) -> Process:
        """Start a process; with `ready`, wait until it works. `before` is a command that executes another one."""
        where = () if "redis" in self.spec else ("--redis", self.server.url)
        argv = (*naming(str(self.config), self.environment), *where, "--port", "0", *ENDLESS[role], *options)
        env = {"LEDGER": str(self.ledger_dir), **self.environment}
        start = Process.quick if self.forked else Process.start
        process = start(*before, DELAYQ, role, *argv, env=env, cwd=HERE)
        self.processes.append(process)
        if ready:
            self.wait_ready(process)
        return process

    def start_all(self, *roles: Role) -> list[Process]:
        """Start several at once, and wait until all of them work."""
        processes = [self.start(role, ready=False) for role in roles]
        for process in processes:
            self.wait_ready(process)
        return processes

    def wait_ready(self, process: Process) -> None:
        process.wait_http(url_of(process, "readyz"))

    def client(self) -> SyncClient:
        return SyncClient.from_document(self.config, url=self.server.url)

    def ledger(self) -> list[Entry]:
        """All that handlers wrote so far, in the order it happened."""
        return sorted(self._entries(), key=lambda entry: (entry.at_ms, entry.token))

    def _entries(self) -> Iterator[Entry]:
        for file in self.ledger_dir.glob("*.txt"):
            complete, _, _ = file.read_text().rpartition("\n")  # a line may be seen while it is being written
            for line in complete.splitlines():
                event, task_id, *numbers = line.split()
                yield Entry(event, task_id, *map(int, numbers))

    def starts(self) -> dict[str, list[Entry]]:
        """The runs of each task, in the order they began."""
        found = defaultdict(list)
        for entry in self.ledger():
            if entry.event == "start":
                found[entry.id].append(entry)
        return found

    def entries(self, event: str, task_id: str) -> list[Entry]:
        """Each time that this happened to a task."""
        return [entry for entry in self.ledger() if (entry.event, entry.id) == (event, task_id)]

    def wait_entry(self, event: str, task_id: str, *, nth: int = 1) -> Entry:
        """The nth time that this happened to a task."""
        until(lambda: len(self.entries(event, task_id)) >= nth, f"{event} {task_id}")
        return self.entries(event, task_id)[nth - 1]

    def ended(self) -> set[str]:
        """The tasks whose handler has returned."""
        return {entry.id for entry in self.ledger() if entry.event == "end"}

    def wait_more(self, count: int) -> None:
        """Wait until the ledger has so many more lines."""
        before = len(self.ledger())
        until(lambda: len(self.ledger()) >= before + count, f"{count} more lines in the ledger")

    def stats(self, redis: Redis) -> dict[str, int]:
        found: Any = redis.hgetall(self.keys.stats)
        return defaultdict(int, {name: int(n) for name, n in found.items()})

    def snapshot(self, redis: Redis) -> Snapshot:
        """What Redis holds, at one instant."""
        keys = self.keys
        zsets = (keys.delayed, keys.retry, keys.suspect, keys.processing, keys.dlq)
        found: Any = redis.eval(WHOLE, 7, *zsets, keys.tasks, keys.attempts)
        delayed, retry, suspect, processing, dlq, tasks, attempts = found
        running = [member.rpartition(":")[0] for member in processing]
        return Snapshot(delayed, retry, suspect, running, dlq, set(tasks), set(attempts))

    def wait_drained(self, redis: Redis, *, timeout_s: float = 90) -> None:
        """Until nothing waits and nothing runs: all is done or dead."""
        zsets = (self.keys.delayed, self.keys.retry, self.keys.suspect, self.keys.processing)
        until(lambda: not redis.eval(UNSETTLED, 4, *zsets), "drained", timeout_s=timeout_s)

    def change(self, metadata: dict[str, Any] | None = None, **spec: Any) -> None:  # noqa: ANN401  a document's values
        """Write other values into the document, as its owner does."""
        document = yaml.safe_load(self.config.read_text())
        document["metadata"] |= metadata or {}
        document["spec"] |= spec
        self.config.write_text(yaml.safe_dump(document))

    def waited_for_core_ms(self) -> float:
        """How long the processes, their Redis and the test have waited for a core so far, all threads together.

        What is late by no more than this may be late because of the machine: bounds on lateness allow for it.
        """
        servers = [each.process for each in self.server.all()]
        alive = [each.pid for each in (*self.processes, *servers) if each.alive]
        return sum(map(_run_delay_ms, (os.getpid(), *alive)))

    def kill_all(self) -> None:
        for process in self.processes:
            process.resume()
            if process.alive:
                process.kill()


@dataclass
class Snapshot:
    """Ids by where they are."""

    delayed: list[str]
    retry: list[str]
    suspect: list[str]
    running: list[str]
    dlq: list[str]
    tasks: set[str]
    attempts: set[str]

    def check(self) -> None:
        """Every task that exists is in exactly one place, and nothing else is anywhere."""
        places = [*self.delayed, *self.retry, *self.suspect, *self.running, *self.dlq]
        twice = {each for each, times in Counter(places).items() if times > 1}
        assert not twice, f"in two states: {twice}"
        assert set(places) == self.tasks, f"in none or unknown: {set(places) ^ self.tasks}"
        assert self.attempts <= self.tasks - set(self.dlq), "attempts of tasks that are done or dead"


def until(condition: Callable[[], object], what: str, *, timeout_s: float = PATIENCE_SECONDS) -> float:
    """Wait for something that no event announces; returns the seconds it took."""
    started = time.monotonic()
    while not condition():
        if time.monotonic() - started > timeout_s:
            raise Gone(f"not within {timeout_s:g} s: {what}")
        time.sleep(poll_pause(time.monotonic() - started, 0.01))
    return time.monotonic() - started


def _run_delay_ms(pid: int) -> float:
    found = 0.0
    for file in Path(f"/proc/{pid}/task").glob("*/schedstat"):
        with suppress(FileNotFoundError, ProcessLookupError):  # the thread has just ended
            found += int(file.read_text().split()[1]) / 1e6
    return found


def said(process: Process, event: str) -> list[dict[str, Any]]:
    """The log events of this name so far."""
    return [line for line in _events(process.lines) if line["event"] == event]


def _events(lines: Iterable[str]) -> Iterator[dict[str, Any]]:
    for line in list(lines):
        with suppress(ValueError):
            found = json.loads(line)
            if isinstance(found, dict) and "event" in found:
                yield found


def led_by(scanner: Process) -> set[int]:
    """The shards that a scanner leads, by its own view."""
    found: set[int] = set()
    for line in _events(scanner.lines):
        if line["event"] == "leadership_acquired":
            found.add(line["shard"])
        elif line["event"] == "leadership_lost":
            found.discard(line["shard"])
    return found


def wait_said(
    process: Process, event: str, *, timeout_s: float = PATIENCE_SECONDS, after: int = 0
) -> dict[str, Any]:
    """The first event of this name from line number `after` on."""
    line = process.wait_line(rf'"event": "{event}"', timeout_s=timeout_s, after=after)
    found: dict[str, Any] = json.loads(line)
    return found


def url_of(process: Process, path: str) -> str:
    return f"http://127.0.0.1:{wait_said(process, 'started')['port']}/{path}"


def samples(process: Process, url: str | None = None) -> dict[str, list[tuple[dict[str, str], float]]]:
    """Labels and values that one scrape brings, by the name of the metric."""
    text = process.wait_http(url or url_of(process, "metrics")).decode()
    return {
        family.name: [(sample.labels, sample.value) for sample in family.samples]
        for family in text_string_to_metric_families(text)
    }


def shards_down(scanner: Process) -> dict[int, int]:
    """The shards that a scanner is not served with, and the port of the server that it says they are on."""
    return {
        int(labels["shard"]): int(labels["server"].rpartition(":")[2] or 0)
        for labels, value in samples(scanner).get("delayq_shard_down", ())
        if value == 1
    }


def readiness(process: Process) -> str:
    """What /readyz says."""
    try:
        with urlopen(url_of(process, "readyz"), timeout=10) as answer:  # noqa: S310 -- our own process
            return str(answer.read(), "utf-8")
    except HTTPError as error:
        return error.read().decode()


def status(process: Process, path: str) -> int:
    """The HTTP status of a probe, without a check."""
    try:
        with urlopen(url_of(process, path), timeout=10) as answer:  # noqa: S310  our own process
            return int(answer.status)
    except HTTPError as error:
        error.close()
        return error.code


@contextmanager
def fleets(directory: Path, flavour: str, queue: str) -> Iterator[NewFleet]:
    """Give a function that makes fleets; their processes and servers end with the block."""
    made: list[Fleet] = []
    servers: list[RedisServer] = []

    def make(
        spec: dict[str, Any] | None = None,
        *,
        environment: dict[str, str] | None = None,
        server: RedisServer | None = None,
        forked: bool = True,
        **options: Any,  # noqa: ANN401  RedisServer.start's
    ) -> Fleet:
        home = directory / f"fleet-{len(made)}"
        home.mkdir()
        if server is None:
            server = RedisServer.start(flavour, dir=home / "redis", **{"appendonly": True, **options})
            servers.append(server)
        made.append(Fleet(server, home, queue, spec or {}, environment or {}, forked=forked))
        return made[-1]

    try:
        yield make
    finally:
        for fleet in made:
            fleet.kill_all()
        for server in servers:
            server.stop()


def check_runs(starts: Mapping[str, list[Entry]]) -> None:
    """What holds for every task however often it ran: never early, and a greater token each time."""
    for task_id, runs in starts.items():
        early = [run for run in runs if run.at_ms < run.due_ms]
        assert not early, f"{task_id} started early: {early}"
        tokens = [run.token for run in runs]
        assert tokens == sorted(set(tokens)), f"{task_id}: tokens do not rise: {runs}"
