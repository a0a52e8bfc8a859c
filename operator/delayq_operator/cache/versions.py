"""Cache of Secrets and ConfigMaps: versions, digests, and the queues that refer to them."""

from __future__ import annotations

import hashlib
import hmac
import json
from typing import TYPE_CHECKING

from delayq.kube.objects import name_of

from delayq_operator.base.names import SECRET

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from delayq.kube.objects import Name, Object

    from delayq_operator.base.names import Key


def content_digest(body: Object) -> str:
    """Digest what it holds. Of a Secret it is keyed with its UID, which only readers of the Secret know."""
    content = json.dumps([body.get("data"), body.get("binaryData")], sort_keys=True).encode()
    if body.get("kind") != SECRET.kind:
        return hashlib.sha256(content).hexdigest()
    return hmac.new(body["metadata"]["uid"].encode(), content, hashlib.sha256).hexdigest()


class Versions:
    """The version of each Secret or ConfigMap, from lists of metadata, and the queues that refer to it.

    Contents are never kept: only digests of those that a queue refers to, and of the value of each key, until they
    change.
    """

    def __init__(self, enqueue: Callable[[Key], None]) -> None:
        """Call `enqueue` for each queue that refers to a changed object."""
        self._versions: dict[Name, str] = {}
        self._taken: dict[Name, tuple[str, dict[str, str]]] = {}
        self._referred: dict[Key, set[Name]] = {}
        self._enqueue = enqueue

    def refer(self, key: Key, wanted: Iterable[str]) -> None:
        """Replace the references of a queue."""
        now = {(key.namespace, name) for name in wanted}
        before = self._referred.pop(key, set())
        if now:
            self._referred[key] = now
        for name in before - now:
            if not self._referrers(name):
                self._taken.pop(name, None)

    def _referrers(self, name: Name) -> list[Key]:
        return [key for key, names in self._referred.items() if name in names]

    def exists(self, name: Name) -> bool:
        return name in self._versions

    def digest(self, name: Name) -> str | None:
        """Return the digest of the content, if it was taken since the last change."""
        return self._taken[name][0] if name in self._taken else None

    def lacks(self, name: Name, key: str) -> bool:
        """Whether the object exists without the key; False while unknown."""
        return name in self._taken and key not in self._taken[name][1]

    def values(self, name: Name) -> dict[str, str] | None:
        """Return a digest of the value of each key, if they were taken since the last change."""
        return self._taken[name][1] if name in self._taken else None

    def taken(self, body: Object) -> str:
        """Take the digest of an object's content, and keep it while the object stays at this version."""
        name, digest = name_of(body), content_digest(body)
        if self.noted(body):
            values = {
                key: hashlib.sha256(str(value).encode()).hexdigest()
                for field in ("data", "binaryData")
                for key, value in (body.get(field) or {}).items()
            }
            self._taken[name] = (digest, values)
        return digest

    def noted(self, body: Object) -> bool:
        """Take the version of an object that was read; False if a list had a newer one."""
        name, version = name_of(body), body["metadata"]["resourceVersion"]
        if int(self._versions.get(name, 0)) > int(version):
            return False
        self._versions[name] = version
        return True

    def listed(self, versions: dict[Name, str]) -> None:
        """Take the versions of all there are."""
        before, self._versions = self._versions, versions
        for name in before.keys() | versions.keys():
            if before.get(name) != versions.get(name):
                self._changed(name)

    def _changed(self, name: Name) -> None:
        self._taken.pop(name, None)
        for key in self._referrers(name):
            self._enqueue(key)
