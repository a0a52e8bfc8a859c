"""Reflector: keeps a copy of all objects of one kind by list and watch, for scanners.

A watch does not tell what was deleted before it began: a reflector compares each new list with its copy.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from delayq.kube.errors import ApiError, Denied, Gone, Unavailable
from delayq.kube.objects import name_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from delayq.kube.objects import Kind, Name, Object
    from delayq.kube.watching import Event

log = logging.getLogger(__name__)

PAUSE_SECONDS: Final = 0.05  # between two watches, in case a server ends each at once
RETRY_SECONDS: Final = 0.25
LONGEST_RETRY_SECONDS: Final = 2.0
DENIED_SECONDS: Final = 20.0  # an API server that just started denies until it has read its own roles


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits to the duration of a watch."""

    watch_seconds: int = 300
    """In total. RBAC is checked only at the start of a watch: this limits how long a revocation is not noticed."""
    silence_seconds: float = 90.0
    """Without a line. The API server sends a bookmark every minute; a stream without one is dead."""


class Listener(Protocol):
    """Receives the objects of a reflector."""

    def seen(self, kind: Kind, body: Object) -> None:
        """Handle an object that exists; it may be new, changed or unchanged."""

    def gone(self, kind: Kind, name: Name) -> None:
        """Handle a deleted object."""


class Lister(Protocol):
    """A client of the API server."""

    def pages(self, kind: Kind, namespace: str | None) -> AsyncIterator[Object]:
        """List objects page by page; each page has items, and metadata.resourceVersion to watch from."""

    def watch(
        self,
        kind: Kind,
        namespace: str | None,
        *,
        resource_version: str,
        timeout_seconds: int,
        silence_seconds: float,
    ) -> AsyncIterator[Event]:
        """Watch changes and bookmarks until the server ends the stream."""


class Reflector:
    """Watches one kind in one namespace, or in all."""

    def __init__(
        self,
        api: Lister,
        kind: Kind,
        listener: Listener,
        *,
        namespace: str | None = None,
        limits: Limits = Limits(),
    ) -> None:
        """Send nothing before run()."""
        self.kind, self.namespace = kind, namespace
        self._api, self._listener = api, listener
        self._limits = limits
        self.known: set[Name] = set()
        """Names of the objects that the listener has received."""
        self._version = ""
        self.synced = asyncio.Event()

    async def run(self) -> None:
        """Watch until cancelled. After a period of denials by RBAC, it is not synced, and tries rarely."""
        failures, denied_since = 0, None
        while True:
            try:
                await self._follow()
                failures, denied_since = 0, None
            except Gone:
                self._version = ""
            except Denied as error:
                denied_since = denied_since or time.monotonic()
                self._version, failures = "", failures + 1
                log.warning("watch_forbidden", extra=self._fields(error))
                if time.monotonic() - denied_since > DENIED_SECONDS:
                    self.synced.clear()  # its copy is getting older
                    await asyncio.sleep(DENIED_SECONDS)
            except (ApiError, Unavailable) as error:
                failures, denied_since = failures + 1, None
                log.info("watch_interrupted", extra=self._fields(error))
            await asyncio.sleep(_pause_seconds(failures) * random.uniform(0.5, 1))  # noqa: S311 -- spreads load

    async def _follow(self) -> None:
        """List if there is no version to resume from, then run one watch to its end."""
        if not self._version:
            await self._list()
        async for event in self._api.watch(
            self.kind,
            self.namespace,
            resource_version=self._version,
            timeout_seconds=self._limits.watch_seconds,
            silence_seconds=self._limits.silence_seconds,
        ):
            self._take(event)

    async def _list(self) -> None:
        listed: set[Name] = set()
        version = ""
        async for page in self._api.pages(self.kind, self.namespace):
            for body in page["items"] or ():
                listed.add(name_of(body))
                self.known.add(name_of(body))
                self._listener.seen(self.kind, body)
            version = page["metadata"]["resourceVersion"]
        for name in self.known - listed:
            self._listener.gone(self.kind, name)
        self.known, self._version = listed, version  # only now: a partial list cannot be resumed
        self.synced.set()

    def _take(self, event: Event) -> None:
        self._version = event.object["metadata"]["resourceVersion"]
        if event.type == "BOOKMARK":
            return
        name = name_of(event.object)
        if event.type == "DELETED":
            self.known.discard(name)
            self._listener.gone(self.kind, name)
        else:
            self.known.add(name)
            self._listener.seen(self.kind, event.object)

    def _fields(self, error: Exception) -> dict[str, dict[str, object]]:
        return {"fields": {"kind": self.kind.kind, "namespace": self.namespace, "error": str(error)}}


def _pause_seconds(failures: int) -> float:
    return min(LONGEST_RETRY_SECONDS, RETRY_SECONDS * 2 ** min(failures, 5)) if failures else PAUSE_SECONDS
