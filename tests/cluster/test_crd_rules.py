"""Every rule that the CRD states in CEL is accepted when kept and refused when broken, by the API server itself."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
from delayq.contract import SpecError, parse

from tests.cluster.harness.resources import delayqueues
from tests.cluster.harness.rest import Refused
from tests.unit.contract.crd import ROOT
from tests.unit.contract.documents import document

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.cluster.harness.cluster import Cluster
    from tests.unit.contract.crd import Schema

pytestmark = pytest.mark.usefixtures("crd")

Fields = dict[str, Any]
HOST = {"host": "redis"}
PYTHON = {"callable": "shop.orders:cancel"}
HTTP = {"url": "https://shop/"}
DATABASE = {"databaseSecretRef": {"name": "orders-database"}}
REF = {"name": "redis"}
STANDALONE = {"standalone": HOST}
TOKEN = {"name": "shop", "key": "token", "scheme": "Bearer"}
ONE_HEADER = "headers and secretHeaders must not name the same header"
OWN_HEADERS = (
    "headers and secretHeaders must not name what delayq sets itself: Content-Length, Content-Type, "
)
OWN_HEADERS += "Idempotency-Key, Transfer-Encoding and Delayq-*"
LABELS = "expected names of labels, such as release or example.com/team"
GUARDS = "expected exactly one of redisLock, redlock, sqlUnique, sqlPessimistic, sqlOptimistic"
LEDGER = "recovery.check.guard needs guard.sqlUnique, guard.sqlPessimistic or guard.sqlOptimistic, "
LEDGER += "the last with select where it has update"
CHECKS = "expected exactly one of python, http, guard"
PARTS = "limits.maxInFlight and limits.burst, or ratePerSecond without it, must be no less than shards, "
PARTS += "for each shard has its part"
LARGEST = (
    "limits.maxBytes divided by shards must hold a task of maxPayloadBytes, maxHeaderBytes and 1024 bytes "
)
LARGEST += "for all else"
GUARDED_KINDS = "guard.kinds must name kinds of handler.kinds: "
GUARDED_KINDS += "handler.python.callable takes tasks without a kind only"
VARIABLES = "expected names of variables: letters, digits and underscores"
TASK_KINDS = "expected names of kinds: at most 64 letters, digits, dots, dashes and underscores, "
TASK_KINDS += "no dot or dash at the start"
HEADERS = "expected header names of letters, digits and !#$%&'*+.^_`|~-"


@dataclass(frozen=True)
class Case:
    """Fields of a spec that keep a rule, and fields that break it."""

    kept: Fields
    broken: Fields


@dataclass(frozen=True)
class Change:
    """A stored spec, one that may follow it, and one that may not."""

    stored: Fields
    allowed: Fields
    refused: Fields


CASES: dict[tuple[str, str], Case] = {
    ("spec", PARTS): Case(
        {"shards": 4, "limits": {"maxInFlight": 4, "ratePerSecond": 1, "burst": 4}},
        {"shards": 4, "limits": {"ratePerSecond": 3}},
    ),
    ("spec", LARGEST): Case(
        {"shards": 2, "limits": {"maxBytes": 1_048_576, "maxPayloadBytes": 523_264, "maxHeaderBytes": 0}},
        {"shards": 2, "limits": {"maxBytes": 1_048_576, "maxPayloadBytes": 523_265, "maxHeaderBytes": 0}},
    ),
    ("spec.limits", "burst needs ratePerSecond"): Case(
        {"limits": {"ratePerSecond": 1, "burst": 9}}, {"limits": {"burst": 9}}
    ),
    ("spec", LEDGER): Case(
        {"guard": {"sqlOptimistic": DATABASE}, "recovery": {"check": {"guard": {}}}},
        {
            "guard": {"sqlOptimistic": DATABASE | {"update": "UPDATE orders SET done = true"}},
            "recovery": {"check": {"guard": {}}},
        },
    ),
    ("spec", GUARDED_KINDS): Case(
        {
            "handler": {"python": PYTHON, "kinds": {"push": {"http": HTTP}}},
            "guard": {"redisLock": {}, "kinds": ["push"]},
        },
        {
            "handler": {"python": PYTHON, "kinds": {"push": {"http": HTTP}}},
            "guard": {"redisLock": {}, "kinds": ["push", "refund"]},
        },
    ),
    ("spec.redis", "expected exactly one of standalone, sentinel, cluster"): Case(
        {"redis": {"sentinel": {"masterName": "main", "nodes": [HOST]}}},
        {"redis": {"standalone": HOST, "cluster": {"nodes": [HOST]}}},
    ),
    ("spec.redis", "database must be 0 with cluster"): Case(
        {"redis": {"cluster": {"nodes": [HOST]}, "database": 0}},
        {"redis": {"cluster": {"nodes": [HOST]}, "database": 1}},
    ),
    ("spec.delivery.backoff", "expected exactly one of delaysSeconds, exponential"): Case(
        {"delivery": {"backoff": {"delaysSeconds": [1, 2]}}},
        {"delivery": {"backoff": {"delaysSeconds": [1], "exponential": {}}}},
    ),
    ("spec.delivery.backoff.exponential", "initialSeconds must not exceed maxSeconds"): Case(
        {"delivery": {"backoff": {"exponential": {"initialSeconds": 60, "maxSeconds": 60}}}},
        {"delivery": {"backoff": {"exponential": {"initialSeconds": 61, "maxSeconds": 60}}}},
    ),
    ("spec.handler.python", "expected exactly one of callable, app"): Case(
        {"handler": {"python": {"app": "shop.tasks:app"}}},
        {"handler": {"python": {"app": "shop.tasks:app", "callable": "shop.orders:cancel"}}},
    ),
    ("spec.handler", "expected exactly one of python, http, exec"): Case(
        {"handler": {"exec": {"command": ["true"]}}},
        {"handler": {"python": PYTHON, "exec": {"command": ["true"]}}},
    ),
    ("spec.handler.http.headers", HEADERS): Case(
        {"handler": {"http": HTTP | {"headers": {"X-Shop": "1", "!#$%&'*+.^_`|~-": "2"}}}},
        {"handler": {"http": HTTP | {"headers": {"X Shop": "1"}}}},
    ),
    ("spec.handler.http", ONE_HEADER): Case(
        {"handler": {"http": HTTP | {"headers": {"X-Shop": "1"}, "secretHeaders": {"Authorization": TOKEN}}}},
        {"handler": {"http": HTTP | {"headers": {"X-Shop": "1"}, "secretHeaders": {"x-shop": TOKEN}}}},
    ),
    ("spec.handler.http", OWN_HEADERS): Case(
        {"handler": {"http": HTTP | {"headers": {"X-Delayq-Token": "1", "Content-Type-2": "1"}}}},
        {"handler": {"http": HTTP | {"secretHeaders": {"dELAYQ-tOKEN": TOKEN}}}},
    ),
    ("spec.handler.exec.env", VARIABLES): Case(
        {"handler": {"exec": {"command": ["true"], "env": {"_SHOP_1": "a"}}}},
        {"handler": {"exec": {"command": ["true"], "env": {"1SHOP": "a"}}}},
    ),
    ("spec.handler.kinds", TASK_KINDS): Case(
        {"handler": {"python": PYTHON, "kinds": {"push.1-a": {"http": HTTP}, "9" * 64: {"python": PYTHON}}}},
        {"handler": {"python": PYTHON, "kinds": {"-push": {"http": HTTP}}}},
    ),
    ("spec.worker", "terminationGracePeriodSeconds must exceed drainTimeoutSeconds"): Case(
        {"worker": {"drainTimeoutSeconds": 59, "terminationGracePeriodSeconds": 60}},
        {"worker": {"drainTimeoutSeconds": 60, "terminationGracePeriodSeconds": 60}},
    ),
    ("spec.autoscaling", "minReplicas must not exceed maxReplicas"): Case(
        {"autoscaling": {"minReplicas": 4, "maxReplicas": 4}},
        {"autoscaling": {"minReplicas": 5, "maxReplicas": 4}},
    ),
    ("spec.recovery.check", CHECKS): Case(
        {"recovery": {"check": {"http": HTTP}}},
        {"recovery": {"check": {"http": HTTP, "python": PYTHON}}},
    ),
    ("spec.guard.sqlOptimistic", "select needs update"): Case(
        {
            "guard": {
                "sqlOptimistic": DATABASE | {"select": "SELECT 1", "update": "UPDATE orders SET done = true"}
            }
        },
        {"guard": {"sqlOptimistic": DATABASE | {"select": "SELECT 1"}}},
    ),
    ("spec.redis.tls", "caSecretRef and caConfigMapRef exclude each other"): Case(
        {"redis": STANDALONE | {"tls": {"caConfigMapRef": REF}}},
        {"redis": STANDALONE | {"tls": {"caSecretRef": REF, "caConfigMapRef": REF}}},
    ),
    ("spec.redis.tls", "certSecretRef and keySecretRef need each other"): Case(
        {"redis": STANDALONE | {"tls": {"certSecretRef": REF, "keySecretRef": REF}}},
        {"redis": STANDALONE | {"tls": {"keySecretRef": REF}}},
    ),
    ("spec.podDisruptionBudget", "maxUnavailable and minAvailable exclude each other"): Case(
        {"podDisruptionBudget": {"minAvailable": "50%"}},
        {"podDisruptionBudget": {"minAvailable": 1, "maxUnavailable": 1}},
    ),
    ("spec.guard", GUARDS): Case(
        {"guard": {"redisLock": {}}}, {"guard": {"redisLock": {}, "sqlUnique": DATABASE}}
    ),
    ("spec.monitoring.podMonitor.labels", LABELS): Case(
        {"monitoring": {"podMonitor": {"labels": {"example.com/team": "a", "release": "b"}}}},
        {"monitoring": {"podMonitor": {"labels": {"-release": "b"}}}},
    ),
}

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
    with pytest.raises(SpecError):
        parse(document(**case.broken))


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
