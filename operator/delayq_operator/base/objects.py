"""Shared types and helpers for API objects, so that pure modules need not import modules that do I/O."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, TypeAlias

if TYPE_CHECKING:
    from delayq.kube.objects import Object

Sample: TypeAlias = tuple[str, Mapping[str, str], float]
"""Name, labels and value of a metric, as another process exports it."""

_NOISE: Final = ("managedFields", "selfLink")
# The whole object once more, for kubectl alone.
_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"


def mapping(value: object) -> Object:
    """Return a part of an object whose type is not certain: empty unless it is a mapping."""
    return value if isinstance(value, dict) else {}


def mappings(value: object) -> list[Object]:
    """Return the mappings in such a part: none unless it is a list."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def at(body: object, path: str) -> object:
    """Return what is at a path such as "securityContext.runAsUser"; None where there is nothing."""
    for field in path.split("."):
        body = body.get(field) if isinstance(body, dict) else None
    return body


def pod_template(body: Object) -> Object:
    """Return the pod template of a Deployment, Job or CronJob; empty for other kinds."""
    spec = body.get("spec", {})
    found: Object = spec.get("jobTemplate", {}).get("spec", spec).get("template", {})
    return found


def compact(body: Mapping[str, Any]) -> bytes:
    """Return an object as JSON, without what only the API server reads."""
    trimmed = dict(body)
    metadata = {field: value for field, value in body["metadata"].items() if field not in _NOISE}
    annotations = metadata.get("annotations") or {}
    if _APPLIED in annotations:
        kept = {name: text for name, text in annotations.items() if name != _APPLIED}
        metadata["annotations"] = kept
    trimmed["metadata"] = metadata
    return json.dumps(trimmed, separators=(",", ":"), default=dict).encode()
