"""Fields that a user's pod template must not set, because they would break the operator's guarantees.

Not here: names and types of fields, which the document's parser checks.
"""

from __future__ import annotations

from posixpath import normpath
from typing import TYPE_CHECKING, Final

from delayq.contract.queue import GROUP

from delayq_operator.base import names
from delayq_operator.base.objects import mapping
from delayq_operator.desired import mounts, token
from delayq_operator.desired.merge import deletes

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from delayq.contract.problems import Place

_OURS: Final = "is the operator's own"
_POD: Final[Mapping[str, str]] = {
    "restartPolicy": _OURS,
    "serviceAccount": "is deprecated, use serviceAccountName",
    "ephemeralContainers": "cannot stand in a template",
}
_CONTAINER: Final = ("command", "args")
_VOLUMES: Final = (mounts.VOLUME, token.VOLUME)
_LABELS: Final = frozenset(names.labels("any", "worker"))


def check(template: Mapping[str, object], place: Place, *, container: str, pod: Mapping[str, str]) -> None:
    """Report every problem. `container` is the main one's name; `pod`: pod fields that this role protects → why."""
    metadata = mapping(template.get("metadata"))
    _metadata(metadata, place.field("metadata"))
    spec, here = mapping(template.get("spec")), place.field("spec")
    for field, why in {**_POD, **pod}.items():
        if field in spec:
            here.field(field).refuse(why)
    _kept(spec, here, ("containers", "volumes"))
    _volumes(spec, here)
    for item, at in _items(spec, "containers", here):
        if item.get("name") == container:
            _our_container(item, at)


def _metadata(metadata: Mapping[str, object], place: Place) -> None:
    for field in ("labels", "annotations"):
        for key in mapping(metadata.get(field)):
            if key in _LABELS or key.startswith(f"{GROUP}/"):
                place.field(field).key(key).refuse(_OURS)
    _kept(metadata, place, ("labels",))


def _kept(mapping: Mapping[str, object], place: Place, fields: tuple[str, ...]) -> None:
    for field in fields:
        if field in mapping and deletes(mapping[field]):
            place.field(field).refuse(_OURS)


def _volumes(spec: Mapping[str, object], place: Place) -> None:
    for item, at in _items(spec, "volumes", place):
        if item.get("name") in _VOLUMES:
            at.refuse(f"the volume {item['name']} {_OURS}")


def _our_container(container: Mapping[str, object], place: Place) -> None:
    for field in _CONTAINER:
        if field in container:
            place.field(field).refuse(_OURS)
    _kept(container, place, ("ports", "volumeMounts"))
    if deletes(container):
        place.refuse(f"the container {container['name']} {_OURS}")
    for port, at in _items(container, "ports", place):
        if port.get("containerPort") == names.METRICS_PORT or port.get("name") == names.METRICS_PORT_NAME:
            at.refuse(f"the port {names.METRICS_PORT_NAME} {_OURS}")
    for mount, at in _items(container, "volumeMounts", place):
        if _inside(mount.get("mountPath")):
            at.field("mountPath").refuse(f"{mounts.DIRECTORY} {_OURS}")


def _inside(path: object) -> bool:
    return isinstance(path, str) and f"{normpath('/' + path.lstrip('/'))}/".startswith(f"{mounts.DIRECTORY}/")


def _items(
    parent: Mapping[str, object], field: str, place: Place
) -> Iterator[tuple[Mapping[str, object], Place]]:
    found = parent.get(field)
    for index, item in enumerate(found if isinstance(found, list) else []):
        if isinstance(item, dict):
            yield item, place.field(field).item(index)
