"""No content of a Secret in what the operator writes or keeps: objects, annotations, status, conditions, events.

Every Secret that a DelayQueue can refer to holds a word that is found nowhere else.
"""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from delayq_operator.base import names
from delayq_operator.cache.resource import Resource
from delayq_operator.cache.versions import Versions
from delayq_operator.desired import desired, erase_job, referenced
from delayq_operator.desired.checksum import changes
from delayq_operator.reconcile.facts import Referents, missing
from delayq_operator.reconcile.plan import inputs_of
from delayq_operator.reconcile.report import turned
from delayq_operator.status.status import status
from delayq_operator.status.view import GuardCounts

from tests.unit.operator.fakes import Objects
from tests.unit.operator.queues import RICH, SETTING, UID, queue
from tests.unit.operator.views import HEALTHY, NOW, view

if TYPE_CHECKING:
    from delayq.contract import DelayQueue
    from delayq_operator.desired.facts import Facts

REDLOCK = {"redlock": {"urlsSecretRef": {"name": "redlock"}}}
CLUSTER = {
    "cluster": {"nodes": [{"host": "redis"}]},
    "auth": {"passwordSecretRef": {"name": "login"}},
    "tls": {
        "caSecretRef": {"name": "ca"},
        "certSecretRef": {"name": "cert"},
        "keySecretRef": {"name": "cert"},
    },
}
QUEUES = [queue(RICH), queue(RICH, guard=REDLOCK, recovery={}), queue(redis=CLUSTER, guard=REDLOCK)]


def canary(name: str, key: str) -> str:
    return f"canary-{name}-{key}-Zq7p"


class World:
    """An API server with every Secret of a queue, and the operator's own memory of it."""

    def __init__(self, of: DelayQueue) -> None:
        self.queue, self.api = of, Objects()
        self.secrets, self.config_maps = Versions(lambda _: None), Versions(lambda _: None)
        self.referents = Referents(self.api, self.secrets, self.config_maps)  # type: ignore[arg-type]  # only get() of it
        metadata = {
            "name": of.metadata.name,
            "namespace": "shop",
            "uid": UID,
            "generation": 3,
            "resourceVersion": "1",
        }
        self.resource = Resource({"metadata": metadata})

    async def store(self, suffix: str = "", *, keys: bool = True) -> None:
        """Write every Secret that the queue refers to; with a suffix, they have been rotated."""
        for name in referenced(self.queue).secrets:
            content = {key: canary(name, key) + suffix for key in self.keys()} if keys else {}
            data = {key: base64.b64encode(word.encode()).decode() for key, word in content.items()}
            body = {"metadata": {"name": name, "namespace": "shop"}, "data": data}
            there = self.api._objects.get((names.SECRET.kind, "shop", name))
            if there is None:
                stored = await self.api.create(names.SECRET, body)
            else:
                body["metadata"]["resourceVersion"] = there["metadata"]["resourceVersion"]
                stored = await self.api.replace(names.SECRET, body)
            self.secrets.seen(names.SECRET, {"metadata": stored["metadata"]})

    @staticmethod
    def keys() -> tuple[str, ...]:
        return "password", "username", "user", "ca.crt", "tls.crt", "tls.key", "key", "url", "urls"

    async def facts(self) -> Facts:
        return await self.referents.facts(self.resource, self.queue, {})


def told(text: str) -> bool:
    """Whether any of it is in there, as it is or in base64, which looks different from each of three places."""
    encoded = [
        base64.b64encode(b" " * shift + b"canary-")[4 if shift else 0 : 8].decode() for shift in range(3)
    ]
    return "canary" in text or any(form in text for form in encoded)


def written(of: DelayQueue, facts: Facts) -> list[dict[str, Any]]:
    return [*desired(of, SETTING, facts), erase_job(of, SETTING, facts)]


@pytest.mark.parametrize("of", QUEUES, ids=["sql", "redlock", "cluster"])
async def test_nothing_that_the_operator_writes_holds_a_word_of_a_secret(of: DelayQueue) -> None:
    world = World(of)
    await world.store()
    first = await world.facts()
    objects = written(of, first)
    await world.store("-rotated")
    second = await world.facts()
    rotated = written(of, second)
    await world.store(keys=False)
    emptied = await world.facts()
    said: list[Any] = [objects, rotated, written(of, emptied), missing(emptied)]
    for old, new in zip(objects, rotated, strict=True):
        if old["kind"] == names.DEPLOYMENT.kind:
            said.append(changes(inputs_of(old), inputs_of(new)))
    before: dict[str, Any] = {}
    for seen in (
        view(queue=of),
        view(queue=of, missing=missing(emptied)),
        view(queue=of, backlog=replace(HEALTHY, redis_up=False, whole=False)),
        view(queue=of, guard_counts=GuardCounts(unable=2)),
    ):
        made = status(seen, before, NOW)
        said += [made, list(turned(before, made))]
        before = made
    text = json.dumps(said, default=repr) + repr((first, second, emptied, world.secrets.__dict__))
    assert len(first.secrets) == len(referenced(of).secrets) > 1
    assert first.secrets != second.secrets
    assert emptied.lacking
    assert not told(text)
