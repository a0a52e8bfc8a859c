"""The CRD and the model are one contract: what one says, the other says too."""

from __future__ import annotations

import json
import re
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from delayq.contract import SpecError, parse
from delayq.contract.kinds import Text
from delayq.contract.queue import GROUP, KIND, VERSION, DelayQueue, Metadata
from delayq.contract.record import declared
from hypothesis import given
from jsonschema import Draft202012Validator
from jsonschema.validators import extend

from tests.unit.contract.crd import CRD, ROOT, SPEC, differences, every_rule
from tests.unit.contract.documents import Json, disturbed_specs, document, specs

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.unit.contract.crd import Schema

ROOT_DIRECTORY = Path(__file__).parents[2]

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


# --- The comparison can fail.


def places(schema: Json) -> Iterator[tuple[Json, Json]]:
    """Every container in a schema, with each of its keys or indexes."""
    for key in list(schema) if isinstance(schema, dict) else range(len(schema)):
        yield schema, key
        if (
            isinstance(schema[key], dict | list) and key != "template"
        ):  # tools/crd-templates.py --check sees it
            yield from places(schema[key])


@contextmanager
def without(container: Json, key: Json) -> Iterator[None]:
    kept = container.copy()
    del container[key]
    yield
    container.clear()
    container.update(kept) if isinstance(kept, dict) else container.extend(kept)


@contextmanager
def altered(container: Json, key: Json) -> Iterator[None]:
    kept = container[key]
    container[key] = (
        not kept if isinstance(kept, bool) else kept + 1 if isinstance(kept, int) else f"no {kept}"
    )
    if key == "rule":
        container[key] = "true"
    yield
    container[key] = kept


def test_nothing_said_in_the_spec_schema_can_be_removed_or_altered_unnoticed() -> None:
    unnoticed = []
    for container, key in list(places(SPEC)):
        acts = (without,) if isinstance(container[key], dict | list) else (without, altered)
        for act in acts:
            with act(container, key):
                if next(differences(), None) is None:
                    unnoticed.append((act.__name__, key))
    # The model has no sentence of its own for a plain item of a list or a map.
    assert unnoticed == [("altered", "description")] * 8
    assert list(differences()) == []


# --- The same verdicts.


def kinds(schema: Schema) -> list[str]:
    """The types that a value may have; none stands for any."""
    if "x-kubernetes-int-or-string" in schema:
        found = ["integer", "string"]
    else:
        found = [schema["type"]] if "type" in schema else []
    return [*found, "null"] if found and schema.get("nullable") else found


def closed(schema: Schema) -> Schema:
    """The schema as JSON Schema has it: what Kubernetes calls an unknown field is refused."""
    rest = {
        key: value
        for key, value in schema.items()
        if key not in {"properties", "items", "additionalProperties"}
    }
    if "pattern" in schema:
        rest["pattern"] = (
            schema["pattern"].removesuffix("$") + r"\Z"
        )  # Python's $ lets a newline follow, RE2's not
    if "items" in schema:
        rest["items"] = closed(schema["items"])
    if "additionalProperties" in schema:
        rest["additionalProperties"] = closed(schema["additionalProperties"])
    if "properties" in schema:
        rest["properties"] = {name: closed(inner) for name, inner in schema["properties"].items()}
    if "integer" in (kind := kinds(schema)):
        rest = {"minimum": -(2**63), "maximum": 2**63 - 1} | rest
    if kind:
        rest["type"] = kind
    if "object" in kind and not {
        "additionalProperties",
        "x-kubernetes-preserve-unknown-fields",
    } & set(rest):
        rest["additionalProperties"] = False
    return rest


# The API server takes 1.0 too, and stores 1; a file that says 1.0 is refused.
STRICT = extend(  # type: ignore[no-untyped-call]
    Draft202012Validator,
    type_checker=Draft202012Validator.TYPE_CHECKER.redefine("integer", lambda _, value: type(value) is int),
)
BY_SCHEMA = STRICT(closed(SPEC))


def without_nulls(value: Json, schema: Schema) -> Json:
    """Drop the nulls that the API server takes for absent fields."""
    if isinstance(value, list):
        return [without_nulls(item, schema.get("items", {})) for item in value]
    if not isinstance(value, dict):
        return value
    known = schema.get("properties", {})
    return {
        key: without_nulls(item, known.get(key, {}))
        for key, item in value.items()
        if not (item is None and key in known and not known[key].get("nullable"))
    }


def schema_accepts(spec: Json) -> bool:
    return bool(BY_SCHEMA.is_valid(without_nulls(spec, SPEC)))


def model_accepts(spec: Json) -> bool:
    """The model's verdict, leaving out rules that the CRD expresses in CEL."""
    try:
        parse(document(spec))
    except SpecError as error:
        return all(problem.message.startswith(tuple(every_rule())) for problem in error.problems)
    return True


@given(specs)
def test_a_valid_spec_is_accepted_by_both(spec: Json) -> None:
    assert model_accepts(spec)
    assert schema_accepts(spec)


@given(disturbed_specs())
def test_a_disturbed_spec_is_accepted_by_both_or_refused_by_both(spec: Json) -> None:
    assert schema_accepts(spec) == model_accepts(spec)


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


def test_the_crd_leaves_room_in_the_annotation_that_kubectl_apply_keeps_it_in() -> None:
    """All annotations of an object may have 256 KiB. JSON has every pod template in full, the file has one."""
    assert len(json.dumps(CRD)) < 200_000
    assert (ROOT_DIRECTORY / "crds" / "delayqueue.yaml").stat().st_size < 200_000


def test_a_description_tells_bounds_and_default() -> None:
    delivery = SPEC["properties"]["delivery"]["properties"]
    assert delivery["leaseDurationSeconds"]["description"].endswith(" From 1 to 86400. Default: 30.")
    assert delivery["backoff"]["description"].endswith(' Default: {"delaysSeconds": [60, 300, 900]}.')
    command = SPEC["properties"]["handler"]["properties"]["exec"]["properties"]["command"]
    assert command["description"].endswith(" 1 to 100 items, each at most 32768 characters.")


def resolves(path: str) -> bool:
    """Tell whether a simple JSON path leads to a field of the schema."""
    if path == ".metadata.creationTimestamp":
        return True
    schema = ROOT
    for step in re.sub(r'\[\?\(@.type=="\w+"\)\]', ".items", path).lstrip(".").split("."):
        schema = schema["items"] if step == "items" else schema.get("properties", {}).get(step, {})
    return "type" in schema


VERSION_SPEC = CRD["spec"]["versions"][0]
COLUMNS = VERSION_SPEC["additionalPrinterColumns"]


@pytest.mark.parametrize("column", COLUMNS, ids=lambda column: str(column["name"]))
def test_a_printer_column_shows_a_field_that_exists(column: Schema) -> None:
    assert resolves(column["jsonPath"])
    assert column["description"]


def test_kubectl_get_shows_what_the_readme_promises() -> None:
    shown = [column["name"].upper() for column in COLUMNS if not column.get("priority")]
    assert shown == [
        "READY",
        "DUE",
        "SCHEDULED",
        "IN-FLIGHT",
        "DEAD",
        "WORKERS",
        "DESIRED",
        "NEXT-DUE",
        "AGE",
    ]


def test_no_column_prints_a_time_to_come_as_an_age() -> None:
    dates = {column["jsonPath"] for column in COLUMNS if column["type"] == "date"}
    assert dates == {".metadata.creationTimestamp", ".status.backlog.oldestDueTime"}


def test_the_scale_subresource_points_at_fields_that_exist() -> None:
    scale = VERSION_SPEC["subresources"]["scale"]
    assert all(resolves(path) for path in scale.values())
    assert VERSION_SPEC["subresources"]["status"] == {}
