"""Finds out what the desired objects depend on besides the document: contents of Secrets and ConfigMaps, as digests."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from delayq_operator import names
from delayq_operator.desired import reads
from delayq_operator.desired.facts import Facts
from delayq_operator.desired.references import referenced
from delayq_operator.errors import NotFound
from delayq_operator.plan import inputs_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from delayq.contract import DelayQueue

    from delayq_operator.api import Api
    from delayq_operator.children import Child
    from delayq_operator.names import Kind
    from delayq_operator.resource import Resource
    from delayq_operator.versions import Versions


class Referees:
    """The Secrets and ConfigMaps that queues refer to; read only when they are new or changed."""

    def __init__(self, api: Api, secrets: Versions, config_maps: Versions) -> None:
        """Nothing is read yet."""
        self._api, self._secrets, self._config_maps = api, secrets, config_maps
        self.kinds: frozenset[str] = frozenset()  # optional kinds that the API serves

    async def facts(
        self, resource: Resource, queue: DelayQueue, children: Mapping[tuple[str, str], Child]
    ) -> Facts:
        """Gather the facts about one queue, and have it marked when one of them changes."""
        references = referenced(queue)
        return Facts(
            uid=resource.uid,
            namespace=resource.key.namespace,
            generation=resource.generation,
            secrets=await self._digests(names.SECRET, self._secrets, resource, references.secrets),
            lacking=self._lacking(resource, queue),
            config_maps=await self._digests(
                names.CONFIG_MAP, self._config_maps, resource, references.config_maps
            ),
            kinds=self.kinds,
            inputs=started_with(resource.key.name, children),
        )

    def _lacking(self, resource: Resource, queue: DelayQueue) -> tuple[tuple[str, str], ...]:
        """Keys of the document only: for those of a pod template, the pod says so itself."""
        wanted = reads.by_anybody(queue.spec)
        return tuple(
            (name, key)
            for name, keys in wanted.items()
            for key in keys
            if self._secrets.lacks((resource.key.namespace, name), key)
        )

    async def _digests(
        self, kind: Kind, versions: Versions, resource: Resource, wanted: Iterable[str]
    ) -> dict[str, str]:
        wanted = sorted(wanted)
        versions.refer(resource.key, wanted)
        return {name: await self._digest(kind, versions, resource, name) for name in wanted}

    async def _digest(self, kind: Kind, versions: Versions, resource: Resource, name: str) -> str:
        where = (resource.key.namespace, name)
        if not versions.exists(where):
            return ""
        digest = versions.digest(where)
        if digest is None:
            try:
                digest = versions.taken(await self._api.get(kind, *where))
            except NotFound:
                return ""
        return salted(resource.uid, digest)

    def forget(self, key: names.Key) -> None:
        """Drop what a DelayQueue referred to."""
        self._secrets.refer(key, ())
        self._config_maps.refer(key, ())


def salted(uid: str, digest: str) -> str:
    """With the queue's uid in it, nobody can tell from annotations that two queues share a password."""
    return hashlib.sha256(f"{uid}/{digest}".encode()).hexdigest()[:16]


def missing(facts: Facts) -> tuple[str, ...]:
    """Name what a queue refers to and is not there, such as "Secret shop-db", or "key password of Secret shop-db"."""
    secrets = [f"Secret {name}" for name, digest in facts.secrets.items() if not digest]
    keys = [f"key {key} of Secret {name}" for name, key in facts.lacking]
    return (
        *secrets,
        *keys,
        *(f"ConfigMap {name}" for name, digest in facts.config_maps.items() if not digest),
    )


def unserved(queue: DelayQueue, facts: Facts) -> tuple[str, ...]:
    """Name the optional kinds that a queue asks for in vain."""
    monitoring = queue.spec.monitoring
    asked = {
        names.POD_MONITOR.kind: monitoring.pod_monitor.enabled,
        names.PROMETHEUS_RULE.kind: monitoring.prometheus_rule.enabled,
    }
    return tuple(kind for kind, enabled in asked.items() if enabled and kind not in facts.kinds)


def started_with(queue_name: str, children: Mapping[tuple[str, str], Child]) -> dict[str, dict[str, str]]:
    """Say what the pods of each component were last started with."""
    found = {}
    for component, name in (("scanner", names.scanner(queue_name)), ("worker", names.worker(queue_name))):
        child = children.get((names.DEPLOYMENT.kind, name))
        if child is not None:
            found[component] = inputs_of(child.body)
    return found
