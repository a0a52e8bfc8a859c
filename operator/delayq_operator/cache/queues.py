"""Cache of the DelayQueues. They are stored as compact JSON: Python dicts take ten times the memory.

Not here: whether what arrives is newer than what is stored (inventory.py).
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from delayq_operator.base import names
from delayq_operator.base.objects import compact
from delayq_operator.cache.resource import OVERSIZE, Resource

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from delayq_operator.base.names import Key

MOST_BYTES: Final = 393_216
"""Maximum size of a DelayQueue as JSON: three templates of the maximum size, and as much again for the rest."""
NAMESPACE_BYTES: Final = 128 << 20
"""Maximum of the DelayQueues of one namespace: its authors must not fill the operator's memory."""
CHILDREN_BYTES: Final = 65_536
"""What each DelayQueue counts besides its own JSON: about as much as its children take."""
_METADATA: Final = frozenset(
    {"name", "namespace", "uid", "resourceVersion", "generation", "creationTimestamp", "deletionTimestamp"}
)


@dataclass(frozen=True, slots=True)
class _Known:
    """A body, and parsed fields for lookups over all DelayQueues: parsing every body would cost milliseconds each."""

    version: int
    text: bytes
    uid: str
    asked: tuple[str, int, str, str, bool]
    crowded: bool
    """Whether its namespace has no room for it, so that only an outline is stored."""

    @property
    def bytes(self) -> int:
        """What it counts in its namespace."""
        return len(self.text) + (0 if self.crowded else CHILDREN_BYTES)


def _known(resource: Resource, room: int) -> _Known:
    """Return what to store of a DelayQueue whose namespace has `room` bytes left."""
    text = compact(resource.body)
    crowded = len(text) + CHILDREN_BYTES > room
    if len(text) > MOST_BYTES:
        text = _outline(resource, f"expected at most {MOST_BYTES:,} bytes, got {len(text):,}")
    elif crowded:
        text = _outline(
            resource,
            f"the DelayQueues of a namespace take {NAMESPACE_BYTES >> 20} MiB of the operator's memory at most, and "
            f"{resource.key.namespace} has too many, or too large ones: delete some",
        )
    return _Known(
        version=int(resource.version),
        text=text,
        crowded=crowded,
        uid=resource.uid,
        asked=resource.asked,
    )


def _outline(resource: Resource, why: str) -> bytes:
    """Return what is needed to refuse and delete a DelayQueue: all bodies are in memory."""
    metadata = {field: value for field, value in resource.body["metadata"].items() if field in _METADATA}
    metadata["finalizers"] = [each for each in resource.finalizers if each == names.ERASE_FINALIZER]
    spec = {"deletionPolicy": "Delete"} if resource.erases else {}
    return compact({"metadata": metadata, "spec": spec, "status": resource.status, OVERSIZE: why})


class Queues:
    """All DelayQueues."""

    def __init__(self, enqueue: Callable[[Key], None]) -> None:
        """Call `enqueue` for each that changes."""
        self._known: dict[Key, _Known] = {}
        self._bytes: Counter[str] = Counter()  # by namespace
        self._by_label: dict[tuple[str, str], Key] = {}
        self._enqueue = enqueue

    def seen(self, body: Mapping[str, Any], *, ours: bool = False) -> bool:
        """Store a DelayQueue; return False if its namespace has no room for it.

        `ours`: it is the response to a write of this operator, which enqueues nothing.

        But such a response can be the first sight of an edit that came just before the write.
        """
        resource = Resource(dict(body))
        key = resource.key
        before = self._known.get(key)
        now = _known(resource, self._room(key))
        if before is not None and before.text == now.text:
            return not now.crowded
        self._know(key, now)
        self._by_label[key.namespace, names.label_value(key.name)] = key
        if not ours or before is None or before.asked != resource.asked:
            self._enqueue(key)
        return not now.crowded

    def gone(self, key: Key, uid: str) -> None:
        """Drop a DelayQueue, unless a later one of that name exists by now."""
        if self.uid(key) == uid:
            self._know(key, None)
            self._by_label.pop((key.namespace, names.label_value(key.name)), None)
            self._enqueue(key)

    def get(self, key: Key) -> Resource | None:
        known = self._known.get(key)
        return Resource(json.loads(known.text)) if known else None

    def _room(self, key: Key) -> int:
        """Return how many bytes of its namespace are left for a DelayQueue."""
        before = self._known.get(key)
        return NAMESPACE_BYTES - self._bytes[key.namespace] + (before.bytes if before else 0)

    def _know(self, key: Key, now: _Known | None) -> None:
        """Store a DelayQueue, or that there is none."""
        before = self._known.pop(key, None)
        if now is not None:
            self._known[key] = now
        self._bytes[key.namespace] += (now.bytes if now else 0) - (before.bytes if before else 0)
        if not self._bytes[key.namespace]:
            del self._bytes[key.namespace]

    def uid(self, key: Key) -> str:
        known = self._known.get(key)
        return known.uid if known else ""

    def version(self, key: Key) -> int:
        """Return the stored resourceVersion; 0 without one."""
        known = self._known.get(key)
        return known.version if known else 0

    def labelled(self, namespace: str, label: str) -> Key | None:
        return self._by_label.get((namespace, label))

    def enqueue_labelled(self, group: Key) -> None:
        """Enqueue the DelayQueue with this label, if there is one."""
        key = self.labelled(group.namespace, group.name)
        if key is not None:
            self._enqueue(key)

    def keys(self) -> list[Key]:
        return list(self._known)
