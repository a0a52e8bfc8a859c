"""Gathers the inputs of desired objects besides the document: digests of Secrets and ConfigMaps."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final

from delayq.kube.errors import NotFound

from delayq_operator.base import names
from delayq_operator.desired.facts import Facts
from delayq_operator.reconcile.plan import inputs_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from delayq.contract import DelayQueue
    from delayq.kube.objects import Kind

    from delayq_operator.cache.children import Child
    from delayq_operator.cache.queues import Queues
    from delayq_operator.cache.resource import Resource
    from delayq_operator.cache.versions import Versions
    from delayq_operator.kube.api import Api

UNREAD: Final = "unread"


class Referents:
    """The Secrets and ConfigMaps that queues refer to; read only when new or changed."""

    def __init__(self, api: Api, secrets: Versions, config_maps: Versions) -> None:
        """Nothing is read yet."""
        self._api, self._secrets, self._config_maps = api, secrets, config_maps
        self.versions: Mapping[Kind, Versions] = {names.SECRET: secrets, names.CONFIG_MAP: config_maps}
        self.kinds: frozenset[str] = frozenset()  # optional kinds that the API serves
        self.installation = ""  # written into ConfigMaps as this operator's claim

    def facts(self, resource: Resource, children: Mapping[tuple[str, str], Child]) -> Facts:
        """Gather the facts about one queue."""
        return Facts(
            uid=resource.uid,
            namespace=resource.key.namespace,
            installation=self.installation,
            generation=resource.generation,
            kinds=self.kinds,
            inputs=started_with(resource.key.name, children),
        )

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
