"""The children of a DelayQueue, as golden files and as sentences.

After a change that is meant, `DELAYQ_WRITE_GOLDEN=1 pytest tests/unit/operator/desired/test_desired.py` writes the
golden files anew; `git diff` then shows what the change does to every object.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from delayq.client.document import parse_text
from delayq.contract import SpecError, parse
from delayq_operator.base import names
from delayq_operator.base.names import selector
from delayq_operator.desired import desired, erase_job, referenced
from delayq_operator.desired.config import for_pods, stamped
from delayq_operator.desired.facts import Setting
from delayq_operator.desired.pod import LISTEN
from delayq_operator.desired.reads import References
from delayq_operator.desired.reaper import cron_job
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.operator.queues import DOCUMENTS, RICH, SETTING, UID, facts, queue

if TYPE_CHECKING:
    from delayq.contract import DelayQueue

Object = dict[str, Any]
GOLDEN = Path(__file__).parent / "golden"


class _Plain(yaml.SafeDumper):
    """No anchors: a reader of a golden file wants to see what is there."""

    def ignore_aliases(self, _data: object) -> bool:
        return True


def everything(of: DelayQueue, **more: object) -> list[Object]:
    known = facts(of, **more)
    return [*desired(of, SETTING, known), erase_job(of, SETTING, known)]


def child(kind: str, suffix: str, of: DelayQueue, **more: object) -> Object:
    return next(
        each
        for each in everything(of, **more)
        if each["kind"] == kind and each["metadata"]["name"].endswith(suffix)
    )


def pod(body: Object) -> Object:
    """The pod template of an object that has one."""
    spec = body["spec"]
    found: Object = spec["jobTemplate"]["spec"]["template"] if body["kind"] == "CronJob" else spec["template"]
    return found


def pods(of: DelayQueue) -> dict[str, Object]:
    """The pod templates by component."""
    made = [pod(each) for each in everything(of) if each["kind"] in ("Deployment", "CronJob", "Job")]
    return {each["metadata"]["labels"][names.COMPONENT_LABEL]: each for each in made}


def container(template: Object) -> Object:
    found: Object = template["spec"]["containers"][0]
    return found


def kinds(of: DelayQueue, **more: object) -> set[str]:
    return {each["kind"] for each in everything(of, **more)}


@pytest.mark.parametrize("name", DOCUMENTS)
def test_the_children_are_the_golden_ones(name: str) -> None:
    file = GOLDEN / f"{name}.yaml"
    made = yaml.dump_all(
        everything(queue(DOCUMENTS[name])), Dumper=_Plain, sort_keys=False, allow_unicode=True, width=120
    )
    if os.environ.get("DELAYQ_WRITE_GOLDEN"):
        file.write_text(made)
    assert made == file.read_text(), "meant? DELAYQ_WRITE_GOLDEN=1 writes the file anew"


def test_what_pods_need_comes_before_the_pods() -> None:
    order = [each["kind"] for each in desired(queue(RICH), SETTING, facts(queue(RICH)))]
    assert order.index("ConfigMap") < order.index("Deployment")
    assert order.index("ServiceAccount") < order.index("Deployment")
    assert order.index("NetworkPolicy") < order.index("Deployment")


@pytest.mark.parametrize("name", DOCUMENTS)
def test_every_child_goes_with_its_delayqueue_and_carries_our_labels(name: str) -> None:
    of = queue(DOCUMENTS[name])
    for body in desired(of, SETTING, facts(of)):
        (owner,) = body["metadata"]["ownerReferences"]
        assert owner["uid"] == UID
        assert owner["controller"]
        assert body["metadata"]["labels"][names.QUEUE_LABEL] == of.metadata.name
        assert body["metadata"]["namespace"] == of.metadata.namespace


@pytest.mark.parametrize("name", DOCUMENTS)
def test_the_erase_job_needs_nothing_that_goes_with_the_delayqueue(name: str) -> None:
    """Deleted in the foreground, a DelayQueue goes after its children: the Job is none, and carries the document."""
    of = queue(DOCUMENTS[name])
    job = erase_job(of, SETTING, facts(of))
    assert "ownerReferences" not in job["metadata"]
    assert job["metadata"]["annotations"][names.OWNER_UID] == UID
    template = job["spec"]["template"]
    assert template["spec"].get("serviceAccountName") != names.pods(of.metadata.name)
    assert names.config(of.metadata.name) not in str(template["spec"])
    document = yaml.safe_load(template["metadata"]["annotations"][names.DOCUMENT])
    assert parse(document) == for_pods(of)


@pytest.mark.parametrize("name", DOCUMENTS)
def test_the_document_in_the_configmap_is_the_document(name: str) -> None:
    of = queue(DOCUMENTS[name])
    text = child("ConfigMap", "-config", of)["data"]["queue.yaml"]
    assert parse(yaml.safe_load(text)) == stamped(for_pods(of), facts(of))


TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=40)


@given(command=st.lists(TEXT, min_size=1, max_size=3), value=TEXT)
def test_a_document_of_any_text_survives_its_way_through_yaml(command: list[str], value: str) -> None:
    of = queue(handler={"exec": {"command": command, "env": {"A": value}}})
    text = child("ConfigMap", "-config", of)["data"]["queue.yaml"]
    assert parse_text(text.encode(), "queue.yaml") == stamped(for_pods(of), facts(of))


def test_the_document_in_the_configmap_lacks_what_only_the_operator_reads() -> None:
    """Then a scale change writes one object, and a pod template cannot make the ConfigMap too large."""
    of = queue(RICH, autoscaling=None, worker={"replicas": 3, "template": {"spec": {"priority": 1}}})
    found = for_pods(of).spec
    assert (found.worker.replicas, found.worker.template, found.scanner.template) == (1, None, None)
    assert replace(of.spec.worker, template=None, replicas=1) == found.worker


@pytest.mark.parametrize("component", ["scanner", "worker", "reaper", "erase"])
def test_pods_are_restricted(component: str) -> None:
    template = pods(queue())[component]
    assert template["spec"]["automountServiceAccountToken"] is False
    assert template["spec"]["securityContext"]["runAsNonRoot"] is True
    assert template["spec"]["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container(template)["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "readOnlyRootFilesystem": True,
    }


def _mounted(template: Object) -> set[str]:
    sources = template["spec"]["volumes"][0]["projected"]["sources"]
    secrets = [source["secret"] for source in sources if "secret" in source]
    return {f"{secret['name']}/{item['key']}" for secret in secrets for item in secret["items"]}


@pytest.mark.parametrize(
    ("budget", "bound"),
    [
        ({}, {"maxUnavailable": 1}),
        ({"maxUnavailable": "25%"}, {"maxUnavailable": "25%"}),
        ({"minAvailable": 2}, {"minAvailable": 2}),
    ],
)
def test_a_disruption_budget_is_as_the_document_says(budget: Object, bound: Object) -> None:
    for name in ("-scanner", "-worker"):
        spec = child("PodDisruptionBudget", name, queue(podDisruptionBudget=budget))["spec"]
        assert {field: spec[field] for field in spec if field.endswith("vailable")} == bound


def test_each_role_gets_the_keys_it_reads_and_no_other() -> None:
    redis = {
        *("shop-redis/user", "shop-redis/password", "sentinel-auth/password"),
        *("redis-tls/ca.crt", "redis-tls/tls.crt", "redis-tls/tls.key"),
    }
    made = pods(queue(RICH))
    assert _mounted(made["scanner"]) == _mounted(made["reaper"]) == redis | {"shop-db/url"}
    assert _mounted(made["erase"]) == redis
    assert _mounted(made["worker"]) == redis | {"signing/key", "shop-db/url"}


def test_an_authority_in_a_config_map_is_mounted_where_processes_read_it() -> None:
    redis = {"standalone": {"host": "redis"}, "tls": {"caConfigMapRef": {"name": "redis"}}}
    of = queue(redis=redis)
    for pod in pods(of).values():
        _, source = pod["spec"]["volumes"][0]["projected"]["sources"]
        item = {"key": "ca.crt", "path": "secrets/_configmaps/redis/ca.crt"}
        assert source == {"configMap": {"name": "redis", "items": [item]}}
    assert referenced(of) == References(config_maps=frozenset({"redis"}))


DATABASE: Object = {"databaseSecretRef": {"name": "shop-db"}}
SIGNED: Object = {"http": {"url": "https://shop.example/state", "signingSecretRef": {"name": "signing"}}}
WHO_READS: list[tuple[Object | None, Object | None, dict[str, set[str]]]] = [
    ({"redisLock": {}}, None, {}),
    ({"redlock": {"urlsSecretRef": {"name": "locks"}}}, None, {"worker": {"locks/urls"}}),
    ({"sqlUnique": DATABASE}, None, {"worker": {"shop-db/url"}, "reaper": {"shop-db/url"}}),
    ({"sqlPessimistic": DATABASE}, None, {"worker": {"shop-db/url"}, "reaper": {"shop-db/url"}}),
    (
        {"sqlOptimistic": DATABASE},
        {"guard": {}},
        {"worker": {"shop-db/url"}, "reaper": {"shop-db/url"}, "scanner": {"shop-db/url"}},
    ),
    (None, SIGNED, {"reaper": {"signing/key"}, "scanner": {"signing/key"}}),
    ({"redlock": {"urlsSecretRef": {"name": "locks"}}}, SIGNED, {
        "worker": {"locks/urls"}, "reaper": {"signing/key"}, "scanner": {"signing/key"},
    }),
    (
        {"sqlUnique": DATABASE},
        {"python": {"callable": "shop.orders:state"}},
        {"worker": {"shop-db/url"}, "reaper": {"shop-db/url"}},
    ),
]  # fmt: skip


@pytest.mark.parametrize(("guard", "check", "readers"), WHO_READS)
def test_secrets_of_guards_and_checks_go_to_those_who_use_them(
    guard: Object | None, check: Object | None, readers: dict[str, set[str]]
) -> None:
    made = pods(queue(guard=guard, recovery={"check": check} if check else {}))
    assert {component: found for component, each in made.items() if (found := _mounted(each))} == readers


PULLED: Object = {
    "spec": {
        "imagePullSecrets": [{"name": "registry"}],
        "nodeSelector": {"kubernetes.io/arch": "arm64"},
        "containers": [{"name": "worker", "imagePullPolicy": "Always", "env": [{"name": "A", "value": "b"}]}],
    }
}
STATE: Object = {"check": {"python": {"callable": "shop.orders:state"}}}


def test_who_asks_the_users_code_runs_the_users_image_and_pulls_it_as_workers_do() -> None:
    made = pods(queue(worker={"image": "shop:7", "template": PULLED}, recovery=STATE))
    horizons = [{"name": names.HORIZONS_VARIABLE, "value": str(names.HORIZONS_PORT)}]
    for component, env in (("scanner", horizons), ("reaper", None)):
        spec, of = made[component]["spec"], container(made[component])
        assert (of["image"], of["imagePullPolicy"]) == ("shop:7", "Always")
        assert spec["imagePullSecrets"] == [{"name": "registry"}]
        assert of["resources"]["limits"] == {"memory": "1Gi"}  # the user's code takes more than ours
        assert (of.get("env"), spec.get("nodeSelector")) == (env, None)
    assert container(made["erase"])["image"] == SETTING.worker_image
    assert "imagePullSecrets" not in made["erase"]["spec"]


def test_the_template_of_a_scanner_goes_before_what_it_takes_from_that_of_workers() -> None:
    own = {"imagePullSecrets": [{"name": "registry", "$patch": "delete"}, {"name": "mirror"}]}
    made = pods(
        queue(
            worker={"image": "shop:7", "template": PULLED},
            scanner={"template": {"spec": own}},
            recovery=STATE,
        )
    )
    assert made["scanner"]["spec"]["imagePullSecrets"] == [{"name": "mirror"}]
    assert made["reaper"]["spec"]["imagePullSecrets"] == [{"name": "registry"}]


@pytest.mark.parametrize("check", [SIGNED, None])
def test_who_asks_somebody_else_runs_our_image(check: Object | None) -> None:
    made = pods(
        queue(worker={"image": "shop:7", "template": PULLED}, recovery={"check": check} if check else {})
    )
    for component in ("scanner", "reaper"):
        assert container(made[component])["image"] == SETTING.worker_image
        assert "imagePullSecrets" not in made[component]["spec"]
        assert container(made[component])["resources"]["limits"] == {"memory": "256Mi"}


def test_without_an_image_of_the_users_the_code_is_looked_for_in_ours() -> None:
    made = pods(queue(worker={"template": PULLED}, recovery=STATE))
    assert {container(made[each])["image"] for each in made} == {SETTING.worker_image}
    assert "imagePullSecrets" not in made["scanner"]["spec"]


@pytest.mark.parametrize(
    "spec", [{field: [{"name": "a"}] * 2} for field in ("imagePullSecrets", "containers", "volumes")]
)
def test_what_is_wrong_with_the_template_of_workers_is_told_once(spec: Object) -> None:
    of = queue(worker={"image": "shop:7", "template": {"spec": spec}}, recovery=STATE)
    with pytest.raises(SpecError) as told:
        desired(of, SETTING, facts(of))
    assert all(problem.path.startswith("spec.worker.template") for problem in told.value.problems)
    assert len(set(told.value.problems)) == len(told.value.problems)


def test_a_reapers_run_lasts_no_longer_for_a_check_that_takes_long() -> None:
    """It gives up what it asks when its time is over."""
    for recovery in ({"check": {**SIGNED, "timeoutSeconds": 200}}, {}):
        spec = child("CronJob", "-reaper", queue(recovery=recovery))["spec"]
        assert spec["jobTemplate"]["spec"]["activeDeadlineSeconds"] == 300


def test_referenced_is_what_the_document_and_the_templates_name() -> None:
    found = referenced(queue(RICH))
    assert found.secrets == {"shop-redis", "sentinel-auth", "redis-tls", "signing", "shop-db"}
    assert found.config_maps == {"app-env", "models"}


def test_referenced_bears_with_any_template() -> None:
    sources = (5, [5, {"secret": []}, {"configMap": None}])
    volumes = [{"name": f"v{at}", "projected": {"sources": each}} for at, each in enumerate(sources)]
    broken = {"spec": {"containers": None, "volumes": volumes}}
    assert referenced(queue(worker={"template": broken})).secrets == frozenset()


def test_too_many_references_are_refused() -> None:
    volumes = [{"name": f"v{at}", "secret": {"secretName": f"s{at}"}} for at in range(101)]
    with pytest.raises(SpecError, match="at most 100 Secrets and ConfigMaps"):
        referenced(queue(worker={"template": {"spec": {"volumes": volumes}}}))


def test_problems_of_all_templates_are_told_at_once() -> None:
    broken = {"template": {"spec": {"restartPolicy": "Never"}}}
    of = queue(scanner=broken, worker=broken, reaper=broken)
    with pytest.raises(SpecError) as told:
        desired(of, SETTING, facts(of))
    assert [problem.path.split(".")[1] for problem in told.value.problems] == ["scanner", "worker", "reaper"]


def test_the_number_of_workers_is_not_said() -> None:
    assert "replicas" not in child("Deployment", "-worker", queue(worker={"replicas": 7}))["spec"]
    assert child("Deployment", "-scanner", queue(scanner={"replicas": 7}))["spec"]["replicas"] == 7


def test_old_replica_sets_are_kept_as_the_document_says() -> None:
    of = queue(scanner={"revisionHistoryLimit": 0}, worker={"revisionHistoryLimit": 7})
    assert child("Deployment", "-scanner", of)["spec"]["revisionHistoryLimit"] == 0
    assert child("Deployment", "-worker", of)["spec"]["revisionHistoryLimit"] == 7
    assert "revisionHistoryLimit" not in str(
        child("ConfigMap", "-config", of)
    )  # pods of older images read it


def test_workers_run_the_users_image_and_everybody_else_the_operators() -> None:
    made = pods(queue(RICH))
    assert container(made["worker"])["image"] == "registry.example/shop:7"
    assert {container(made[each])["image"] for each in ("scanner", "reaper", "erase")} == {
        SETTING.worker_image
    }


def test_the_operators_setting_reaches_the_pods() -> None:
    setting = Setting(worker_image="a", image_pull_policy="Never", image_pull_secrets=("registry",))
    of = queue()
    for body in desired(of, setting, facts(of)):
        if body["kind"] in ("Deployment", "CronJob"):
            assert pod(body)["spec"]["imagePullSecrets"] == [{"name": "registry"}]
            assert container(pod(body))["imagePullPolicy"] == "Never"


@pytest.mark.parametrize(("timeout_seconds", "patience_seconds"), [(1, 70), (5, 70), (300, 360)])
def test_liveness_waits_longer_than_a_step_may_wait_for_redis(
    timeout_seconds: int, patience_seconds: int
) -> None:
    redis = {"standalone": {"host": "redis"}, "connection": {"timeoutSeconds": timeout_seconds}}
    probe = container(pods(queue(redis=redis))["worker"])["livenessProbe"]
    assert probe["periodSeconds"] * probe["failureThreshold"] == patience_seconds


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


def test_a_deployments_selector_is_the_one_it_will_have_for_ever() -> None:
    assert selector("orders", "worker") == {"delayq.dev/queue": "orders", names.COMPONENT_LABEL: "worker"}


def test_what_is_not_wanted_is_not_there() -> None:
    bare = queue(podDisruptionBudget={"enabled": False})
    assert kinds(bare).isdisjoint({"PodDisruptionBudget", "PodMonitor", "PrometheusRule"})


def readers(setting: Setting, **policy: object) -> object:
    """Who may read the metrics of a queue's pods."""
    of = queue(networkPolicy={"enabled": True, **policy})
    made = desired(of, setting, facts(of))
    spec = next(each for each in made if each["kind"] == "NetworkPolicy")["spec"]
    rule, horizons = spec["ingress"]
    assert horizons["ports"] == [{"port": names.HORIZONS_PORT, "protocol": "TCP"}]
    assert names.COMPONENT_LABEL not in spec["podSelector"]["matchLabels"]
    return rule.get("from", "anybody")


def test_horizons_are_for_the_operator_alone_and_nothing_else_is_shut() -> None:
    """Without spec.networkPolicy, too: it selects scanners only, and leaves all other ports of theirs as they were."""
    of = queue()
    (found,) = [each for each in desired(of, SETTING, facts(of)) if each["kind"] == "NetworkPolicy"]
    assert found["spec"]["podSelector"]["matchLabels"] == selector("orders", "scanner")
    open_to_all, horizons = found["spec"]["ingress"]
    operator = {**HERE, "podSelector": {"matchLabels": dict(SETTING.own_labels)}}
    assert horizons == {"from": [operator], "ports": [{"port": names.HORIZONS_PORT, "protocol": "TCP"}]}
    assert "from" not in open_to_all
    tcp = [each for each in open_to_all["ports"] if each["protocol"] == "TCP"]
    shut = set(range(1, 65536)).difference(*(range(each["port"], each["endPort"] + 1) for each in tcp))
    assert shut == {names.HORIZONS_PORT}
    assert {each["protocol"] for each in open_to_all["ports"] if "port" not in each} == {"UDP", "SCTP"}


def test_a_document_that_no_object_can_hold_is_refused_before_anything_is_written() -> None:
    """The API server would refuse the ConfigMap and take the Deployments, whose pods would wait for it."""
    of = queue(handler={"exec": {"command": ["true", *("x" * (30 << 10) for _ in range(7))]}})
    with pytest.raises(SpecError, match="expected at most 196,608 bytes as YAML"):
        desired(of, SETTING, facts(of))


def test_outside_of_a_cluster_the_operator_cannot_be_named_and_nothing_is_shut() -> None:
    of = queue()
    made = desired(of, replace(SETTING, own_namespace=None), facts(of))
    assert "NetworkPolicy" not in {each["kind"] for each in made}


HERE = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "delayq-system"}}}
PROMETHEUS: Object = {"podSelector": {"matchLabels": {"app": "prometheus"}}}


def test_the_operator_may_always_read_the_metrics_it_decides_by() -> None:
    """Its pods and no others there, where their labels are known."""
    operator = {**HERE, "podSelector": {"matchLabels": dict(SETTING.own_labels)}}
    assert readers(SETTING, metricsFrom=[PROMETHEUS]) == [operator, PROMETHEUS]
    assert readers(replace(SETTING, own_labels={}), metricsFrom=[PROMETHEUS]) == [HERE, PROMETHEUS]


def test_where_anybody_may_read_metrics_the_operator_is_not_named() -> None:
    """One peer would shut out all others."""
    assert readers(SETTING) == "anybody"


def test_an_operator_outside_of_a_cluster_is_nobodys_peer() -> None:
    assert readers(replace(SETTING, own_namespace=None), metricsFrom=[PROMETHEUS]) == [PROMETHEUS]


def test_monitoring_takes_kinds_that_the_api_serves() -> None:
    assert kinds(queue(RICH)) >= {"PodMonitor", "PrometheusRule"}
    assert kinds(queue(RICH), kinds=frozenset()).isdisjoint({"PodMonitor", "PrometheusRule"})


def test_what_prometheus_scrapes_is_bounded() -> None:
    """A queue's author chooses the pods and the interval, and shares Prometheus with others."""

    def spec(seconds: int) -> Any:  # noqa: ANN401  JSON
        of = queue(monitoring={"podMonitor": {"enabled": True, "intervalSeconds": seconds}})
        return child("PodMonitor", "-delayq", of)["spec"]

    assert spec(1)["podMetricsEndpoints"][0]["interval"] == "5s"
    assert spec(7)["podMetricsEndpoints"][0]["interval"] == "7s"
    assert (spec(1)["sampleLimit"], spec(1)["bodySizeLimit"]) == (10_000, "4MB")


def test_labels_of_monitoring_cannot_take_the_place_of_ours() -> None:
    monitor = {"enabled": True, "labels": {names.QUEUE_LABEL: "other", "release": "prometheus"}}
    labels = child("PodMonitor", "-delayq", queue(monitoring={"podMonitor": monitor}))["metadata"]["labels"]
    assert labels[names.QUEUE_LABEL] == "orders"
    assert labels["release"] == "prometheus"


def test_the_job_that_erases_is_not_probed() -> None:
    """Not even if the reaper's template says something of probes: a large shard may take its time."""
    probes = {"livenessProbe": {"periodSeconds": 7}}
    template = {"spec": {"containers": [{"name": "reaper", **probes, "env": [{"name": "A", "value": "b"}]}]}}
    found = container(pods(queue(reaper={"template": template}))["erase"])
    assert found["command"] == ["delayq", "erase", *LISTEN]
    assert found["env"] == [{"name": "A", "value": "b"}]
    assert found.keys().isdisjoint({"livenessProbe", "startupProbe", "readinessProbe"})


def test_a_reapers_run_ends_and_is_not_tried_again() -> None:
    spec = child("CronJob", "-reaper", queue())["spec"]
    job = spec["jobTemplate"]["spec"]
    assert spec["concurrencyPolicy"] == "Forbid"
    assert (job["backoffLimit"], job["template"]["spec"]["restartPolicy"]) == (0, "Never")
    assert job["activeDeadlineSeconds"] == 300


@pytest.mark.parametrize("component", ["scanner", "worker", "reaper"])
def test_nothing_is_shared_between_two_calls(component: str) -> None:
    """Whoever changes an object they were given changes it for nobody else."""
    first = container(pods(queue())[component])
    first["resources"]["requests"]["cpu"] = "9"
    assert container(pods(queue())[component])["resources"]["requests"]["cpu"] != "9"


def test_without_scanners_the_reaper_runs_every_minute_unless_told_otherwise() -> None:
    def schedule(**spec: Any) -> str:  # noqa: ANN401 -- the spec
        of = queue(**spec)
        made = cron_job(of, SETTING, facts(of))
        return str(made["spec"]["schedule"])

    assert schedule() == "*/5 * * * *"
    assert schedule(scanner={"replicas": 0}) == "* * * * *"
    assert schedule(scanner={"replicas": 0}, reaper={"schedule": "7 * * * *"}) == "7 * * * *"
