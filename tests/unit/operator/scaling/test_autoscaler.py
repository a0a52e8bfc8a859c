"""Decisions from look to look: what they are made on, what they ask for, and what is never written."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest
from delayq.scaling import sentence
from delayq_operator.base import names
from delayq_operator.base.phrases import timestamp
from delayq_operator.cache.children import Children
from delayq_operator.cache.queues import Queues
from delayq_operator.scaling.autoscaler import STALE_SECONDS, Autoscaler
from delayq_operator.scaling.scaling_config import ScalingConfigs
from delayq_operator.scaling.workers import Workers
from delayq_operator.scrape.backlog import Reading
from delayq_operator.scrape.changes import NUMBERS_SECONDS

from tests.unit.operator.queues import UID
from tests.unit.operator.scrape.test_backlog import scanner
from tests.unit.operator.scrape.test_exposition import POD
from tests.unit.operator.scrape.test_worker_stats import says
from tests.unit.operator.views import body, resource

if TYPE_CHECKING:
    from delayq.scaling import Decision
    from delayq_operator.base.work_queue import WorkQueue
    from delayq_operator.cache.inventory import Inventory
    from delayq_operator.cache.pod import Pod

KEY = resource().key
NOW = 1_000_000.0
ASKED = (1.0, 10.0, 60.0, 3600.0)
OWNER = [
    {"apiVersion": names.API_VERSION, "kind": "DelayQueue", "name": "orders", "uid": UID, "controller": True}
]
AT_ONCE = {"scaleDown": {"stabilizationWindowSeconds": 0}}


class World:
    """One DelayQueue, its Deployment, and the enqueued of those who want it reconciled."""

    def __init__(
        self, replicas: int = 1, status: dict[str, Any] | None = None, **autoscaling: object
    ) -> None:
        self.enqueued, self.later, self.version = 0, Counter[float](), 100
        self.queues = Queues(lambda _: None)
        self.children = Children(self.queues)
        self.pods: list[Pod] = []
        self.edit(status=status, autoscaling={"cooldownSeconds": 0, "behavior": AT_ONCE} | autoscaling)
        self.asks_for(replicas)
        pods = SimpleNamespace(of=lambda _: self.pods)
        found = SimpleNamespace(queues=self.queues, children=self.children, pods=pods)
        inventory, work = cast("Inventory", found), cast("WorkQueue", self)
        configs = ScalingConfigs(self.queues)
        self.workers = Workers(inventory, configs, work)
        self.scaler = Autoscaler(inventory, configs, self.workers, work)

    def enqueue(self, _key: object) -> None:
        self.enqueued += 1

    def enqueue_in(self, _key: object, seconds: float) -> None:
        self.later[round(seconds, 1)] += 1

    def edit(
        self,
        *,
        status: dict[str, Any] | None = None,
        annotations: dict[str, str] | None = None,
        **spec: object,
    ) -> None:
        self.version += 1
        made = body(resourceVersion=str(self.version), annotations=annotations)
        made["spec"] |= spec
        self.queues.seen(made | ({"status": status} if status else {}))

    def asks_for(self, replicas: int) -> None:
        """Have the Deployment ask for so many, as any client may write."""
        self.version += 1
        metadata = {
            "name": names.worker("orders"),
            "namespace": "shop",
            "uid": "u",
            "resourceVersion": str(self.version),
            "ownerReferences": OWNER,
        }
        self.children.seen(names.DEPLOYMENT, {"metadata": metadata, "spec": {"replicas": replicas}})

    def evaluate(self, now: float = NOW, **tasks: Any) -> Decision:  # noqa: ANN401 -- numbers
        return self.read(Reading([scanner({0: True}, **tasks)]), now)

    def read(self, reading: Reading | None, now: float = NOW) -> Decision:
        self.scaler.evaluate(KEY, reading, ASKED, now)
        return self.decision(now)

    def decision(self, now: float = NOW) -> Decision:
        found = self.scaler.decision(KEY, now)
        assert found is not None
        return found

    def carry_out(self, decision: Decision, now: float = NOW) -> None:
        self.asks_for(decision.replicas)
        self.scaler.carried_out(KEY, decision, now)


def test_a_number_or_a_spec_that_a_client_changed_counts_before_the_next_evaluation() -> None:
    world = World(replicas=2)
    found = world.evaluate(due=5_000)
    assert (found.before, found.replicas, world.enqueued) == (2, 10, 1)
    world.carry_out(found)
    assert world.decision(NOW + 1) is found
    world.evaluate(NOW + 2, due=5_000)
    assert world.enqueued == 1, "what is carried out is not asked for again"
    world.asks_for(3)
    found = world.decision(NOW + 1)
    assert (found.before, found.replicas) == (3, 10)
    world.edit(autoscaling={"maxReplicas": 4, "behavior": AT_ONCE})
    assert world.decision(NOW + 1).replicas == 4


def test_a_new_operator_removes_no_worker_before_the_stabilization_window_is_over() -> None:
    world = World(replicas=5, behavior={"scaleDown": {"stabilizationWindowSeconds": 300}})
    for now in (NOW, NOW + 10, NOW + 299):
        assert world.evaluate(now).replicas == 5
    assert world.evaluate(NOW + 301).replicas < 5


FALLS_BACK = {"fallback": {"afterSeconds": 15, "replicas": 6}}
HALF = Reading([scanner({0: True, 1: False})])


def test_scanners_of_a_new_queue_have_time_to_start_and_are_a_failure_if_they_never_do() -> None:
    world = World(replicas=1, **FALLS_BACK)
    for n in range(30):
        world.scaler.evaluate(KEY, None, ASKED, NOW + 2 * n)
        assert world.scaler.decision(KEY, NOW + 2 * n) is None
    found = [world.read(None, NOW + 60 + 2 * n) for n in range(3)]
    assert [each.reason for each in found] == ["MetricsUnavailable"] * 2 + ["FallbackActive"]
    assert found[-1].replicas == 6


@pytest.mark.parametrize("reading", [None, HALF], ids=["none", "half"])
def test_a_scanner_that_starts_anew_is_no_failure_and_one_that_stays_away_is(reading: Reading | None) -> None:
    """It takes a few seconds, or until another one leads; the number is held meanwhile."""
    world = World(replicas=2, **FALLS_BACK)
    world.evaluate(NOW)
    found = [world.read(reading, NOW + at) for at in range(2, 18, 2)]
    assert [each.memory.failures for each in found] == [0, 0, 0, 0, 1, 2, 3, 4]
    assert [each.reason for each in found] == ["MetricsUnavailable"] * 6 + ["FallbackActive"] * 2
    assert "times in a row" not in sentence(found[0])
    assert world.evaluate(NOW + 18).reason == "ValidMetricFound"


def test_a_new_leader_counts_the_first_workers_as_starting() -> None:
    """Else it would say that none is ready, in the middle of a start from zero."""
    scaled = {"lastScaleTime": timestamp(NOW - 3), "leadTimeSeconds": 8}
    ready = [{"type": "Ready", "status": "True"}]
    world = World(replicas=4, status={"scaling": scaled, "conditions": ready})
    assert world.scaler.observed(KEY, NOW).waking
    assert list(world.later.values()) == [1], "it looks again when they had time to start"
    for status in (
        {"scaling": scaled, "conditions": ready, "readyReplicas": 1},
        {"scaling": scaled, "conditions": [{"type": "Ready", "status": "False"}]},
        {"scaling": scaled | {"lastScaleTime": timestamp(NOW - 3600)}, "conditions": ready},
        {},
    ):
        assert not World(replicas=4, status=status).scaler.observed(KEY, NOW).waking


def test_a_fallback_takes_no_worker_away() -> None:
    world = World(replicas=9, **FALLS_BACK)
    world.evaluate(NOW, due=5_000)
    found = [world.read(None, NOW + at) for at in range(2, 40, 2)]
    assert found[-1].reason == "FallbackActive"
    assert {each.replicas for each in found} == {9}


def test_a_standby_alone_tells_nothing_of_the_queue() -> None:
    """Its shard has no leader: that is no reading, and not a queue without tasks."""
    world = World(replicas=5)
    world.evaluate(NOW, due=5_000)
    standby = Reading([scanner({0: False}, due=0)])
    found = [world.read(standby, NOW + at) for at in range(2, 60, 2)]
    assert found[-1].reason == "MetricsUnavailable"
    assert {each.replicas for each in found} == {5}


def test_a_number_that_was_refused_is_not_asked_for_with_every_evaluation() -> None:
    """The queue is in the line for what is refused, with longer and longer pauses."""
    world = World(replicas=2)
    found = world.evaluate(due=5_000)
    world.scaler.refused(KEY, found.replicas)
    for n in range(1, 5):
        world.evaluate(NOW + 2 * n, due=5_000)
    assert world.enqueued == 1
    world.evaluate(NOW + 12)
    assert world.enqueued == 2, "another number may be taken"
    world.asks_for(0)
    world.evaluate(NOW + 14)
    world.asks_for(2)
    world.evaluate(NOW + 16, due=5_000)
    assert world.enqueued == 3, "so may the same one when it was not needed meanwhile"


def test_a_stale_decision_is_none() -> None:
    world = World(replicas=2)
    world.evaluate(due=5_000)
    assert world.scaler.decision(KEY, NOW + STALE_SECONDS + 1) is None
    world.evaluate(due=5_000)
    world.children.gone(names.DEPLOYMENT, ("shop", names.worker("orders")))
    assert world.scaler.decision(KEY, NOW + 1) is None, "there is no Deployment to scale"


POLICY = {"policies": [{"type": "Pods", "value": 2, "periodSeconds": 60}]}


def test_only_what_was_written_uses_up_what_a_policy_allows() -> None:
    """The write may take its time, or be refused: until then the number may still become the same."""
    world = World(replicas=1, behavior={**AT_ONCE, "scaleUp": POLICY})
    first = world.evaluate(due=5_000)
    assert [world.evaluate(NOW + 2 * n, due=5_000).replicas for n in range(5)] == [3] * 5
    world.carry_out(first, NOW + 10)
    numbers = [world.evaluate(NOW + at, due=5_000).replicas for at in (12, 59, 61)]
    assert numbers == [3, 3, 5]
    both = World(replicas=1, behavior={**AT_ONCE, "scaleUp": POLICY})
    for at, due, replicas in ((0, 40, 2), (2, 5_000, 3), (4, 5_000, 3)):
        found = both.evaluate(NOW + at, due=due)
        assert found.replicas == replicas
        both.carry_out(found, NOW + at)


@pytest.mark.parametrize(
    ("edit", "remembered"),
    [
        ({"autoscaling": {"mode": "External"}}, False),
        ({"autoscaling": {"minReplicas": 9, "maxReplicas": 1}}, True),
        ({"autoscaling": {}, "suspend": True}, True),
    ],
)
def test_nothing_is_decided_for_others_nor_while_held_and_what_was_learnt_is_kept_for_later(
    edit: dict[str, Any],
    remembered: bool,  # noqa: FBT001 -- a column
) -> None:
    world = World(replicas=2, status={"scaling": {"leadTimeSeconds": 8, "handlerMilliseconds": 500}})
    sample = world.evaluate(due=5_000).sample
    assert sample is not None
    assert (sample.lead_seconds, sample.handler_seconds) == (8, 0.5), "an earlier operator's"
    world.edit(**edit)
    assert world.scaler.decision(KEY, NOW) is None
    world.scaler.suspend(KEY, NOW + 2)
    assert (KEY in world.scaler._of) is remembered
    world.edit(autoscaling={"behavior": AT_ONCE})
    assert world.scaler.decision(KEY, NOW + 3) is None, "there was no look since"


def test_workers_that_have_become_ready_are_in_the_next_message_without_another_reading() -> None:
    """A reconciliation that reports them ready must not say how late tasks are without them."""
    world = World(replicas=5)
    world.pods += [replace(POD, component="worker", name=f"w{n}", created_at=NOW - 1) for n in range(5)]
    before = world.evaluate(NOW, due=5, due_within={1000: 0, 10_000: 150})
    assert "late (objective" in sentence(before)
    world.carry_out(before)
    world.pods = [replace(pod, ready=True) for pod in world.pods]
    after = world.decision(NOW + 1)
    assert "start them on time" in sentence(after)
    assert replace(after, sample=before.sample) == before, "the number is decided from the next reading"


def test_a_reconciliation_without_a_decision_is_followed_by_one_that_has_the_same_as_before() -> None:
    """Otherwise status says NotEvaluated until the next change, after a pause or a guard that came back."""
    world = World(replicas=2)
    world.evaluate(NOW)
    world.scaler.suspend(KEY, NOW + 20)
    assert world.scaler.decision(KEY, NOW + 40) is None
    before = world.later.total()
    world.evaluate(NOW + 42)
    assert world.later.total() == before + 1
    world.evaluate(NOW + 44)
    assert world.later.total() == before + 1


def test_workers_on_their_way_from_none_are_waited_for_as_long_as_they_usually_take() -> None:
    world = World(replicas=0)
    assert not world.scaler.observed(KEY, NOW).waking
    world.carry_out(world.evaluate(due=1))
    assert world.scaler.observed(KEY, NOW + 30).waking
    assert not world.scaler.observed(KEY, NOW + 61).waking
    assert world.later[60.0] == 1, "then the queue is reconciled"


def test_a_number_that_only_informs_is_written_now_and_then() -> None:
    """Limited or not with every look: no more than a number that moves."""
    world = World(replicas=10)
    for n in range(20):
        world.evaluate(NOW + 2 * n, due=5_000 * (n % 2))
    assert world.later[0.0] == 4, "at once, and then every 12 seconds of the 38"
    assert max(world.later) <= NUMBERS_SECONDS


def test_what_moves_by_itself_asks_for_no_reconciliation() -> None:
    """A due time is read as so many seconds from now, a mean as what it is by now."""
    world = World(replicas=0)
    world.pods.append(replace(POD, component="worker", name="w", created_at=NOW - 10, ready=True))
    for n in range(30):
        world.workers.stats(KEY).take(world.pods[0], says(NOW - 2, total=100 + n * 1.01, count=100 + n), NOW)
        now = NOW + 2 * n
        next_due_ms = 1_700_000_000_000 + int((4000 - 2 * n) * 1000) + (n % 3) * 400
        world.evaluate(now, scheduled=1, next_due_ms=next_due_ms)
    assert sum(world.later.values()) == 1
