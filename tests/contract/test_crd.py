"""The CRD and the model are one contract: what one says, the other says too."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from delayq.contract.kinds import Text
from delayq.contract.queue import GROUP, KIND, VERSION, DelayQueue, Metadata
from delayq.contract.record import declared

from tests.unit.contract.crd import CRD, ROOT, differences

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.unit.contract.crd import Schema


# --- The same words.


def test_the_crd_and_the_model_have_the_same_fields_types_bounds_defaults_sentences_and_rules() -> None:
    assert list(differences()) == []


def test_the_top_of_the_document_is_the_same_too() -> None:
    fields = {field.name: field for field in declared(DelayQueue)}
    assert [*fields, "status"] == list(ROOT["properties"])
    assert list(fields) == ROOT["required"]
    assert ROOT["description"] == DelayQueue.__doc__
    for constant in ("apiVersion", "kind"):
        assert ROOT["properties"][constant] == {"description": fields[constant].doc, "type": "string"}
    name = next(field for field in declared(Metadata) if field.name == "name")
    assert isinstance(name.kind, Text)
    limits = {"minLength": 1, "maxLength": name.kind.max_length, "pattern": name.kind.pattern}
    assert ROOT["properties"]["metadata"] == {
        "type": "object",
        "properties": {"name": {"description": name.doc, "type": "string", **limits}},
    }
    assert [rule["message"] for rule in ROOT["x-kubernetes-validations"]] == ["queueName cannot be changed"]
    assert (CRD["spec"]["group"], CRD["spec"]["names"]["kind"]) == (GROUP, KIND)
    assert [version["name"] for version in CRD["spec"]["versions"]] == [VERSION]


# --- What Kubernetes shows.


def test_every_field_has_a_description() -> None:
    def undescribed(path: str, schema: Schema) -> Iterator[str]:
        if path.endswith(".template") and "description" in schema:
            return  # the fields inside are a Pod's: kubectl explain pod
        if "description" not in schema and path != ".metadata":
            yield path
        for name, inner in schema.get("properties", {}).items():
            yield from undescribed(f"{path}.{name}", inner)
        for key in ("items", "additionalProperties"):
            yield from undescribed(f"{path}.{key}", schema[key]) if key in schema else ()

    assert list(undescribed("", ROOT)) == []


def resolves(path: str) -> bool:
    """Tell whether a simple JSON path leads to a field of the schema."""
    if path == ".metadata.creationTimestamp":
        return True
    schema = ROOT
    for step in re.sub(r'\[\?\(@.type=="\w+"\)\]', ".items", path).lstrip(".").split("."):
        schema = schema["items"] if step == "items" else schema.get("properties", {}).get(step, {})
    return "type" in schema


COLUMNS = CRD["spec"]["versions"][0]["additionalPrinterColumns"]


def test_kubectl_get_shows_fields_that_exist_as_the_readme_promises() -> None:
    for column in COLUMNS:
        assert resolves(column["jsonPath"]), column
        assert column["description"]
    shown = " ".join(column["name"].upper() for column in COLUMNS if not column.get("priority"))
    assert shown == "READY DUE SCHEDULED IN-FLIGHT DEAD WORKERS DESIRED NEXT-DUE AGE"
    dates = {column["jsonPath"] for column in COLUMNS if column["type"] == "date"}
    ages = {".metadata.creationTimestamp", ".status.backlog.oldestDueTime"}
    assert dates == ages, "a time to come would be printed as an age"
