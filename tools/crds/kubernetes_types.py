"""Write delayq.contract.kubernetes_types from an API server: `.venv/bin/python -m tools.crds.kubernetes_types`.

It starts the API server of `make cluster` and asks it for /openapi/v3. Names and types of fields are all that is kept.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Any, Final

from tests.cluster.harness.control_plane import ControlPlane

if TYPE_CHECKING:
    from tests.cluster.harness.rest import Rest

Schema = dict[str, Any]

FILE: Final = Path(__file__).parents[2] / "worker" / "delayq" / "contract" / "kubernetes_types.py"
ROOTS: Final = {
    "api/v1": "core.v1.PodTemplateSpec",
    "apis/networking.k8s.io/v1": "networking.v1.NetworkPolicyPeer",
}
PLAIN: Final = {"string": "text", "integer": "int", "boolean": "bool"}
ODD: Final = {"IntOrString": "port", "Quantity": "amount"}
ONLY: Final = {"ObjectMeta": ("annotations", "labels")}
"""Fields that a pod template, or the template of a volume claim, may have of a type."""
WITHOUT: Final = {"PodSpec": ("ephemeralContainers",)}
"""Fields that no template may have."""

HEAD: Final = '''\
"""The fields of Kubernetes' types, as `name:type`; `[type]` is a list, `{type}` a map.

Made by `python -m tools.crds.kubernetes_types` from the OpenAPI document of Kubernetes %s.
Copyright The Kubernetes Authors, Apache License 2.0; changed: names and types only.
"""

from __future__ import annotations

from typing import Final

TYPES: Final = {
'''


class Types:
    """The types that a root needs, found one by one."""

    def __init__(self, schemas: Schema) -> None:
        self._schemas = schemas
        self.found: dict[str, dict[str, str]] = {}

    def of(self, schema: Schema) -> str:
        """Return the type of a field, and find what it needs."""
        if "allOf" in schema:
            return self.of(schema["allOf"][0])
        if "$ref" in schema:
            return self._named(schema["$ref"].rpartition("/")[2])
        if schema["type"] == "array":
            return f"[{self.of(schema['items'])}]"
        if schema["type"] == "object":
            return f"{{{self.of(schema['additionalProperties'])}}}"
        return PLAIN[schema["type"]]

    def _named(self, path: str) -> str:
        name = path.rpartition(".")[2]
        if name not in ODD and name not in self.found:
            fields = self._schemas[path]["properties"]
            kept = [field for field in ONLY.get(name, fields) if field not in WITHOUT.get(name, ())]
            self.found[name] = {}
            self.found[name] = {field: self.of(fields[field]) for field in kept}
        return ODD.get(name, name)


def types(rest: Rest) -> dict[str, str]:
    """Return the types of an API server: the fields of each, as text."""
    found: dict[str, dict[str, str]] = {}
    for path, root in ROOTS.items():
        of = Types(rest.get(f"/openapi/v3/{path}")["components"]["schemas"])
        of.of({"$ref": f"#/components/schemas/io.k8s.api.{root}"})
        found |= of.found
    return {
        name: " ".join(f"{field}:{of}" for field, of in fields.items())
        for name, fields in sorted(found.items())
    }


def text(rest: Rest) -> str:
    """Return the text of the module."""
    lines = [_line(name, fields) for name, fields in types(rest).items()]
    version: str = rest.get("/version")["gitVersion"]
    return HEAD % version + "".join(lines) + "}\n"


def _line(name: str, fields: str) -> str:
    line = f'    "{name}": "{fields}",\n'
    if len(line) <= 111:  # noqa: PLR2004 -- the formatter's width
        return line
    wrapped = fill(fields, 108, initial_indent=" " * 8, subsequent_indent=" " * 8, break_on_hyphens=False)
    return f'    "{name}": """\n{wrapped}\n    """,\n'


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as directory:
        plane = ControlPlane.start(Path(directory))
        try:
            FILE.write_text(text(plane.rest))
        finally:
            plane.stop()
