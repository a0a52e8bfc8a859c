"""The HTTP API in pods, behind its Service: locked down, replaced under load, rotated, and without the API server."""

from __future__ import annotations

import os
import signal
import ssl
import threading
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Self
from uuid import uuid4

import trustme
import urllib3
from delayq.api.access.named_tokens import hash_of, new_token
from delayq_operator.base import names
from urllib3.exceptions import HTTPError

from tests.cluster.harness.waiting import eventually
from tests.cluster.test_http_api import CREATED, make_account, token_of
from tests.node.test_pods import TOKEN, check_locked_down, mounts
from tests.node.world import READY_SECONDS

if TYPE_CHECKING:
    from types import TracebackType

    from tests.cluster.harness.rest import Object
    from tests.node.world import NodeWorld

PACE_SECONDS: Final = 0.02
KEPT: Final = 200
"""The answer to a request that is sent again."""


def trusting(authority: trustme.CA) -> ssl.SSLContext:
    context = ssl.create_default_context()
    authority.configure_trust(context)
    return context


@dataclass
class Place:
    """Where an API is reached, and whose certificates prove that it is the host."""

    address: tuple[str, int]
    host: str
    authority: trustme.CA


@dataclass
class Caller:
    """Schedules tasks over HTTPS, as a client that keeps its connection, or makes one for each request."""

    place: Place
    token: str
    keeps: bool
    answers: Counter[int] = field(default_factory=Counter)
    sent: set[str] = field(default_factory=set)
    repeated: int = 0
    broken: list[str] = field(default_factory=list)
    """Requests without an answer."""
    _stop: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self._pool = urllib3.HTTPSConnectionPool(
            *self.place.address,
            ssl_context=trusting(self.place.authority),
            server_hostname=self.place.host,
            assert_hostname=self.place.host,
            timeout=10,
            retries=False,
        )
        self._thread = threading.Thread(target=self._work, daemon=True)

    def put(self) -> int:
        """Schedule a task, and return the status.

        A request on a kept connection that breaks is sent again, once, as HTTP clients do with a PUT: a server may
        close a connection at the moment that a request is on its way.
        """
        task, kept = uuid4().hex, self.keeps and self._pool.num_requests > 0
        self.sent.add(task)
        try:
            status = self._put(task)
        except HTTPError:
            if not kept:
                raise
            self.repeated += 1
            status = self._put(task)
        self.answers[status] += 1
        return status

    def _put(self, task: str) -> int:
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}
        more = {} if self.keeps else {"Connection": "close"}
        path = f"/v1alpha1/tasks/-/{task}"
        return self._pool.request("PUT", path, body=b'{"delay": "1h"}', headers=headers | more).status

    def accepted(self) -> bool:
        """Whether it gets through: not while nothing serves, or the certificate is of another authority."""
        try:
            return self.put() == CREATED
        except HTTPError:
            return False

    def _work(self) -> None:
        while not self._stop.wait(PACE_SECONDS):
            try:
                self.put()
            except HTTPError as error:
                self.broken.append(repr(error))

    def __enter__(self) -> Self:
        """Call it over and over until the end of the block."""
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()


def certificate(authority: trustme.CA, host: str) -> dict[str, str]:
    """The content of a Secret as cert-manager writes it."""
    made = authority.issue_cert(host)
    chain = "".join(each.bytes().decode() for each in made.cert_chain_pems)
    return {"tls.crt": chain, "tls.key": made.private_key_pem.bytes().decode()}


def make(world: NodeWorld, authority: trustme.CA, named: str) -> tuple[str, int]:
    """The queue with an API for the account `web` and the named token; the address of its Service."""
    secrets = {"tokens": {"php": hash_of(named)}, "tls": certificate(authority, host_of(world))}
    for name, data in secrets.items():
        world.make("secrets", {"metadata": {"name": name}, "stringData": data})
    make_account(world, "web")
    world.begin(worker={"replicas": 1}, api=document(world))
    world.until("ApiAvailable", "True", "PodsReady", timeout_s=READY_SECONDS)
    spec = world.get("services", "orders-api")["spec"]
    return spec["clusterIP"], spec["ports"][0]["port"]


def document(world: NodeWorld, *verbs: str) -> dict[str, Any]:
    """A spec.api in which both may schedule, and do more."""
    account = {"namespace": world.namespace, "name": "web"}
    may = {"verbs": ["schedule", *verbs]}
    secret = {"name": "tls"}
    return {
        "tls": {"certSecretRef": secret, "keySecretRef": secret},
        "tokensSecretRef": {"name": "tokens"},
        "access": [{"serviceAccount": account, **may}, {"token": "php", **may}],
    }


def host_of(world: NodeWorld) -> str:
    return f"orders-api.{world.namespace}.svc"


def restarts(world: NodeWorld) -> dict[str, int]:
    """Of the API pods that are not gone, by name."""
    return {
        pod["metadata"]["name"]: sum(
            each["restartCount"] for each in pod["status"].get("containerStatuses", ())
        )
        for pod in world.pods("api")
    }


def of_pod(pod: Object, at: Place) -> Place:
    """The API of one pod, without the Service."""
    return Place((pod["status"]["podIP"], names.API_PORT), at.host, at.authority)


def replaced(world: NodeWorld, before: set[str]) -> bool:
    """Whether two other pods serve, and the former ones are gone."""
    assert before.isdisjoint(restarts(world)), "the former ones are there"
    return len(restarts(world)) == len(world.running("api")) == 2


def test_the_api_is_replaced_rotated_and_restarted_without_a_lost_answer(world: NodeWorld) -> None:
    """Each request of a rolling update has its answer, and each answered task is stored.

    Another certificate and another named token are taken up by the pods that are there. A process that is killed
    while the API server is frozen comes back, and verifies tokens of ServiceAccounts.
    """
    strictest = "pod-security.kubernetes.io/enforce=restricted"
    world.kubectl("label", "namespace", world.namespace, strictest)
    authority, named = trustme.CA(), new_token()
    at = Place(make(world, authority, named), host_of(world), authority)
    account = token_of(world, "web")
    for pod in world.wait_running(2, "api"):
        check_locked_down(world.node, pod)
        assert TOKEN not in "".join(mounts(world.pid(pod)))
    eventually(
        Caller(at, account, keeps=False).accepted, timeout_s=READY_SECONDS, what="the keys are mounted"
    )
    callers = [Caller(at, token, keeps=keeps) for token in (account, named) for keeps in (True, False)]
    before = set(restarts(world))
    with callers[0], callers[1], callers[2], callers[3]:
        world.edit(api=document(world, "cancel"))
        eventually(lambda: replaced(world, before), timeout_s=120, what="the pods are replaced")
    for caller in callers:
        print(f"kept: {caller.keeps}, answers: {dict(caller.answers)}, sent again: {caller.repeated}")
        assert caller.broken == []
        assert caller.answers.total() == len(caller.sent) > 100
        assert caller.answers[CREATED] + caller.answers[KEPT] == caller.answers.total(), caller.answers
        assert caller.answers[KEPT] <= caller.repeated
    with world.client as client:
        assert client.counts().waiting >= sum(len(caller.sent) for caller in callers)
    rotated(world, at, account)
    frozen(world, at, account)


def rotated(world: NodeWorld, at: Place, account: str) -> None:
    """By no restart: the kubelet writes the files, and the processes read them again."""
    before, at.authority, named = restarts(world), trustme.CA(), new_token()
    world.patch("secrets", "tls", {"stringData": certificate(at.authority, at.host)})
    world.patch("secrets", "tokens", {"stringData": {"php": hash_of(named)}})
    for pod in world.running("api"):
        for token in (account, named):
            caller = Caller(of_pod(pod, at), token, keeps=False)
            eventually(caller.accepted, timeout_s=READY_SECONDS, every_s=0.5, what="it is rotated")
    assert restarts(world) == before


def frozen(world: NodeWorld, at: Place, account: str) -> None:
    """The kubelet starts the container again without the API server."""
    pod, *_ = world.running("api")
    pid = world.pid(pod)
    caller = Caller(of_pod(pod, at), account, keeps=False)
    world.cluster.api_server.pause()
    try:
        os.kill(pid, signal.SIGKILL)
        eventually(lambda: not caller.accepted(), what="it is gone")
        eventually(caller.accepted, timeout_s=READY_SECONDS, every_s=0.5, what="it is back")
    finally:
        world.cluster.repair()
    eventually(lambda: world.restarts(pod["metadata"]["name"]) == 1, what="it was started again")
    world.operator.wait_ready()  # it has no lease that it can renew meanwhile
