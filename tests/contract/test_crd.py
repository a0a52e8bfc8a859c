"""The CRD and the model are one contract: what one says, the other says too."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from delayq.contract.kinds import Text
from delayq.contract.queue import GROUP, VERSION, DelayQueue, Metadata
from delayq.contract.record import declared
from delayq.contract.schedule import DelaySchedule

from tests.unit.contract.crd import CRD, ROOT, SCHEDULE_CRD, differences, root

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.unit.contract.crd import Schema


# --- The same words.


BOTH = pytest.mark.parametrize(
    ("crd", "model"), [(CRD, DelayQueue), (SCHEDULE_CRD, DelaySchedule)], ids=["queue", "schedule"]
)


@BOTH
def test_crd_and_model_have_the_same_fields_types_bounds_defaults_sentences_and_rules(
    crd: Schema, model: type
) -> None:
    assert list(differences(crd, model)) == []


@BOTH
def test_the_top_of_the_document_is_the_same_too(crd: Schema, model: type) -> None:
    fields, top = {field.name: field for field in declared(model)}, root(crd)
    assert [*fields, "status"] == list(top["properties"])
    assert list(fields) == top["required"]
    assert top["description"] == model.__doc__
    for constant in ("apiVersion", "kind"):
        assert top["properties"][constant] == {"description": fields[constant].doc, "type": "string"}
    name = next(field for field in declared(Metadata) if field.name == "name")
    assert isinstance(name.kind, Text)
    metadata = top["properties"]["metadata"]
    has = metadata["properties"]["name"]
    limits = {"minLength": 1, "maxLength": name.kind.max_length, "pattern": name.kind.pattern}
    assert has == {"description": has["description"], "type": "string", **limits}
    assert [*metadata, *metadata["properties"]] == ["type", "properties", "name"]
    assert (crd["spec"]["group"], crd["spec"]["names"]["kind"]) == (GROUP, model.__name__)
    assert [version["name"] for version in crd["spec"]["versions"]] == [VERSION]


def test_the_name_of_a_queue_cannot_change() -> None:
    assert [rule["message"] for rule in ROOT["x-kubernetes-validations"]] == ["queueName cannot be changed"]


# --- What Kubernetes shows.


@BOTH
def test_every_field_has_a_description(crd: Schema, model: type) -> None:  # noqa: ARG001 -- of each kind
    def undescribed(path: str, schema: Schema) -> Iterator[str]:
        if path.endswith(".template") and "description" in schema:
            return  # the fields inside are a Pod's: kubectl explain pod
        if "description" not in schema and path != ".metadata":
            yield path
        for name, inner in schema.get("properties", {}).items():
            yield from undescribed(f"{path}.{name}", inner)
        for key in ("items", "additionalProperties"):
            yield from undescribed(f"{path}.{key}", schema[key]) if key in schema else ()

    assert list(undescribed("", root(crd))) == []


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
            "READY DUE SCHEDULED IN-FLIGHT DEAD WORKERS DESIRED NEXT-DUE AGE",
            {".metadata.creationTimestamp", ".status.backlog.oldestDueTime"},
        ),
        (
            SCHEDULE_CRD,
            "QUEUE CRON SUSPEND READY NEXT LAST AGE",
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
