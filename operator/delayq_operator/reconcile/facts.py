"""Gathers the inputs of desired objects besides the document: digests of Secrets and ConfigMaps."""

from __future__ import annotations

import hashlib
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from delayq.kube.errors import NotFound
from delayq.kube.objects import name_of

from delayq_operator.base import names
from delayq_operator.desired import reads, referenced
from delayq_operator.desired.checksum import SCHEDULES
from delayq_operator.desired.facts import Facts
from delayq_operator.desired.mounts import SECRET
from delayq_operator.reconcile.plan import inputs_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from delayq.contract import DelayQueue
    from delayq.kube.objects import Kind, Name

    from delayq_operator.cache.children import Child
    from delayq_operator.cache.queues import Queues
    from delayq_operator.cache.resource import Resource
    from delayq_operator.cache.schedules import Schedules
    from delayq_operator.cache.versions import Versions
    from delayq_operator.desired.reads import References
    from delayq_operator.kube.api import Api

UNREAD: Final = "unread"


class Referents:
    """The Secrets and ConfigMaps that queues refer to; read only when new or changed."""

    def __init__(self, api: Api, secrets: Versions, config_maps: Versions, schedules: Schedules) -> None:
        """Nothing is read yet."""
        self._api, self._secrets, self._config_maps, self._schedules = api, secrets, config_maps, schedules
        self.versions: Mapping[Kind, Versions] = {names.SECRET: secrets, names.CONFIG_MAP: config_maps}
        self.kinds: frozenset[str] = frozenset()  # optional kinds that the API serves
        self.installation = ""  # written into ConfigMaps as this operator's claim

    async def facts(
        self, resource: Resource, queue: DelayQueue, children: Mapping[tuple[str, str], Child]
    ) -> Facts:
        """Gather the facts about one queue; a change of a referent enqueues it."""
        references = referenced(queue)
        secrets = await self._digests(names.SECRET, self._secrets, resource, references)
        config_maps = await self._digests(names.CONFIG_MAP, self._config_maps, resource, references)
        # Missing keys that the document names. For keys in a pod template, the pod's status reports it.
        lacking = tuple(
            (name, key)
            for (kind, name), keys in reads.by_anybody(queue.spec).items()
            for key in keys
            if kind == SECRET and self._secrets.lacks((resource.key.namespace, name), key)
        )
        inputs = started_with(resource.key.name, children)
        role = children.get((names.ROLE.kind, names.scanner(resource.key.name)))
        return Facts(
            uid=resource.uid,
            namespace=resource.key.namespace,
            installation=self.installation,
            generation=resource.generation,
            secrets=secrets,
            lacking=lacking,
            config_maps=config_maps,
            kinds=self.kinds,
            # Also after the last one: a scanner that was away has to see that it is gone.
            schedules=bool(self._schedules.of(resource.key)) or SCHEDULES in inputs.get("scanner", {}),
            role=role is not None and role.belongs_to(resource.uid),
            inputs=inputs,
        )

    async def _digests(
        self, kind: Kind, versions: Versions, resource: Resource, references: References
    ) -> dict[str, str]:
        """Return digests of the contents; "" for what does not exist, UNREAD for what processes wait for by themselves.

        Each is salted with the queue's UID: annotations do not reveal that two queues have the same password.
        """
        wanted = sorted(references.secrets if kind == names.SECRET else references.config_maps)
        awaited = references.named(kind.kind)
        versions.refer(resource.key, {*wanted, *awaited})
        found = {
            name: UNREAD if await self._exists(kind, versions, (resource.key.namespace, name)) else ""
            for name in sorted(awaited)
        }
        for name in wanted:
            digest = await self._digest(kind, versions, (resource.key.namespace, name))
            salted = hashlib.sha256(f"{resource.uid}/{digest}".encode()).hexdigest()[:16]
            found[name] = salted if digest else ""
        return found

    async def _exists(self, kind: Kind, versions: Versions, where: Name) -> bool:
        """Whether there is such an object. Lists the names of its namespace again if the last list lacks it."""
        if not versions.exists(where):
            async for page in self._api.pages(kind, where[0], label_selector=None, metadata_only=True):
                for body in page["items"] or ():  # null in an empty list of metadata
                    if name_of(body) == where:
                        versions.noted(body)
        return versions.exists(where)

    async def _digest(self, kind: Kind, versions: Versions, where: Name) -> str | None:
        with suppress(NotFound):
            return versions.digest(where) or versions.taken(await self._api.get(kind, *where))
        return None

    async def sharers(self, key: names.Key, queues: Queues) -> list[names.Key]:
        """Name the DelayQueues that use the same tasks; of other namespaces only those with the same credentials.

        A spec can name any Redis. Equal credentials prove access to the tasks.
        """
        others = queues.sharing(key)
        if all(other.namespace == key.namespace for other in others):
            return others
        ours = await self._proof(key, queues)
        return [
            other
            for other in others
            if other.namespace == key.namespace
            or (ours is not None and await self._proof(other, queues) == ours)
        ]

    async def _proof(self, key: names.Key, queues: Queues) -> tuple[tuple[str, ...], ...] | None:
        """Return digests of a DelayQueue's Redis credentials; None if they do not exist."""
        found = []
        for name, keys in queues.credentials(key):
            where = (key.namespace, name)
            if self._secrets.values(where) is None:
                with suppress(NotFound):
                    self._secrets.taken(await self._api.get(names.SECRET, *where))
            values = self._secrets.values(where) or {}
            if not all(each in values for each in keys):
                return None
            found.append(tuple(values[each] for each in keys))
        return tuple(found)

    def forget(self, key: names.Key) -> None:
        """Drop the references of a DelayQueue."""
        self._secrets.refer(key, ())
        self._config_maps.refer(key, ())


def missing(facts: Facts) -> tuple[str, ...]:
    """Name missing references of a queue, such as "Secret shop-db", or "key password of Secret shop-db"."""
    return (
        *(f"Secret {name}" for name, digest in facts.secrets.items() if not digest),
        *(f"key {key} of Secret {name}" for name, key in facts.lacking),
        *(f"ConfigMap {name}" for name, digest in facts.config_maps.items() if not digest),
    )


def unserved(queue: DelayQueue, facts: Facts) -> tuple[str, ...]:
    """Name the optional kinds that a queue asks for and the cluster does not serve."""
    monitoring = queue.spec.monitoring
    asked = {
        names.POD_MONITOR.kind: monitoring.pod_monitor.enabled,
        names.PROMETHEUS_RULE.kind: monitoring.prometheus_rule.enabled,
    }
    return tuple(kind for kind, enabled in asked.items() if enabled and kind not in facts.kinds)


def started_with(queue_name: str, children: Mapping[tuple[str, str], Child]) -> dict[str, dict[str, str]]:
    """Return the inputs that the pods of each component last started with."""
    found = {
        component: children.get((names.DEPLOYMENT.kind, names.deployment(queue_name, component)))
        for component in ("scanner", "worker")
    }
    return {component: inputs_of(child.body) for component, child in found.items() if child is not None}
