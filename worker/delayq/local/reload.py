"""`delayq run --reload`: watch the code and the documents, and return a new plan once they can be used.

Not here: stopping the old processes and starting the new ones (supervisor.py).
"""

from __future__ import annotations

import asyncio
import logging
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Self

from delayq.errors import InvalidDocument
from delayq.local.ending import first
from delayq.local.errors import CannotRun
from delayq.local.keeper import ended_by
from delayq.local.process import STDERR, Child
from delayq.local.relay import IMPORTED

if TYPE_CHECKING:
    from collections.abc import Callable

    from delayq.local.plan import Plan
    from delayq.local.process import Command

# And hidden directories, such as .git, .venv and .delayq. Other virtual environments have a site-packages.
IGNORED = {"__pycache__", "node_modules", "site-packages", "venv"}
SHOWN_FILES = 3  # of those that changed
SHOWN_LINES = 20  # of the output of a check that crashed


@dataclass(frozen=True)
class Sources:
    """What a run is made from."""

    files: tuple[Path, ...]  # of documents
    read: Callable[[], Plan]  # InvalidDocument if they cannot be used

    @property
    def paths(self) -> list[Path]:
        """The files as the watcher names them."""
        return [file.absolute().parent.resolve() / file.name for file in self.files]

    @property
    def directories(self) -> list[Path]:
        """Where workers import from, without those below another one: the current directory, and the documents'."""
        there = dict.fromkeys([Path.cwd().resolve(), *(path.parent for path in self.paths)])
        return [each for each in there if there.keys().isdisjoint(each.parents)]

    def has(self, path: Path) -> bool:
        """Whether a file is code or a document."""
        if path.suffix != ".py":
            return path in self.paths
        inside = next(
            (path.relative_to(each) for each in self.directories if path.is_relative_to(each)), path
        )
        return not any(part in IGNORED or part.startswith(".") for part in inside.parts)


class Reloader:
    """Watches the sources of a run. Use as an asynchronous context manager."""

    def __init__(self, sources: Sources, say: Callable[[str], None]) -> None:
        """`say` prints a line."""
        self._sources, self._say = sources, say
        self._changed, self._alarm = set[Path](), asyncio.Event()

    async def __aenter__(self) -> Self:
        """Begin to watch."""
        self._watching = asyncio.create_task(self._watch())
        return self

    async def __aexit__(self, *_: object) -> None:
        """Stop watching."""
        self._watching.cancel()
        await asyncio.wait({self._watching})

    async def next_plan(self, url: str | None) -> Plan:
        """Wait for a change after which every worker can start, and return the plan of the new documents.

        An error is printed, and changes nothing. A change during a check begins it again: an import may hang.
        CannotRun if the directories cannot be watched. `url`: of Redis.
        """
        while True:
            await self._change()
            self._say(f"changed: {self._taken()}")
            checking = asyncio.create_task(self._checked(url))
            try:
                await first(asyncio.wait({checking}), self._change())
                if checking.done():
                    return checking.result()
            except InvalidDocument as error:
                self._say(f"not reloaded, the old processes go on:\n{error}")
            finally:
                checking.cancel()
                await asyncio.wait({checking})

    async def _change(self) -> None:
        await first(self._alarm.wait(), asyncio.wait({self._watching}))
        if self._watching.done():
            self._watching.result()

    def _taken(self) -> str:
        """Forget the changes, and return their files as text."""
        names = sorted(map(_shown, self._changed))
        self._changed.clear()
        self._alarm.clear()
        more = len(names) - SHOWN_FILES
        return ", ".join(names[:SHOWN_FILES]) + (f" and {more} more" if more > 0 else "")

    async def _watch(self) -> None:
        from watchfiles import awatch  # noqa: PLC0415 -- of the extra [reload]

        logging.getLogger("watchfiles").setLevel(logging.WARNING)  # it says at `info` that something changed
        directories = self._sources.directories
        try:
            async for found in awatch(
                *directories, watch_filter=lambda _, path: self._sources.has(Path(path))
            ):
                self._changed |= {Path(path) for _, path in found}
                self._alarm.set()
        except OSError as error:
            raise CannotRun(
                f"cannot watch {', '.join(map(str, directories))}: {error}",
                "start in a directory with fewer files, raise fs.inotify.max_user_watches, or omit --reload",
            ) from error

    async def _checked(self, url: str | None) -> Plan:
        plan = self._sources.read()
        checks = [asyncio.create_task(_check(command)) for command in plan.checks(url)]
        try:
            await asyncio.gather(*checks)
        finally:  # an import that hangs must not outlive the error of another one
            for each in checks:
                each.cancel()
            if checks:  # with `--workers 0` there is none
                await asyncio.wait(checks)
        return plan


async def _check(command: Command) -> None:
    """Run a check; InvalidDocument with its output if it fails."""
    lines: list[str] = []
    child = await Child.start(command, lambda stream, line: lines.append(line) if stream == STDERR else None)
    try:
        code = await child.wait()
    except asyncio.CancelledError:
        child.send(signal.SIGKILL)
        await child.wait()
        raise
    if code != IMPORTED:
        raise InvalidDocument(
            "\n".join(lines[-SHOWN_LINES:]) or f"the check of the import ended by {ended_by(code)}"
        )


def _shown(path: Path) -> str:
    here = Path.cwd().resolve()
    return str(path.relative_to(here)) if path.is_relative_to(here) else str(path)
