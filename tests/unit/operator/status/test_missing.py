"""Keys that workers wait for are those that they name, of the ones that the spec names, while they are not ready."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, cast

from delayq.contract.files import Reference
from delayq_operator.cache.queues import Queues
from delayq_operator.scaling.scaling_config import ScalingConfigs
from delayq_operator.scrape.backlog_cache import FRESH_SECONDS
from delayq_operator.status import missing
from delayq_operator.status.missing import MissingReferences

from tests.unit.operator.fakes import Clock
from tests.unit.operator.polling.test_scanner_poller import ORDERS, Enqueued, known
from tests.unit.operator.scrape.test_exposition import POD

if TYPE_CHECKING:
    import pytest
    from delayq_operator.base.objects import Sample
    from delayq_operator.base.work_queue import WorkQueue

W = replace(POD, name="w", component="worker", address="10.0.0.1", ready=False)
TOKEN = {"name": "shop", "key": "token"}
HTTP = {"url": "https://shop/", "secretHeaders": {"Authorization": TOKEN}}
KEY = Reference("Secret", "shop", "token")


def waits(*keys: tuple[str, str, str]) -> list[Sample]:
    return [
        ("delayq_missing_references", {"queue": "orders", "kind": kind, "name": name, "key": key}, 1.0)
        for kind, name, key in keys
    ]


def test_what_is_said_counts_while_it_is_news_and_in_the_spec(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tenant's image can put no words of its own into the status; a change of what is awaited is reconciled."""
    clock, queues, enqueued = Clock(), Queues(lambda _: None), Enqueued()
    monkeypatch.setattr(missing, "time", clock)
    of_all = MissingReferences(ScalingConfigs(queues), cast("WorkQueue", enqueued))
    queues.seen(known(ORDERS, 10))
    assert of_all.watch(ORDERS) is None, "a spec that names no key asks nobody"
    queues.seen(known(ORDERS, 10, 101, handler={"http": HTTP}))
    watch = of_all.watch(ORDERS)
    assert watch is not None
    assert watch.to_ask([W, replace(W, name="ready", ready=True)], clock.time()) == [W]
    watch.take(W, waits(KEY, ("Secret", "other", "token"), ("call", "555-0100", "")), clock.time())
    assert of_all.seen(ORDERS) == (KEY,)
    of_all.enqueue_on_change(ORDERS)
    of_all.enqueue_on_change(ORDERS)
    assert enqueued.times == 1
    clock.now += FRESH_SECONDS
    assert of_all.seen(ORDERS) == ()
    watch.take(W, waits(KEY), clock.time())
    watch.to_ask([replace(W, ready=True)], clock.time())
    assert of_all.seen(ORDERS) == ()
