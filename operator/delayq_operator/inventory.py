"""What the operator knows of the cluster: kept by reflectors and by kopf, read by reconciliation.

Objects are kept as compact JSON, for as Python dicts they take ten times the memory. An object is only ever replaced by
a newer one, so that the answer to our own write and the watch that tells of it can come in either order.
"""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from delayq_operator import names
from delayq_operator.names import Key, Kind
from delayq_operator.pod import Pod
from delayq_operator.pod import read as read_pod
from delayq_operator.resource import Resource

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from delayq_operator.objects import Name, Object

_NOISE = ("managedFields", "selfLink")


class Queues:
    """The DelayQueues there are."""

    def __init__(self, mark: Callable[[Key], None]) -> None:
        """Tell `mark` of each that changes."""
        self._bodies: dict[Key, tuple[int, bytes]] = {}
        self._uids: dict[Key, str] = {}
        self._by_label: dict[tuple[str, str], Key] = {}
        self._mark = mark

    def seen(self, body: Mapping[str, Any], *, ours: bool = False) -> None:
        """Take note of a DelayQueue as it is now; what we wrote ourselves (`ours`) is nothing to react to.

        But the answer to our own write can be the first that we see of an edit which came just before it.
        """
        resource, before = Resource(dict(body)), self.get(key_of(body))
        key, version = resource.key, int(resource.version)
        if before is None or version > int(before.version):
            self._bodies[key] = (version, _compact(resource.body))
            self._uids[key] = resource.uid
            self._by_label[key.namespace, names.label_value(key.name)] = key
            if not ours or before is None or before.asked != resource.asked:
                self._mark(key)

    def gone(self, key: Key, uid: str) -> None:
        """Forget a DelayQueue, unless a later one of that name is there by now."""
        if self._uids.get(key) == uid:
            del self._uids[key], self._bodies[key]
            self._by_label.pop((key.namespace, names.label_value(key.name)), None)
            self._mark(key)

    def get(self, key: Key) -> Resource | None:
        """Return the DelayQueue, or None if there is none."""
        _, body = self._bodies.get(key, (0, b""))
        return Resource(json.loads(body)) if body else None

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


@dataclass(frozen=True, slots=True)
class Child:
    """An object that carries our labels, or did."""

    kind: Kind
    name: str
    uid: str
    version: int
    owner_uid: str | None
    """The DelayQueue that controls it."""
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
        self._queues, self._mark = queues, mark

    def of(self, key: Key) -> dict[tuple[str, str], Child]:
        """Return the children of a queue by kind and name."""
        return dict(self._of.get(key, {}))

    def seen(self, kind: Kind, body: Object) -> None:
        """Take note of a child as it is now."""
        metadata = body["metadata"]
        where = (kind.kind, (metadata["namespace"], metadata["name"]))
        key = self._key(body) or self._owner.get(where)
        if key is None:
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


def key_of(body: Mapping[str, Any]) -> Key:
    """Namespace and name of an object."""
    return Key(body["metadata"]["namespace"], body["metadata"]["name"])


def _child(kind: Kind, body: Object) -> Child:
    metadata = body["metadata"]
    return Child(
        kind=kind,
        name=metadata["name"],
        uid=metadata["uid"],
        version=int(metadata["resourceVersion"]),
        owner_uid=(_controller(metadata) or {}).get("uid"),
        scaled=_scaled(metadata.get("managedFields") or ()),
        text=_compact(body),
    )


def _controller(metadata: Mapping[str, Any]) -> Mapping[str, str] | None:
    for reference in metadata.get("ownerReferences") or ():
        if reference.get("controller") and reference["kind"] == names.DELAY_QUEUE.kind:
            owner: Mapping[str, str] = reference
            return owner
    return None


def _scaled(managed_fields: Iterable[Mapping[str, Any]]) -> bool:
    return any(
        entry.get("manager") == names.SCALER and "f:replicas" in entry.get("fieldsV1", {}).get("f:spec", {})
        for entry in managed_fields
    )


def _compact(body: Mapping[str, Any]) -> bytes:
    trimmed = dict(body)
    trimmed["metadata"] = {field: value for field, value in body["metadata"].items() if field not in _NOISE}
    return json.dumps(trimmed, separators=(",", ":"), default=dict).encode()


class Pods:
    """The pods of all queues; a Listener."""

    def __init__(self, queues: Queues, mark: Callable[[Key], None]) -> None:
        """Tell `mark` of the queue whose pods come or go, get ready, or get into trouble."""
        self._of: dict[tuple[str, str], dict[str, Pod]] = defaultdict(dict)
        self._label: dict[Name, str] = {}
        self._queues, self._mark = queues, mark

    def of(self, key: Key) -> list[Pod]:
        """Return the pods of a queue."""
        return list(self._of.get((key.namespace, names.label_value(key.name)), {}).values())

    def seen(self, kind: Kind, body: Object) -> None:
        """Take note of a pod as it is now."""
        namespace, name = body["metadata"]["namespace"], body["metadata"]["name"]
        label = body["metadata"]["labels"].get(names.QUEUE_LABEL)
        if label is None or body.get("status", {}).get("phase") == "Succeeded":
            self.gone(kind, (namespace, name))
            return
        if self._label.get((namespace, name), label) != label:
            self.gone(kind, (namespace, name))  # it changed hands
        pod, known = read_pod(body), self._of[namespace, label].get(name)
        self._label[namespace, name] = label
        self._of[namespace, label][name] = pod
        if known is None or (known.ready, known.trouble) != (pod.ready, pod.trouble):
            self._changed(namespace, label)

    def gone(self, _kind: Kind, name: Name) -> None:
        """Forget a pod."""
        label = self._label.pop(name, None)
        if label is None:
            return
        pods = self._of[name[0], label]
        pods.pop(name[1], None)
        if not pods:
            del self._of[name[0], label]
        self._changed(name[0], label)

    def _changed(self, namespace: str, label: str) -> None:
        key = self._queues.labelled(namespace, label)
        if key is not None:
            self._mark(key)


class Versions:
    """Which version each Secret or ConfigMap is at, and who refers to it; a Listener of metadata only.

    Contents are never kept: only the digest of those that a queue refers to, until they change.
    """

    def __init__(self, mark: Callable[[Key], None]) -> None:
        """Tell `mark` of each queue that refers to what changes."""
        self._versions: dict[Name, str] = {}
        self._digests: dict[Name, str] = {}
        self._referrers: dict[Name, set[Key]] = defaultdict(set)
        self._referred: dict[Key, set[Name]] = {}
        self._mark = mark

    def refer(self, key: Key, wanted: Iterable[str]) -> None:
        """Remember what a queue refers to, and nothing else it referred to before."""
        now = {(key.namespace, name) for name in wanted}
        for name in self._referred.pop(key, set()) - now:
            self._referrers[name].discard(key)
            if not self._referrers[name]:
                del self._referrers[name]
                self._digests.pop(name, None)
        for name in now:
            self._referrers[name].add(key)
        if now:
            self._referred[key] = now

    def exists(self, name: Name) -> bool:
        """Whether there is such an object."""
        return name in self._versions

    def digest(self, name: Name) -> str | None:
        """Return the digest of the content, if it was taken since the last change."""
        return self._digests.get(name)

    def taken(self, body: Object) -> str:
        """Take the digest of an object's content, and keep it while the object stays at this version."""
        metadata = body["metadata"]
        name = (metadata["namespace"], metadata["name"])
        content = [body.get("data"), body.get("binaryData")]
        digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
        if self._versions.get(name) == metadata["resourceVersion"]:
            self._digests[name] = digest
        return digest

    def seen(self, _kind: Kind, body: Object) -> None:
        """Take note of a version."""
        metadata = body["metadata"]
        name = (metadata["namespace"], metadata["name"])
        if self._versions.get(name) != metadata["resourceVersion"]:
            self._versions[name] = metadata["resourceVersion"]
            self._changed(name)

    def gone(self, _kind: Kind, name: Name) -> None:
        """Forget an object."""
        if self._versions.pop(name, None):
            self._changed(name)

    def _changed(self, name: Name) -> None:
        self._digests.pop(name, None)
        for key in list(self._referrers.get(name, ())):
            self._mark(key)


@dataclass(frozen=True)
class Inventory:
    """All of it that a reconciliation looks at."""

    queues: Queues
    children: Children
    pods: Pods
