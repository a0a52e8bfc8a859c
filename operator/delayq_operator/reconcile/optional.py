"""The optional kinds, which come and go with what is installed in the cluster, and with our rights.

Without one of them nothing is amiss: a cluster may have no Prometheus operator, and an administrator may not want us to
touch monitors. What is not served, or not to us, is not wanted either, and its objects are left as they are.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import TYPE_CHECKING

from delayq_operator.base import names
from delayq_operator.base.errors import Denied, NotFound, OperatorError
from delayq_operator.cache.watches import LABELLED
from delayq_operator.kube.reflector import name_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from delayq_operator.base.names import Kind
    from delayq_operator.base.objects import Name, Object
    from delayq_operator.cache.children import Children
    from delayq_operator.cache.watches import Watches
    from delayq_operator.kube.api import Api
    from delayq_operator.reconcile.facts import Referees

log = logging.getLogger(__name__)


class OptionalKinds:
    """Keeps Referees.kinds as it is in the cluster; a Listener.

    A kind is wanted from the moment all of it was listed, in one go: a child that is seen before its kind is wanted
    would be deleted, and one that is wanted before it is seen would be written without need.
    """

    def __init__(
        self,
        api: Api,
        *,
        watches: Watches,
        children: Children,
        referees: Referees,
        mark_all: Callable[[], None],
    ) -> None:
        """`mark_all` has every queue looked at, for each may want such objects."""
        self._api, self._watches, self._children = api, watches, children
        self._referees, self._mark_all = referees, mark_all
        self._denied: set[Kind] = set()  # about which we have complained
        self._early: dict[Kind, dict[Name, Object]] = {}  # seen before all was listed

    async def look(self) -> None:
        """Begin with what is served by now, and stop with what is not."""
        for kind in names.OPTIONAL_CHILDREN:
            with suppress(OperatorError):  # the next look will tell
                await self._look(kind)

    async def _look(self, kind: Kind) -> None:
        served = await self._api.serves(kind)
        followed = self._watches.follows(kind)
        if served and not followed and await self._allowed(kind):
            self._denied.discard(kind)
            self._early[kind] = {}
            self._watches.follow_optional(kind, self, listed=self._begin, over=self._over)
        elif followed and not served:
            self._stop(kind)

    async def _allowed(self, kind: Kind) -> bool:
        """Whether we may list it. Asked before it is followed, for a reflector takes its time to be sure."""
        try:
            for namespace in self._watches.lists:
                async for _ in self._api.pages(kind, namespace, label_selector=LABELLED, metadata_only=True):
                    break
        except Denied as error:
            self._complain(kind, error)
            return False
        return True

    def _begin(self, kind: Kind) -> None:
        self._referees.kinds |= {kind.kind}
        for body in self._early.pop(kind).values():
            self._children.seen(kind, body)
        log.info("kind_watched", extra={"fields": {"kind": kind.kind}})
        self._mark_all()

    def seen(self, kind: Kind, body: Object) -> None:
        """Pass it on, when the time has come."""
        if kind in self._early:
            self._early[kind][name_of(body)] = body
        else:
            self._children.seen(kind, body)

    def gone(self, kind: Kind, name: Name) -> None:
        """Pass it on."""
        if kind in self._early:
            self._early[kind].pop(name, None)
        else:
            self._children.gone(kind, name)

    def _over(self, kind: Kind, error: Denied | NotFound) -> None:
        if isinstance(error, Denied):
            self._complain(kind, error)
        self._stop(kind)

    def _stop(self, kind: Kind) -> None:
        self._referees.kinds -= {kind.kind}
        self._early.pop(kind, None)
        for name in self._watches.drop(kind):
            self._children.gone(kind, name, ours=True)
        log.info("kind_unwatched", extra={"fields": {"kind": kind.kind}})
        self._mark_all()

    def _complain(self, kind: Kind, error: Denied) -> None:
        if kind not in self._denied:
            log.warning("kind_forbidden", extra={"fields": {"kind": kind.kind, "error": str(error)}})
        self._denied.add(kind)
