"""spec.api on a real API server: its children come and go, and tokens of this API server are verified by its keys.

The pods of the last tests are processes of this host (harness/node.py).
"""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from functools import partial
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

import jwt
import pytest
from delayq.api.access.bearer import Denied
from delayq.api.access.named_tokens import hash_of, new_token
from delayq.api.access.service_accounts import ServiceAccounts
from delayq_operator.base import names
from delayq_operator.polling.issuer import KEYS, PERIOD_SECONDS

from tests.cluster.harness.waiting import eventually
from tests.cluster.operator import Operator
from tests.cluster.plugin import ForkedPlugin
from tests.cluster.test_end_to_end import document
from tests.cluster.world import World, running

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cluster.harness.control_plane import ControlPlane
    from tests.cluster.harness.node import ProcessNode
    from tests.cluster.harness.pod import Pod
    from tests.servers import RedisServer

CREATED: Final = 201
FROZEN_SECONDS: Final = 610.0
CHILDREN: Final = {
    ("configmaps", "orders-api"),
    ("services", "orders-api"),
    ("deployments", "orders-api"),
    ("poddisruptionbudgets", "orders-api"),
}


def api_for(world: World, *accounts: str, **more: Any) -> dict[str, Any]:  # noqa: ANN401 -- parts of a document
    """A spec.api in which these ServiceAccounts of the namespace may schedule."""
    rules = [
        {"serviceAccount": {"namespace": world.namespace, "name": account}, "verbs": ["schedule"]}
        for account in accounts
    ]
    return {"allowPlainHttp": True, "replicas": 1, "access": rules, **more}


def token_of(world: World, account: str, *, audience: str = "delayq", seconds: int = 3600) -> str:
    """A token as the kubelet would request it for a volume."""
    path = f"/api/v1/namespaces/{world.namespace}/serviceaccounts/{account}/token"
    request = {"spec": {"audiences": [audience], "expirationSeconds": seconds}}
    return str(world.cluster.rest.create(path, request)["status"]["token"])


def make_account(world: World, name: str) -> None:
    world.cluster.rest.create(
        f"/api/v1/namespaces/{world.namespace}/serviceaccounts", {"metadata": {"name": name}}
    )


def stored(world: World) -> str:
    """The keys in the ConfigMap, once they are there."""
    eventually(lambda: world.there("configmaps", "orders-api"), what="the keys are stored")
    return str(world.get("configmaps", "orders-api")["data"]["jwks.json"])


def added(world: World, before: set[tuple[str, str]]) -> bool:
    """Whether the children of the API are there, and no other new ones."""
    assert world.children() - before == CHILDREN
    return True


def test_the_children_of_the_api_come_and_go_with_it_and_no_other_pod_is_replaced(world: World) -> None:
    world.start()
    before = world.children()
    world.edit(api=api_for(world, "web"))
    eventually(lambda: added(world, before), what="children of the API")
    world.until("ApiAvailable", "False", "PodsNotReady")
    assert json.loads(stored(world))["keys"] == [
        {field: value for field, value in key.items() if field != "x5c"}
        for key in world.cluster.rest.get(KEYS)["keys"]
    ]
    # What another client writes there would decide whose tokens are taken.
    world.patch("configmaps", "orders-api", {"data": {"jwks.json": "{}"}})
    eventually(lambda: len(stored(world)) > 2, what="the keys are restored")
    world.edit(api=None)
    eventually(lambda: world.children() == before, what="they are gone")
    assert (world.revisions("scanner"), world.revisions("worker")) == (1, 1)
    assert "ApiAvailable" not in {each["type"] for each in world.queue()["status"]["conditions"]}


def test_named_tokens_alone_need_no_keys(world: World) -> None:
    rules = [{"token": "php", "verbs": ["schedule"]}]
    world.create(api={"allowPlainHttp": True, "tokensSecretRef": {"name": "tokens"}, "access": rules})
    eventually(lambda: world.there("deployments", "orders-api"), what="the API")
    assert ("configmaps", "orders-api") not in world.children()


def test_tokens_of_this_api_server_are_verified_by_the_keys_that_the_operator_stores(
    world: World, tmp_path: Path
) -> None:
    """And by nothing else: the file is all that a pod has of the cluster."""
    world.create(api=api_for(world, "web"))
    make_account(world, "web")
    (tmp_path / "jwks.json").write_text(stored(world))
    accounts = ServiceAccounts(tmp_path / "jwks.json")
    assert accounts.name(token_of(world, "web")) == f"system:serviceaccount:{world.namespace}:web"
    for token, why in (
        (token_of(world, "web", audience="https://kubernetes.default.svc"), "audience delayq"),
        (token_of(world, "web", seconds=7200), "at most 70 minutes"),
    ):
        with pytest.raises(Denied, match=why):
            accounts.name(token)
    short = token_of(world, "web", seconds=600)
    later = ServiceAccounts(tmp_path / "jwks.json", now=lambda: time.time() + 601)
    with pytest.raises(Denied, match="expired"):
        later.name(short)


def test_an_operator_of_one_namespace_reads_the_keys_and_binds_no_right_of_the_cluster(
    cluster: ControlPlane, kubeconfig: Path, namespace: str
) -> None:
    """Kubernetes lets each ServiceAccount read them: the chart adds nothing, and no pod of the API has a token."""
    bindings = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"
    before = {each["metadata"]["name"] for each in cluster.rest.items(bindings)}
    with running(Operator.fork(kubeconfig, namespace)) as operator:
        world = World(cluster, operator, namespace)
        world.create(api=api_for(world, "web"))
        assert json.loads(stored(world))["keys"]
        pod = world.get("deployments", "orders-api")["spec"]["template"]["spec"]
        assert pod["automountServiceAccountToken"] is False
    assert {each["metadata"]["name"] for each in cluster.rest.items(bindings)} == before


def put(address: str, token: str) -> int:
    """The status of a request that schedules a task: 201 if it may."""
    request = urllib.request.Request(
        f"http://{address}:{names.API_PORT}/v1alpha1/tasks/-/{uuid4().hex}",
        method="PUT",
        data=b'{"delay": "1h"}',
        headers={"Authorization": f"Bearer {token}", "Content-Type": "application/json"},
    )
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:  # noqa: S310 -- as above
            return int(answer.status)
    except urllib.error.HTTPError as refused:
        return refused.code


def accepts(address: str, token: str) -> bool:
    """Whether a request with the token schedules a task; not while nothing listens there."""
    try:
        return put(address, token) == CREATED
    except OSError:
        return False


def shifted(world: World, token: str, seconds: int) -> str:
    """The same token as the API server would have issued it so much earlier, signed with its key."""
    claims = jwt.decode(token, options={"verify_signature": False})
    times = {name: claims[name] - seconds for name in ("iat", "nbf", "exp")}
    header = jwt.get_unverified_header(token)
    return jwt.encode(claims | times, world.cluster.token_key.read_text(), header["alg"], header)


def serve(node: ProcessNode, world: World, redis: RedisServer, **api: Any) -> Pod:  # noqa: ANN401 -- parts of a document
    """Make the queue, and return its API pod when it has the keys."""
    for account in ("web", "other"):
        make_account(world, account)
    made = api_for(world, "web", **api)
    made["access"] += [{"token": "php", "verbs": ["schedule"]}] if api else []
    world.make(names.PLURAL, document(world, redis, api=made))
    world.until("ApiAvailable", "True", "PodsReady", timeout_s=60)
    [pod] = [
        each for each in node.pods.values() if each.seen["metadata"]["labels"][names.COMPONENT_LABEL] == "api"
    ]
    # The keys may have come after the pod; as in a kubelet's pod, the file follows.
    eventually(
        partial(accepts, pod.address, token_of(world, "web")), timeout_s=60, what="the keys are mounted"
    )
    return pod


def test_who_may_schedules_tasks_also_while_the_api_server_is_away(
    process_node: ProcessNode, world: World, redis: RedisServer
) -> None:
    """201 for who has the right, 403 for who has none, 401 for who proves nothing.

    A process that starts while the API server is away has the keys, too. Of a deleted account, the token that it has
    is accepted until it expires.
    """
    named = new_token()
    world.make("secrets", {"metadata": {"name": "tokens"}, "stringData": {"php": hash_of(named)}})
    pod = serve(process_node, world, redis, tokensSecretRef={"name": "tokens"})
    web, other = (token_of(world, account) for account in ("web", "other"))
    wrong = token_of(world, "web", audience="other")
    old = shifted(world, web, 3601)
    given = (web, named, shifted(world, web, 3500), other, wrong, old, token_of(world, "web", seconds=7200))
    assert [put(pod.address, each) for each in given] == [CREATED, CREATED, CREATED, 403, 401, 401, 401]
    assert put(pod.address, new_token()) == 401
    said = ForkedPlugin(world.cluster, world.namespace).out("status", "orders").splitlines()
    assert ["API", "1", "of", "1", "ready"] in [line.split() for line in said]
    world.cluster.rest.delete(f"/api/v1/namespaces/{world.namespace}/serviceaccounts/web")
    world.cluster.api_server.pause()
    assert [put(pod.address, each) for each in (web, named, other)] == [CREATED, CREATED, 403]
    world.cluster.api_server.kill()
    [container] = pod.containers
    first = container.process
    assert first is not None
    first.kill()
    eventually(
        lambda: container.process and container.process is not first, timeout_s=60, what="it is started again"
    )
    eventually(partial(accepts, pod.address, web), timeout_s=60, what="it serves")
    assert [put(pod.address, each) for each in (web, named, other)] == [CREATED, CREATED, 403]
    world.cluster.repair()


@pytest.mark.full
def test_known_producers_go_on_while_the_api_server_is_frozen_for_ten_minutes(
    process_node: ProcessNode, world: World, redis: RedisServer
) -> None:
    """Those whose token lasts as long: the API server issues none for less than ten minutes."""
    pod = serve(process_node, world, redis)
    short, long = (token_of(world, "web", seconds=seconds) for seconds in (600, 3600))
    expires = jwt.decode(short, options={"verify_signature": False})["exp"]
    world.cluster.api_server.pause()
    over = time.time() + FROZEN_SECONDS
    while time.time() < over:
        assert put(pod.address, long) == CREATED
        now = time.time()
        if abs(now - expires) > 1:
            assert put(pod.address, short) == (CREATED if now < expires else 401)
        time.sleep(1)
    assert put(pod.address, short) == 401
    world.cluster.repair()
    assert put(pod.address, long) == CREATED


@pytest.mark.full
def test_a_new_key_of_the_cluster_is_found_and_the_former_one_stays_as_long_as_it_is_published(
    process_node: ProcessNode, world: World, redis: RedisServer
) -> None:
    """Within the minute that the operator takes; a kubelet adds up to two."""
    pod = serve(process_node, world, redis)
    before = token_of(world, "web")
    world.cluster.rotate_token_key()
    after = token_of(world, "web")
    kids = [jwt.get_unverified_header(each)["kid"] for each in (before, after)]
    assert kids[0] != kids[1]
    assert put(pod.address, before) == CREATED
    eventually(
        partial(accepts, pod.address, after), timeout_s=PERIOD_SECONDS + 10, what="the new key is found"
    )
    assert put(pod.address, before) == CREATED
    assert [container.restarts for container in pod.containers] == [0]
