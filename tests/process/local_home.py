"""A directory for `delayq run` to work in, and the account of every process that a run in it has had."""

from __future__ import annotations

import json
import socket
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from delayq import SyncClient

from tests.processes import DELAYQ, Process, poll_pause

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


QUEUE = """\
apiVersion: delayq.dev/v1alpha1
kind: DelayQueue
metadata: {name: shop}
spec:
  redis: {standalone: {host: not-used-here}}
  handler: {python: {callable: "shop_handlers:HANDLER"}}
  worker: {drainTimeoutSeconds: 20}
"""
HANDLERS = """\
import asyncio, os
from pathlib import Path
HERE = Path(__file__).parent

def note(task):
    with (HERE / "handled").open("a") as out:
        out.write(f"{task.id} {task.attempt}\\n")

async def keep(task):
    print("handling", task.id)
    if task.id == "hang":
        await hang(task)
    if task.id == "slow":
        (HERE / "hanging").touch()
        while not (HERE / "released").exists():
            await asyncio.sleep(0.02)
    note(task)

async def hang(task):
    (HERE / "hanging").touch()
    try:
        await asyncio.sleep(600)
    finally:
        (HERE / "let-go").touch()

def deaf(task):
    (HERE / "hanging").touch()
    import time
    while True:
        try:
            time.sleep(600)
        except BaseException:
            pass
"""


def until(true: Callable[[], Any], what: str, timeout_s: float = 30) -> Any:  # noqa: ANN401  any value that is true
    """Poll what has no event: files and processes that others make and end."""
    began = time.monotonic()
    while (waited_s := time.monotonic() - began) < timeout_s:
        if found := true():
            return found
        time.sleep(poll_pause(waited_s))
    raise AssertionError(f"never {what}")


def running(pid: int) -> bool:
    with suppress(FileNotFoundError, ProcessLookupError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def children(pid: int) -> list[int]:
    """Direct children, by the kernel's own account."""
    with suppress(FileNotFoundError, ProcessLookupError):
        threads = Path(f"/proc/{pid}/task").iterdir()
        return [int(word) for each in threads for word in (each / "children").read_text().split()]
    return []


def swept(run: Process) -> None:
    """Wait until the reaper's pass has ended: until the next one, in minutes, the run has the same children."""
    # A process that has exited has no words, and is a child until the run has waited for it.
    until(lambda: all({"reaper", ""}.isdisjoint(words_of(pid)) for pid in children(run.pid)), "swept")


def words_of(pid: int) -> list[str]:
    """The command line of a process; one empty word when it has ended."""
    with suppress(FileNotFoundError, ProcessLookupError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode().rstrip("\0").split("\0")
    return [""]


def listens(port: int, host: str = "127.0.0.1") -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((host, port)) == 0


@dataclass
class Home:
    """A directory with a document and its handlers, and every process that a run in it has had."""

    dir: Path
    seen: set[int] = field(default_factory=set)
    ports: set[int] = field(default_factory=set)

    def write(self, handler: str = "keep", more: str = "") -> None:
        (self.dir / "queue.yaml").write_text(QUEUE.replace("HANDLER", handler) + more)
        (self.dir / "shop_handlers.py").write_text(HANDLERS)

    def start(
        self, *options: str, env: dict[str, str] | None = None, before: tuple[str, ...] = ()
    ) -> Process:
        """In another directory than the document's, as it will often be."""
        argv = (DELAYQ, "run", str(self.dir / "queue.yaml"), "--log-format", "json", "--log-level", "info")
        return Process.start(*before, *argv, *options, env=env, cwd=self.dir.parent)

    def ready(
        self, *options: str, env: dict[str, str] | None = None, before: tuple[str, ...] = ()
    ) -> Process:
        run = self.start(*options, env=env, before=before)
        run.wait_line('"event": "ready"', timeout_s=40)
        self.note(run)
        return run

    def note(self, run: Process) -> None:
        self.seen |= {run.pid, *children(run.pid)}
        self.ports |= {json.loads(line)["port"] for line in run.lines if '"event": "started"' in line}
        if self.url_file.exists():
            self.ports.add(int(self.url.rpartition(":")[2].partition("/")[0]))

    @property
    def url_file(self) -> Path:
        return self.dir / ".delayq" / "redis.url"

    @property
    def url(self) -> str:
        return self.url_file.read_text().strip()

    def client(self, url: str | None = None) -> SyncClient:
        return SyncClient(url or self.url, queue="shop")

    def child(self, run: Process, word: str) -> int:
        """The run's own child whose command line has this word."""
        self.note(run)
        for pid in children(run.pid):
            words = words_of(pid)
            if word in words or (
                words and f"/{word} " in words[0]
            ):  # Redis writes its title into its first word
                return pid
        raise AssertionError(f"{run.pid} has no child {word}")

    def handled(self) -> list[str]:
        file = self.dir / "handled"
        return [line.split()[0] for line in file.read_text().splitlines()] if file.exists() else []

    def wait_handled(self, *ids: str) -> None:
        until(lambda: set(ids) <= set(self.handled()), f"handled {ids}: {self.handled()}")

    def wait_gone(self) -> None:
        """Nothing of any run is left: no process, no port with a listener."""
        until(lambda: not [pid for pid in self.seen if running(pid)], f"gone: {self.seen}")
        # A killed process is a zombie a moment before the last of its threads lets go of its sockets.
        until(lambda: not [port for port in self.ports if listens(port)], f"closed: {self.ports}", 5)


@contextmanager
def stopped(run: Process) -> Iterator[Process]:
    """However the test ends, so does the run."""
    try:
        yield run
    finally:
        run.stop(timeout_s=60)
