"""Pods are rolled when something changes that they read when they start; exactly once; and not for anything else."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest
from delayq_operator import names
from delayq_operator.desired import desired
from delayq_operator.desired.checksum import changes

from tests.unit.operator.queues import MINIMAL, RICH, SETTING, UID, facts, queue

if TYPE_CHECKING:
    from delayq_operator.desired.facts import Setting

Object = dict[str, Any]
Spec = dict[str, Any]

HTTP = {"url": "https://x", "signingSecretRef": {"name": "signing"}}
CHECK = {"http": {"url": "https://x"}}
SPEC: Spec = {
    "redis": {"standalone": {"host": "redis"}, "authSecretRef": {"name": "shop-redis"}},
    "handler": {"http": HTTP},
    "autoscaling": {"maxReplicas": 5},
    "worker": {
        "template": {
            "spec": {"containers": [{"name": "worker", "envFrom": [{"configMapRef": {"name": "app"}}]}]}
        }
    },
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


def rolled(**given: Any) -> set[str]:  # noqa: ANN401 -- as above
    """Components whose pods a change replaces."""
    before, after = templates(), templates(**given)
    return {component for component in before if before[component] != after[component]}


def why(component: str = "worker", **given: Any) -> list[str]:  # noqa: ANN401 -- as above
    return changes(inputs(component), inputs(component, **given))


def worker(**fields: object) -> Spec:
    return {**SPEC["worker"], **fields}


BOTH = {"scanner", "worker"}
CHANGES: dict[str, tuple[Spec, set[str], list[str]]] = {
    "redis": ({"redis": {**SPEC["redis"], "database": 3}}, BOTH, ["spec.redis changed"]),
    "shards": ({"shards": 2}, BOTH, ["spec.shards changed"]),
    "delivery": ({"delivery": {"leaseSeconds": 7}}, BOTH, ["spec.delivery changed"]),
    "handler": ({"handler": {"http": {**HTTP, "url": "https://y"}}}, {"worker"}, ["spec.handler changed"]),
    "guard": ({"guard": {"redisLock": {}}}, {"worker"}, ["spec.guard changed"]),
    "concurrency": ({"worker": worker(concurrency=5)}, {"worker"}, ["spec.worker changed"]),
    "drain": ({"worker": worker(drainTimeoutSeconds=5)}, {"worker"}, ["spec.worker changed"]),
    "hold": ({"stopPolicy": "Hold"}, {"worker"}, ["spec.stopPolicy changed"]),
    "grace": ({"worker": worker(terminationGracePeriodSeconds=99)}, {"worker"}, ["pod template changed"]),
    "image": (
        {"worker": worker(image="shop:8")},
        {"worker"},
        [f"image changed from {SETTING.worker_image} to shop:8"],
    ),
    "template": ({"worker": {}}, {"worker"}, ["pod template changed", "ConfigMap app removed"]),
    "secret": (
        {"handler": {"http": {**HTTP, "signingSecretRef": {"name": "other"}}}},
        {"worker"},
        ["spec.handler changed", "Secret other added", "Secret signing removed"],
    ),
    "scanner": (
        {"scanner": {"template": {"spec": {"priorityClassName": "high"}}}},
        {"scanner"},
        ["pod template changed"],
    ),
    "replicas": ({"autoscaling": None, "worker": worker(replicas=9)}, set(), []),
    "scanners": ({"scanner": {"replicas": 5}}, set(), []),
    "autoscaling": ({"autoscaling": {"maxReplicas": 50}}, set(), []),
    "drained": ({"stopPolicy": "HoldAndDrain"}, set(), []),
    "deletion": ({"deletionPolicy": "Delete"}, set(), []),
    "objective": ({"objective": {"latenessSeconds": 9}}, set(), []),
    "limits": ({"limits": {"maxLength": 9}}, set(), []),
    "retention": ({"retention": {"deadLetterCount": 9}}, set(), []),
    "reaper": ({"reaper": {"sweepSeconds": 9}}, set(), []),
    "check": ({"reaper": {"check": CHECK}}, {"scanner"}, ["spec.reaper.check added"]),
    "checking code": (
        {"reaper": {"check": {"python": {"callable": "shop:state"}}}},
        {"scanner"},
        ["spec.reaper.check added", "pod template changed"],
    ),
    "budget": ({"podDisruptionBudget": {"enabled": False}}, set(), []),
    "network": ({"networkPolicy": {"enabled": True}}, set(), []),
    "monitoring": ({"monitoring": {"podMonitor": {"enabled": True}}}, set(), []),
    "default": ({"delivery": {"maxAttempts": 5}}, set(), []),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_of_the_document_rolls_those_who_read_it(name: str) -> None:
    spec, components, _ = CHANGES[name]
    assert rolled(**spec) == components


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_of_the_document_is_named(name: str) -> None:
    spec, components, reasons = CHANGES[name]
    for component in components:
        assert set(why(component, **spec)) == set(reasons)


def secrets(**contents: str) -> Object:
    given = {
        "shop-redis": "1",
        "signing": "1",
        **{name.replace("_", "-"): text for name, text in contents.items()},
    }
    return {"known": {"secrets": given}}


LEDGER: Spec = {
    "guard": {"sqlUnique": {"databaseSecretRef": {"name": "shop-db"}}},
    "reaper": {"check": {"guard": {}}},
}


def test_a_scanner_that_asks_the_guard_reads_the_guard() -> None:
    other = {"sqlUnique": {"databaseSecretRef": {"name": "shop-db"}, "retentionSeconds": 60}}
    for component in BOTH:
        before, after = inputs(component, **LEDGER), inputs(component, **{**LEDGER, "guard": other})
        assert changes(before, after) == ["spec.guard changed"]
    asking = {"reaper": {"check": {"http": {"url": "https://x"}}}}
    before, after = (inputs("scanner", **{**asking, "guard": each}) for each in (LEDGER["guard"], other))
    assert changes(before, after) == []


def test_another_database_rolls_those_who_use_it() -> None:
    for component in BOTH:
        old, new = (
            inputs(component, **LEDGER, known={"secrets": {"shop-db": content}}) for content in ("1", "2")
        )
        assert changes(old, new) == ["Secret shop-db changed"]


def test_a_secret_rolls_those_who_mount_it() -> None:
    before = templates(**secrets())
    for changed, components in ({"signing": "2"}, {"worker"}), ({"shop_redis": "2"}, BOTH):
        after = templates(**secrets(**changed))
        assert {component for component in before if before[component] != after[component]} == components


def test_a_configmap_that_only_a_template_names_rolls_its_pods() -> None:
    assert rolled(known={"config_maps": {"app": "other"}}) == {"worker"}
    assert why(known={"config_maps": {"app": "other"}}) == ["ConfigMap app changed"]


def test_a_secret_that_is_named_twice_counts_once() -> None:
    old, new = inputs(**secrets()), inputs(**secrets(shop_redis="2"))
    assert changes(old, new) == ["Secret shop-redis changed"]


def _remembered(**given: Any) -> Object:  # noqa: ANN401 -- as above
    return {component: inputs(component, **given) for component in BOTH}


def test_a_secret_that_is_gone_rolls_nothing_and_one_that_comes_back_as_it_was_neither() -> None:
    before = templates(**secrets())
    gone = {"secrets": {"shop-redis": "", "signing": "1"}, "inputs": _remembered(**secrets())}
    assert templates(known=gone) == before
    remembered = _remembered(known=gone)
    back = {"secrets": {"shop-redis": "1", "signing": "1"}, "inputs": remembered}
    assert templates(known=back) == before


def test_a_secret_that_was_deleted_and_made_anew_rolls_once() -> None:
    """Twice would be once in vain: pods made while it is away cannot start."""
    gone = {"secrets": {"shop-redis": "", "signing": "1"}, "inputs": _remembered(**secrets())}
    new = {"secrets": {"shop-redis": "2", "signing": "1"}, "inputs": _remembered(known=gone)}
    seen = [templates(**secrets()), templates(known=gone), templates(known=new)]
    assert [a != b for a, b in pairwise(seen)] == [False, True]


def test_a_secret_that_appears_is_named_so() -> None:
    gone = {"secrets": {"shop-redis": "", "signing": "1"}}
    assert changes(inputs(known=gone), inputs(**secrets())) == ["Secret shop-redis appeared"]


@pytest.mark.parametrize(
    ("policies", "rolls"),
    [
        (("None", "Hold", "None"), [True, True]),
        (("None", "HoldAndDrain", "None"), [False, False]),
        (("Hold", "HoldAndDrain", "None"), [False, True]),
        (("HoldAndDrain", "Hold", "HoldAndDrain"), [True, False]),
    ],
)
def test_workers_are_rolled_to_hold_and_not_to_drain(policies: tuple[str, ...], rolls: list[bool]) -> None:
    seen: list[Object] = []
    known: Object = {}
    for policy in policies:
        seen.append(templates(stopPolicy=policy, known=known)["worker"])
        known = {"inputs": _remembered(stopPolicy=policy, known=known)}
    assert [a != b for a, b in pairwise(seen)] == rolls


def test_the_annotation_tells_nothing_of_a_secret_or_of_who_shares_it() -> None:
    here, there = inputs(**secrets()), inputs(known={**secrets()["known"], "uid": "another"})
    assert here["Secret shop-redis"] != there["Secret shop-redis"]
    assert here["Secret shop-redis"] != here["Secret signing"]
    assert {len(value) for name, value in here.items() if name.startswith("Secret")} == {12}


def test_the_annotation_says_the_same_of_the_same() -> None:
    assert inputs() == inputs()
    assert changes(inputs(), inputs()) == []
    assert UID not in json.dumps(inputs())


def test_nothing_can_be_said_of_a_first_time() -> None:
    assert changes({}, inputs()) == []


def test_the_checksum_of_a_rich_queue_covers_every_secret_it_reads() -> None:
    of = queue(RICH)
    made = {each["metadata"]["name"]: each for each in desired(of, SETTING, facts(of))}
    found = json.loads(made["orders-worker"]["metadata"]["annotations"][names.INPUTS])
    named = {name for name in found if name.startswith(("Secret", "ConfigMap"))}
    wanted = {f"Secret {name}" for name in ("shop-redis", "sentinel-auth", "redis-tls", "signing", "shop-db")}
    assert named == wanted | {"ConfigMap app-env", "ConfigMap models"}
