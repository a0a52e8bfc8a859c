"""Cache of the children, and of objects with the operator's labels that have no owner.

Objects are stored as compact JSON, as in queues.py. Any client can set the labels: of an object that cannot be a child,
or is too large, only an outline is stored.
"""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from delayq.kube.objects import Kind, name_of

from delayq_operator.base import names
from delayq_operator.base.names import Key
from delayq_operator.base.objects import compact

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from delayq.kube.objects import Name, Object

    from delayq_operator.cache.queues import Queues
    from delayq_operator.cache.resource import Resource


MOST_BYTES: Final = 786_432
"""Maximum size of a child as JSON. The largest children contain a document of 192 KiB, or a template of 64 KiB."""
_OWNER: Final = (names.DELAY_QUEUE.api_version, names.DELAY_QUEUE.kind)
_METADATA: Final = ("name", "namespace", "uid", "resourceVersion", "generation", "creationTimestamp")
_SPEC: Final = ("replicas", "paused", "suspend")
_WITH_STATUS: Final = (names.DEPLOYMENT, names.CRON_JOB, names.JOB)
"""Kinds whose status Kubernetes writes, and the operator reads."""


@dataclass(frozen=True, slots=True)
class Child:
    """An object that has or had the operator's labels."""

    kind: Kind
    name: str
    uid: str
    owner_uid: str | None
    """The DelayQueue that controls it."""
    ours: bool
    """Whether this operator has applied it."""
    scaled: bool
    """Whether the operator's scaler owns its spec.replicas."""
    replicas: int
    """Its spec.replicas; 1 without it."""
    text: bytes
    """The object, or its outline."""

    @property
    def body(self) -> Object:
        body: Object = json.loads(self.text)
        return body

    def belongs_to(self, uid: str) -> bool:
        """Whether it belongs to this DelayQueue: labels alone prove nothing, as any client can set them."""
        return self.owner_uid == uid or (self.owner_uid is None and self.ours)

    @property
    def reference(self) -> tuple[str, str]:
        return self.kind.kind, self.name


class Children:
    """The objects that the operator created."""

    def __init__(self, queues: Queues, enqueue: Callable[[Key], None]) -> None:
        """Call `enqueue` for the queue whose child changes."""
        self._of: dict[Key, dict[tuple[str, str], Child]] = defaultdict(dict)
        self._owner: dict[tuple[str, Name], Key] = {}
        self._lost: dict[tuple[str, Name], Key] = {}
        self._unclaimed: dict[tuple[str, str], dict[tuple[str, Name], Child]] = defaultdict(dict)
        self._queues, self._enqueue = queues, enqueue
        queues.newcomers.append(self._claim)

    def of(self, key: Key) -> dict[tuple[str, str], Child]:
        return dict(self._of.get(key, {}))

    def get(self, key: Key, kind: Kind, name: str) -> Child | None:
        """Return one child; None if it does not exist."""
        return self._of.get(key, {}).get((kind.kind, name))

    def owned(self, resource: Resource, kind: Kind, name: str) -> Child | None:
        """Return one child; None if it does not exist or belongs to another DelayQueue."""
        child = self.get(resource.key, kind, name)
        return child if child is not None and child.belongs_to(resource.uid) else None

    def seen(self, kind: Kind, body: Object) -> None:
        where = (kind.kind, name_of(body))
        key = self._key(body) or self._owner.get(where)
        if key is None:
            self._put_by(kind, body)
            return
        if self._owner.get(where, key) != key:
            self.gone(kind, where[1])  # it has another owner now
        self._take(key, where, _child(kind, body, key))

    def _take(self, key: Key, where: tuple[str, Name], child: Child) -> None:
        self._of[key][child.reference] = child
        self._owner[where] = key
        self._enqueue(key)

    def gone(self, kind: Kind, name: Name, *, ours: bool = False) -> None:
        """Drop a child that is deleted or has lost the labels; `ours` if this operator deleted it."""
        where = (kind.kind, name)
        if ours:
            self._lost.pop(where, None)  # the watch may deliver before the response to our request
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
        self._enqueue(key)

    def found_again(self, kind: Kind, name: Name) -> bool:
        """Whether another client deleted this child; asked once, when it exists again."""
        return self._lost.pop((kind.kind, name), None) is not None

    def _put_by(self, kind: Kind, body: Object) -> None:
        """Buffer an object without owner until its DelayQueue is seen: lists arrive in any order."""
        metadata = body["metadata"]
        label = (metadata.get("labels") or {}).get(names.QUEUE_LABEL)
        if label is not None and not metadata.get("ownerReferences"):
            self._unclaimed[metadata["namespace"], label][kind.kind, name_of(body)] = _child(kind, body)

    def _let_go(self, where: tuple[str, Name]) -> None:
        for label, orphans in list(self._unclaimed.items()):
            orphans.pop(where, None)
            if not orphans:
                del self._unclaimed[label]

    def _claim(self, key: Key) -> None:
        orphans = self._unclaimed.pop((key.namespace, names.label_value(key.name)), {})
        for where, child in orphans.items():
            self._take(key, where, child)

    def forget(self, key: Key) -> None:
        for where in [where for where, owner in self._lost.items() if owner == key]:
            del self._lost[where]

    def _key(self, body: Object) -> Key | None:
        metadata = body["metadata"]
        owner = _controller(metadata)
        if owner is not None:
            return Key(metadata["namespace"], owner["name"])
        if any(reference.get("controller") for reference in metadata.get("ownerReferences") or ()):
            return None  # a Job of the reaper's CronJob, which manages it
        label = (metadata.get("labels") or {}).get(names.QUEUE_LABEL, "")
        return self._queues.labelled(metadata["namespace"], label)


def _child(kind: Kind, body: Object, key: Key | None = None) -> Child:
    """Read a child of a queue; without `key`, of one that is not known yet."""
    metadata = body["metadata"]
    text = compact(body) if key and (kind.kind, metadata["name"]) in names.children(key.name) else b""
    return Child(
        kind=kind,
        name=metadata["name"],
        uid=metadata["uid"],
        owner_uid=(_controller(metadata) or {}).get("uid"),
        ours=_applied(metadata.get("managedFields") or ()),
        scaled=_scaled(metadata.get("managedFields") or ()),
        replicas=(body.get("spec") or {}).get("replicas", 1),
        text=text if 0 < len(text) <= MOST_BYTES else compact(_outline(kind, body)),
    )


def _outline(kind: Kind, body: Object) -> Object:
    """Return the part of an object that is needed to apply it again, or to delete it."""
    metadata, spec = body["metadata"], body.get("spec") or {}
    owner = str((metadata.get("annotations") or {}).get(names.OWNER_UID, ""))[: names.LONGEST_LABEL]
    return {
        "metadata": {
            **{field: metadata[field] for field in _METADATA if field in metadata},
            "annotations": {names.OWNER_UID: owner},
        },
        "spec": {
            **{field: spec[field] for field in _SPEC if field in spec},
            "template": {"metadata": {}, "spec": {}},
        },
        "status": body.get("status", {}) if kind in _WITH_STATUS else {},
    }


def _controller(metadata: Mapping[str, Any]) -> Mapping[str, str] | None:
    for reference in metadata.get("ownerReferences") or ():
        # With another group or version, the garbage collector does not notice the missing owner.
        if reference.get("controller") and (reference.get("apiVersion"), reference["kind"]) == _OWNER:
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
