"""Which kinds the workers take, as they have published it, and whether a task is one of these.

On Kubernetes the API runs no code of users, so it has no App. It reads the kinds every few seconds, apart from
requests. Before it refuses a task, it reads them again: a worker that has just begun may take it. Not here: handlers
that are no App, and an App that this process has imported, which knows more.
"""

from __future__ import annotations

import asyncio
import json
import logging
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Final

from delayq.api.arguments import Accepted
from delayq.client.taken_kinds import app_of
from delayq.contract.problems import Problem, quote
from delayq.protocol.alarm import Alarm
from delayq.protocol.envelope import JSON_TYPE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from delayq.client.encoding import NewTask
    from delayq.connection import AsyncConnection
    from delayq.contract import Handler
    from delayq.protocol.commands import Commands

log = logging.getLogger(__name__)

READ_SECONDS: Final = 5.0
MOST_NAMED: Final = 20
"""Kinds that an error names, and tasks between two reads for which a similar kind is looked for."""
Key = tuple[str, int | None]
"""A kind and its version, None for every version."""


class _Kind:
    """A kind as one release takes it."""

    def __init__(self, item: Any) -> None:  # noqa: ANN401 -- JSON, of anyone who may write to Redis
        name, version = item["name"], item.get("version")
        if not isinstance(name, str) or not isinstance(version, int | None):
            raise TypeError(f"{name!r:.60} {version!r:.60}")
        self.key: Key = name, version
        accepts, schema = item.get("accepts"), item.get("schema")
        self.accepts = None if accepts is None else Accepted(accepts)
        self.schema = schema if isinstance(schema, dict) else None


class PublishedKinds:
    """What the workers of a queue have published. Until they have, every task is taken."""

    name, blocks = "published_kinds", True

    def __init__(self, handler: Handler, commands: Commands, connection: AsyncConnection) -> None:
        """`handler` is spec.handler, with an App."""
        self._app = handler.python.app if handler.python else None
        self._routed = frozenset(handler.kinds or ())
        self._commands, self._connection = commands, connection
        self._releases = dict[str, list[_Kind] | None]()  # None: not readable
        self._kinds = dict[Key, list[_Kind]]()
        self._takers = dict[Key, list[_Kind]]()
        """The same, and with each version those that take every version."""
        # Not before any worker has begun, beside an App, or while there is a text that this version cannot read.
        self._checks = False
        self._began = 0  # how many reads have begun
        self._compared = 0
        self._reading = asyncio.Lock()
        self.alarm = Alarm()

    async def step(self) -> float:
        """Read them."""
        await self.read()
        return READ_SECONDS

    async def read(self) -> None:
        """Read what is published now. Calls at the same time share one read, which begins after them."""
        before = self._began
        async with self._reading:
            if self._began == before:
                self._began, self._compared = self._began + 1, 0
                call = self._commands.published_kinds(self._releases)
                self._use(await self._connection.one(call))

    def _use(self, texts: dict[str, str]) -> None:
        if texts.keys() == self._releases.keys():
            return
        self._releases = {
            release: self._releases[release] if release in self._releases else _parsed(release, text)
            for release, text in texts.items()
        }
        self._kinds = {}
        for kind in (each for kinds in self._releases.values() for each in kinds or ()):
            self._kinds.setdefault(kind.key, []).append(kind)
        self._takers = {
            (name, version): [*kinds, *(self._kinds.get((name, None), ()) if version else ())]
            for (name, version), kinds in self._kinds.items()
        }
        readable = None not in self._releases.values()
        self._checks = bool(self._kinds) and readable and app_of(self._app) is None

    def problem(self, task: NewTask, *, unknown: bool = False) -> Problem | None:
        """Return why no worker takes the task; None if one may. `unknown`: its kind may be one that none has yet."""
        name = task.kind
        if not self._checks or name is None or name in self._routed:
            return None
        found = self._takers.get((name, task.version)) or self._takers.get((name, None))
        if found is None:
            return None if unknown else Problem("kind", self._unknown(name, task.version))
        if isinstance(task.payload, bytes) or task.content_type not in (None, JSON_TYPE):
            return None
        first: Problem | None = None
        for each in found:
            problem = None if each.accepts is None else each.accepts.problem(task.payload)
            if problem is None:
                return None
            first = first or problem
        return first

    def _unknown(self, name: str, version: int) -> str:
        anyway = "; ?unknownKind=true stores it for workers that will take it"
        if versions := sorted(of for each, of in self._kinds if each == name and of):
            having = f"they take version {', '.join(map(str, versions))}"
            return f"no worker takes {quote(name)} version {version}; {having}{anyway}"
        names = sorted({each for each, _ in self._kinds} | self._routed)
        self._compared += 1
        similar = get_close_matches(name, names, 1) if self._compared <= MOST_NAMED else ()
        more = ", …" if len(names) > MOST_NAMED else ""
        hint = (
            f"did you mean {similar[0]}?" if similar else f"they take {', '.join(names[:MOST_NAMED])}{more}"
        )
        return f"no worker takes {quote(name)}; {hint}{anyway}"

    def listed(self) -> list[tuple[Key, list[dict[str, Any]]]]:
        """Return each kind with the schemas of its arguments: one, unless releases differ. Empty: not known."""
        found = {key: _different(kinds) for key, kinds in self._kinds.items()}
        found |= {(name, None): [] for name in self._routed if (name, None) not in found}
        return sorted(found.items(), key=lambda each: (each[0][0], each[0][1] or 0))


def _different(kinds: Sequence[_Kind]) -> list[dict[str, Any]]:
    found = list[dict[str, Any]]()
    for each in kinds:
        if each.schema is not None and each.schema not in found:
            found.append(each.schema)
    return found


def _parsed(release: str, text: str) -> list[_Kind] | None:
    """Return the kinds of a release; None for a text of another program, or of a later version of delayq."""
    try:
        return [_Kind(item) for item in json.loads(text)["kinds"]]
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
        fields = {"release": release[:64], "error": f"{type(error).__name__}: {error}"[:200]}
        log.warning("published_kinds_unreadable", extra={"fields": fields})
        return None
