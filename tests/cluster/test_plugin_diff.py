"""kubectl dq diff: what a new DelayQueue would change is told before anything is, and is what then happens."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import yaml

from tests.cluster.operator import install_rights, queue
from tests.cluster.plugin import Plugin
from tests.cluster.world import World, serving

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.cluster.harness.cluster import Cluster
    from tests.cluster.operator import Operator

pytestmark = pytest.mark.xdist_group("plugin")

SPEC: dict[str, Any] = {
    "redis": {"standalone": {"host": "redis-invalid"}, "authSecretRef": {"name": "redis-auth"}},
    "worker": {
        "replicas": 4,
        "template": {
            "spec": {"containers": [{"name": "worker", "envFrom": [{"secretRef": {"name": "redis-auth"}}]}]}
        },
    },
}
SECRET = {
    "apiVersion": "v1",
    "kind": "Secret",
    "metadata": {"name": "redis-auth"},
    "stringData": {"password": "hunter2-hunter2"},
}


@pytest.fixture(scope="module")
def operator(cluster: Cluster, crd: str) -> Iterator[Operator]:  # noqa: ARG001  the CRD is installed
    with serving(cluster) as operator:
        yield operator


@pytest.fixture
def world(cluster: Cluster, operator: Operator, namespace: str) -> World:
    world = World(cluster, operator, namespace)
    world.make("secrets", SECRET)
    world.start(**SPEC)
    return world


@pytest.fixture
def dq(world: World) -> Plugin:
    return Plugin(world.cluster, world.namespace)


def document(*besides: dict[str, Any], **spec: object) -> str:
    return yaml.safe_dump_all([queue(**(SPEC | spec)), *besides])


def test_the_same_document_changes_nothing(dq: Plugin) -> None:
    """No output, exit 0; with Secrets in the checksums, which have to be those the operator takes."""
    done = dq.run("diff", "-f", "-", text=document())
    assert (done.stdout, done.stderr, done.returncode) == ("", "", 0)


def test_a_new_handler_is_told_with_the_pods_it_replaces(dq: Plugin, world: World) -> None:
    """Number of pods, and why; the scanner, which does not read it, stays."""
    before = world.get("deployments", "orders-worker")
    new = document(handler={"python": {"callable": "shop.orders:remind"}})
    said = dq.out("diff", "-f", "-", text=new, code=1)
    assert "-      callable: shop.orders:cancel_unpaid" in said
    assert "+      callable: shop.orders:remind" in said
    assert "--- ConfigMap orders-config (now)" in said
    assert said.splitlines()[-1] == "4 worker pods would be replaced: spec.handler changed"
    assert world.get("deployments", "orders-worker") == before, "nothing was changed"


def test_what_is_told_is_what_happens(dq: Plugin, world: World) -> None:
    """The operator's own event has the same reasons."""
    [container] = SPEC["worker"]["template"]["spec"]["containers"]
    container = {**container, "env": [{"name": "SHOP", "value": "eu"}]}
    new = {"image": "shop:2", "replicas": 3, "template": {"spec": {"containers": [container]}}}
    said = dq.out("diff", "-f", "-", text=document(worker=new), code=1)
    assert "+                value: eu" in said or "+            - name: SHOP" in said
    *_, roll, workers = said.splitlines()
    assert roll.startswith("4 worker pods would be replaced: ")
    assert workers == "4 → 3 workers: spec.worker.replicas"
    world.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", text=document(worker=new))
    told = world.event("RolledOut", "image changed")
    for reason in roll.partition(": ")[2].split("; "):
        assert reason.partition(" (")[0] in told
    assert "pod template changed (spec.containers[worker].env[SHOP])" in roll
    world.settle()
    assert dq.run("diff", "-f", "-", text=document(worker=new)).returncode == 0


def test_a_secret_in_the_same_file_counts(dq: Plugin) -> None:
    """Its content rolls workers that have it in their environment, and no scanner; it is not shown."""
    secret = {**SECRET, "stringData": {"password": "correct-horse"}}
    said = dq.out("diff", "-f", "-", text=document(secret), code=1)
    assert "4 worker pods would be replaced: Secret redis-auth changed" in said
    assert "scanner" not in said
    assert "correct-horse" not in said
    assert "hunter2" not in said


def test_children_that_come_and_go_are_shown(dq: Plugin) -> None:
    """Budgets off, a policy on: a whole object each."""
    new = document(podDisruptionBudget={"enabled": False}, networkPolicy={"enabled": True})
    said = dq.out("diff", "-f", "-", text=new, code=1)
    assert "--- nothing\n+++ NetworkPolicy orders-delayq (then)" in said
    assert "--- PodDisruptionBudget orders-worker (now)\n+++ nothing" in said
    assert "PodDisruptionBudget orders-worker would be deleted" in said
    assert "replaced" not in said


def test_a_new_queue_is_all_new(dq: Plugin) -> None:
    """Nothing is there to compare with, nor to find the operator's image by."""
    done = dq.run("diff", "-f", "-", text=yaml.safe_dump(queue("parcels")))
    assert done.returncode == 1, done.stderr
    assert "--- nothing\n+++ DelayQueue parcels (then)" in done.stdout
    assert "+++ Deployment parcels-worker (then)" in done.stdout
    assert "worker pods would be started" in done.stdout
    assert "--worker-image" in done.stderr


def test_what_the_operator_did_not_do_yet_is_kept_apart(dq: Plugin, world: World) -> None:
    """A paused queue lags behind its document: the note says so, the diff is of the edit alone."""
    world.annotate(paused="true")
    world.until("Paused", "True")
    world.edit(delivery={"maxAttempts": 3})
    world.until("Progressing")
    done = dq.run(
        "diff",
        "-f",
        "-",
        text=document(delivery={"maxAttempts": 3}, guard=None, objective={"latenessSeconds": 9}),
    )
    assert done.returncode == 1, done.stderr
    assert "latenessSeconds: 9" in done.stdout
    assert "maxAttempts" not in "".join(line for line in done.stdout.splitlines() if line[:1] in "+-")
    assert "Deployment orders-worker" in done.stderr


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (document(delivery={"maxAttempts": 0}), "spec.delivery.maxAttempts"),
        (
            document(delivery={"maxAtempts": 3}),
            "error: <stdin>: spec.delivery.maxAtempts: unknown field, did you mean maxAttempts?",
        ),
        (
            document(worker={"template": {"spec": {"restartPolicy": "Never"}}}),
            "spec.worker.template.spec.restartPolicy",
        ),
        ("kind: Pod\n", 'error: <stdin>: expected kind DelayQueue, got "Pod"'),
        ("a: [", "not YAML"),
    ],
)
def test_trouble_exits_with_more_than_one(dq: Plugin, text: str, words: str) -> None:
    """The API server's rules, the model's, the operator's for templates; 1 would mean changes."""
    done = dq.run("diff", "-f", "-", text=text)
    assert done.returncode > 1
    assert done.stderr.startswith("error: ")
    assert words in done.stderr
    assert done.stdout == ""


def test_whoever_may_only_look_is_told_what_is_known(dq: Plugin, world: World) -> None:
    """Without rights to try changes of children, or to read Secrets, the documents are compared all the same."""
    install_rights(world.cluster, world.namespace)
    rules = ["--verb=get,list,patch,create", "--resource=delayqueues.delayq.dev"]
    look = ["--verb=get,list", "--resource=pods,events,services,serviceaccounts,configmaps,deployments.apps"]
    more = "cronjobs.batch,networkpolicies.networking.k8s.io,poddisruptionbudgets.policy"
    world.kubectl("create", "serviceaccount", "viewer")
    for name, rule in {
        "queues": rules,
        "look": look,
        "more": ["--verb=get,list", f"--resource={more}"],
    }.items():
        world.kubectl("create", "role", name, *rule)
        world.kubectl(
            "create", "rolebinding", name, f"--role={name}", f"--serviceaccount={world.namespace}:viewer"
        )
    viewer = Plugin(world.cluster, world.namespace, world.cluster.kubeconfig_for(world.namespace, "viewer"))
    new = document(handler={"python": {"callable": "shop.orders:remind"}})
    done = viewer.run("diff", "-f", "-", text=new)
    assert done.returncode == 1, done.stderr
    assert done.stdout.splitlines()[-1] == "4 worker pods would be replaced: spec.handler changed"
    assert "Secret redis-auth may not be read" in done.stderr
    assert "may not try" in done.stderr
    assert dq.run("diff", "-f", "-", text=document()).returncode == 0
