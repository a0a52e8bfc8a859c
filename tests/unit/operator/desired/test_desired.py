"""The children of a DelayQueue, as golden files, and what the golden documents do not ask for.

After a change that is meant, `DELAYQ_WRITE_GOLDEN=1 pytest tests/unit/operator/desired/test_desired.py` writes the
golden files anew; `git diff` then shows what the change does to every object.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from delayq.client.document import parse_text
from delayq.contract import SpecError
from delayq.processes.missing import needed
from delayq_operator.base import names
from delayq_operator.base.objects import at
from delayq_operator.desired import desired, erase_job, token
from delayq_operator.desired.config import config_map, for_pods, stamped
from delayq_operator.desired.pod import LISTEN
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.operator.queues import DOCUMENTS, RICH, SETTING, facts, queue

if TYPE_CHECKING:
    from delayq.contract import DelayQueue

Object = dict[str, Any]
GOLDEN = Path(__file__).parent / "golden"


class _Plain(yaml.SafeDumper):
    """Writes no anchors: a golden file is read by people."""

    def ignore_aliases(self, _data: object) -> bool:
        return True


def everything(of: DelayQueue, setting: Any = SETTING, **more: object) -> list[Object]:  # noqa: ANN401 -- a Setting
    known = facts(of, **more)
    return [*desired(of, setting, known), erase_job(of, setting, known)]


def child(kind: str, suffix: str, of: DelayQueue, **more: Any) -> Object:  # noqa: ANN401 -- as above
    made = everything(of, **more)
    return next(each for each in made if each["kind"] == kind and each["metadata"]["name"].endswith(suffix))


def kinds(of: DelayQueue, **more: Any) -> set[str]:  # noqa: ANN401 -- as above
    return {each["kind"] for each in everything(of, **more)}


def pods(of: DelayQueue, **more: Any) -> dict[str, Object]:  # noqa: ANN401 -- as above
    """The pod templates by component."""
    specs = [
        each["spec"] for each in everything(of, **more) if each["kind"] in ("Deployment", "CronJob", "Job")
    ]
    made = [spec.get("jobTemplate", {}).get("spec", spec)["template"] for spec in specs]
    return {each["metadata"]["labels"][names.COMPONENT_LABEL]: each for each in made}


def container(template: Object) -> Object:
    found: Object = template["spec"]["containers"][0]
    return found


@pytest.mark.parametrize("name", DOCUMENTS)
def test_the_children_are_the_golden_ones(name: str) -> None:
    file = GOLDEN / f"{name}.yaml"
    made = yaml.dump_all(
        everything(queue(DOCUMENTS[name])), Dumper=_Plain, sort_keys=False, allow_unicode=True, width=120
    )
    if os.environ.get("DELAYQ_WRITE_GOLDEN"):
        file.write_text(made)
    assert made == file.read_text(), "meant? DELAYQ_WRITE_GOLDEN=1 writes the file anew"


@pytest.mark.parametrize("name", DOCUMENTS)
def test_selectors_select_the_pods_they_mean(name: str) -> None:
    of = queue(DOCUMENTS[name])
    labels = {component: template["metadata"]["labels"] for component, template in pods(of).items()}
    for body in everything(of):
        spec = body.get("spec", {})
        wanted = (spec.get("selector") or spec.get("podSelector") or {}).get("matchLabels", {})
        component = wanted.get(names.COMPONENT_LABEL)
        meant = [component] if component in labels else ["scanner", "worker"]
        assert all(wanted.items() <= labels[each].items() for each in meant)


# --- Fields of one object.


def budget(**fields: object) -> Object:
    return {"podDisruptionBudget": fields}


def waits(seconds: int) -> Object:
    return {"redis": {"standalone": {"host": "redis"}, "timeoutSeconds": seconds}}


def scraped(seconds: int) -> Object:
    return {"monitoring": {"podMonitor": {"enabled": True, "intervalSeconds": seconds}}}


LIVENESS = "spec.template.spec.containers.0.livenessProbe.failureThreshold"
INTERVAL = "spec.podMetricsEndpoints.0.interval"
WITHOUT_SCANNERS: Object = {"scanner": {"replicas": 0}}
FIELDS: list[tuple[Object, str, str, object]] = [
    (budget(maxUnavailable="25%"), "PodDisruptionBudget -worker", "spec.maxUnavailable", "25%"),
    (budget(minAvailable=2), "PodDisruptionBudget -worker", "spec.minAvailable", 2),
    (budget(minAvailable=2), "PodDisruptionBudget -worker", "spec.maxUnavailable", None),
    ({"worker": {"replicas": 7}}, "Deployment -worker", "spec.replicas", None),  # the scaler's
    ({"worker": {"revisionHistoryLimit": 7}}, "Deployment -worker", "spec.revisionHistoryLimit", 7),
    # Ten seconds each: a minute, and as long as a step may wait for Redis.
    *[
        (waits(seconds), "Deployment -worker", LIVENESS, times)
        for seconds, times in ((1, 7), (5, 7), (300, 36))
    ],
    # Without scanners only the reaper recovers expired leases.
    (WITHOUT_SCANNERS, "CronJob -reaper", "spec.schedule", "* * * * *"),
    ({"reaper": {"schedule": "0-59/5 * * * *"}}, "CronJob -reaper", "spec.schedule", "0-59/5 * * * *"),
    # The author of a queue need not be trusted with a shared Prometheus.
    (scraped(7), "PodMonitor -delayq", INTERVAL, "7s"),
]


@pytest.mark.parametrize(("spec", "which", "path", "value"), FIELDS)
def test_a_field_follows_from_the_document(spec: Object, which: str, path: str, value: object) -> None:
    kind, suffix = which.split()
    body = child(kind, suffix, queue(**spec))
    before, _, after = path.partition(".0.")
    found = at(body, before)
    assert (at(found[0], after) if isinstance(found, list) else found) == value


def test_the_reapers_of_a_cluster_start_in_different_minutes() -> None:
    """A queue keeps its minute, and that of a queue of the same name elsewhere is another one."""
    of = queue()
    places = ["shop", *(f"team-{number}" for number in range(99))]
    found = [child("CronJob", "-reaper", of, namespace=place)["spec"]["schedule"] for place in places]
    shares = Counter(found)
    assert set(shares) == {f"{minute}-59/5 * * * *" for minute in range(5)}
    assert max(shares.values()) < 30
    assert found[0] == "1-59/5 * * * *", "an upgrade of the operator does not move it"


def test_the_operators_setting_reaches_the_pods() -> None:
    setting = replace(SETTING, image_pull_policy="Never", image_pull_secrets=("registry",))
    for template in pods(queue(), setting=setting).values():
        assert template["spec"]["imagePullSecrets"] == [{"name": "registry"}]
        assert container(template)["imagePullPolicy"] == "Never"


def test_the_job_that_erases_is_not_probed() -> None:
    """A large shard may take its time, with any probes in the reaper's template."""
    probes = {"livenessProbe": {"periodSeconds": 7}}
    template = {"spec": {"containers": [{"name": "reaper", **probes, "env": [{"name": "A", "value": "b"}]}]}}
    found = container(pods(queue(reaper={"template": template}))["erase"])
    assert found["command"] == ["delayq", "erase", *LISTEN, "--yes"]
    assert found["env"] == [{"name": "A", "value": "b"}]
    assert found.keys().isdisjoint({"livenessProbe", "startupProbe", "readinessProbe"})


# --- The document that pods read.

TEXT = st.one_of(
    st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=40),
    st.from_regex(
        r"[-+.0-9yn][0-9eoxb_:.]{0,4}", fullmatch=True
    ),  # what YAML may take for a number or a word
)


@given(command=st.lists(TEXT, min_size=1, max_size=3), value=TEXT)
def test_a_document_of_any_text_survives_its_way_through_yaml(command: list[str], value: str) -> None:
    of = queue(handler={"exec": {"command": command, "env": {"A": value}}})
    known = facts(of)
    text = config_map(of, known)["data"]["queue.yaml"]
    assert parse_text(text.encode(), "queue.yaml") == stamped(for_pods(of), known)
    job = erase_job(of, SETTING, known)["spec"]["template"]
    assert parse_text(job["metadata"]["annotations"][names.DOCUMENT].encode(), "queue.yaml") == stamped(
        for_pods(of), known
    )


def test_it_lacks_what_only_the_operator_reads() -> None:
    """So a scale change writes one object, and a pod template cannot make the ConfigMap too large."""
    worker = {"replicas": 3, "template": {"spec": {"priority": 1}}, "revisionHistoryLimit": 7}
    scanner = {"template": {}, "revisionHistoryLimit": 7}
    of = queue(autoscaling=None, worker=worker, scanner=scanner, reaper={"template": {}})
    assert for_pods(of) == for_pods(queue(autoscaling=None))
    assert "revisionHistoryLimit" not in str(
        child("ConfigMap", "-config", of)
    )  # pods of older images read it


def test_one_that_no_object_can_hold_is_refused_before_anything_is_written() -> None:
    """The API server would refuse the ConfigMap and take the Deployments, whose pods would wait for it."""
    of = queue(handler={"exec": {"command": ["true", *("x" * (30 << 10) for _ in range(7))]}})
    with pytest.raises(SpecError, match="expected at most 196,608 bytes as YAML"):
        desired(of, SETTING, facts(of))


# --- Secrets, and who reads them.


def _mounted(template: Object) -> set[str]:
    sources = template["spec"]["volumes"][0]["projected"]["sources"]
    secrets = [source["secret"] for source in sources if "secret" in source]
    return {f"{secret['name']}/{item['key']}" for secret in secrets for item in secret["items"]}


DATABASE: Object = {"databaseSecretRef": {"name": "shop-db"}}
LOCKS: Object = {"redlock": {"urlsSecretRef": {"name": "locks"}}}
SIGNED: Object = {"http": {"url": "https://shop.example/state", "signingSecretRef": {"name": "signing"}}}
CODE: Object = {"python": {"callable": "shop.orders:state"}}
DB, KEY, URLS = {"shop-db/url"}, {"signing/key"}, {"locks/urls"}
WHO_READS: list[tuple[Object | None, Object | None, dict[str, set[str]]]] = [
    (LOCKS, None, {"worker": URLS}),
    ({"sqlUnique": DATABASE}, None, {"worker": DB, "reaper": DB}),
    ({"sqlOptimistic": DATABASE}, {"guard": {}}, {"worker": DB, "reaper": DB, "scanner": DB}),
    (LOCKS, SIGNED, {"worker": URLS, "reaper": KEY, "scanner": KEY}),
    ({"sqlUnique": DATABASE}, CODE, {"worker": DB, "reaper": DB}),
]


@pytest.mark.parametrize(("guard", "check", "readers"), WHO_READS)
def test_secrets_of_guards_and_checks_go_to_those_who_use_them(
    guard: Object | None, check: Object | None, readers: dict[str, set[str]]
) -> None:
    made = pods(queue(guard=guard, recovery={"check": check} if check else {}))
    assert {component: found for component, each in made.items() if (found := _mounted(each))} == readers


def test_the_key_of_a_routed_kind_goes_to_workers_alone() -> None:
    of = queue(handler={**CODE, "kinds": {"push": SIGNED}})
    found = {component: _mounted(each) for component, each in pods(of).items() if _mounted(each)}
    assert found == {"worker": KEY}


def test_every_key_is_optional_for_the_kubelet_and_processes_wait_for_it() -> None:
    """Each object is one source, with the keys in use only: a private key beside a certificate is not mounted."""
    token, key = {"name": "shared", "key": "token"}, {"name": "shared", "key": "password"}
    service = {
        "url": "https://x",
        "secretHeaders": {"A": token, "B": key},
        "caConfigMapRef": {"name": "shared"},
    }
    redis = {"standalone": {"host": "redis"}, "auth": {"passwordSecretRef": {"name": "shared"}}}
    of = queue(redis=redis, handler={**CODE, "kinds": {"push": {"http": service}}})
    _, *sources = pods(of)["worker"]["spec"]["volumes"][0]["projected"]["sources"]
    keys = [{"key": key, "path": f"secrets/shared/{key}"} for key in ("password", "token")]
    trust = [{"key": "ca.crt", "path": "secrets/_configmaps/shared/ca.crt"}]
    assert sources == [
        {"configMap": {"name": "shared", "items": trust, "optional": True}},
        {"secret": {"name": "shared", "items": keys, "optional": True}},
    ]
    assert _mounted(pods(of)["scanner"]) == {"shared/password"}


@pytest.mark.parametrize(("guard", "check", "_readers"), [*WHO_READS, (None, None, {})])
def test_a_process_waits_only_for_what_its_pods_mount(
    guard: Object | None, check: Object | None, _readers: object
) -> None:
    of = queue(RICH, schedules=None, guard=guard, recovery={"check": check} if check else {})
    for component, made in pods(of).items():
        waits = {f"{each.name}/{each.key}" for each in needed(component, of, redis=True)}
        assert waits <= _mounted(made)
        assert "shop-redis/password" in waits


# --- Whose image scanners and reapers run.

PULLED: Object = {
    "spec": {
        "imagePullSecrets": [{"name": "registry"}],
        "nodeSelector": {"kubernetes.io/arch": "arm64"},
        "containers": [{"name": "worker", "imagePullPolicy": "Always", "env": [{"name": "A", "value": "b"}]}],
    }
}


def test_who_asks_the_users_code_runs_the_users_image_and_pulls_it_as_workers_do() -> None:
    own = {"imagePullSecrets": [{"name": "registry", "$patch": "delete"}, {"name": "mirror"}]}
    worker = {"image": "shop:7", "template": PULLED}
    made = pods(queue(worker=worker, scanner={"template": {"spec": own}}, recovery={"check": CODE}))
    horizons = [{"name": names.HORIZONS_VARIABLE, "value": str(names.HORIZONS_PORT)}]
    reaper = [{"name": names.REAPER_VARIABLE, "value": "1"}]
    for component, env, secret in (("scanner", horizons, "mirror"), ("reaper", reaper, "registry")):
        spec, of = made[component]["spec"], container(made[component])
        assert (of["image"], of["imagePullPolicy"]) == ("shop:7", "Always")
        assert spec["imagePullSecrets"] == [{"name": secret}]
        assert of["resources"]["limits"] == {"memory": "1Gi"}  # the user's code takes more than ours
        assert (of.get("env"), spec.get("nodeSelector")) == (env, None)
    assert container(made["erase"])["image"] == SETTING.worker_image
    assert "imagePullSecrets" not in made["erase"]["spec"]


@pytest.mark.parametrize(
    ("image", "check", "limit"), [("shop:7", SIGNED, "256Mi"), ("shop:7", None, "256Mi"), (None, CODE, "1Gi")]
)
def test_others_run_ours(image: str | None, check: Object | None, limit: str) -> None:
    recovery = {"check": check} if check else {}
    made = pods(queue(worker={"image": image, "template": PULLED}, recovery=recovery))
    for component in ("scanner", "reaper"):
        assert container(made[component])["image"] == SETTING.worker_image
        assert "imagePullSecrets" not in made[component]["spec"]
        assert container(made[component])["resources"]["limits"] == {"memory": limit}


def test_problems_of_all_templates_are_reported_at_once_and_each_once() -> None:
    """Scanners take a part of the workers' template."""
    spec = {"imagePullSecrets": [{"name": "a"}] * 2}
    broken = {"template": {"spec": {"restartPolicy": "Never"}}}
    worker = {"image": "shop:7", "template": {"spec": spec}}
    of = queue(worker=worker, scanner=broken, reaper=broken, recovery={"check": CODE})
    with pytest.raises(SpecError) as raised:
        desired(of, SETTING, facts(of))
    found = [problem.path for problem in raised.value.problems]
    assert {path.split(".")[1] for path in found} == {"scanner", "worker", "reaper"}
    assert len(set(raised.value.problems)) == len(found)


# --- The NetworkPolicy.

HERE = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "delayq-system"}}}
OPERATOR = {**HERE, "podSelector": {"matchLabels": dict(SETTING.own_labels)}}
PROMETHEUS: Object = {"podSelector": {"matchLabels": {"app": "prometheus"}}}


def test_horizons_are_for_the_operator_alone_and_nothing_else_is_shut() -> None:
    """Without spec.networkPolicy, too: it selects scanners only, and leaves all other ports of theirs as they were."""
    found = child("NetworkPolicy", "", queue())
    assert found["spec"]["podSelector"]["matchLabels"] == names.selector("orders", "scanner")
    open_to_all, horizons = found["spec"]["ingress"]
    assert horizons == {"from": [OPERATOR], "ports": [{"port": names.HORIZONS_PORT, "protocol": "TCP"}]}
    assert "from" not in open_to_all
    tcp = [each for each in open_to_all["ports"] if each["protocol"] == "TCP"]
    shut = set(range(1, 65536)).difference(*(range(each["port"], each["endPort"] + 1) for each in tcp))
    assert shut == {names.HORIZONS_PORT}
    assert {each["protocol"] for each in open_to_all["ports"] if "port" not in each} == {"UDP", "SCTP"}
    # Outside of a cluster the operator cannot be named.
    assert "NetworkPolicy" not in kinds(queue(), setting=replace(SETTING, own_namespace=None))


@pytest.mark.parametrize(
    ("setting", "policy", "readers"),
    [
        (SETTING, {"metricsFrom": [PROMETHEUS]}, [OPERATOR, PROMETHEUS]),
        (replace(SETTING, own_labels={}), {"metricsFrom": [PROMETHEUS]}, [HERE, PROMETHEUS]),
        (replace(SETTING, own_namespace=None), {"metricsFrom": [PROMETHEUS]}, [PROMETHEUS]),
        (SETTING, {}, None),  # all clients: one peer would shut out all others
    ],
)
def test_the_operator_may_always_read_the_metrics_it_decides_by(
    setting: object, policy: Object, readers: list[Object] | None
) -> None:
    of = queue(networkPolicy={"enabled": True, **policy})
    rule, horizons = child("NetworkPolicy", "", of, setting=setting)["spec"]["ingress"]
    assert rule.get("from") == readers
    assert horizons["ports"] == [{"port": names.HORIZONS_PORT, "protocol": "TCP"}]


def test_scanners_of_a_queue_with_schedules_have_an_account_that_is_bound_to_the_charts_role() -> None:
    """Without `schedules`, there is neither. No other pod has this account."""
    named = {(each["kind"], each["metadata"]["name"]) for each in everything(queue())}
    assert not named & {("ServiceAccount", "orders-scanner"), ("RoleBinding", "orders-scanner")}
    of = queue(schedules={})
    binding = child("RoleBinding", "-scanner", of)
    assert binding["roleRef"]["kind"] == "ClusterRole"
    assert binding["roleRef"]["name"] == SETTING.scanner_role
    [subject] = binding["subjects"]
    account = child("ServiceAccount", "-scanner", of)
    assert (subject["name"], account["automountServiceAccountToken"]) == (account["metadata"]["name"], False)
    using = [
        name for name, each in pods(of).items() if each["spec"].get("serviceAccountName") == subject["name"]
    ]
    assert using == ["scanner"]


def test_the_token_is_in_the_container_scanner_and_in_no_other() -> None:
    sidecars = {
        "containers": [{"name": "side", "image": "x"}],
        "initContainers": [{"name": "init", "image": "x"}],
    }
    either: tuple[Object | None, ...] = (None, {})
    for schedules in either:
        of = queue(schedules=schedules, scanner={"template": {"spec": sidecars}}, worker={"image": "code"})
        with_token = [
            (component, container["name"])
            for component, each in pods(of).items()
            for container in (*each["spec"]["containers"], *each["spec"].get("initContainers", ()))
            if any(mount["name"] == token.VOLUME for mount in container.get("volumeMounts", ()))
        ]
        assert with_token == ([] if schedules is None else [("scanner", "scanner")])
        assert not any(each["spec"]["automountServiceAccountToken"] for each in pods(of).values())


@pytest.mark.parametrize(
    ("path", "spec"),
    [
        ("serviceAccountName", {"serviceAccountName": "mine"}),
        ("serviceAccountName", {"serviceAccountName": None}),
        ("automountServiceAccountToken", {"automountServiceAccountToken": True}),
        ("volumes[0]", {"volumes": [{"name": token.VOLUME, "emptyDir": {}}]}),
    ],
)
def test_a_template_cannot_take_the_account_or_the_token_of_scanners(path: str, spec: Object) -> None:
    of = queue(schedules={}, scanner={"template": {"spec": spec}})
    with pytest.raises(SpecError, match=re.escape(f"spec.scanner.template.spec.{path}")):
        pods(of)
