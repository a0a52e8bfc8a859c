"""A user's pod template is laid over ours predictably, and cannot break what the operator promises."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest
from delayq.contract import Problem, SpecError
from delayq.contract.problems import Place
from delayq_operator.base import names
from delayq_operator.desired import pod, reaper, scanner, worker
from delayq_operator.desired.merge import merged
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.operator.queues import SETTING, queue
from tests.unit.operator.templates import templates

Object = dict[str, Any]
ROLES = {"scanner": scanner.role, "worker": worker.role, "reaper": reaper.role}


def made(template: Object | None, component: str = "worker") -> Object:
    of = queue(**{component: {"template": template}})
    return pod.template("orders", SETTING, ROLES[component](of, SETTING))


def laid(base: Object, over: Object) -> object:
    problems: list[Problem] = []
    found = merged(base, over, Place("", problems))
    assert problems == []
    return found


def refused(template: Object, component: str = "worker") -> list[str]:
    with pytest.raises(SpecError) as told:
        made(template, component)
    return [str(problem) for problem in told.value.problems]


def ours(**fields: object) -> Object:
    """A template that says this of our container."""
    return {"spec": {"containers": [{"name": "worker", **fields}]}}


def test_mappings_merge_field_by_field() -> None:
    assert laid({"a": {"b": 1, "c": 2}}, {"a": {"c": 3, "d": 4}}) == {"a": {"b": 1, "c": 3, "d": 4}}


@pytest.mark.parametrize("component", list(ROLES))
@pytest.mark.parametrize("field", ["labels", "annotations"])
@pytest.mark.parametrize("value", [["a"], "a", 1, True, [], "", 0, False])
def test_labels_and_annotations_are_mappings(component: str, field: str, value: object) -> None:
    """Whatever else they are is a problem of the spec, and no bug of the operator's: such a queue can be deleted."""
    [problem] = refused({"metadata": {field: value}}, component)
    assert problem.startswith(f"spec.{component}.template.metadata.{field}: expected a mapping")


def test_null_deletes() -> None:
    assert laid({"a": {"b": 1, "c": 2}}, {"a": {"b": None}, "never": None}) == {"a": {"c": 2}}


def test_a_mapping_with_the_directive_deletes_for_kubectl_apply_swallows_nulls() -> None:
    gone = {"$patch": "delete"}
    assert laid({"a": {"b": 1}, "c": 2}, {"a": gone}) == {"c": 2}
    base = {"env": [{"name": "A"}, {"name": "B"}], "tolerations": [1]}
    over = {"env": [{"name": "A", **gone}, {"name": "C", **gone}], "tolerations": [gone, 2]}
    assert laid(base, over) == {"env": [{"name": "B"}], "tolerations": [2]}


def test_items_with_a_name_merge_and_new_ones_follow() -> None:
    base = {"containers": [{"name": "worker", "image": "ours", "command": ["delayq"]}]}
    over = {"containers": [{"name": "proxy", "image": "p"}, {"name": "worker", "image": "mine"}]}
    assert laid(base, over) == {
        "containers": [
            {"name": "worker", "image": "mine", "command": ["delayq"]},
            {"name": "proxy", "image": "p"},
        ]
    }


def test_ports_are_told_apart_by_number_and_protocol() -> None:
    base = {"ports": [{"containerPort": 53, "name": "dns"}]}
    over = {"ports": [{"containerPort": 53, "protocol": "UDP"}, {"containerPort": 53, "name": "tcp"}]}
    assert laid(base, over) == {
        "ports": [{"containerPort": 53, "name": "tcp"}, {"containerPort": 53, "protocol": "UDP"}]
    }


def test_a_variable_or_a_volume_takes_the_place_of_its_namesake_as_a_whole() -> None:
    """Half of each would be two sources at once."""
    base = {"env": [{"name": "A", "value": "b"}], "volumes": [{"name": "tmp", "emptyDir": {}}]}
    over = {
        "env": [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "x"}}}],
        "volumes": [{"name": "tmp", "hostPath": {"path": "/x"}}],
    }
    assert laid(base, over) == over


def test_a_probe_of_another_kind_takes_the_place_of_ours_and_keeps_its_timing() -> None:
    base = {"livenessProbe": {"httpGet": {"path": "/healthz"}, "periodSeconds": 10}}
    over = {"livenessProbe": {"exec": {"command": ["true"]}}}
    assert laid(base, over) == {"livenessProbe": {"exec": {"command": ["true"]}, "periodSeconds": 10}}


def test_other_lists_are_replaced() -> None:
    assert laid({"tolerations": [1, 2]}, {"tolerations": [3]}) == {"tolerations": [3]}
    assert laid({"tolerations": [1, 2]}, {"tolerations": []}) == {"tolerations": []}


TEMPLATES: list[st.SearchStrategy[Object | None]] = [
    *(st.just(None), st.just({}), st.just({"metadata": None, "spec": None})),
    *(st.just({"metadata": {}, "spec": {}}), st.just({"spec": {"containers": [], "volumes": []}})),
]


@given(template=st.one_of(TEMPLATES))
def test_a_template_that_says_nothing_changes_nothing(template: Object | None) -> None:
    assert made(template) == made(None)


@given(st.sampled_from(list(ROLES)).flatmap(lambda name: st.tuples(st.just(name), templates(name))))
def test_merging_twice_is_merging_once_and_changes_neither(drawn: tuple[str, Object]) -> None:
    component, template = drawn
    before = deepcopy(template)
    once = made(template, component)
    assert laid(once, template) == once
    assert template == before


def _promises(template: Object, component: str) -> Object:
    """What no template may change."""
    spec = template["spec"]
    (our,) = (each for each in spec["containers"] if each["name"] == component)
    labels = template["metadata"]["labels"]
    return {
        "command": our["command"],
        "args": our.get("args"),
        "port": [each for each in our["ports"] if each.get("name") == "metrics"],
        "mount": [each for each in our["volumeMounts"] if each["mountPath"] == "/etc/delayq"],
        "volume": [each for each in spec["volumes"] if each["name"] == "delayq"],
        "labels": {key: labels[key] for key in names.labels("orders", "worker")},
        "annotations": names.CHECKSUM in template["metadata"].get("annotations", {}),
        "restartPolicy": spec.get("restartPolicy"),
        "grace": spec["terminationGracePeriodSeconds"] if component == "worker" else None,
    }


@given(st.sampled_from(list(ROLES)).flatmap(lambda name: st.tuples(st.just(name), templates(name))))
def test_no_template_that_is_taken_breaks_a_promise(drawn: tuple[str, Object]) -> None:
    component, template = drawn
    assert _promises(made(template, component), component) == _promises(made(None, component), component)


WORDS = st.sampled_from(
    [
        *("metadata", "spec", "labels", "annotations", "containers", "volumes", "volumeMounts", "ports"),
        *("name", "worker", "delayq", "metrics", "command", "args", "env", "mountPath", "containerPort"),
        *("/etc/delayq", "/etc//delayq/x", "restartPolicy", "delayq.dev/queue", "delayq.dev/checksum"),
        "app.kubernetes.io/component",
    ]
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(8079, 8081) | WORDS,
    lambda inner: (
        st.just({"$patch": "delete"})
        | st.lists(inner, max_size=3)
        | st.dictionaries(WORDS, inner, max_size=4)
    ),
    max_leaves=25,
)
NEARLY = st.fixed_dictionaries(
    {},
    optional={
        "metadata": JSON | st.dictionaries(WORDS, JSON, max_size=3),
        "spec": JSON
        | st.fixed_dictionaries(
            {},
            optional={
                "containers": JSON
                | st.lists(st.dictionaries(WORDS, JSON).map(lambda found: {"name": "worker", **found})),
                "volumes": JSON | st.lists(st.dictionaries(WORDS, JSON)),
                "restartPolicy": JSON,
            },
        ),
    },
)


def attempt(template: Object) -> tuple[Object | None, list[str]]:
    try:
        return made(template), []
    except SpecError as error:
        return None, [problem.path for problem in error.problems]


@given(template=st.dictionaries(WORDS, JSON, max_size=3) | NEARLY)
def test_garbage_is_refused_or_keeps_every_promise(template: Object) -> None:
    found, paths = attempt(template)
    assert all(path.startswith("spec.worker.template") for path in paths)
    assert paths or (found and _promises(found, "worker") == _promises(made(None), "worker"))


OWN = "is the operator's own"
REFUSALS: list[tuple[Object, str]] = [
    (ours(command=["sh"]), f"spec.containers[0].command: {OWN}"),
    (ours(args=[]), f"spec.containers[0].args: {OWN}"),
    (ours(args=None), f"spec.containers[0].args: {OWN}"),
    (ours(ports=None), f"spec.containers[0].ports: {OWN}"),
    (ours(ports=[{"containerPort": 8080}]), f"spec.containers[0].ports[0]: the port metrics {OWN}"),
    (
        ours(ports=[{"containerPort": 9, "name": "metrics"}]),
        f"spec.containers[0].ports[0]: the port metrics {OWN}",
    ),
    (
        ours(volumeMounts=[{"name": "x", "mountPath": "/etc/delayq/"}]),
        f"spec.containers[0].volumeMounts[0].mountPath: /etc/delayq {OWN}",
    ),
    (
        ours(volumeMounts=[{"name": "x", "mountPath": "//etc/./delayq/secrets"}]),
        f"spec.containers[0].volumeMounts[0].mountPath: /etc/delayq {OWN}",
    ),
    ({"spec": {"restartPolicy": "Never"}}, f"spec.restartPolicy: {OWN}"),
    ({"spec": {"volumes": [{"name": "delayq"}]}}, f"spec.volumes[0]: the volume delayq {OWN}"),
    ({"spec": {"volumes": None}}, f"spec.volumes: {OWN}"),
    ({"spec": {"containers": None}}, f"spec.containers: {OWN}"),
    ({"spec": {"$patch": "delete"}}, f"spec: {OWN}"),
    ({"metadata": {"labels": {"$patch": "delete"}}}, f"metadata.labels: {OWN}"),
    (ours(**{"$patch": "delete"}), f"spec.containers[0]: the container worker {OWN}"),
    (
        {"spec": {"affinity": {"$patch": "replace"}}},
        "spec.affinity.$patch: expected delete, in a mapping that may be deleted",
    ),
    ({"spec": {"serviceAccount": "x"}}, "spec.serviceAccount: is deprecated, use serviceAccountName"),
    (
        {"spec": {"terminationGracePeriodSeconds": 5}},
        "spec.terminationGracePeriodSeconds: has a field of its own, spec.worker.terminationGracePeriodSeconds",
    ),
    (
        {"metadata": {"labels": {"delayq.dev/queue": "x"}}},
        f'metadata.labels["delayq.dev/queue"]: {OWN}',
    ),
    (
        {"metadata": {"labels": {"app.kubernetes.io/component": None}}},
        f'metadata.labels["app.kubernetes.io/component"]: {OWN}',
    ),
    (
        {"metadata": {"annotations": {"delayq.dev/checksum": "x"}}},
        f'metadata.annotations["delayq.dev/checksum"]: {OWN}',
    ),
    ({"spec": 5}, "spec: expected a mapping, got a number"),
    ({"spec": {"containers": {}}}, "spec.containers: expected a list, got a mapping"),
    (
        {"spec": {"containers": [{"name": "x"}, {"name": "x"}]}},
        "spec.containers[1].name: given twice",
    ),
    ({"spec": {"securityContext": "none"}}, "spec.securityContext: expected a mapping, got text"),
]


@pytest.mark.parametrize(("template", "problem"), REFUSALS, ids=lambda value: str(value)[:60])
def test_what_is_refused_is_named_by_its_path(template: Object, problem: str) -> None:
    assert refused(template) == [f"spec.worker.template.{problem}"]


def test_all_problems_are_told_at_once() -> None:
    labels = {"delayq.dev/queue": "x"}
    spec = {"restartPolicy": "Never", "serviceAccount": "x"}
    assert len(refused({"metadata": {"labels": labels}, "spec": spec})) == 3


def test_a_sidecar_may_be_what_it_likes() -> None:
    sidecar = {"name": "proxy", "command": ["proxy"], "args": ["-v"], "ports": [{"containerPort": 1}]}
    assert made({"spec": {"containers": [sidecar]}})["spec"]["containers"][1] == sidecar


def test_a_scanner_may_take_its_time_to_stop() -> None:
    found = made({"spec": {"terminationGracePeriodSeconds": 90}}, "scanner")
    assert found["spec"]["terminationGracePeriodSeconds"] == 90


def test_a_refusal_quotes_no_value() -> None:
    told = refused(ours(env=[{"value": "hunter2"}], command="hunter2", volumeMounts="hunter2"))
    assert "hunter2" not in "\n".join(told)
