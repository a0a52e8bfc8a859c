"""Lists every kind periodically, which finds what kopf does not tell; the caches learn of all else by kopf's events.

kopf reports no deletion that happened while it could not watch. Kinds that come and go with their
CustomResourceDefinition are only listed.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Final

from delayq.kube.errors import ApiError, Denied, NotFound, Unavailable
from delayq.kube.objects import name_of

from delayq_operator.base import metrics, names

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence
    from typing import Any

    from delayq.kube.objects import Kind, Name

    from delayq_operator.cache.inventory import Inventory
    from delayq_operator.kube.api import Api
    from delayq_operator.reconcile.facts import FactSource

log = logging.getLogger(__name__)

LABELLED: Final = f"{names.MANAGED_BY_LABEL}={names.OPERATOR}"
UNLABELLED: Final = (names.DELAY_QUEUE, names.DELAY_SCHEDULE)
"""Kinds that users make."""
RETRY_SECONDS: Final = 1.0
PATIENCE_SECONDS: Final = 20.0
"""An API server that just started denies until it has read its own roles, and may not know all kinds yet."""


class Lists:
    """Lists all kinds, and records which of the optional ones are served."""

    def __init__(
        self,
        api: Api,
        inventory: Inventory,
        facts: FactSource,
        *,
        namespaces: Sequence[str],
        enqueue_all: Callable[[], None],
    ) -> None:
        """`enqueue_all` enqueues every queue: each may desire objects of a kind that comes or goes."""
        self._api, self._inventory, self._facts = api, inventory, facts
        self._namespaces: Sequence[str | None] = namespaces or (None,)
        self._enqueue_all = enqueue_all
        self._served: set[Kind] = set()
        self._lacking: dict[Kind, float] = {}  # kinds that are denied or not found → since when
        self._forbidden: set[Kind] = set()  # kinds whose denial was logged
        self._complete_at = self.tried_at = time.monotonic()

    @property
    def watchable(self) -> frozenset[Kind]:
        """The kinds that kopf can watch, as the last lists found."""
        return frozenset(self._served.difference(names.OPTIONAL))

    async def step(self) -> bool:
        """List every kind once; return whether all that is required was listed. Raises Denied if a right is missing."""
        for kind in names.REQUIRED:
            if not await self._listed(kind, self._list(kind)):
                metrics.LIST_AGE.set(time.monotonic() - self._complete_at)
                return False
        for kind in names.OPTIONAL:
            await self._listed(kind, self._list(kind))
        self._complete_at = time.monotonic()
        metrics.LIST_AGE.set(0)
        return True

    async def _listed(self, kind: Kind, listing: Coroutine[Any, Any, None]) -> bool:
        """Return whether a list worked, or there is nothing to list."""
        try:
            await listing
        except (ApiError, Unavailable) as error:
            if isinstance(error, Denied | NotFound) and not self._patient(kind, error):
                self._give_up(kind, error)
                return True
            log.info("list_failed", extra={"fields": {"kind": kind.kind, "error": str(error)}})
            return False
        self._lacking.pop(kind, None)
        return True

    def _patient(self, kind: Kind, error: Denied | NotFound) -> bool:
        """Whether to wait for a right, or for a kind that is always served."""
        since = self._lacking.setdefault(kind, time.monotonic())
        unused = kind not in self._served or isinstance(error, NotFound)
        return not (unused and kind in names.OPTIONAL) and time.monotonic() - since < PATIENCE_SECONDS

    def _give_up(self, kind: Kind, error: Denied | NotFound) -> None:
        if isinstance(error, Denied) and kind not in names.OPTIONAL:
            raise error
        if isinstance(error, Denied) and kind not in self._forbidden:
            log.warning("kind_forbidden", extra={"fields": {"kind": kind.kind, "error": str(error)}})
            self._forbidden.add(kind)
        self._stop(kind)

    async def _list(self, kind: Kind) -> None:
        self.tried_at = time.monotonic()
        selector, new = None if kind in UNLABELLED else LABELLED, kind not in self._served
        if new:  # the kind is served, and in every namespace we may list it, or nothing begins
            for namespace in self._namespaces:
                await anext(self._api.pages(kind, namespace, label_selector=selector))
            self._begin(kind)
        for namespace in self._namespaces:
            there: set[Name] = set()
            version = 0
            async for page in self._api.pages(kind, namespace, label_selector=selector):
                self._begin(
                    kind
                )  # before an object is taken: a child of a kind that is not desired is deleted
                for body in page.objects():
                    there.add(name_of(body))
                    self._inventory.seen(kind, body)
                version = int(page.metadata["resourceVersion"])
            self._inventory.complete(kind, namespace, there, version)
        if new and kind in names.OPTIONAL:
            self._enqueue_all()

    def _begin(self, kind: Kind) -> None:
        """Begin with a kind, before one of its objects is taken: a child of a kind that is not desired is deleted."""
        self._served.add(kind)
        self._forbidden.discard(kind)
        if kind in names.OPTIONAL:
            self._facts.kinds |= {kind.kind}
            log.info("kind_served", extra={"fields": {"kind": kind.kind}})

    def _stop(self, kind: Kind) -> None:
        """End with a kind that is not served any more; its objects stay as they are."""
        if kind not in self._served:
            return
        self._served.discard(kind)
        self._facts.kinds -= {kind.kind}
        self._inventory.drop(kind)
        log.info("kind_unserved", extra={"fields": {"kind": kind.kind}})
        self._enqueue_all()
