"""What fields must satisfy together."""

from __future__ import annotations

import re
from typing import Any

import pytest
from delayq.contract import SpecError, parse

from tests.unit.contract.documents import document
from tests.unit.contract.rules import CASES, DATABASE, HOST, LARGEST, LEDGER, PARTS, PYTHON, REF

CHANGE = {"update": "UPDATE orders SET done = true"}

BROKEN: list[tuple[dict[str, Any], str]] = [
    ({"redis": {}}, "spec.redis: expected exactly one of standalone, sentinel, cluster, got nothing"),
    (
        {"redis": {"standalone": HOST, "cluster": {"nodes": [HOST]}}},
        "spec.redis: expected exactly one of standalone, sentinel, cluster, got standalone and cluster",
    ),
    (
        {"delivery": {"backoff": {"exponential": {"initialSeconds": 4000}}}},
        "spec.delivery.backoff.exponential: initialSeconds must not exceed maxSeconds",
    ),
    ({"autoscaling": {"minReplicas": 11}}, "spec.autoscaling: minReplicas must not exceed maxReplicas"),
    (
        {"redis": {"standalone": HOST, "tls": {"certSecretRef": REF}}},
        "spec.redis.tls: certSecretRef and keySecretRef need each other",
    ),
    ({"recovery": {"check": {"guard": {}}}}, f"spec: {LEDGER}"),
    ({"recovery": {"check": {"guard": {}}}, "guard": {"redisLock": {}}}, f"spec: {LEDGER}"),
    ({"shards": 4, "limits": {"maxInFlight": 3}}, f"spec: {PARTS}"),
    ({"shards": 4, "limits": {"ratePerSecond": 9, "burst": 3}}, f"spec: {PARTS}"),
    ({"shards": 64, "limits": {"maxBytes": 1 << 24}}, f"spec: {LARGEST}"),
]


@pytest.mark.parametrize(("path", "message"), CASES)
def test_a_rule_is_kept_or_broken(path: str, message: str) -> None:
    case = CASES[path, message]
    parse(document(**case.kept))
    with pytest.raises(SpecError) as caught:
        parse(document(**case.broken))
    (problem,) = caught.value.problems
    assert re.sub(r"\[\d+\]", "[]", str(problem)).startswith(f"{path}: {message}")


@pytest.mark.parametrize(("fields", "problem"), BROKEN, ids=[problem.split(":")[0] for _, problem in BROKEN])
def test_a_broken_rule_is_the_only_problem(fields: dict[str, Any], problem: str) -> None:
    with pytest.raises(SpecError) as caught:
        parse(document(**fields))
    assert list(map(str, caught.value.problems)) == [problem]


@pytest.mark.parametrize(
    "fields",
    [
        {"delivery": {"backoff": {"exponential": {"initialSeconds": 60, "maxSeconds": 60}}}},
        {"autoscaling": {"minReplicas": 10}},
        {"guard": {"sqlPessimistic": DATABASE}, "recovery": {"check": {"guard": {}}}},
        {
            "guard": {"sqlOptimistic": DATABASE | CHANGE | {"select": "SELECT 1"}},
            "recovery": {"check": {"guard": {}}},
        },
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
