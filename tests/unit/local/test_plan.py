"""Which processes a run has, and which queues each of them serves."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from delayq.client.document import Document, parse_text
from delayq.local.plan import REAPER_SECONDS, Plan, Served

HTTP: dict[str, Any] = {"handler": {"http": {"url": "http://127.0.0.1:1/"}}}
PYTHON: dict[str, Any] = {"python": {"callable": "shop:keep"}}


def served(name: str, **spec: Any) -> Served:  # noqa: ANN401  fields of the document
    document = {
        "apiVersion": "delayq.dev/v1alpha1",
        "kind": "DelayQueue",
        "metadata": {"name": name},
        "spec": {"redis": {"standalone": {"host": "not-used"}}, **HTTP, **spec},
    }
    queue = parse_text(yaml.safe_dump(document).encode(), "queue.yaml")
    return Served(document=Document("queue.yaml", "queue.yaml", queue), workers=queue.spec.worker.replicas)


def plan(*queues: Served, scanners: int = 1) -> Plan:
    return Plan(
        queues=queues,
        redis_url="redis://127.0.0.1:1/0",
        data_dir=None,
        scanners=scanners,
        reaper=True,
        log_format="json",
        log_level="info",
        status_seconds=None,
    )


@pytest.mark.parametrize(("scanners", "every_seconds"), [(1, REAPER_SECONDS), (0, None)])
def test_a_reaper_stays_only_if_no_scanner_reclaims_leases(
    scanners: int, every_seconds: float | None
) -> None:
    commands = dict(plan(served("shop"), scanners=scanners).commands("redis://127.0.0.1:1/0"))
    assert ("--for" in commands["reaper"].argv) == (every_seconds is None)
    assert {name: each.every_seconds for name, each in commands.items() if each.every_seconds} == (
        {"reaper": every_seconds} if every_seconds else {}
    )


def test_the_code_of_a_queue_runs_in_no_process_of_another_queue() -> None:
    """HTTP handlers alone share a worker; a check in Python has a scanner and a reaper that may die of it."""
    shared = plan(
        served("orders"),
        served("mails"),
        served("refunds", guard={"sqlUnique": {"databaseSecretRef": {"name": "database"}}}),
        served("reports", worker={"replicas": 2}),
        served("pushes", handler=PYTHON, recovery={"check": PYTHON}),
    )
    commands = {name: each.argv for name, each in shared.commands("redis://127.0.0.1:1/0")}
    queues = {
        name: ", ".join(argv[at + 1] for at, word in enumerate(argv) if word == "--queue")
        for name, argv in commands.items()
    }
    most = "orders, mails, refunds, reports"
    assert queues == {
        "worker-1": "orders, mails",
        "refunds/worker-1": "refunds",
        "reports/worker-1": "reports",
        "reports/worker-2": "reports",
        "pushes/worker-1": "pushes",
        "scanner-1": most,
        "reaper-1": most,
        "scanner-2": "pushes",
        "reaper-2": "pushes",
    }
