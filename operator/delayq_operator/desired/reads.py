"""Secrets and ConfigMaps that the pods of a queue read, through the document and their templates.

Pull secrets are not among them: no process reads them, and the kubelet uses a new one at the next pull.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from delayq.contract import Problem, SpecError

from delayq_operator.base import names
from delayq_operator.base.objects import mapping, mappings
from delayq_operator.desired.mounts import CONFIG_MAP, SECRET, awaited_keys, mounted_keys

if TYPE_CHECKING:
    from collections.abc import Mapping

    from delayq.contract import DelayQueue
    from delayq.contract.queue import Spec

    from delayq_operator.desired.mounts import Keys, Named

_SOURCES = {
    "secretKeyRef": (SECRET, "name"),
    "secretRef": (SECRET, "name"),
    "configMapKeyRef": (CONFIG_MAP, "name"),
    "configMapRef": (CONFIG_MAP, "name"),
}
_VOLUMES = {"secret": (SECRET, "secretName"), "configMap": (CONFIG_MAP, "name")}
_PROJECTED = {"secret": (SECRET, "name"), "configMap": (CONFIG_MAP, "name")}

MOST: Final = 100
"""Most Secrets and ConfigMaps of one queue: each is read, watched, and stored in an annotation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class References:
    """Names of the Secrets and ConfigMaps that a queue's pods read."""

    secrets: frozenset[str] = frozenset()
    config_maps: frozenset[str] = frozenset()
    awaited: frozenset[Named] = frozenset()
    """Those that only HTTP services need: the operator looks whether they exist, and reads none."""

    def named(self, kind: str) -> frozenset[str]:
        """Return the names of those that are awaited, of one kind."""
        return frozenset(name for found, name in self.awaited if found == kind)


def by_anybody(spec: Spec) -> Keys:
    """Return everything that pods of the queue need to start."""
    return mounted_keys(spec.redis, spec.handler, spec.guard, spec.recovery.check)


def referenced(queue: DelayQueue) -> References:
    """Return everything whose content some pod reads; SpecError if there are more than MOST.

    Other problems of templates are not reported here.
    """
    spec = queue.spec
    found = set(by_anybody(spec))
    for template in (spec.scanner.template, spec.worker.template, spec.reaper.template):
        found |= of_template(template or {})
    found.discard((CONFIG_MAP, names.config(queue.metadata.name)))
    awaited = awaited_keys(spec.handler, spec.recovery.check).keys() - found
    if (number := len(found) + len(awaited)) > MOST:
        problem = f"expected at most {MOST} Secrets and ConfigMaps in all pod templates, got {number:,}"
        raise SpecError((Problem("spec", problem),))
    return References(
        secrets=frozenset(name for kind, name in found if kind == SECRET),
        config_maps=frozenset(name for kind, name in found if kind == CONFIG_MAP),
        awaited=frozenset(awaited),
    )


def of_template(template: Mapping[str, object]) -> set[Named]:
    """Return everything that a pod template names; the template may be invalid."""
    spec = mapping(template.get("spec"))
    found: set[Named] = set()
    for container in (*mappings(spec.get("containers")), *mappings(spec.get("initContainers"))):
        for variable in mappings(container.get("env")):
            found |= _named(mapping(variable.get("valueFrom")), _SOURCES)
        for source in mappings(container.get("envFrom")):
            found |= _named(source, _SOURCES)
    for volume in mappings(spec.get("volumes")):
        found |= _named(volume, _VOLUMES)
        for source in mappings(mapping(volume.get("projected")).get("sources")):
            found |= _named(source, _PROJECTED)
    return found


def _named(parent: Mapping[str, object], fields: Mapping[str, tuple[str, str]]) -> set[Named]:
    named = ((kind, mapping(parent.get(field)).get(name)) for field, (kind, name) in fields.items())
    return {(kind, name) for kind, name in named if isinstance(name, str) and name}
