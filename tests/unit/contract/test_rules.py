"""What fields must satisfy together."""

from __future__ import annotations

from typing import Any

import pytest
from delayq.contract import SpecError, parse

from tests.unit.contract.documents import document

HOST = {"host": "redis"}
PYTHON = {"callable": "shop.orders:cancel"}
DATABASE = {"databaseSecretRef": {"name": "orders-database"}}
REF = {"name": "redis"}
LEDGER = "spec: recovery.check.guard needs guard.sqlUnique, guard.sqlPessimistic or guard.sqlOptimistic, "
LEDGER += "the last with select where it has update"
CHANGE = {"update": "UPDATE orders SET done = true"}
PARTS = (
    "spec: limits.maxInFlight and limits.burst, or ratePerSecond without it, must be no less than shards, "
)
PARTS += "for each shard has its part"
LARGEST = "spec: limits.maxBytes divided by shards must hold a task of maxPayloadBytes, maxHeaderBytes and 1024 bytes "
LARGEST += "for all else"

BROKEN: list[tuple[dict[str, Any], str]] = [
    ({"redis": {}}, "spec.redis: expected exactly one of standalone, sentinel, cluster, got nothing"),
    (
        {"redis": {"standalone": HOST, "cluster": {"nodes": [HOST]}}},
        "spec.redis: expected exactly one of standalone, sentinel, cluster, got standalone and cluster",
    ),
    ({"redis": {"cluster": {"nodes": [HOST]}, "database": 1}}, "spec.redis: database must be 0 with cluster"),
    (
        {"delivery": {"backoff": {"exponential": {"initialSeconds": 4000}}}},
        "spec.delivery.backoff.exponential: initialSeconds must not exceed maxSeconds",
    ),
    (
        {"worker": {"drainTimeoutSeconds": 60}},
        "spec.worker: terminationGracePeriodSeconds must exceed drainTimeoutSeconds",
    ),
    ({"autoscaling": {"minReplicas": 11}}, "spec.autoscaling: minReplicas must not exceed maxReplicas"),
    (
        {"redis": {"standalone": HOST, "tls": {"caSecretRef": REF, "caConfigMapRef": REF}}},
        "spec.redis.tls: caSecretRef and caConfigMapRef exclude each other",
    ),
    (
        {"redis": {"standalone": HOST, "tls": {"certSecretRef": REF}}},
        "spec.redis.tls: certSecretRef and keySecretRef need each other",
    ),
    (
        {"podDisruptionBudget": {"maxUnavailable": "10%", "minAvailable": 1}},
        "spec.podDisruptionBudget: maxUnavailable and minAvailable exclude each other",
    ),
    ({"recovery": {"check": {"guard": {}}}}, LEDGER),
    ({"recovery": {"check": {"guard": {}}}, "guard": {"redisLock": {}}}, LEDGER),
    ({"recovery": {"check": {"guard": {}}}, "guard": {"sqlOptimistic": DATABASE | CHANGE}}, LEDGER),
    (
        {"guard": {"sqlOptimistic": DATABASE | {"select": "SELECT 1"}}},
        "spec.guard.sqlOptimistic: select needs update",
    ),
    ({"limits": {"burst": 5}}, "spec.limits: burst needs ratePerSecond"),
    ({"shards": 4, "limits": {"maxInFlight": 3}}, PARTS),
    ({"shards": 4, "limits": {"ratePerSecond": 9, "burst": 3}}, PARTS),
    ({"shards": 4, "limits": {"ratePerSecond": 3}}, PARTS),
    ({"shards": 64, "limits": {"maxBytes": 1 << 24}}, LARGEST),
]


@pytest.mark.parametrize(("fields", "problem"), BROKEN, ids=[problem.split(":")[0] for _, problem in BROKEN])
def test_a_broken_rule_is_the_only_problem(fields: dict[str, Any], problem: str) -> None:
    with pytest.raises(SpecError) as caught:
        parse(document(**fields))
    assert list(map(str, caught.value.problems)) == [problem]


@pytest.mark.parametrize(
    "fields",
    [
        {"delivery": {"backoff": {"exponential": {"initialSeconds": 60, "maxSeconds": 60}}}},
        {"worker": {"drainTimeoutSeconds": 59}},
        {"autoscaling": {"minReplicas": 10}},
        {"guard": {"sqlPessimistic": DATABASE}, "recovery": {"check": {"guard": {}}}},
        {"guard": {"sqlOptimistic": DATABASE}, "recovery": {"check": {"guard": {}}}},
        {
            "guard": {"sqlOptimistic": DATABASE | CHANGE | {"select": "SELECT 1"}},
            "recovery": {"check": {"guard": {}}},
        },
        {"shards": 4, "limits": {"maxInFlight": 4, "ratePerSecond": 1, "burst": 4}},
        {"shards": 4, "limits": {"ratePerSecond": 4}},
        {"shards": 64, "limits": {"maxBytes": 1 << 25}},
    ],
)
def test_a_kept_rule_is_silent(fields: dict[str, Any]) -> None:
    parse(document(**fields))


def test_a_rule_waits_until_the_fields_it_reads_are_right() -> None:
    with pytest.raises(SpecError) as caught:
        parse(document(autoscaling={"minReplicas": 50, "maxReplicas": "many"}))
    assert [problem.path for problem in caught.value.problems] == ["spec.autoscaling.maxReplicas"]


@pytest.mark.parametrize(
    ("kind", "shares"), [({"http": {"url": "http://mail"}}, True), ({"python": PYTHON}, False)]
)
def test_a_worker_of_several_queues_runs_no_code_of_users_for_any_kind(
    kind: dict[str, Any], *, shares: bool
) -> None:
    handler = {"http": {"url": "http://orders"}, "kinds": {"boom": kind}}
    assert parse(document(handler=handler)).spec.shares_workers is shares
