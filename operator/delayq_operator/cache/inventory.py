"""What the operator knows of the cluster. kopf's events and lists come in here; reconciliation reads the caches.

Events and lists overtake each other, so versions decide: only a newer version replaces one, and an object is dropped
only if the deletion, or the list that lacks it, is not older than what is known.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

from delayq.kube.objects import name_of

from delayq_operator.base import names
from delayq_operator.base.names import Key
from delayq_operator.cache.children import Children
from delayq_operator.cache.pod import Pods
from delayq_operator.cache.queues import Queues
from delayq_operator.cache.rivals import Rivals
from delayq_operator.cache.schedules import Schedules

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping
    from typing import Any

    from delayq.kube.objects import Kind, Name, Object


class _Known(NamedTuple):
    version: int
    uid: str


class Inventory:
    """The caches, and the version of each object in them."""

    def __init__(self, enqueue: Callable[[Key], None]) -> None:
        """Call `enqueue` for each queue of which an object changes."""
        self.queues = Queues(enqueue)
        self.children = Children(self.queues, enqueue)
        self.pods = Pods(self.queues, enqueue)
        self.schedules = Schedules(enqueue)
        self.rivals = Rivals()
        # Else a child that goes before an event or a list has told of it would never be missed.
        self.children.noted = self._noted
        self._known: dict[Kind, dict[Name, _Known]] = defaultdict(dict)
        self._gone: dict[Kind, set[str]] = defaultdict(set)
        """UIDs of what went since the last list of a kind began: that list may still have them."""

    def take(self, kind: Kind, event: Mapping[str, Any]) -> None:
        """Take an event of kopf: its type is None for an object of a list, ADDED, MODIFIED or DELETED."""
        body: Object = event["object"]
        if event["type"] == "DELETED":
            self._went(kind, name_of(body), int(body["metadata"]["resourceVersion"]))
        else:
            self._seen(kind, body)

    def begin(self, kind: Kind) -> None:
        """A list of a kind begins."""
        self._gone.pop(kind, None)

    def listed(self, kind: Kind, body: Object) -> None:
        """Take an object of a list, unless it went meanwhile."""
        if body["metadata"]["uid"] not in self._gone.get(kind, ()):
            self._seen(kind, body)

    def complete(self, kind: Kind, namespace: str | None, there: Collection[Name], version: int) -> None:
        """Drop what a complete list of this version lacks; `namespace`: the only one that was listed."""
        known = [name for name in self._known[kind] if namespace in (None, name[0])]
        for name in known:
            if name not in there:
                self._went(kind, name, version)

    def drop(self, kind: Kind) -> None:
        """Drop all objects of a kind that is not served; no other client deleted them, and they may come back."""
        for name, known in self._known.pop(kind, {}).items():
            if kind == names.DELAY_QUEUE:
                self.queues.gone(Key(*name), known.uid, for_ever=False)
            else:
                self._cache(kind).gone(kind, name, ours=True)

    def _noted(self, kind: Kind, body: Object) -> bool:
        """Take the version of an object; False if it is not newer."""
        name, metadata = name_of(body), body["metadata"]
        version, before = int(metadata["resourceVersion"]), self._known[kind].get(name)
        if before is not None and before.version >= version:
            return False
        self._known[kind][name] = _Known(version, metadata["uid"])
        return True

    def _seen(self, kind: Kind, body: Object) -> None:
        newer = self._noted(kind, body)
        if kind == names.DELAY_QUEUE:
            if newer or self.queues.lacks_room(body):  # there may be room by now
                self.queues.seen(body)
        elif newer:
            self._cache(kind).seen(kind, body)

    def _went(self, kind: Kind, name: Name, version: int) -> None:
        before = self._known[kind].get(name)
        if before is None or before.version > version:
            return
        del self._known[kind][name]
        self._gone[kind].add(before.uid)
        if kind == names.DELAY_QUEUE:
            self.queues.gone(Key(*name), before.uid)
        else:
            self._cache(kind).gone(kind, name)

    def _cache(self, kind: Kind) -> Children | Pods | Schedules:
        if kind == names.POD:
            return self.pods
        return self.schedules if kind == names.DELAY_SCHEDULE else self.children
