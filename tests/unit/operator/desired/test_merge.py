"""A user's pod template is laid over ours predictably, and cannot break what the operator promises."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest
from delayq.contract import Problem, SpecError
from delayq.contract.problems import Place
from delayq_operator.base import names
from delayq_operator.desired import pod, roles
from delayq_operator.desired.merge import merged
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.operator.queues import SETTING, queue
from tests.unit.operator.templates import templates

Object = dict[str, Any]
ROLES: dict[str, Any] = {
    "scanner": roles.scanner,
    "worker": roles.worker,
    "reaper": roles.reaper,
}


def made(template: Object | None, component: str = "worker") -> Object:
    of = queue(**{component: {"template": template}})
    return pod.template("orders", SETTING, ROLES[component](of, SETTING))


def laid(base: Object, over: Object) -> object:
    problems: list[Problem] = []
    found = merged(base, over, Place("", problems))
    assert problems == []
    return found


def refused(template: Object, component: str = "worker") -> list[str]:
    with pytest.raises(SpecError) as raised:
        made(template, component)
    return [str(problem) for problem in raised.value.problems]


def ours(**fields: object) -> Object:
    """A template that says this of our container."""
    return {"spec": {"containers": [{"name": "worker", **fields}]}}


GONE = {"$patch": "delete"}  # for kubectl apply swallows nulls
PROBE = {"livenessProbe": {"httpGet": {"path": "/healthz"}, "periodSeconds": 10}}
OTHER_KIND = {
    "env": [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "x"}}}],
    "volumes": [{"name": "tmp", "hostPath": {"path": "/x"}}],
}
MERGES: list[tuple[Object, Object, Object]] = [
    ({"a": {"b": 1, "c": 2}}, {"a": {"c": 3, "d": 4}}, {"a": {"b": 1, "c": 3, "d": 4}}),
    ({"a": {"b": 1, "c": 2}}, {"a": {"b": None}, "never": None}, {"a": {"c": 2}}),
    ({"a": {"b": 1}, "c": 2}, {"a": GONE}, {"c": 2}),
    (
        {"env": [{"name": "A"}, {"name": "B"}], "tolerations": [1]},
        {"env": [{"name": "A", **GONE}, {"name": "C", **GONE}], "tolerations": [GONE, 2]},
        {"env": [{"name": "B"}], "tolerations": [2]},
    ),
    ({"tolerations": [1, 2]}, {"tolerations": [3]}, {"tolerations": [3]}),
    # Items with a name merge, and new ones follow.
    (
        {"containers": [{"name": "worker", "image": "ours", "tty": True}]},
        {"containers": [{"name": "proxy", "image": "p"}, {"name": "worker", "image": "mine"}]},
        {"containers": [{"name": "worker", "image": "mine", "tty": True}, {"name": "proxy", "image": "p"}]},
    ),
    # Ports differ by number and protocol.
    (
        {"ports": [{"containerPort": 53, "name": "dns"}]},
        {"ports": [{"containerPort": 53, "protocol": "UDP"}, {"containerPort": 53, "name": "tcp"}]},
        {"ports": [{"containerPort": 53, "name": "tcp"}, {"containerPort": 53, "protocol": "UDP"}]},
    ),
    # Half of each would be two sources at once.
    (
        {"env": [{"name": "A", "value": "b"}], "volumes": [{"name": "tmp", "emptyDir": {}}]},
        OTHER_KIND,
        OTHER_KIND,
    ),
    # A probe of another kind takes the place of ours, and keeps its timing.
    (
        PROBE,
        {"livenessProbe": {"exec": {"command": ["true"]}}},
        {"livenessProbe": {"exec": {"command": ["true"]}, "periodSeconds": 10}},
    ),
]


@pytest.mark.parametrize(("base", "over", "result"), MERGES)
def test_a_template_is_laid_over_ours(base: Object, over: Object, result: Object) -> None:
    assert laid(base, over) == result


def test_a_template_that_says_nothing_changes_nothing() -> None:
    empty: list[Object] = [{}, {"metadata": None, "spec": None}, {"spec": {"containers": [], "volumes": []}}]
    for template in empty:
        assert made(template) == made(None)
    grace = {"terminationGracePeriodSeconds": 90}  # for a worker, spec.worker has a field
    assert made({"spec": grace}, "scanner")["spec"].items() >= grace.items()


DRAWN = st.sampled_from(list(ROLES)).flatmap(lambda name: st.tuples(st.just(name), templates(name)))


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


@given(DRAWN)
def test_a_template_that_is_taken_breaks_no_promise_and_merging_twice_is_merging_once(
    drawn: tuple[str, Object],
) -> None:
    component, template = drawn
    before = deepcopy(template)
    once = made(template, component)
    assert _promises(once, component) == _promises(made(None, component), component)
    assert laid(once, template) == once
    assert template == before


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
OURS = st.lists(st.dictionaries(WORDS, JSON).map(lambda found: {"name": "worker", **found}))
SPEC = {
    "containers": JSON | OURS,
    "volumes": JSON | st.lists(st.dictionaries(WORDS, JSON)),
    "restartPolicy": JSON,
}
NEARLY = st.fixed_dictionaries(
    {},
    optional={
        "metadata": JSON | st.dictionaries(WORDS, JSON, max_size=3),
        "spec": JSON | st.fixed_dictionaries({}, optional=SPEC),
    },
)


@given(template=st.dictionaries(WORDS, JSON, max_size=3) | NEARLY)
def test_garbage_is_refused_or_keeps_every_promise(template: Object) -> None:
    try:
        found = made(template)
    except SpecError as error:
        problems = error.problems
    else:
        problems = ()
        assert _promises(found, "worker") == _promises(made(None), "worker")
    assert all(problem.path.startswith("spec.worker.template") for problem in problems)


OWN = "is the operator's own"
REFUSALS: dict[str, Object] = {
    f"spec.containers[0].command: {OWN}": ours(command=["sh"]),
    f"spec.containers[0].ports[1]: the port metrics {OWN}": ours(
        ports=[{"containerPort": 9}, {"containerPort": 10, "name": "metrics"}]
    ),
    f"spec.containers[0].volumeMounts[0].mountPath: /etc/delayq {OWN}": ours(
        volumeMounts=[{"name": "x", "mountPath": "//etc/./delayq/secrets"}]
    ),
    f"spec.containers[0]: the container worker {OWN}": ours(**{"$patch": "delete"}),
    f"spec.volumes[0]: the volume delayq {OWN}": {"spec": {"volumes": [{"name": "delayq"}]}},
    f"spec.restartPolicy: {OWN}": {"spec": {"restartPolicy": "Never"}},
    f"metadata.labels: {OWN}": {"metadata": {"labels": {"$patch": "delete"}}},
    f'metadata.labels["app.kubernetes.io/component"]: {OWN}': {
        "metadata": {"labels": {"app.kubernetes.io/component": "x"}}
    },
    f'metadata.annotations["delayq.dev/checksum"]: {OWN}': {
        "metadata": {"annotations": {"delayq.dev/checksum": "x"}}
    },
    "spec.affinity.$patch: expected delete, got text": {"spec": {"affinity": {"$patch": "replace"}}},
    "spec.serviceAccount: is deprecated, use serviceAccountName": {"spec": {"serviceAccount": "x"}},
    "spec.terminationGracePeriodSeconds: has a field of its own, spec.worker.terminationGracePeriodSeconds": {
        "spec": {"terminationGracePeriodSeconds": 5}
    },
    "spec.containers: expected a list, got a mapping": {"spec": {"containers": {}}},
    "spec.containers[1].name: given twice": {"spec": {"containers": [{"name": "x"}, {"name": "x"}]}},
    "spec.securityContext: expected a mapping, got text": {"spec": {"securityContext": "none"}},
    # A problem of the spec, and not a crash: such a queue can be deleted.
    "metadata.labels: expected a mapping, got a list": {"metadata": {"labels": ["a"]}},
}


@pytest.mark.parametrize("problem", REFUSALS)
def test_what_is_refused_is_named_by_its_path(problem: str) -> None:
    assert refused(REFUSALS[problem]) == [f"spec.worker.template.{problem}"]


def test_all_problems_are_reported_at_once_and_no_value_is_quoted() -> None:
    reported = refused(ours(env=[{"value": "hunter2"}], command="hunter2", volumeMounts="hunter2"))
    assert len(reported) == 3
    assert "hunter2" not in "\n".join(reported)
