"""Which kinds are watched, in which namespaces."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from delayq_operator.base import names
from delayq_operator.base.errors import Denied, NotFound
from delayq_operator.kube.reflector import Limits, Reflector

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from delayq_operator.base.names import Kind
    from delayq_operator.base.objects import Name
    from delayq_operator.base.supervision import Parts
    from delayq_operator.kube.api import Api
    from delayq_operator.kube.reflector import Listener

LABELLED: Final = f"{names.MANAGED_BY_LABEL}={names.OPERATOR}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """What is watched of each kind."""

    namespaces: tuple[str, ...] = ()
    """None: all."""
    limits: Limits

    @property
    def lists(self) -> tuple[str | None, ...]:
        """What to list and watch: each namespace, or once all of them."""
        return self.namespaces or (None,)


class Watches:
    """The reflectors of all kinds."""

    def __init__(self, api: Api, parts: Parts, scope: Scope) -> None:
        """Nothing is watched yet."""
        self._api, self._parts, self.scope = api, parts, scope
        self.reflectors: list[Reflector] = []
        self._optional: dict[Kind, tuple[list[Reflector], list[asyncio.Task[None]]]] = {}

    def follow(self, kind: Kind, listener: Listener, *, metadata_only: bool = False) -> None:
        """Watch a kind from now on. Objects of ours are wanted whole; of others, only name and version."""
        for namespace in self.scope.lists:
            reflector = self._reflector(kind, listener, namespace, metadata_only=metadata_only)
            self._parts.start(f"watch {kind.plural}", reflector.run())

    def follow_optional(
        self,
        kind: Kind,
        listener: Listener,
        *,
        listed: Callable[[Kind], None],
        over: Callable[[Kind, Denied | NotFound], None],
    ) -> None:
        """Watch a kind until it is dropped: `listed` is called once, `over` when it is not served to us any more."""

        async def run(reflector: Reflector) -> None:
            try:
                await reflector.run()
            except (Denied, NotFound) as error:
                over(kind, error)

        async def wait(reflectors: list[Reflector]) -> None:
            for reflector in reflectors:
                await reflector.synced.wait()
            listed(kind)

        followed = [
            self._reflector(kind, listener, namespace, optional=True) for namespace in self.scope.lists
        ]
        parts = [*map(run, followed), wait(followed)]
        tasks = [self._parts.start(f"watch {kind.plural}", part, may_end=True) for part in parts]
        self._optional[kind] = (followed, tasks)

    def follows(self, kind: Kind) -> bool:
        """Whether an optional kind is watched."""
        return kind in self._optional

    def drop(self, kind: Kind) -> set[Name]:
        """Watch an optional kind no longer; the objects that were known of it."""
        reflectors, tasks = self._optional.pop(kind, ([], []))
        for task in tasks:
            task.cancel()
        for reflector in reflectors:
            self.reflectors.remove(reflector)
            reflector.synced.set()  # release those that wait for it
        return {name for reflector in reflectors for name in reflector.known}

    def _reflector(
        self,
        kind: Kind,
        listener: Listener,
        namespace: str | None,
        *,
        metadata_only: bool = False,
        optional: bool = False,
    ) -> Reflector:
        reflector = Reflector(
            self._api,
            kind,
            listener,
            namespace=namespace,
            label_selector=None if metadata_only else LABELLED,
            metadata_only=metadata_only,
            optional=optional,
            limits=self.scope.limits,
        )
        self.reflectors.append(reflector)
        return reflector

    async def synced(self) -> None:
        """Wait until everything was listed once."""
        for reflector in tuple(self.reflectors):
            await reflector.synced.wait()
