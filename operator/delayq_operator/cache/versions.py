"""Cache of Secrets and ConfigMaps: versions, digests, and the queues that refer to them."""

from __future__ import annotations

import hashlib
import hmac
import json
from collections import defaultdict
from typing import TYPE_CHECKING

from delayq_operator.base.names import SECRET

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from delayq_operator.base.names import Key, Kind
    from delayq_operator.base.objects import Name, Object


def content_digest(body: Object) -> str:
    """Digest what it holds. Of a Secret it is keyed with its UID, which only readers of the Secret know."""
    content = json.dumps([body.get("data"), body.get("binaryData")], sort_keys=True).encode()
    if body.get("kind") != SECRET.kind:
        return hashlib.sha256(content).hexdigest()
    return hmac.new(body["metadata"]["uid"].encode(), content, hashlib.sha256).hexdigest()


class Versions:
    """The version of each Secret or ConfigMap, and the queues that refer to it; a Listener of metadata only.

    Contents are never kept: only digests of those that a queue refers to, and of the value of each key, until they
    change.
    """

    def __init__(self, enqueue: Callable[[Key], None]) -> None:
        """Call `enqueue` for each queue that refers to a changed object."""
        self._versions: dict[Name, str] = {}
        self._digests: dict[Name, str] = {}
        self._values: dict[Name, dict[str, str]] = {}
        self._referrers: dict[Name, set[Key]] = defaultdict(set)
        self._referred: dict[Key, set[Name]] = {}
        self._enqueue = enqueue

    def refer(self, key: Key, wanted: Iterable[str]) -> None:
        """Replace the references of a queue."""
        now = {(key.namespace, name) for name in wanted}
        for name in self._referred.pop(key, set()) - now:
            self._referrers[name].discard(key)
            if not self._referrers[name]:
                del self._referrers[name]
                self._forget(name)
        for name in now:
            self._referrers[name].add(key)
        if now:
            self._referred[key] = now

    def exists(self, name: Name) -> bool:
        return name in self._versions

    def digest(self, name: Name) -> str | None:
        """Return the digest of the content, if it was taken since the last change."""
        return self._digests.get(name)

    def lacks(self, name: Name, key: str) -> bool:
        """Whether the object exists without the key; False while unknown."""
        return name in self._values and key not in self._values[name]

    def values(self, name: Name) -> dict[str, str] | None:
        """Return a digest of the value of each key, if they were taken since the last change."""
        return self._values.get(name)

    def taken(self, body: Object) -> str:
        """Take the digest of an object's content, and keep it while the object stays at this version."""
        metadata = body["metadata"]
        name = (metadata["namespace"], metadata["name"])
        digest = content_digest(body)
        if self._versions.get(name) == metadata["resourceVersion"]:
            self._digests[name] = digest
            self._values[name] = {
                key: hashlib.sha256(str(value).encode()).hexdigest()
                for field in ("data", "binaryData")
                for key, value in (body.get(field) or {}).items()
            }
        return digest

    def seen(self, _kind: Kind, body: Object) -> None:
        metadata = body["metadata"]
        name = (metadata["namespace"], metadata["name"])
        if self._versions.get(name) != metadata["resourceVersion"]:
            self._versions[name] = metadata["resourceVersion"]
            self._changed(name)

    def gone(self, _kind: Kind, name: Name) -> None:
        if self._versions.pop(name, None):
            self._changed(name)

    def _forget(self, name: Name) -> None:
        self._digests.pop(name, None)
        self._values.pop(name, None)

    def _changed(self, name: Name) -> None:
        self._forget(name)
        for key in list(self._referrers.get(name, ())):
            self._enqueue(key)
