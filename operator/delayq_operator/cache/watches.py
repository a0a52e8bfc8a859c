"""Which kinds are watched, in which namespaces."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from delayq.kube.errors import Denied, NotFound
from delayq.kube.reflector import Limits, Reflector

from delayq_operator.base import names

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Sequence

    from delayq.kube.objects import Kind, Name
    from delayq.kube.reflector import Listener

    from delayq_operator.base.supervision import Parts
    from delayq_operator.kube.api import Api

LABELLED: Final = f"{names.MANAGED_BY_LABEL}={names.OPERATOR}"
UNLABELLED: Final = (names.DELAY_SCHEDULE,)
"""Kinds that users make, of which more than metadata is needed."""


class Watches:
    """The reflectors of all kinds."""

    def __init__(
        self, api: Api, parts: Parts, *, namespaces: Sequence[str] = (), limits: Limits | None = None
    ) -> None:
        """Watch in these namespaces, or in all."""
        self._api, self._parts, self._limits = api, parts, limits or Limits()
        self.lists: Sequence[str | None] = namespaces or (None,)
        """The scopes to list and watch: each namespace, or all at once."""
        self.reflectors: list[Reflector] = []
        self._optional: dict[Kind, tuple[list[Reflector], list[asyncio.Task[None]]]] = {}

    def follow(self, kind: Kind, listener: Listener, *, metadata_only: bool = False) -> None:
        """Start to watch a kind; `metadata_only` for kinds of which only name and version are needed."""
        for reflector in self._made(kind, listener, metadata_only=metadata_only):
            self._parts.start(f"watch {kind.plural}", reflector.run())

    def follow_optional(
        self,
        kind: Kind,
        listener: Listener,
        *,
        listed: Callable[[Kind], None],
        over: Callable[[Kind, Denied | NotFound], None],
    ) -> None:
        """Watch a kind until it is dropped. Calls `listed` once, and `over` when the API no longer serves it."""

        async def run(reflector: Reflector) -> None:
            try:
                await reflector.run()
            except (Denied, NotFound) as error:
                over(kind, error)

        async def wait() -> None:
            await _synced(made)
            listed(kind)

        made = self._made(kind, listener, optional=True)
        parts = [*map(run, made), wait()]
        self._optional[kind] = (made, [self._parts.start(f"watch {kind.plural}", part) for part in parts])

    def follows(self, kind: Kind) -> bool:
        return kind in self._optional

    def drop(self, kind: Kind) -> set[Name]:
        """Stop watching an optional kind; returns its known objects."""
        reflectors, tasks = self._optional.pop(kind, ([], []))
        for task in tasks:
            task.cancel()
        for reflector in reflectors:
            self.reflectors.remove(reflector)
            reflector.synced.set()  # release its waiters
        return {name for reflector in reflectors for name in reflector.known}

    def _made(
        self, kind: Kind, listener: Listener, *, metadata_only: bool = False, optional: bool = False
    ) -> list[Reflector]:
        made = [
            Reflector(
                self._api,
                kind,
                listener,
                namespace=namespace,
                label_selector=None if metadata_only or kind in UNLABELLED else LABELLED,
                metadata_only=metadata_only,
                optional=optional,
                limits=self._limits,
            )
            for namespace in self.lists
        ]
        self.reflectors += made
        return made

    async def synced(self) -> None:
        await _synced(tuple(self.reflectors))


async def _synced(reflectors: Sequence[Reflector]) -> None:
    for reflector in reflectors:
        await reflector.synced.wait()
