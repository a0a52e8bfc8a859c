"""What kubectl complains of becomes a sentence, a hint and an exit code."""

from __future__ import annotations

import pytest
from delayq_operator.kubectl.refusals import refusal


@pytest.mark.parametrize(
    ("err", "code", "words"),
    [
        ('error: the server doesn\'t have a resource type "delayqueues"', 4, "have a resource type"),
        ('Error from server (NotFound): namespaces "shop" not found', 6, 'namespaces "shop" not found'),
        (
            "Unable to connect to the server: dial tcp: lookup k8s: no such host",
            4,
            "Unable to connect to the server",
        ),
        (
            "error: You must be logged in to the server (Unauthorized)",
            5,
            "not allowed: You must be logged in",
        ),
        ("error: timed out waiting for the condition", 4, "timed out"),
        (
            "Error from server (BadRequest): pod x does not have a host assigned",
            4,
            "does not have a host assigned",
        ),
        ('error: context "x" does not exist', 2, 'context "x" does not exist'),
        ("Error from server (ServiceUnavailable): etcdserver: leader changed", 4, "leader changed"),
        ('The DelayQueue "orders" is invalid: spec.shards: too many', 3, "spec.shards: too many"),
        ("something else", 1, "something else"),
        ("", 1, "couldn't"),
    ],
)
def test_each_trouble_has_its_code(err: str, code: int, words: str) -> None:
    found = refusal(f"E0101 00:00:00.000000   1 memcache.go:265] couldn't\n{err}\n")
    assert found.code == code
    assert words in found.message
    assert not found.message.startswith(("error: ", "Error from server"))


def test_without_the_crd_it_says_how_to_install_it() -> None:
    found = refusal('error: the server doesn\'t have a resource type "delayqueues"')
    assert found.hint.startswith("install the operator and the CRD: delayq crd | kubectl apply")


def test_without_a_kubeconfig_it_says_so() -> None:
    said = "The connection to the server {} was refused - did you specify the right host or port?"
    assert refusal(said.format("localhost:8080")).hint == (
        "no kubeconfig is in use: export KUBECONFIG=…, or name it with --kubeconfig"
    )
    apply = 'error validating "STDIN": Get "http://localhost:8080/openapi/v2": dial tcp: connection refused'
    assert "no kubeconfig" in refusal(apply).hint
    assert refusal(said.format("10.0.0.1:6443")).hint == "kubectl cluster-info"


def test_who_may_not_exec_is_not_allowed_either() -> None:
    """The API server says it in another way for a connection upgrade."""
    found = refusal(
        'error: unable to upgrade connection: pods "x" is forbidden: User "ada" cannot create resource "pods/exec" '
        'in API group "" in the namespace "shop"'
    )
    assert (found.code, found.message.split(":")[0]) == (5, "not allowed")
    assert found.hint.startswith("ask for this right")
