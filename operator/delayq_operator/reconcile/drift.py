"""Compares a live object with the desired one, and returns the paths of the differences.

The API server adds defaults, drops zeroes, rewrites quantities, and other managers add fields: none of that is drift.
Drift is a desired field that is missing or different, or one that is no longer desired. The fingerprint of the last
applied object detects the latter.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from delayq_operator.base import names, privileges
from delayq_operator.base.objects import pod_template
from delayq_operator.base.quantity import same_quantity

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from delayq.kube.objects import Object

_KEYS: Final[Mapping[str, tuple[str, ...]]] = {
    "containers": ("name",),
    "initContainers": ("name",),
    "volumes": ("name",),
    "env": ("name",),
    "ports": ("containerPort", "port", "protocol"),
    "volumeMounts": ("mountPath",),
    "volumeDevices": ("devicePath",),
    "imagePullSecrets": ("name",),
    "resourceClaims": ("name",),
    "claims": ("name",),
    "hostAliases": ("ip",),
    "topologySpreadConstraints": ("topologyKey", "whenUnsatisfiable"),
    "ownerReferences": ("uid",),
}
"""Lists that several managers may add to → the keys of their items. Any other list belongs to one manager."""

_DEFAULTS: Final[Mapping[str, str]] = {"protocol": "TCP"}

_POINTERS: Final = frozenset(
    {
        "entry",
        "allowPrivilegeEscalation",
        "automountServiceAccountToken",
        "enableServiceLinks",
        "fsGroup",
        "hostUsers",
        "priority",
        "readOnlyRootFilesystem",
        "runAsGroup",
        "runAsNonRoot",
        "runAsUser",
        "storageClassName",
        "terminationGracePeriodSeconds",
        "tolerationSeconds",
        "ttlSecondsAfterFinished",
    }
)
"""Fields where absent differs from false, 0 or "". The API server drops these values in all other fields."""

_UNSET: Final = frozenset(
    {
        "apiVersion",
        "dnsPolicy",
        "failureThreshold",
        "imagePullPolicy",
        "path",
        "periodSeconds",
        "protocol",
        "scheme",
        "schedulerName",
        "successThreshold",
        "terminationMessagePath",
        "terminationMessagePolicy",
        "timeoutSeconds",
    }
)
"""Fields whose "" or 0 the API server replaces by a default."""

_MAPS: Final = frozenset({"annotations", "labels", "limits", "matchLabels", "nodeSelector", "requests"})
"""Mappings that the API server drops when empty. It keeps others, such as an empty emptyDir."""

_WHOLE: Final = frozenset({"matchLabels", "nodeSelector", "podSelector", "selector"})
"""Mappings with one owner: an additional entry changes the selection."""

_QUANTITIES: Final = frozenset({"quantity", "divisor", "sizeLimit"})
_ENTRIES: Final = dict.fromkeys((*_MAPS, "data"), "entry") | {
    "limits": "quantity",
    "requests": "quantity",
}
"""Mapping with keys chosen by the author → the field name that stands for its entries."""

_IGNORED: Final = frozenset({"apiVersion", "kind"})  # absent in list responses


def stamped(desired: Object) -> Object:
    """Return the object with its fingerprint, a hash of it, as an annotation."""
    text = json.dumps(desired, sort_keys=True, separators=(",", ":"))
    fingerprint = hashlib.sha256(text.encode()).hexdigest()[:16]
    metadata = desired["metadata"]
    annotations = {**metadata.get("annotations", {}), names.APPLIED: fingerprint}
    return {**desired, "metadata": {**metadata, "annotations": annotations}}


def differs(desired: Object, live: Object) -> bool:
    """Whether a field of `desired` differs in `live`."""
    return next(differences(desired, live), None) is not None


def differences(desired: Object, live: Object) -> Iterator[str]:
    """Yield the path of each field of `desired` that differs in `live`."""
    for field, value in desired.items():
        if field not in _IGNORED:
            yield from _differences(value, live.get(field), field, field)


def _differences(wanted: object, found: object, path: str, field: str) -> Iterator[str]:
    """Compare two values; `field` is the name of the field that contains them."""
    if isinstance(wanted, Mapping):
        yield from _of_mapping(wanted, found, path, field)
    elif isinstance(wanted, list):
        yield from _of_list(wanted, found, path, field)
    elif found is None:
        if wanted or field in _POINTERS:
            yield path
    elif not _same(wanted, found, field):
        yield path


def _of_mapping(wanted: Mapping[str, object], found: object, path: str, field: str) -> Iterator[str]:
    if found is None and not wanted and field in _MAPS:
        return
    if not isinstance(found, Mapping) or (field in _WHOLE and found.keys() - wanted.keys()):
        yield path
        return
    for key, value in wanted.items():
        yield from _differences(value, found.get(key), _join(path, key), _ENTRIES.get(field, key))


def _join(path: str, key: str) -> str:
    return f"{path}.{key}" if key.isidentifier() else f"{path}[{key}]"


def _of_list(wanted: Sequence[object], found: object, path: str, field: str) -> Iterator[str]:
    theirs = [] if found is None else found
    if not isinstance(theirs, list):
        yield path
    elif field in _KEYS and not path.startswith("spec.ingress"):
        yield from _of_items(wanted, theirs, path, field)
    elif len(wanted) != len(theirs):
        yield path
    else:
        for at, (ours, other) in enumerate(zip(wanted, theirs, strict=True)):
            yield from _differences(ours, other, f"{path}[{at}]", "")


def _of_items(wanted: Sequence[object], found: Sequence[object], path: str, field: str) -> Iterator[str]:
    known = {_identity(item, field): item for item in found}
    for item in wanted:
        who = _identity(item, field)
        yield from _differences(item, known.get(who), f"{path}[{_title(who)}]", "")


def _identity(item: object, field: str) -> tuple[object, ...]:
    if not isinstance(item, Mapping):
        return ()
    return tuple(item.get(key, _DEFAULTS.get(key)) for key in _KEYS[field])


def _title(who: tuple[object, ...]) -> str:
    return "/".join(str(part) for part in who if part is not None)


def _same(wanted: object, found: object, field: str) -> bool:
    if isinstance(wanted, bool) or isinstance(found, bool):
        return wanted is found
    if not wanted and field in _UNSET:
        return True
    if field in _QUANTITIES:
        return same_quantity(str(wanted), str(found))
    return wanted == found or (isinstance(wanted, int | str) and str(wanted) == str(found))


def foreign(desired: Object, live: Object) -> list[str]:
    """Name additions to the live pod template that must be reported: "container proxy", "hostNetwork"."""
    ours, theirs = (pod_template(each).get("spec", {}) for each in (desired, live))
    containers = []
    for field, what in privileges.CONTAINERS:
        wanted = set(_names(ours, field))
        containers += [f"{what} {name}" for name in _names(theirs, field) if name not in wanted]
    return containers + privileges.added(ours, theirs)


def _names(pod: Object, field: str) -> Iterator[str]:
    return (container["name"] for container in pod.get(field) or ())
