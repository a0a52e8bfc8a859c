"""What DelayQueues may not ask for. The policy checks the merged templates, so the way into a pod does not matter."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from delayq_operator.desired import desired, erase_job
from delayq_operator.desired.policy import Policy, of_templates

from tests.unit.operator.queues import RICH, SETTING, facts, queue

OWN = Policy(own_service_account="delayq-operator")


def paths(policy: Policy, **spec: Any) -> list[str]:  # noqa: ANN401  parts of a document
    """Paths of the fields that the policy refuses in a queue's children, and of its erase Job."""
    of = queue(**spec)
    made = desired(of, SETTING, facts(of))
    assert of_templates([erase_job(of, SETTING, facts(of))], policy) == tuple(
        problem for problem in of_templates(made, policy) if "reaper" in problem.path
    )
    return [problem.path.partition(".template.spec.")[2] for problem in of_templates(made, policy)]


def worker(**pod: Any) -> dict[str, Any]:  # noqa: ANN401  parts of a document
    return {"worker": {"template": {"spec": pod}}}


def proxy(**container: Any) -> dict[str, Any]:  # noqa: ANN401  parts of a document
    return worker(containers=[{"name": "proxy", "image": "x", **container}])


def test_what_the_operator_makes_of_itself_is_allowed() -> None:
    strict = replace(OWN, service_accounts=())
    for of in (queue(), queue(RICH)):
        assert (
            of_templates([*desired(of, SETTING, facts(of)), erase_job(of, SETTING, facts(of))], strict) == ()
        )


@pytest.mark.parametrize("role", ["scanner", "worker", "reaper"])
def test_the_operators_own_account_is_refused_in_every_template_and_others_are_allowed_by_name(
    role: str,
) -> None:
    """The operator's own also where everything else is allowed."""

    def found(account: str, *allowed: str, **more: Any) -> list[str]:  # noqa: ANN401  fields of a Policy
        given: dict[str, Any] = {role: {"template": {"spec": {"serviceAccountName": account}}}}
        return paths(replace(OWN, service_accounts=allowed, **more), **given)

    refused = ["serviceAccountName"]
    assert found("delayq-operator", "*", pod_security="privileged") == refused
    assert found("shop", "*") == found("shop", "shop") == []
    assert found("shop", "bank") == found("shop") == refused


TOKEN: dict[str, Any] = {
    "volumes": [{"name": "token", "projected": {"sources": [{"serviceAccountToken": {"path": "token"}}]}}]
}


@pytest.mark.parametrize(
    "policy",
    [replace(OWN, service_accounts=("shop",)), replace(OWN, own_service_account="default")],
    ids=["not listed", "the operator's own"],
)
def test_a_pod_without_an_account_has_that_of_the_namespace(policy: Policy) -> None:
    """`default`, whose rights it has if it has a token."""
    given: dict[str, Any] = {"serviceAccountName": None}
    assert paths(policy, **worker(**given)) == []
    for token in ({"automountServiceAccountToken": True}, {"automountServiceAccountToken": None}, TOKEN):
        assert paths(policy, **worker(**given, **token)) == ["serviceAccountName"]


def test_containers_of_the_author_get_no_token_of_default_in_a_erase_job() -> None:
    strict = replace(OWN, service_accounts=())
    of = queue(reaper={"template": {"spec": {"automountServiceAccountToken": True}}})
    job = erase_job(of, SETTING, facts(of))
    assert job["spec"]["template"]["spec"]["automountServiceAccountToken"] is False
    assert of_templates([job], strict) == ()
    projected = queue(reaper={"template": {"spec": TOKEN}})
    [problem] = of_templates([erase_job(projected, SETTING, facts(projected))], strict)
    assert problem.path == "spec.reaper.template.spec.serviceAccountName"


def test_apparmor_is_not_turned_off_by_an_annotation() -> None:
    key = "container.apparmor.security.beta.kubernetes.io/worker"
    for profile, refused in (("unconfined", 1), ("runtime/default", 0), ("localhost/shop", 0)):
        of = queue(worker={"template": {"metadata": {"annotations": {key: profile}}}})
        assert len(of_templates(desired(of, SETTING, facts(of)), OWN)) == refused


def pod_security(**fields: Any) -> dict[str, Any]:  # noqa: ANN401  parts of a document
    return worker(securityContext=fields)


def security(**fields: Any) -> dict[str, Any]:  # noqa: ANN401  parts of a document
    return proxy(securityContext=fields)


PRIVILEGED = {"securityContext": {"privileged": True}}
FORBIDDEN: dict[str, dict[str, Any]] = {
    **{field: worker(**{field: True}) for field in ("hostNetwork", "hostPID", "hostIPC")},
    "volumes[x].hostPath": worker(volumes=[{"name": "x", "hostPath": {"path": "/"}}]),
    "securityContext.seccompProfile.type": pod_security(seccompProfile={"type": "Unconfined"}),
    "securityContext.sysctls": pod_security(sysctls=[{"name": "kernel.msgmax", "value": "1"}]),
    "securityContext.seLinuxOptions.user": pod_security(seLinuxOptions={"user": "system_u"}),
    "containers[proxy].securityContext.privileged": security(privileged=True),
    "containers[proxy].securityContext.procMount": security(procMount="Unmasked"),
    "containers[proxy].securityContext.capabilities.add": security(
        capabilities={"add": ["KILL", "SYS_ADMIN"]}
    ),
    "containers[proxy].ports.hostPort": proxy(ports=[{"containerPort": 1, "hostPort": 22}]),
    "containers[proxy].livenessProbe.httpGet.host": proxy(livenessProbe={"httpGet": {"host": "10.0.0.1"}}),
    "containers[proxy].lifecycle.preStop.tcpSocket.host": proxy(
        lifecycle={"preStop": {"tcpSocket": {"host": "127.0.0.1", "port": 10250}}}
    ),
    "containers[worker].securityContext.privileged": worker(containers=[{"name": "worker", **PRIVILEGED}]),
    "initContainers[x].securityContext.privileged": worker(
        initContainers=[{"name": "x", "image": "x", **PRIVILEGED}]
    ),
}


@pytest.mark.parametrize("path", FORBIDDEN)
def test_what_baseline_forbids_is_refused_unless_that_is_left_to_the_cluster(path: str) -> None:
    assert paths(OWN, **FORBIDDEN[path]) == [path]
    assert paths(replace(OWN, pod_security="privileged"), **FORBIDDEN[path]) == []


def test_what_baseline_allows_is_allowed() -> None:
    allowed = proxy(
        securityContext={
            "privileged": False,
            "runAsUser": 0,
            "capabilities": {"add": ["CHOWN"]},
            "seLinuxOptions": {"type": "container_t"},
        },
        ports=[{"containerPort": 1, "hostPort": 0}],
        livenessProbe={"httpGet": {"host": "", "port": 80}},
    )
    allowed["worker"]["template"]["spec"] |= {
        "hostNetwork": False,
        "hostUsers": False,
        "volumes": [{"name": "x", "emptyDir": {}}],
        "securityContext": {"sysctls": [{"name": "net.ipv4.tcp_syncookies", "value": "1"}]},
    }
    assert paths(OWN, **allowed) == []
