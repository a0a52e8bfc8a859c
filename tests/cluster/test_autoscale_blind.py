"""What the operator does when it cannot see: it holds the number, then falls back, and says so; also from no worker."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from delayq.scaling import replayed, sentence
from delayq_operator.base import names

from tests.cluster.harness.waiting import eventually
from tests.cluster.liar import lying

if TYPE_CHECKING:
    from tests.cluster.world import World


AT_ONCE: Final = {"scaleDown": {"stabilizationWindowSeconds": 0}}
SCALED: Final = {"minReplicas": 3, "maxReplicas": 9, "cooldownSeconds": 0, "behavior": AT_ONCE}
ONE_SLOT: Final = {"concurrency": 1}
MANY: Final = {"due": 5_000}
FALLBACK: Final = {"fallback": {"afterSeconds": 25, "replicas": 4}}


def asked(world: World, name: str) -> int:
    return int(world.get("deployments", names.worker(name))["spec"]["replicas"])


def until(world: World, name: str, number: int, *, timeout_s: float = 30) -> None:
    eventually(lambda: asked(world, name) == number, timeout_s=timeout_s, what=f"{number} workers of {name}")


def scaling(world: World, name: str = "orders") -> dict[str, object]:
    found: dict[str, object] = world.queue(name).get("status", {}).get("scaling", {})
    return found


def test_a_rush_is_reported_before_and_the_number_stays_without_readings(
    world: World,
) -> None:
    """A rush that all workers could not master is a warning, once, with when, how many and how late.

    Scanners that tell nothing are not taken for an idle queue: the number is held, then it is the fallback.
    A Deployment that another client scales is corrected by a decision.
    """
    due_within = {3_600_000: 50_000}  # the last of the horizons that the operator asks for
    with lying() as liar:
        liar.becomes("tells", scheduled=50_000, due_within=due_within)
        world.start(worker=ONE_SLOT, autoscaling=SCALED | FALLBACK)
        world.pretend_ready("scanner", liar.address)
        reported = world.until("CapacityShortfallExpected", "True", "MaxReplicas", timeout_s=40)
        assert "even with maxReplicas" in reported["message"]
        assert world.event("CapacityShortfallExpected") == reported["message"]
        before = liar.asked
        eventually(lambda: liar.asked > before + 5, timeout_s=30)
        assert len(world.events("CapacityShortfallExpected")) == 1

        liar.becomes("tells", **MANY)
        until(world, "orders", 9)
        world.until("ScalingLimited", "True", "MaxReplicas")
        eventually(lambda: scaling(world)["limitedBy"] == "MaxReplicas")
        metric = partial(world.operator.metric, "delayq_operator_worker_replicas", namespace=world.namespace)
        eventually(lambda: metric(type="desired") == 9)
        assert metric(type="demand") > 9
        liar.becomes("tells", **MANY)
        eventually(lambda: liar.asked >= 4, what="the rush is out of sight")
        world.kubectl("scale", "deployment/orders-worker", "--replicas=4")
        until(world, "orders", 9, timeout_s=10)
        world.event("ScaledUp", "4 → 9 workers: 5,000 tasks due")
        for event in world.items("events", fieldSelector="reason=ScaledUp"):
            record = event["metadata"]["annotations"][names.DECISION]
            assert sentence(replayed(record)) == event["message"]
        liar.becomes("tells")
        until(world, "orders", 3)
        liar.becomes("breaks")
        eventually(lambda: liar.asked >= 10, timeout_s=60, what="five scrapes without numbers")
        assert asked(world, "orders") == 3
        world.until("ScalingActive", "False", "MetricsUnavailable")
        until(world, "orders", 4)
        reported = world.until("ScalingActive", "False", "FallbackActive")
        assert "fallback.replicas applies" in reported["message"]
        world.event("ScaledUp", "3 → 4 workers: metrics cannot be read", "fallback.replicas applies")
        liar.becomes("tells")
        until(world, "orders", 3)
        world.until("ScalingActive", "True", "ValidMetricFound")
        world.until("ScalingLimited", "True", "MinReplicas")
