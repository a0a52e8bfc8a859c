"""Which keys of which Secrets a part of the document names, and the one volume that a pod finds them in.

One projected volume holds the document and the Secrets: no volume inside another, no volume named after a Secret, and
of each Secret only the keys that are used, for the private key beside a CA's certificate is nobody's business.
"""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Final

from delayq.contract import references
from delayq.contract.files import CONFIG_FILE, SECRETS_DIR

from delayq_operator.base import names
from delayq_operator.desired.config import KEY

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from delayq_operator.desired.child import Object

VOLUME: Final = "delayq"
DIRECTORY: Final = str(PurePosixPath(CONFIG_FILE).parent)
_SECRETS = PurePosixPath(SECRETS_DIR).relative_to(DIRECTORY)
# Read by whatever user the image runs as. Nobody else is in the container; a group would need an fsGroup, and that
# is for the cluster's own policies to give.
_MODE = 0o444

_REFERENCES = tuple(
    kind
    for kind in vars(references).values()
    if isinstance(kind, type) and kind.__module__ == references.__name__
)


def secret_keys(*sections: object) -> dict[str, list[str]]:
    """Name → keys of every Secret that these parts of the document refer to, both sorted."""
    found: dict[str, set[str]] = {}
    for section in sections:
        for name, key in _keys(section):
            found.setdefault(name, set()).add(key)
    return {name: sorted(keys) for name, keys in sorted(found.items())}


def _keys(value: object) -> Iterator[tuple[str, str]]:
    if isinstance(value, tuple):
        for item in value:
            yield from _keys(item)
    if not is_dataclass(value):
        return
    inner = {field.name: getattr(value, field.name) for field in fields(value)}
    if isinstance(value, _REFERENCES):
        yield from ((inner["name"], key) for name, key in inner.items() if name.endswith("key") and key)
        return
    for item in inner.values():
        yield from _keys(item)


def volume(queue_name: str, secrets: Mapping[str, list[str]]) -> Object:
    """Make the volume at /etc/delayq. A missing Secret, or key, keeps the pod waiting, and an event says why."""
    config = {"name": names.config(queue_name), "items": [{"key": KEY, "path": KEY}]}
    sources = [{"configMap": config}, *(_secret(name, keys) for name, keys in secrets.items())]
    return {"name": VOLUME, "projected": {"defaultMode": _MODE, "sources": sources}}


def with_document(volume: Object, annotation: str) -> Object:
    """Take the document from an annotation of the pod, if this is our volume, and not from the ConfigMap."""
    if volume["name"] != VOLUME:
        return volume
    field = {"path": KEY, "fieldRef": {"fieldPath": f"metadata.annotations['{annotation}']"}}
    sources = [each for each in volume["projected"]["sources"] if "configMap" not in each]
    projected = {**volume["projected"], "sources": [{"downwardAPI": {"items": [field]}}, *sources]}
    return {**volume, "projected": projected}


def _secret(name: str, keys: list[str]) -> Object:
    return {
        "secret": {
            "name": name,
            "items": [{"key": key, "path": str(_SECRETS / name / key)} for key in keys],
        }
    }
