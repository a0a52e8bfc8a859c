"""Objects of the API: their names, kinds and paths."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

Object: TypeAlias = dict[str, Any]
"""An object of the API, as JSON."""

Name: TypeAlias = tuple[str, str]
"""Namespace and name of an object."""


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of object in the API."""

    api_version: str
    kind: str
    plural: str

    @property
    def group(self) -> str:
        """API group; empty for the core group."""
        return self.api_version.rpartition("/")[0]

    @property
    def version(self) -> str:
        """Version of the group, such as v1."""
        return self.api_version.rpartition("/")[2]


def name_of(body: Object) -> Name:
    """Return namespace and name of an object of a namespace."""
    return body["metadata"]["namespace"], body["metadata"]["name"]


def path(kind: Kind, namespace: str | None, name: str | None = None, subresource: str | None = None) -> str:
    """Path of an object, or of a list without `name`, or over all namespaces without `namespace`."""
    parts = [f"/apis/{kind.api_version}" if kind.group else f"/api/{kind.version}"]
    if namespace is not None:
        parts += ["namespaces", namespace]
    parts += [part for part in (kind.plural, name, subresource) if part is not None]
    return "/".join(parts)
