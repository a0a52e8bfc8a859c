"""Objects by the DelayQueue they belong to: what the caches of children, pods and schedules have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import defaultdict
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from delayq.kube.objects import name_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from delayq.kube.objects import Kind, Name, Object

    from delayq_operator.base.names import Key


class Entry(Protocol):
    """What is stored of an object."""

    @property
    def significant(self) -> object:
        """The DelayQueue is enqueued when this changes; None is as good as no object."""


Item = TypeVar("Item", bound=Entry)


class Groups(ABC, Generic[Item]):
    """Objects, each of which belongs to one DelayQueue at a time."""

    def __init__(self, enqueue: Callable[[Key], None]) -> None:
        """Call `enqueue` for the group of an object that appears, changes or disappears."""
        self._of: dict[Key, dict[tuple[str, str], Item]] = defaultdict(dict)
        self._group: dict[tuple[str, Name], Key] = {}
        self._enqueue = enqueue

    def group(self, key: Key) -> dict[tuple[str, str], Item]:
        """Return what is stored of a group, by kind and name."""
        return dict(self._of.get(key, {}))

    @abstractmethod
    def read(self, kind: Kind, body: Object) -> tuple[Key, Item] | None:
        """Return the group of an object, and what to store; None if it belongs to no DelayQueue."""

    def replaced(self, group: Key, before: Item | None, now: Item | None) -> None:
        """Record the stored object, for a cache that counts."""

    def seen(self, kind: Kind, body: Object) -> None:
        """Take an object; it may belong to another DelayQueue than before."""
        name, found = name_of(body), self.read(kind, body)
        if found is None or self._group.get((kind.kind, name), found[0]) != found[0]:
            self.gone(kind, name)
        if found is None:
            return
        group, item = found
        before = self._of[group].get((kind.kind, name[1]))
        self.replaced(group, before, item)
        self._group[kind.kind, name], self._of[group][kind.kind, name[1]] = group, item
        if item.significant != (before.significant if before else None):
            self._enqueue(group)

    def gone(self, kind: Kind, name: Name) -> None:
        """Drop an object that is deleted or has lost its labels."""
        group = self._group.pop((kind.kind, name), None)
        if group is None:
            return
        item = self._of[group].pop((kind.kind, name[1]))
        self.replaced(group, item, None)
        if not self._of[group]:
            del self._of[group]
        if item.significant is not None:
            self._enqueue(group)
