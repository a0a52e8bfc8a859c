"""Which Secrets and ConfigMaps the pods of a queue read: those the document names, and those its pod templates name.

Pull secrets are not among them: no process reads those, and a new one is used for the next pull as it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from delayq.contract import Problem, SpecError

from delayq_operator.base import names
from delayq_operator.desired import reads
from delayq_operator.desired.facts import References
from delayq_operator.desired.mounts import CONFIG_MAP, SECRET

if TYPE_CHECKING:
    from collections.abc import Iterator

    from delayq.contract import DelayQueue

    from delayq_operator.desired.mounts import Named

_SOURCES = {
    "secretKeyRef": (SECRET, "name"),
    "secretRef": (SECRET, "name"),
    "configMapKeyRef": (CONFIG_MAP, "name"),
    "configMapRef": (CONFIG_MAP, "name"),
}
_VOLUMES = {"secret": (SECRET, "secretName"), "configMap": (CONFIG_MAP, "name")}
_PROJECTED = {"secret": (SECRET, "name"), "configMap": (CONFIG_MAP, "name")}


MOST: Final = 100
"""Secrets and ConfigMaps that one queue may name: each is read, watched, and remembered in an annotation."""


def referenced(queue: DelayQueue) -> References:
    """Everything whose content matters to some pod, of which there may be too much: then SpecError.

    Says nothing else about templates that cannot be merged.
    """
    spec = queue.spec
    found = set(reads.by_anybody(spec))
    for template in (spec.scanner.template, spec.worker.template, spec.reaper.template):
        found |= of_template(template or {})
    found.discard((CONFIG_MAP, names.config(queue.metadata.name)))
    if len(found) > MOST:
        problem = f"expected at most {MOST} Secrets and ConfigMaps in all pod templates, got {len(found):,}"
        raise SpecError((Problem("spec", problem),))
    return References(
        secrets=frozenset(name for kind, name in found if kind == SECRET),
        config_maps=frozenset(name for kind, name in found if kind == CONFIG_MAP),
    )


def of_template(template: Mapping[str, object]) -> set[Named]:
    """Everything a pod template names, whatever else may be wrong with it."""
    spec = _mapping(template.get("spec"))
    found: set[Named] = set()
    for container in (*_items(spec, "containers"), *_items(spec, "initContainers")):
        for variable in _items(container, "env"):
            found |= _named(_mapping(variable.get("valueFrom")), _SOURCES)
        for source in _items(container, "envFrom"):
            found |= _named(source, _SOURCES)
    for volume in _items(spec, "volumes"):
        found |= _named(volume, _VOLUMES)
        for source in _items(_mapping(volume.get("projected")), "sources"):
            found |= _named(source, _PROJECTED)
    return found


def _named(parent: Mapping[str, object], fields: Mapping[str, tuple[str, str]]) -> set[Named]:
    named = ((kind, _mapping(parent.get(field)).get(name)) for field, (kind, name) in fields.items())
    return {(kind, name) for kind, name in named if isinstance(name, str) and name}


def _mapping(value: object) -> Mapping[str, object]:
    return value if isinstance(value, Mapping) else {}


def _items(parent: Mapping[str, object], field: str) -> Iterator[Mapping[str, object]]:
    found = parent.get(field)
    return (_mapping(item) for item in (found if isinstance(found, list) else ()))
