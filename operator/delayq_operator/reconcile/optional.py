"""Optional kinds: served only if their CRD is installed and RBAC allows them.

A cluster may have no Prometheus operator, and an administrator may deny access to monitors. The operator then desires
no object of that kind, and leaves existing ones as they are.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import TYPE_CHECKING

from delayq.kube.errors import Denied, KubernetesError, NotFound
from delayq.kube.objects import name_of

from delayq_operator.base import names
from delayq_operator.cache.watches import LABELLED

if TYPE_CHECKING:
    from collections.abc import Callable

    from delayq.kube.objects import Kind, Name, Object

    from delayq_operator.cache.children import Children
    from delayq_operator.cache.inventory import Inventory
    from delayq_operator.cache.schedules import Schedules
    from delayq_operator.cache.watches import Watches
    from delayq_operator.kube.api import Api
    from delayq_operator.reconcile.facts import Referents

log = logging.getLogger(__name__)


class OptionalKinds:
    """Keeps Referents.kinds up to date; a Listener, which passes objects on to the cache of their kind.

    A kind becomes desired when its first list is complete, in one step: a child that is seen before would be deleted,
    and one that is desired before it is seen would be written needlessly.
    """

    def __init__(
        self,
        api: Api,
        *,
        watches: Watches,
        inventory: Inventory,
        referents: Referents,
        enqueue_all: Callable[[], None],
    ) -> None:
        """`enqueue_all` enqueues every queue: each may desire such objects."""
        self._api, self._watches, self._inventory = api, watches, inventory
        self._referents, self._enqueue_all = referents, enqueue_all
        self._denied: set[Kind] = set()  # kinds whose denial was logged
        self._early: dict[Kind, dict[Name, Object]] = {}  # seen before all was listed

    async def refresh(self) -> None:
        """Start to watch kinds that are served now, and stop watching kinds that are not."""
        for kind in (*names.OPTIONAL_CHILDREN, names.DELAY_SCHEDULE):
            with suppress(KubernetesError):  # the next refresh tries again
                await self._refresh(kind)

    def _cache(self, kind: Kind) -> Children | Schedules:
        return self._inventory.schedules if kind == names.DELAY_SCHEDULE else self._inventory.children

    async def _refresh(self, kind: Kind) -> None:
        served = await self._api.serves(kind)
        followed = self._watches.follows(kind)
        if served and not followed and await self._allowed(kind):
            self._denied.discard(kind)
            if kind in names.OPTIONAL_CHILDREN:
                self._early[kind] = {}
            self._watches.follow_optional(kind, self, listed=self._begin, over=self._over)
        elif followed and not served:
            self._stop(kind)

    async def _allowed(self, kind: Kind) -> bool:
        """Whether RBAC allows to list it. Checked before the watch, because a reflector retries for some time."""
        try:
            for namespace in self._watches.lists:
                async for _ in self._api.pages(kind, namespace, label_selector=LABELLED, metadata_only=True):
                    break
        except Denied as error:
            self._log_denied(kind, error)
            return False
        return True

    def _begin(self, kind: Kind) -> None:
        self._referents.kinds |= {kind.kind}
        for body in self._early.pop(kind, {}).values():
            self._cache(kind).seen(kind, body)
        log.info("kind_watched", extra={"fields": {"kind": kind.kind}})
        self._enqueue_all()

    def seen(self, kind: Kind, body: Object) -> None:
        """Pass the object on; buffer it until the first list is complete."""
        if kind in self._early:
            self._early[kind][name_of(body)] = body
        else:
            self._cache(kind).seen(kind, body)

    def gone(self, kind: Kind, name: Name) -> None:
        """Pass the deletion on."""
        if kind in self._early:
            self._early[kind].pop(name, None)
        else:
            self._cache(kind).gone(kind, name)

    def _over(self, kind: Kind, error: Denied | NotFound) -> None:
        if isinstance(error, Denied):
            self._log_denied(kind, error)
        self._stop(kind)

    def _stop(self, kind: Kind) -> None:
        self._referents.kinds -= {kind.kind}
        self._early.pop(kind, None)
        for name in self._watches.drop(kind):
            self._cache(kind).gone(kind, name, ours=True)
        log.info("kind_unwatched", extra={"fields": {"kind": kind.kind}})
        self._enqueue_all()

    def _log_denied(self, kind: Kind, error: Denied) -> None:
        if kind not in self._denied:
            log.warning("kind_forbidden", extra={"fields": {"kind": kind.kind, "error": str(error)}})
        self._denied.add(kind)
