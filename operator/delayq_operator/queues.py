"""The DelayQueues there are, as kopf brings them and as our own writes answer.

Kept as compact JSON, for as Python dicts they take ten times the memory. One is only ever replaced by a newer one, so
that the answer to our own write and the watch that tells of it can come in either order.
"""

from __future__ import annotations

import json
from collections import OrderedDict, defaultdict
from typing import TYPE_CHECKING, Any, Final

from delayq_operator import names
from delayq_operator.names import Key
from delayq_operator.objects import compact
from delayq_operator.resource import Resource

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

MOST_REMEMBERED: Final = 4096


class Queues:
    """The DelayQueues there are."""

    def __init__(self, mark: Callable[[Key], None]) -> None:
        """Tell `mark` of each that changes."""
        self._bodies: dict[Key, tuple[int, bytes]] = {}
        self._uids: dict[Key, str] = {}
        self._by_label: dict[tuple[str, str], Key] = {}
        self._tasks: dict[Key, frozenset[str]] = {}
        self._sharers: dict[str, set[Key]] = defaultdict(set)
        self._gone: OrderedDict[str, None] = OrderedDict()  # uids; none of them comes back
        self._mark = mark
        self.newcomers: list[Callable[[Key], None]] = []
        """Who wants to know of each DelayQueue that is seen for the first time."""

    def seen(self, body: Mapping[str, Any], *, ours: bool = False) -> None:
        """Take note of a DelayQueue as it is now; what we wrote ourselves (`ours`) is nothing to react to.

        But the answer to our own write can be the first that we see of an edit which came just before it.
        """
        resource, before = Resource(dict(body)), self.get(key_of(body))
        key, version = resource.key, int(resource.version)
        if resource.uid in self._gone:
            return  # the answer to a write, or kopf, that was under way for longer than the news
        if before is None or version > int(before.version):
            self._bodies[key] = (version, compact(resource.body))
            self._uids[key] = resource.uid
            self._share(key, resource.tasks)
            self._by_label[key.namespace, names.label_value(key.name)] = key
            if not ours or before is None or before.asked != resource.asked:
                self._mark(key)
            if before is None:
                for tell in self.newcomers:
                    tell(key)

    def gone(self, key: Key, uid: str) -> None:
        """Forget a DelayQueue, unless a later one of that name is there by now."""
        self._gone[uid] = None
        while len(self._gone) > MOST_REMEMBERED:
            self._gone.popitem(last=False)
        if self._uids.get(key) == uid:
            del self._uids[key], self._bodies[key]
            self._share(key, None)
            self._by_label.pop((key.namespace, names.label_value(key.name)), None)
            self._mark(key)

    def get(self, key: Key) -> Resource | None:
        """Return the DelayQueue, or None if there is none."""
        _, body = self._bodies.get(key, (0, b""))
        return Resource(json.loads(body)) if body else None

    def sharing(self, key: Key) -> list[Key]:
        """Name the other DelayQueues whose tasks are the same ones, but for those that are to go with their tasks."""
        return sorted(other for other in self._with(self._tasks.get(key)) - {key} if not self._going(other))

    def _with(self, tasks: frozenset[str] | None) -> set[Key]:
        """Name those whose tasks are, as far as known, in one of these places."""
        return {key for place in tasks or () for key in self._sharers.get(place, ())}

    def _going(self, key: Key) -> bool:
        resource = self.get(key)
        return resource is None or (resource.deleting and resource.erases)

    def _share(self, key: Key, tasks: frozenset[str] | None) -> None:
        """Remember where a DelayQueue's tasks are, and tell those who share them now, or did."""
        before = self._tasks.pop(key, frozenset())
        for place in before:
            self._sharers[place].discard(key)
            if not self._sharers[place]:
                del self._sharers[place]
        if tasks is not None:
            self._tasks[key] = tasks
            for place in tasks:
                self._sharers[place].add(key)
        if before != (tasks or frozenset()):
            for other in (self._with(before) | self._with(tasks)) - {key}:
                self._mark(other)

    def uid(self, key: Key) -> str:
        """Return the uid of the DelayQueue; empty if there is none."""
        return self._uids.get(key, "")

    def version(self, key: Key) -> int:
        """Return the resourceVersion we have; 0 without one."""
        return self._bodies.get(key, (0, b""))[0]

    def labelled(self, namespace: str, label: str) -> Key | None:
        """Return the key whose children carry this value of the queue label."""
        return self._by_label.get((namespace, label))

    def keys(self) -> list[Key]:
        """All of them."""
        return list(self._bodies)


def key_of(body: Mapping[str, Any]) -> Key:
    """Namespace and name of an object."""
    return Key(body["metadata"]["namespace"], body["metadata"]["name"])
