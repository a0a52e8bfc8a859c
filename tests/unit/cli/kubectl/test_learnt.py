"""What the operator has learnt of a queue stands in for what the user does not say."""

from __future__ import annotations

from typing import Any

from delayq.cli.kubectl.passed import of_forecast
from delayq.cli.kubectl.redis_access import Service, service_of

LEARNT: dict[str, Any] = {"scaling": {"leadSeconds": 11, "handlerMilliseconds": 480}, "replicas": 3}


def test_lead_and_handler_time_are_those_that_were_learnt() -> None:
    queue = {"spec": {"autoscaling": {"leadTimeSeconds": "auto"}}, "status": LEARNT}
    assert of_forecast(queue) == {"handler_ms": "480ms", "lead_ms": "11s"}
    told = {"spec": {"autoscaling": {"leadTimeSeconds": 60}}, "status": LEARNT}
    assert "lead_ms" not in of_forecast(told), "the one of the document is in force"
    assert of_forecast({"spec": {}}) == {}


def test_a_fixed_number_of_workers_is_told_which_the_pods_do_not_know() -> None:
    """The document in the pods leaves spec.worker.replicas out."""
    assert of_forecast({"spec": {"worker": {"replicas": 4}}}) == {"most": "4"}
    assert of_forecast({"spec": {"worker": {"replicas": 4}, "autoscaling": {}}}) == {}


def test_a_host_is_read_as_the_clusters_dns_reads_it() -> None:
    """Whether there is such a Service is another question."""
    here = Service(namespace="shop", name="redis", port=6379)
    for host in ("redis", "redis.shop", "redis.shop.svc", "redis.shop.svc.cluster.local", "redis.shop.svc."):
        assert service_of(host, "shop", 6379) == here
    assert service_of("redis.data.svc", "shop", 1) == Service(namespace="data", name="redis", port=1)
    for host in ("10.0.0.1", "redis.example.com", ""):
        assert service_of(host, "shop", 6379) is None
