"""spec.api on a real API server: its children come and go, and tokens of this API server are verified by its keys.

The pods of the last test are processes of this host (harness/node.py).
"""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from delayq.api.access.bearer import Denied
from delayq.api.access.named_tokens import hash_of, new_token
from delayq.api.access.service_accounts import ServiceAccounts
from delayq_operator.base import names
from delayq_operator.polling.issuer import KEYS

from tests.cluster.harness.waiting import eventually
from tests.cluster.test_end_to_end import document

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cluster.harness.node import ProcessNode
    from tests.cluster.world import World
    from tests.servers import RedisServer

CHILDREN = {
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


def put(address: str, token: str) -> int:
    """The status of a request that schedules a task."""
    request = urllib.request.Request(
        f"http://{address}:{names.API_PORT}/v1alpha1/tasks/-/order-7",
        method="PUT",
        data=b'{"delay": "1h"}',
        headers={"Authorization": f"Bearer {token}", "Content-Type": "application/json"},
    )
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:  # noqa: S310 -- as above
            return int(answer.status)
    except urllib.error.HTTPError as refused:
        return refused.code


def test_who_may_schedules_tasks_also_while_the_api_server_is_away(
    process_node: ProcessNode, world: World, redis: RedisServer
) -> None:
    """201 for who has the right, 403 for who has none, 401 for who proves nothing."""
    for account in ("web", "other"):
        make_account(world, account)
    token = new_token()
    secret = {"metadata": {"name": "tokens"}, "stringData": {"php": hash_of(token)}}
    world.make("secrets", secret)
    api = api_for(world, "web", tokensSecretRef={"name": "tokens"})
    api["access"].append({"token": "php", "verbs": ["schedule"]})
    world.make(names.PLURAL, document(world, redis, api=api))
    world.until("ApiAvailable", "True", "PodsReady", timeout_s=60)
    [address] = [
        pod.address
        for pod in process_node.pods.values()
        if pod.seen["metadata"]["labels"][names.COMPONENT_LABEL] == "api"
    ]
    given = {account: token_of(world, account) for account in ("web", "other")}
    wrong = token_of(world, "web", audience="other")
    # The volume of a ProcessNode is refreshed, too: the keys may have come after the pod.
    eventually(partial(answers, address, given["web"], 201), timeout_s=60, what="the keys are mounted")
    assert [put(address, each) for each in (given["web"], token, given["other"], wrong, new_token())] == [
        *(200, 200, 403),
        *(401, 401),
    ]
    world.cluster.api_server.pause()
    assert [put(address, each) for each in (given["web"], given["other"])] == [200, 403]
    world.cluster.repair()


def answers(address: str, token: str, status: int) -> bool:
    return put(address, token) == status
