"""A DelayQueue is applied: its children come, stay as they should be, change with it, and go with it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.cluster.harness.rest import Refused
from tests.cluster.harness.waiting import eventually
from tests.cluster.operator import QUEUES, Operator, condition, install_rights, queue

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.cluster.harness.cluster import Cluster


@pytest.fixture
def operator(cluster: Cluster, crd: str, namespace: str) -> Iterator[Operator]:
    operator = Operator.start(install_rights(cluster, namespace), namespace).wait_ready()
    yield operator
    operator.process.stop()


def test_children_come(cluster: Cluster, operator: Operator, namespace: str) -> None:
    """Applying a DelayQueue makes every child, and status says what is missing."""
    queues = QUEUES.format(namespace=namespace)
    cluster.rest.create(queues, queue())

    def there() -> dict[str, Any]:
        body = cluster.rest.get(f"{queues}/orders")
        assert condition(body, "Accepted")["status"] == "True"
        assert condition(body, "Ready")["reason"] == "ScannersNotReady"
        return body

    eventually(there)
    apps = f"/apis/apps/v1/namespaces/{namespace}/deployments"
    assert {item["metadata"]["name"] for item in cluster.rest.items(apps)} == {
        "orders-scanner",
        "orders-worker",
    }


def test_deleted_child_comes_back(cluster: Cluster, operator: Operator, namespace: str) -> None:
    """A child that somebody deletes is made again."""
    cluster.rest.create(QUEUES.format(namespace=namespace), queue())
    path = f"/apis/apps/v1/namespaces/{namespace}/deployments/orders-worker"
    first = eventually(lambda: _uid(cluster, path))
    cluster.rest.delete(path)
    eventually(lambda: _uid(cluster, path) not in ("", first), timeout_s=5)


def _uid(cluster: Cluster, path: str) -> str:
    try:
        return str(cluster.rest.get(path)["metadata"]["uid"])
    except Refused:
        return ""
