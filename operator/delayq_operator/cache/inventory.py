"""The operator's cache of the cluster. kopf's events, lists, and responses to writes come in here.

They overtake each other, so versions decide: only a newer version replaces one, an object is dropped only if the
deletion, or the list that lacks it, is not older than what is known, and nothing older brings it back.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from typing import TYPE_CHECKING, Final, NamedTuple

from delayq.kube.objects import name_of

from delayq_operator.base import names
from delayq_operator.base.names import Key
from delayq_operator.cache.children import Children
from delayq_operator.cache.pod import Pods
from delayq_operator.cache.queues import Queues
from delayq_operator.cache.rivals import Rivals
from delayq_operator.cache.schedules import Schedules

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping
    from typing import Any

    from delayq.kube.objects import Kind, Name, Object

MOST_REMEMBERED: Final = 4096


class _Known(NamedTuple):
    version: int
    uid: str


class Inventory:
    """The caches, and the version of each object in them."""

    def __init__(self, enqueue: Callable[[Key], None]) -> None:
        """Call `enqueue` for each queue of which an object changes."""
        self.queues = Queues(enqueue)
        self.children = Children(self.queues)
        self.pods = Pods(self.queues)
        self.schedules = Schedules(enqueue)
        self.rivals = Rivals()
        self._known: dict[Kind, dict[Name, _Known]] = defaultdict(dict)
        self._gone: dict[Kind, OrderedDict[str, int]] = defaultdict(OrderedDict)
        """UIDs of the last deleted objects, with their versions: one can come back with its labels."""

    def take(self, kind: Kind, event: Mapping[str, Any]) -> None:
        """Take an event of kopf: ADDED, MODIFIED or DELETED."""
        body: Object = event["object"]
        if event["type"] == "DELETED":
            self._went(kind, name_of(body), int(body["metadata"]["resourceVersion"]), body["metadata"]["uid"])
        else:
            self.seen(kind, body)

    def has(self, kind: Kind, body: Object) -> bool:
        """Whether this version of an object has come in, or a later one."""
        uid, version = body["metadata"]["uid"], int(body["metadata"]["resourceVersion"])
        known = self._known[kind].get(name_of(body))
        return version <= max(known.version if known else 0, self._gone[kind].get(uid, 0))

    def seen(self, kind: Kind, body: Object) -> None:
        """Take an object of a list, or the response to a write of a child, unless it is not newer."""
        if not self._noted(kind, body):
            return
        if kind == names.DELAY_QUEUE:
            self._store(body)
        else:
            self._cache(kind).seen(kind, body)

    def wrote(self, body: Object) -> None:
        """Take a DelayQueue as this operator's write left it."""
        if self._noted(names.DELAY_QUEUE, body):
            self._store(body, ours=True)

    def named(self, uids: Iterable[str], namespace: str) -> tuple[str, ...]:
        """Name DelayQueues of this namespace by their UIDs; of others, only say that there are some.

        A deleted one is left out: its scanners have stopped, or are about to.
        """
        there = set(uids).difference(self._gone[names.DELAY_QUEUE])
        near = sorted(
            str(Key(*name))
            for name, known in self._known[names.DELAY_QUEUE].items()
            if name[0] == namespace and known.uid in there
        )
        return (
            (*near, "a DelayQueue of another namespace or cluster") if len(near) < len(there) else tuple(near)
        )

    def complete(self, kind: Kind, namespace: str | None, there: Collection[Name], version: int) -> None:
        """Drop what a complete list of this version lacks; `namespace`: the only one that was listed."""
        known = [name for name in self._known[kind] if namespace in (None, name[0])]
        for name in known:
            if name not in there:
                self._went(kind, name, version, self._known[kind][name].uid)

    def ended(self, kind: Kind, name: Name, uid: str) -> None:
        """Drop an object that a request of this operator has deleted or not found, but no other of its name."""
        known = self._known[kind].get(name)
        if known is not None and known.uid == uid:
            self._went(kind, name, known.version, uid)

    def drop(self, kind: Kind) -> None:
        """Drop all objects of a kind that is not served; they may come back."""
        for name, known in self._known.pop(kind, {}).items():
            self._drop(kind, name, known.uid)

    def _noted(self, kind: Kind, body: Object) -> bool:
        """Take the version of an object; False if it is not newer."""
        if self.has(kind, body):
            return False
        metadata = body["metadata"]
        self._known[kind][name_of(body)] = _Known(int(metadata["resourceVersion"]), metadata["uid"])
        return True

    def _store(self, body: Object, *, ours: bool = False) -> None:
        if not self.queues.seen(body, ours=ours):  # its namespace has no room, but may have by the next list
            name, known = name_of(body), self._known[names.DELAY_QUEUE]
            known[name] = known[name]._replace(version=known[name].version - 1)

    def _went(self, kind: Kind, name: Name, version: int, uid: str) -> None:
        gone = self._gone[kind]
        gone[uid] = version
        while len(gone) > MOST_REMEMBERED:
            gone.popitem(last=False)
        before = self._known[kind].get(name)
        if before is not None and before.version <= version:
            del self._known[kind][name]
            self._drop(kind, name, before.uid)

    def _drop(self, kind: Kind, name: Name, uid: str) -> None:
        if kind == names.DELAY_QUEUE:
            self.queues.gone(Key(*name), uid)
        else:
            self._cache(kind).gone(kind, name)

    def _cache(self, kind: Kind) -> Children | Pods | Schedules:
        if kind == names.POD:
            return self.pods
        return self.schedules if kind == names.DELAY_SCHEDULE else self.children
