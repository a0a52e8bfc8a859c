"""The CRDs are the model, printed, and Kubernetes can show them."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest

from tests.unit.contract.crd import CRD, SCHEDULE_CRD, root
from tools.crds.__main__ import wanted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.unit.contract.crd import Schema

BOTH = pytest.mark.parametrize("crd", [CRD, SCHEDULE_CRD], ids=["queue", "schedule"])
LAST_APPLIED = 250_000
"""Bytes that `kubectl apply` can keep of an object in an annotation, which has 262,144 at most."""


def test_the_files_are_the_model() -> None:
    assert {path: path.read_text() for path in wanted()} == wanted(), "run make crds"


@BOTH
def test_plain_kubectl_apply_can_remember_a_crd(crd: Schema) -> None:
    assert len(json.dumps(crd, separators=(",", ":")).encode()) <= LAST_APPLIED


def inside(path: str, schema: Schema) -> Iterator[tuple[str, Schema]]:
    """Each part of a schema, with its path."""
    yield path, schema
    for name, inner in schema.get("properties", {}).items():
        yield from inside(f"{path}.{name}", inner)
    for key in ("items", "additionalProperties"):
        yield from inside(f"{path}.{key}", schema[key]) if key in schema else ()


@BOTH
def test_every_field_has_a_description(crd: Schema) -> None:
    undescribed = {path for path, schema in inside("", root(crd)) if "description" not in schema}
    of_kubernetes = re.compile(r"\.template\.(metadata|spec)\.|\.(metrics|api)From\.items\.")
    assert {path for path in undescribed if not of_kubernetes.search(path)} == {".metadata"}


@BOTH
def test_no_field_is_without_a_schema_and_none_without_a_bound(crd: Schema) -> None:
    bounds = {"string": "maxLength", "array": "maxItems"}
    for path, schema in inside("", root(crd)["properties"]["spec"]):
        assert "x-kubernetes-preserve-unknown-fields" not in schema, path
        bound = "maxProperties" if "additionalProperties" in schema else bounds.get(schema.get("type", ""))
        assert bound is None or {bound, "enum"} & set(schema), path


def resolves(path: str, schema: Schema) -> bool:
    """Tell whether a simple JSON path leads to a field of the schema."""
    if path == ".metadata.creationTimestamp":
        return True
    for step in re.sub(r'\[(\?\(@.type=="\w+"\)|0)\]', ".items", path).lstrip(".").split("."):
        schema = schema["items"] if step == "items" else schema.get("properties", {}).get(step, {})
    return "type" in schema


@pytest.mark.parametrize(
    ("crd", "shown", "ages"),
    [
        (
            CRD,
            "READY DUE SCHEDULED IN-FLIGHT PARKED DEAD WORKERS DESIRED NEXT-DUE AGE",
            {".metadata.creationTimestamp", ".status.backlog.oldestDueTime"},
        ),
        (
            SCHEDULE_CRD,
            "QUEUE CRON SUSPEND READY NEXT LAST LATENESS-MS REASON AGE",
            {".metadata.creationTimestamp", ".status.lastRun.startTime"},
        ),
    ],
    ids=["queue", "schedule"],
)
def test_kubectl_get_shows_fields_that_exist_as_the_docs_promise(
    crd: Schema, shown: str, ages: set[str]
) -> None:
    columns = crd["spec"]["versions"][0]["additionalPrinterColumns"]
    for column in columns:
        assert resolves(column["jsonPath"], root(crd)), column
        assert column["description"]
    assert " ".join(column["name"].upper() for column in columns if not column.get("priority")) == shown
    dates = {column["jsonPath"] for column in columns if column["type"] == "date"}
    assert dates == ages, "a time to come would be printed as an age"
