"""The objects that the operator made, and those that carry our labels without an owner.

Kept as compact JSON, and only ever replaced by a newer one, as in queues.py.
"""

from __future__ import annotations

import json
from collections import defaultdict
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from delayq_operator import names
from delayq_operator.names import Key, Kind
from delayq_operator.objects import compact

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from delayq_operator.objects import Name, Object
    from delayq_operator.queues import Queues


@dataclass(frozen=True, slots=True)
class Child:
    """An object that carries our labels, or did."""

    kind: Kind
    name: str
    uid: str
    version: int
    owner_uid: str | None
    """The DelayQueue that controls it."""
    ours: bool
    """Whether we have ever applied it."""
    scaled: bool
    """Whether our scaler owns its spec.replicas."""
    text: bytes

    @property
    def body(self) -> Object:
        """The object without its managed fields."""
        body: Object = json.loads(self.text)
        return body

    @property
    def reference(self) -> tuple[str, str]:
        """Kind and name, by which a queue tells its children apart."""
        return self.kind.kind, self.name


class Children:
    """The objects that the operator made; a Listener."""

    def __init__(self, queues: Queues, mark: Callable[[Key], None]) -> None:
        """Tell `mark` of the queue whose child changes."""
        self._of: dict[Key, dict[tuple[str, str], Child]] = defaultdict(dict)
        self._owner: dict[tuple[str, Name], Key] = {}
        self._lost: dict[tuple[str, Name], Key] = {}
        self._writing: dict[tuple[str, Name], bool] = {}  # whether the child went while we wrote it
        self._unclaimed: dict[tuple[str, str], dict[tuple[str, Name], tuple[Kind, bytes]]] = defaultdict(dict)
        self._queues, self._mark = queues, mark
        queues.newcomers.append(self._claim)

    def of(self, key: Key) -> dict[tuple[str, str], Child]:
        """Return the children of a queue by kind and name."""
        return dict(self._of.get(key, {}))

    def seen(self, kind: Kind, body: Object) -> None:
        """Take note of a child as it is now."""
        metadata = body["metadata"]
        where = (kind.kind, (metadata["namespace"], metadata["name"]))
        key = self._key(body) or self._owner.get(where)
        if key is None:
            self._put_by(kind, body)
            return
        if self._owner.get(where, key) != key:
            self.gone(kind, where[1])  # it changed hands
        child = _child(kind, body)
        known = self._of[key].get(child.reference)
        if known is not None and known.version >= child.version:
            return
        self._of[key][child.reference] = child
        self._owner[where] = key
        self._mark(key)

    def gone(self, kind: Kind, name: Name, *, ours: bool = False) -> None:
        """Forget a child, or one that does not carry our labels any more; `ours` if we deleted it."""
        where = (kind.kind, name)
        if where in self._writing:
            self._writing[where] = True
        if ours:
            self._lost.pop(where, None)  # the watch may have been quicker than the answer to our request
        key = self._owner.pop(where, None)
        if key is None:
            self._let_go(where)
            return
        children = self._of[key]
        child = children.pop((kind.kind, name[1]), None)
        if not children:
            del self._of[key]
        if child is not None and not ours and child.owner_uid == self._queues.uid(key):
            self._lost[where] = key
        self._mark(key)

    @contextmanager
    def written(self, kind: Kind, name: Name) -> Iterator[Callable[[Object], None]]:
        """Take note of the answer to a write, unless the watch has told meanwhile that the child is gone.

        The answer may have been under way for longer than the news: it would bring back what is not there any more, and
        nobody would ever say so again.
        """
        where = (kind.kind, name)
        self._writing[where] = False

        def take(body: Object) -> None:
            key = self._key(body) if self._writing[where] else None
            if key is None:
                self.seen(kind, body)
            else:
                self._mark(key)  # to look again; if the write made it anew, the watch brings it

        try:
            yield take
        finally:
            del self._writing[where]

    def found_again(self, kind: Kind, name: Name) -> bool:
        """Whether this child was there before, and somebody took it away; asked once, when it is there again."""
        return self._lost.pop((kind.kind, name), None) is not None

    def _put_by(self, kind: Kind, body: Object) -> None:
        """Keep what carries our labels and has no owner, until its DelayQueue is seen: lists come in any order."""
        metadata = body["metadata"]
        label = (metadata.get("labels") or {}).get(names.QUEUE_LABEL)
        if label is not None and not metadata.get("ownerReferences"):
            where = (kind.kind, (metadata["namespace"], metadata["name"]))
            # With its managed fields: they tell whether we have ever applied it.
            self._unclaimed[metadata["namespace"], label][where] = (kind, json.dumps(body).encode())

    def _let_go(self, where: tuple[str, Name]) -> None:
        for label, orphans in list(self._unclaimed.items()):
            orphans.pop(where, None)
            if not orphans:
                del self._unclaimed[label]

    def _claim(self, key: Key) -> None:
        orphans = self._unclaimed.pop((key.namespace, names.label_value(key.name)), {})
        for kind, text in orphans.values():
            self.seen(kind, json.loads(text))

    def forget(self, key: Key) -> None:
        """Drop what is remembered of a DelayQueue that is gone."""
        for where in [where for where, owner in self._lost.items() if owner == key]:
            del self._lost[where]

    def _key(self, body: Object) -> Key | None:
        metadata = body["metadata"]
        owner = _controller(metadata)
        if owner is not None:
            return Key(metadata["namespace"], owner["name"])
        if any(reference.get("controller") for reference in metadata.get("ownerReferences") or ()):
            return None  # a Job of the reaper's CronJob: that one's business
        label = (metadata.get("labels") or {}).get(names.QUEUE_LABEL, "")
        return self._queues.labelled(metadata["namespace"], label)


def _child(kind: Kind, body: Object) -> Child:
    metadata = body["metadata"]
    return Child(
        kind=kind,
        name=metadata["name"],
        uid=metadata["uid"],
        version=int(metadata["resourceVersion"]),
        owner_uid=(_controller(metadata) or {}).get("uid"),
        ours=_applied(metadata.get("managedFields") or ()),
        scaled=_scaled(metadata.get("managedFields") or ()),
        text=compact(body),
    )


def _controller(metadata: Mapping[str, Any]) -> Mapping[str, str] | None:
    for reference in metadata.get("ownerReferences") or ():
        if reference.get("controller") and reference["kind"] == names.DELAY_QUEUE.kind:
            owner: Mapping[str, str] = reference
            return owner
    return None


def _applied(managed_fields: Iterable[Mapping[str, Any]]) -> bool:
    return any(
        entry.get("manager") == names.OPERATOR and entry.get("operation") == "Apply"
        for entry in managed_fields
    )


def _scaled(managed_fields: Iterable[Mapping[str, Any]]) -> bool:
    return any(
        entry.get("manager") == names.SCALER and "f:replicas" in entry.get("fieldsV1", {}).get("f:spec", {})
        for entry in managed_fields
    )
