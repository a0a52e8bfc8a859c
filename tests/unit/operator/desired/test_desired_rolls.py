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

from tests.unit.operator.queues import MINIMAL, SETTING, UID, facts, queue

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
    (
        {"worker": {}},
        {"worker"},
        {"pod template changed", "ConfigMap app removed", "Secret app-keys removed"},
    ),
    *[
        (spec, set(), set())
        for spec in (
            {"autoscaling": None, "worker": worker(replicas=9)},
            {"autoscaling": {"maxReplicas": 50}},
            {"scanner": {"replicas": 5}},
            {"suspend": True, "suspendPolicy": "Drain"},
            {"objective": {"latenessMilliseconds": 9000}},
            {"limits": {"maxDelaySeconds": 9}},
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


def secrets(**contents: str) -> Object:
    return {"known": {"secrets": {"shop-redis": "1", "signing": "1", "app-keys": "1", **contents}}}


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


TLS = {field: {"name": "redis-tls"} for field in ("caSecretRef", "certSecretRef", "keySecretRef")}
SENTINEL = {"masterName": "m", "nodes": [{"host": "s"}], "auth": {"passwordSecretRef": {"name": "sentinels"}}}
READ_AGAIN: dict[str, Any] = {
    "shop-redis": {},
    "redis-tls": {"redis": {"standalone": {"host": "redis"}, "tls": TLS}},
    "sentinels": {"redis": {"sentinel": SENTINEL}},
    "signing": {},
    "shop-db": LEDGER,
}


@pytest.mark.parametrize("name", READ_AGAIN)
def test_a_secret_that_is_read_again_while_pods_run_rolls_none(name: str) -> None:
    """Kubernetes changes the mounted file, and the next connect, or the next use, is with what it holds then."""
    for component in BOTH:
        contents = ({"secrets": {name: content}} for content in ("1", "2"))
        old, new = (inputs(component, **READ_AGAIN[name], known=known) for known in contents)
        assert changes(old, new) == []


REDLOCK: Any = {"guard": {"redlock": {"urlsSecretRef": {"name": "locks"}}}}


def reading(*sources: Object) -> Spec:
    """The spec of workers that have these in their environment."""
    containers = [{"name": "worker", "envFrom": list(sources)}]
    return {"worker": worker(template={"spec": {"containers": containers}})}


@pytest.mark.parametrize(
    ("spec", "field", "name"),
    [
        (REDLOCK, "secrets", "locks"),
        ({}, "secrets", "app-keys"),
        (reading(*ENV, *ENV), "secrets", "app-keys"),
        (
            reading({"secretRef": {"name": "shop-redis"}}),
            "secrets",
            "shop-redis",
        ),  # though processes read it again for spec.redis
        ({}, "config_maps", "app"),
    ],
)
def test_what_workers_read_once_rolls_workers_alone(spec: Spec, field: str, name: str) -> None:
    kind = "Secret" if field == "secrets" else "ConfigMap"
    for component, reasons in (("worker", [f"{kind} {name} changed"]), ("scanner", [])):
        old, new = (inputs(component, **spec, known={field: {name: content}}) for content in ("1", "2"))
        assert changes(old, new) == reasons


def _remembered(**given: Any) -> Object:  # noqa: ANN401 -- as above
    return {component: inputs(component, **given) for component in BOTH}


@pytest.mark.parametrize(("again", "rolls"), [("1", [False, False]), ("2", [False, True])])
def test_a_secret_that_is_gone_rolls_nothing_and_one_that_comes_back_if_it_is_another(
    again: str, rolls: list[bool]
) -> None:
    """Pods made while it is away could not start: they would be rolled once in vain."""
    gone = {"secrets": {"app-keys": "", "signing": "1"}, "inputs": _remembered(**secrets())}
    back = {"secrets": {"app-keys": again, "signing": "1"}, "inputs": _remembered(known=gone)}
    seen = [templates(**secrets()), templates(known=gone), templates(known=back)]
    assert [a != b for a, b in pairwise(seen)] == rolls


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


def test_the_annotation_tells_nothing_of_a_secret_or_of_who_shares_it() -> None:
    here, there = inputs(**secrets()), inputs(known={**secrets()["known"], "uid": "another"})
    assert here["Secret app-keys"] != there["Secret app-keys"]
    assert {len(value) for name, value in here.items() if name.startswith("Secret")} == {18}
    assert UID not in json.dumps(here)


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
