"""Cache of the children, and of objects with the operator's labels that have no owner.

Objects are stored as compact JSON, as in queues.py. Any client can set the labels, and enlarge children: of an object
that cannot be a child, or is too large, or that its namespace has no room for, only an outline is stored.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from delayq_operator.base import names
from delayq_operator.base.names import Key
from delayq_operator.base.objects import compact
from delayq_operator.cache.groups import Groups

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from delayq.kube.objects import Kind, Object

    from delayq_operator.cache.queues import Queues
    from delayq_operator.cache.resource import Resource


MOST_BYTES: Final = 786_432
"""Maximum size of a child as JSON. The largest children contain a document of 192 KiB, or a template of 64 KiB."""
NAMESPACE_BYTES: Final = 64 << 20
"""Maximum of the children of one namespace, as of its DelayQueues (queues.py). Those of most queues have 10 KiB."""
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
    def significant(self) -> object:
        return self.text


class Children(Groups[Child]):
    """The objects that the operator created."""

    def __init__(self, queues: Queues) -> None:
        super().__init__(queues.enqueue_labelled)
        self._queues = queues
        self._bytes: Counter[str] = Counter()  # by namespace

    def of(self, key: Key) -> dict[tuple[str, str], Child]:
        return self.group(names.labelled(key))

    def get(self, key: Key, kind: Kind, name: str) -> Child | None:
        """Return one child; None if it does not exist."""
        return self.of(key).get((kind.kind, name))

    def owned(self, resource: Resource, kind: Kind, name: str) -> Child | None:
        """Return one child; None if it does not exist or belongs to another DelayQueue."""
        child = self.get(resource.key, kind, name)
        return child if child is not None and child.belongs_to(resource.uid) else None

    def read(self, kind: Kind, body: Object) -> tuple[Key, Child] | None:
        metadata, owner = body["metadata"], _controller(body["metadata"])
        if owner is not None:
            key = Key(metadata["namespace"], owner["name"])
            return names.labelled(key), self._child(kind, body, key)
        if any(reference.get("controller") for reference in metadata.get("ownerReferences") or ()):
            return None  # a Job of the reaper's CronJob, which manages it
        group = Key(metadata["namespace"], (metadata.get("labels") or {}).get(names.QUEUE_LABEL, ""))
        return group, self._child(kind, body, self._queues.labelled(group.namespace, group.name))

    def replaced(self, group: Key, before: Child | None, now: Child | None) -> None:
        self._bytes[group.namespace] += (len(now.text) if now else 0) - (len(before.text) if before else 0)
        if not self._bytes[group.namespace]:
            del self._bytes[group.namespace]

    def _child(self, kind: Kind, body: Object, key: Key | None) -> Child:
        """Read a child of a queue; without `key`, of one that is not known yet: lists arrive in any order."""
        metadata = body["metadata"]
        text = compact(body) if key and (kind.kind, metadata["name"]) in names.children(key.name) else b""
        most = min(MOST_BYTES, NAMESPACE_BYTES - self._bytes[metadata["namespace"]])
        return Child(
            kind=kind,
            name=metadata["name"],
            uid=metadata["uid"],
            owner_uid=(_controller(metadata) or {}).get("uid"),
            ours=_applied(metadata.get("managedFields") or ()),
            scaled=_scaled(metadata.get("managedFields") or ()),
            replicas=(body.get("spec") or {}).get("replicas", 1),
            text=text if 0 < len(text) <= most else compact(_outline(kind, body)),
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
