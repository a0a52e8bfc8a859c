"""The keys of ServiceAccount tokens: when they are read, and what is made of them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from delayq.kube.errors import Denied, KubernetesError, NotFound, Unavailable
from delayq_operator.base.names import Key
from delayq_operator.cache.resource import Resource
from delayq_operator.polling import issuer
from delayq_operator.polling.issuer import DISCOVERY, KEYS, PERIOD_SECONDS, RETRY_SECONDS, IssuerKeys, key_set
from delayq_operator.reconcile.facts import FactSource

from tests.unit.operator.fakes import Clock
from tests.unit.operator.views import body

ORDERS = Key("shop", "orders")
ISSUER = {"issuer": "https://kubernetes.default.svc", "jwks_uri": "https://10.0.0.1/openid/v1/jwks"}
ONE, TWO = (
    {"kid": kid, "kty": "RSA", "alg": "RS256", "use": "sig", "n": kid, "e": "AQAB"} for kid in ("1", "2")
)
API = {"access": [], "replicas": 2}


class ApiServer:
    """Answers the two paths; with `broken`, it does not."""

    def __init__(self) -> None:
        self.keys: list[dict[str, Any]] = [ONE]
        self.broken: KubernetesError | None = None
        self.reads: list[str] = []

    async def read(self, where: str) -> dict[str, Any]:
        self.reads.append(where)
        if self.broken is not None:
            raise self.broken
        answers: dict[str, dict[str, Any]] = {DISCOVERY: {**ISSUER}, KEYS: {"keys": self.keys}}
        return answers[where]


class Queues:
    """The DelayQueues that exist."""

    def __init__(self) -> None:
        self.names = {ORDERS}

    def uid(self, key: Key) -> str:
        return "a" if key in self.names else ""


class Part:
    """The part under test, and what is around it."""

    def __init__(self) -> None:
        self.server, self.queues, self.facts = ApiServer(), Queues(), FactSource()
        self.enqueued: list[Key] = []
        self.issuer = IssuerKeys(self.server, self.queues, self.facts.issuer, self.enqueued.append)  # type: ignore[arg-type]

    def reconciled(self, **spec: object) -> None:
        """A queue is reconciled, which asks for its facts."""
        found = body()
        found["spec"] |= spec
        self.facts.of(Resource(found), {})


@pytest.fixture(name="clock", autouse=True)
def set_clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(issuer, "time", clock)
    return clock


@pytest.fixture(name="part")
def made_part() -> Part:
    return Part()


async def test_nothing_is_read_while_no_queue_has_an_api(part: Part) -> None:
    part.reconciled()
    assert await part.issuer.step() is False
    assert part.server.reads == []


async def test_keys_are_read_once_a_minute_while_a_queue_needs_them(part: Part, clock: Clock) -> None:
    part.reconciled(api=API)
    assert [await part.issuer.step() for _ in range(3)] == [True, False, False]
    assert (part.server.reads, part.enqueued) == ([DISCOVERY, KEYS], [ORDERS])
    clock.now += PERIOD_SECONDS
    assert await part.issuer.step()
    assert part.enqueued == [ORDERS], "nothing has changed"
    part.queues.names.clear()
    clock.now += PERIOD_SECONDS
    assert await part.issuer.step() is False


async def test_rotated_keys_reach_every_queue_that_needs_them(part: Part, clock: Clock) -> None:
    part.reconciled(api=API)
    await part.issuer.step()
    part.server.keys = [TWO, ONE]
    clock.now += PERIOD_SECONDS
    await part.issuer.step()
    assert part.enqueued == [ORDERS, ORDERS]
    assert json.loads(part.facts.issuer.keys) == {"issuer": ISSUER["issuer"], "keys": [ONE, TWO]}


@pytest.mark.parametrize(
    ("broken", "error"),
    [
        (Unavailable("connection refused"), "connection refused"),
        (Denied(403, "Forbidden", 'cannot get path "/openid/v1/jwks"'), "/openid/v1/jwks"),
        (NotFound(404, "NotFound", "page not found"), "--service-account-issuer"),
    ],
)
async def test_keys_stay_while_they_cannot_be_read_and_the_error_is_told(
    part: Part, clock: Clock, broken: KubernetesError, error: str
) -> None:
    part.reconciled(api=API)
    await part.issuer.step()
    known, part.server.broken = part.facts.issuer.keys, broken
    clock.now += PERIOD_SECONDS
    assert await part.issuer.step() is False
    assert (part.facts.issuer.keys, error in part.facts.issuer.error) == (known, True)
    part.server.broken = None
    clock.now += RETRY_SECONDS
    assert await part.issuer.step()
    assert part.facts.issuer.error == ""


@pytest.mark.parametrize(
    ("discovery", "found"),
    [
        ({}, {"keys": [ONE]}),
        ({"issuer": 1}, {"keys": [ONE]}),
        (ISSUER, {}),
        (ISSUER, {"keys": []}),
        (ISSUER, {"keys": [{**ONE, "n": "x" * 65_536}]}),
    ],
)
def test_an_answer_that_is_no_key_set_is_an_error(discovery: dict[str, Any], found: dict[str, Any]) -> None:
    """Not an empty file, with which every token would be refused."""
    with pytest.raises(ValueError, match=r"expected"):
        key_set(discovery, found)


def test_only_public_members_are_copied() -> None:
    made = json.loads(key_set(ISSUER, {"keys": [{**ONE, "d": "private", "x5c": ["certificate"]}]}))
    assert made == {"issuer": ISSUER["issuer"], "keys": [ONE]}
