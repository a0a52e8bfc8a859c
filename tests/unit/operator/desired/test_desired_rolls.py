"""Pods are rolled when something changes that they read when they start; exactly once; and not for anything else."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from delayq_operator.base import names
from delayq_operator.desired import desired
from delayq_operator.desired.checksum import changes

from tests.unit.operator.queues import MINIMAL, SETTING, facts, queue

if TYPE_CHECKING:
    from delayq_operator.desired.facts import Setting

Object = dict[str, Any]
Spec = dict[str, Any]

HTTP = {"url": "https://x", "signingSecretRef": {"name": "signing"}}
CHECK = {"http": {"url": "https://x"}}
ENV = [{"configMapRef": {"name": "app"}}, {"secretRef": {"name": "app-keys"}}]
SPEC: Spec = {
    "redis": {"standalone": {"host": "redis"}, "auth": {"passwordSecretRef": {"name": "shop-redis"}}},
    "handler": {"http": HTTP},
    "autoscaling": {"maxReplicas": 5},
    "worker": {"template": {"spec": {"containers": [{"name": "worker", "envFrom": ENV}]}}},
}


def deployments(
    *, setting: Setting = SETTING, known: Object | None = None, **spec: object
) -> dict[str, Object]:
    of = queue(MINIMAL, **{**SPEC, **spec})
    made = desired(of, setting, facts(of, **(known or {})))
    found = [each for each in made if each["kind"] == "Deployment"]
    return {each["metadata"]["labels"][names.COMPONENT_LABEL]: each for each in found}


def templates(**given: Any) -> dict[str, Object]:  # noqa: ANN401 -- what deployments() takes
    return {component: each["spec"]["template"] for component, each in deployments(**given).items()}


def inputs(component: str = "worker", **given: Any) -> dict[str, str]:  # noqa: ANN401 -- as above
    text = deployments(**given)[component]["metadata"]["annotations"][names.INPUTS]
    found: dict[str, str] = json.loads(text)
    return found


def worker(**fields: object) -> Spec:
    return {**SPEC["worker"], **fields}


BOTH = {"scanner", "worker"}
CHANGED = f"image changed from {SETTING.worker_image} to shop:8"
OTHER_SECRET = {"handler": {"http": {**HTTP, "signingSecretRef": {"name": "other"}}}}
CODE = {"recovery": {"check": {"python": {"callable": "shop:state"}}}}
PRIORITY = {"scanner": {"template": {"spec": {"priorityClassName": "high"}}}}
CHANGES: list[tuple[Spec, set[str], set[str]]] = [
    ({"redis": {**SPEC["redis"], "database": 3}}, BOTH, {"spec.redis changed"}),
    ({"shards": 2}, {"scanner"}, {"spec.shards changed"}),
    ({"limits": {"ratePerSecond": 9}}, BOTH, {"spec.limits added"}),
    ({"limits": {"maxInFlight": 9}}, BOTH, {"spec.limits added"}),
    ({"limits": {"maxLength": 9, "maxBytes": 1 << 20}}, {"scanner"}, {"spec.limits added"}),
    ({"schedules": {}}, {"scanner"}, {"spec.schedules changed", "pod template changed"}),
    ({"delivery": {"leaseDurationSeconds": 7}}, BOTH, {"spec.delivery changed"}),
    ({"durability": {"confirm": "Replicated"}}, {"scanner"}, {"spec.durability changed"}),
    ({"recovery": {"check": CHECK}}, {"scanner"}, {"spec.recovery.check added"}),
    (CODE, {"scanner"}, {"spec.recovery.check added", "pod template changed"}),
    (PRIORITY, {"scanner"}, {"pod template changed"}),
    ({"handler": {"http": {**HTTP, "url": "https://y"}}}, {"worker"}, {"spec.handler changed"}),
    (OTHER_SECRET, {"worker"}, {"spec.handler changed"}),
    ({"handler": {"http": HTTP, "kinds": {"push": CHECK}}}, {"worker"}, {"spec.handler changed"}),
    ({"guard": {"redisLock": {}}}, {"worker"}, {"spec.guard changed"}),
    ({"worker": worker(concurrency=5)}, {"worker"}, {"spec.worker changed"}),
    ({"worker": worker(drainTimeoutSeconds=5)}, {"worker"}, {"spec.worker changed"}),
    ({"suspend": True}, {"worker"}, {"spec.suspend changed"}),
    ({"retention": {"finished": {"seconds": 60}}}, {"worker"}, {"spec.retention.finished added"}),
    ({"worker": worker(terminationGracePeriodSeconds=99)}, {"worker"}, {"pod template changed"}),
    ({"worker": worker(image="shop:8")}, {"worker"}, {CHANGED}),
    ({"worker": {}}, {"worker"}, {"pod template changed"}),
    *[
        (spec, set(), set())
        for spec in (
            {"autoscaling": None, "worker": worker(replicas=9)},
            {"autoscaling": {"maxReplicas": 50}},
            {"scanner": {"replicas": 5}},
            {"suspend": True, "suspendPolicy": "Drain"},
            {"objective": {"latenessMilliseconds": 9000}},
            {"limits": {"maxDelaySeconds": 9, "maxPayloadBytes": 1 << 19}},
            {"reaper": {"suspend": True}},
            {"networkPolicy": {"enabled": True}},
            {"monitoring": {"podMonitor": {"enabled": True}}},
            {"delivery": {"maxAttempts": 5}},  # the default
        )
    ],
]


@pytest.mark.parametrize(("spec", "components", "reasons"), CHANGES)
def test_a_change_of_the_document_rolls_those_who_read_it_and_is_named(
    spec: Spec, components: set[str], reasons: set[str]
) -> None:
    before, after = templates(), templates(**spec)
    assert {component for component in before if before[component] != after[component]} == components
    for component in components:
        assert set(changes(inputs(component), inputs(component, **spec))) == reasons


def test_a_scanner_that_stores_definitions_of_schedules_reads_how_large_a_task_may_be() -> None:
    """Else a schedule that was too large would stay refused after the limit was raised."""
    before, after = (
        inputs("scanner", schedules={}, limits={"maxPayloadBytes": size}) for size in (1 << 18, 1 << 19)
    )
    assert changes(before, after) == ["spec.limits added"]


LEDGER: Spec = {
    "guard": {"sqlUnique": {"databaseSecretRef": {"name": "shop-db"}}},
    "recovery": {"check": {"guard": {}}},
}


def test_a_scanner_that_asks_the_guard_reads_the_guard() -> None:
    other = {"sqlUnique": {"databaseSecretRef": {"name": "shop-db"}, "retentionSeconds": 60}}
    for component in BOTH:
        before, after = inputs(component, **LEDGER), inputs(component, **{**LEDGER, "guard": other})
        assert changes(before, after) == ["spec.guard changed"]
    asking = {"recovery": {"check": {"http": {"url": "https://x"}}}}
    before, after = (inputs("scanner", **{**asking, "guard": each}) for each in (LEDGER["guard"], other))
    assert changes(before, after) == []


def _remembered(**given: Any) -> Object:  # noqa: ANN401 -- as above
    return {component: inputs(component, **given) for component in BOTH}


RUN: Spec = {"suspend": False}
HOLD: Spec = {"suspend": True}
DRAIN: Spec = {"suspend": True, "suspendPolicy": "Drain"}


@pytest.mark.parametrize(
    ("specs", "rolls"),
    [
        ((RUN, HOLD, RUN), [True, True]),
        ((RUN, DRAIN, RUN), [False, False]),
        ((HOLD, DRAIN, RUN), [False, True]),
        ((DRAIN, HOLD, DRAIN), [True, False]),
    ],
)
def test_workers_are_rolled_to_hold_and_not_to_drain(specs: tuple[Spec, ...], rolls: list[bool]) -> None:
    seen: list[Object] = []
    known: Object = {}
    for spec in specs:
        seen.append(templates(**spec, known=known)["worker"])
        known = {"inputs": _remembered(**spec, known=known)}
    assert [a != b for a, b in pairwise(seen)] == rolls


ANNOTATIONS = {"reloader.stakater.com/auto": "true", "delayq.example/x": "§"}


def test_annotations_are_those_of_the_objects_and_roll_nothing() -> None:
    """Controllers that restart pods look at the Deployment, and kubectl writes into its pod template."""
    spec: Spec = {
        "scanner": {"annotations": ANNOTATIONS},
        "worker": worker(annotations=ANNOTATIONS),
        "reaper": {"annotations": ANNOTATIONS},
    }
    assert templates(**spec) == templates()
    of = queue(MINIMAL, **{**SPEC, **spec})
    made = [each for each in desired(of, SETTING, facts(of)) if each["kind"] in {"Deployment", "CronJob"}]
    for each in made:
        assert each["metadata"]["annotations"].items() >= ANNOTATIONS.items()
    [written] = [each for each in desired(of, SETTING, facts(of)) if each["kind"] == "ConfigMap"]
    assert "reloader" not in str(written), "a change would write two objects"


# --- Which document is the newer one.


def stamps(*steps: Spec, generations: tuple[int, ...], known: Object | None = None) -> list[tuple[int, str]]:
    """The generation in the ConfigMap after each step, and what rolls scanners."""
    found, known = [], known or {}
    for spec, generation in zip(steps, generations, strict=True):
        of = queue(MINIMAL, **{**SPEC, **spec})
        made = {
            each["kind"]: each for each in desired(of, SETTING, facts(of, generation=generation, **known))
        }
        text = made["ConfigMap"]["data"]["queue.yaml"]
        known = {"inputs": {"scanner": inputs("scanner", **spec, known={"generation": generation, **known})}}
        found.append(
            (yaml.safe_load(text)["metadata"]["generation"], known["inputs"]["scanner"]["spec.shards"])
        )
    return found


def test_a_document_has_the_generation_that_last_changed_the_shards() -> None:
    """Another change, such as one of replicas, writes no ConfigMap and rolls no pod."""
    steps: list[Spec] = [
        {},
        {"worker": worker(replicas=9), "autoscaling": None},
        {"shards": 4},
        {"shards": 4},
        {},
    ]
    found = stamps(*steps, generations=(1, 2, 3, 9, 10))
    since = [(1, "1 since 1"), (1, "1 since 1"), (3, "4 since 3"), (3, "4 since 3"), (10, "1 since 10")]
    assert found == since
    assert stamps({}, {}, generations=(1, 3)) == since[:2], (
        "changed and changed back before the operator saw it"
    )


@pytest.mark.parametrize("odd", ["1 since 99", "1 since ²", "2 since 4", "abcdef012345"])
def test_a_generation_that_cannot_be_is_not_believed(odd: str) -> None:
    """A client edited the annotation, or an older operator wrote it."""
    known = {"inputs": {"scanner": {"spec.shards": odd}}}
    assert stamps({}, generations=(7,), known=known) == [(7, "1 since 7")]
