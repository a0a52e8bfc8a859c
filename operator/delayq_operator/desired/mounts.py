"""Keys of Secrets and ConfigMaps that a part of the document names, and the volume that contains them.

One projected volume contains the document and these keys. It mounts only the keys in use: a private key next to a CA
certificate is not mounted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Final, TypeAlias

from delayq.contract import references
from delayq.contract.files import CONFIG_FILE, CONFIG_MAPS, SECRETS_DIR
from delayq.contract.http_service import HttpService

from delayq_operator.base import names
from delayq_operator.desired.config import KEY

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from delayq.kube.objects import Object


Named: TypeAlias = "tuple[str, str]"
"""Kind and name."""
Keys: TypeAlias = "dict[Named, list[str]]"
"""Secrets and ConfigMaps, and the keys of each."""

SECRET, CONFIG_MAP = "Secret", "ConfigMap"
VOLUME: Final = "delayq"
DIRECTORY: Final = str(PurePosixPath(CONFIG_FILE).parent)
_SECRETS = PurePosixPath(SECRETS_DIR).relative_to(DIRECTORY)
# Readable by any user that the image runs as. A group would need an fsGroup, which a cluster's policies may forbid.
_MODE = 0o444


def mounted_keys(*sections: object) -> Keys:
    """Return the Secrets and ConfigMaps that these parts of the document refer to, with their keys, both sorted.

    Not here: those of HTTP services.
    """
    return _sorted(key for section in sections for key in _keys(section, awaited=False))


def awaited_keys(*sections: object) -> Keys:
    """Return those of HTTP services: processes start without them, and wait. The operator does not read them."""
    return _sorted(key for section in sections for key in _keys(section, awaited=True))


def _sorted(keys: Iterable[tuple[Named, str]]) -> Keys:
    found: dict[Named, set[str]] = {}
    for named, key in keys:
        found.setdefault(named, set()).add(key)
    return {named: sorted(keys) for named, keys in sorted(found.items(), key=lambda each: each[0][::-1])}


def _keys(value: object, *, awaited: bool, of_service: bool = False) -> Iterator[tuple[Named, str]]:
    if isinstance(value, tuple | Mapping):
        for item in value.values() if isinstance(value, Mapping) else value:
            yield from _keys(item, awaited=awaited, of_service=of_service)
    if not is_dataclass(value):
        return
    if isinstance(value, references.SecretRef | references.CaConfigMapRef):
        kind = SECRET if isinstance(value, references.SecretRef) else CONFIG_MAP
        if of_service == awaited:
            yield (kind, value.name), value.key
        return
    for field in fields(value):
        inside = of_service or isinstance(value, HttpService)
        yield from _keys(getattr(value, field.name), awaited=awaited, of_service=inside)


def volume(queue_name: str, sections: Iterable[object], annotation: str = "") -> Object:
    """Return the volume at /etc/delayq, with the files that these parts of the document refer to.

    A missing object or key keeps the pod waiting, with an event of the kubelet, unless the process itself waits for it.
    The document is in the ConfigMap, or in an annotation of the pod.
    """
    config: Object = {"configMap": {"name": names.config(queue_name), "items": [{"key": KEY, "path": KEY}]}}
    if annotation:
        field = {"path": KEY, "fieldRef": {"fieldPath": f"metadata.annotations['{annotation}']"}}
        config = {"downwardAPI": {"items": [field]}}
    needed = mounted_keys(*sections)
    sources = [config, *(_source(named, keys) for named, keys in needed.items())]
    for named, keys in awaited_keys(*sections).items():
        if more := [key for key in keys if key not in needed.get(named, ())]:  # a path can have one source
            sources.append(_source(named, more, optional=True))
    return {"name": VOLUME, "projected": {"defaultMode": _MODE, "sources": sources}}


def _source(named: Named, keys: list[str], **more: bool) -> Object:
    kind, name = named
    field, directory = ("secret", _SECRETS) if kind == SECRET else ("configMap", _SECRETS / CONFIG_MAPS)
    items = [{"key": key, "path": str(directory / name / key)} for key in keys]
    return {field: {"name": name, "items": items, **more}}
