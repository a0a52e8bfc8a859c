"""Every rule that the CRD states in CEL is accepted when kept and refused when broken, by the API server itself."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from tests.cluster.harness.resources import delayqueues
from tests.cluster.harness.rest import Refused
from tests.unit.contract.crd import ROOT
from tests.unit.contract.documents import document
from tests.unit.contract.rules import CASES, HOST, HTTP, Fields

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.cluster.harness.cluster import Cluster
    from tests.unit.contract.crd import Schema

pytestmark = pytest.mark.usefixtures("crd")


@dataclass(frozen=True)
class Change:
    """A stored spec, one that may follow it, and one that may not."""

    stored: Fields
    allowed: Fields
    refused: Fields


CHANGES: dict[tuple[str, str], Change] = {
    ("", "queueName cannot be changed"): Change({}, {"queueName": "orders-0"}, {"queueName": "other"}),
    ("spec.redis.keyPrefix", "keyPrefix cannot be changed"): Change(
        {"redis": {"standalone": HOST, "keyPrefix": "shop"}},
        {"redis": {"standalone": {"host": "other"}, "keyPrefix": "shop"}},
        {"redis": {"standalone": HOST}},  # the default is another prefix
    ),
}


def rules(schema: Schema, path: str = "") -> Iterator[tuple[str, str]]:
    """Where the CRD states rules, and what each says when it is broken."""
    for rule in schema.get("x-kubernetes-validations", ()):
        yield path, rule["message"]
    for name, inner in schema.get("properties", {}).items():
        yield from rules(inner, f"{path}.{name}" if path else name)
    for key in ("items", "additionalProperties"):
        if isinstance(schema.get(key), dict):
            yield from rules(schema[key], f"{path}[]")


def assert_refused_for(caught: pytest.ExceptionInfo[Refused], path: str, message: str) -> None:
    """The rule is the only cause, and is found at its path."""
    assert caught.value.code == 422
    found = [
        (cause["field"], cause["message"].removeprefix("Invalid value: ")) for cause in caught.value.causes
    ]
    assert [re.sub(r"\[\w+\]", "[]", field.replace("<nil>", "")) for field, _ in found] == [path]
    assert found[0][1].endswith(message)


def test_each_rule_has_a_case() -> None:
    """A rule that the CRD states in several places has one: they are one declaration of the model."""
    stated = set(rules(ROOT))
    assert {*CASES, *CHANGES} <= stated
    assert {message for _, message in stated} == {message for _, message in (*CASES, *CHANGES)}


@pytest.mark.parametrize(("path", "message"), CASES, ids=lambda part: part)
def test_a_rule_is_kept_or_broken(cluster: Cluster, path: str, message: str) -> None:
    case, queues = CASES[path, message], delayqueues("default")
    cluster.rest.create(queues, document(**case.kept), dryRun="All", fieldValidation="Strict")
    with pytest.raises(Refused) as caught:
        cluster.rest.create(queues, document(**case.broken), dryRun="All")
    assert_refused_for(caught, path, message)


def test_a_change_is_allowed_or_refused(cluster: Cluster, namespace: str) -> None:
    for number, ((path, message), change) in enumerate(CHANGES.items()):
        body = document(**change.stored) | {"metadata": {"name": f"orders-{number}"}}
        stored = cluster.rest.create(delayqueues(namespace), body)
        one = f"{delayqueues(namespace)}/orders-{number}"
        with pytest.raises(Refused) as caught:
            cluster.rest.replace(one, stored | {"spec": document(**change.refused)["spec"]})
        assert_refused_for(caught, path, message)
        cluster.rest.replace(one, stored | {"spec": document(**change.allowed)["spec"]})


def test_all_members_of_a_choice_may_be_exchanged(cluster: Cluster, namespace: str) -> None:
    """No default of one member stands in the way of another."""
    stored = cluster.rest.create(delayqueues(namespace), document())
    changed = {"redis": {"cluster": {"nodes": [HOST]}}, "handler": {"http": HTTP}}
    changed |= {"delivery": {"backoff": {"delaysSeconds": [1]}}}
    cluster.rest.replace(f"{delayqueues(namespace)}/orders", stored | {"spec": document(**changed)["spec"]})
