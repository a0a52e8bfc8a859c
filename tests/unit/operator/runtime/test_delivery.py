"""kopf in its thread: it ends at the first odd answer, and begins anew without a trace of the one before."""

from __future__ import annotations

import asyncio
import threading
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final

import kopf
import pytest
from delayq.kube.errors import Denied
from delayq_operator import handlers
from delayq_operator.base import metrics, names
from delayq_operator.kube import kopf_engine
from delayq_operator.runtime import delivery
from delayq_operator.runtime.delivery import Delivery
from prometheus_client import REGISTRY

from tests.unit.operator.kopf_api import ApiServer, error, event, eventually, listed, serving

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from delayq.kube.objects import Kind

QUEUE: Final = names.DELAY_QUEUE
PATH: Final = f"/apis/{QUEUE.api_version}/namespaces/{{}}/{QUEUE.plural}"


class Lists:
    """Lists that work, of kinds that a test chooses."""

    def __init__(self) -> None:
        self.watchable: frozenset[Kind] = frozenset({QUEUE})
        self.works = True
        self.steps = 0

    async def step(self) -> bool:
        self.steps += 1
        return self.works


class Stage:
    """A Delivery on an API server of scripted answers."""

    def __init__(self, api: ApiServer, lists: Lists, running: Delivery) -> None:
        self.api, self.lists, self.delivery = api, lists, running
        self.taken: list[str] = []
        self.threads: set[str] = set()
        self.known = True
        self.task = asyncio.create_task(asyncio.sleep(0))

    def take(self, _kind: Kind, event: Any) -> None:  # noqa: ANN401 -- kopf's
        self.threads.add(threading.current_thread().name)
        self.taken.append(f"{event['type']} {event['object']['metadata']['name']}")

    def has(self, kind: Kind, body: Any) -> bool:  # noqa: ANN401 -- of an object in a list
        assert body["metadata"].keys() == set(kopf_engine.IDENTITY)
        assert not body.keys() - {"metadata", "kind", "apiVersion"}, "whole objects of lists fill the memory"
        self.take(kind, {"type": None, "object": body})
        return self.known

    @property
    def open(self) -> list[str]:
        """The namespaces of the watches that are open now."""
        return sorted(path.split("/")[5] for path in self.api.open)

    async def until(self, true: Any) -> None:  # noqa: ANN401 -- a callable
        async with asyncio.timeout(20):
            await eventually(lambda: self.task.done() or true())
        if self.task.done():
            self.task.result()


@asynccontextmanager
async def delivering(
    monkeypatch: pytest.MonkeyPatch, *namespaces: str, list_seconds: float = 60
) -> AsyncIterator[Stage]:
    monkeypatch.setattr(delivery, "LONGEST_PAUSE_SECONDS", 0.01)
    monkeypatch.setattr(kopf_engine, "BACKOFFS", (0.01,))
    monkeypatch.setattr(kopf_engine.Pace, "keep", lambda _: asyncio.sleep(0))
    api, lists = ApiServer(QUEUE.plural, group=QUEUE.group, version=QUEUE.version), Lists()
    async with serving(api) as server:
        login = kopf.ConnectionInfo(server=server.url)
        monkeypatch.setattr(kopf, "login_with_kubeconfig", lambda **_: login)
        fake: Any = lists
        inventory: Any = SimpleNamespace()
        running = Delivery(
            fake,
            inventory,
            namespaces=namespaces,
            list_seconds=list_seconds,
            silence_seconds=30,
        )
        stage = Stage(api, lists, running)
        inventory.take, inventory.has = stage.take, stage.has
        try:
            yield stage
        finally:
            stage.task.cancel()
            await asyncio.gather(stage.task, return_exceptions=True)
            async with asyncio.timeout(20):
                await eventually(lambda: stage.open == [])


async def test_a_kopf_that_ended_leaves_no_watch_and_nothing_else_is_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else each error in one namespace would add a watch of every other one, for as long as the process lives."""
    async with delivering(monkeypatch, "good", "bad") as stage:
        bad = stage.api.answers[PATH.format("bad")]
        bad.lists = [listed(5), listed(6), listed(7, "a")]
        bad.watches = [[error(500)], [error(500)], [event("DELETED", "a", 8)], None]
        stage.task = asyncio.create_task(stage.delivery.run())
        await stage.until(lambda: "DELETED a" in stage.taken and stage.open == ["bad", "good"])
        assert stage.taken == ["None a", "DELETED a"]
        assert stage.threads == {threading.main_thread().name}
        assert stage.lists.steps >= 3, "before each begin, all is listed"
        assert stage.delivery.kopf_seconds < 5


async def test_a_missing_right_to_watch_ends_the_operator(monkeypatch: pytest.MonkeyPatch) -> None:
    async with delivering(monkeypatch) as stage:
        answers = stage.api.answers[f"/apis/{QUEUE.api_version}/{QUEUE.plural}"]
        answers.lists = [403] * 9
        with pytest.raises(Denied, match="scripted"):
            await asyncio.wait_for(stage.delivery.run(), 20)


async def test_a_metric_tells_that_no_watch_is_answered_while_lists_work(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Otherwise it would be missed: lists find every change, up to a minute late."""

    def age() -> float:
        return REGISTRY.get_sample_value("delayq_operator_watch_answer_age_seconds") or 0.0

    async with delivering(monkeypatch, "shop", list_seconds=0.05) as stage:
        metrics.WATCH_ANSWER_AGE.set(0)  # another test of this process may have left an age
        stage.api.silent = 1_000_000
        stage.task = asyncio.create_task(stage.delivery.run())
        await stage.until(lambda: age() > 0.5)
        stage.api.silent = 0
        await stage.until(lambda: age() < 0.5 and stage.open == ["shop"])


async def test_kopf_begins_anew_when_kinds_come_or_go(monkeypatch: pytest.MonkeyPatch) -> None:
    async with delivering(monkeypatch, "shop", list_seconds=0.05) as stage:
        stage.api.plurals.append("delayschedules")
        stage.task = asyncio.create_task(stage.delivery.run())
        await stage.until(lambda: stage.open == ["shop"])
        stage.lists.watchable |= {names.DELAY_SCHEDULE}
        await stage.until(lambda: stage.open == ["shop", "shop"])
        stage.lists.watchable -= {names.DELAY_SCHEDULE}
        await stage.until(lambda: stage.open == ["shop"])


async def test_after_a_410_everything_is_listed_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """kopf lists again, and reports no deletion."""
    monkeypatch.setattr(delivery, "RELISTED_SECONDS", 0.01)
    async with delivering(monkeypatch, "shop") as stage:
        answers = stage.api.answers[PATH.format("shop")]
        answers.lists, answers.watches = [listed(5), listed(9, "b")], [[error(410)], None]
        stage.task = asyncio.create_task(stage.delivery.run())
        await stage.until(lambda: "None b" in stage.taken and stage.lists.steps >= 2)


@pytest.mark.parametrize("known", [True, False])
async def test_what_kopf_has_listed_is_listed_by_us_at_once_if_it_is_not_known(
    monkeypatch: pytest.MonkeyPatch,
    known: bool,  # noqa: FBT001
) -> None:
    """Of an object in its list, kopf tells the version only."""
    monkeypatch.setattr(delivery, "RELISTED_SECONDS" if known else "MISSED_SECONDS", 0.01)
    async with delivering(monkeypatch, "shop") as stage:
        stage.known = known
        page = listed(5, "a")
        page["items"][0]["spec"] = {"text": "large"}
        stage.api.answers[PATH.format("shop")].lists = [page]
        stage.task = asyncio.create_task(stage.delivery.run())
        await stage.until(lambda: stage.taken == ["None a"] and stage.lists.steps == 2)


@pytest.mark.parametrize(
    ("host", "server"), [("10.0.0.1", "https://10.0.0.1:6443"), ("fd00::1", "https://[fd00::1]:6443")]
)
async def test_a_pod_asks_the_api_server_by_its_address(
    monkeypatch: pytest.MonkeyPatch, host: str, server: str
) -> None:
    """As the operator's own requests do: the DNS of the cluster may be away, or run on what it starts."""
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", host)
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "6443")
    found = kopf.ConnectionInfo(server="https://kubernetes.default.svc", token="t")  # noqa: S106
    monkeypatch.setattr(kopf, "login_with_service_account", lambda **_: found)
    session = await handlers.login(handlers.Memo(lambda *_: None, lambda: None))
    assert session is not None
    assert session.server == server
    await session.aiohttp_session.close()


async def test_kopf_does_not_begin_before_everything_was_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivery, "RETRY_SECONDS", 0.01)
    async with delivering(monkeypatch, "shop") as stage:
        stage.lists.works = False
        stage.task = asyncio.create_task(stage.delivery.run())
        await stage.until(lambda: stage.lists.steps > 2)
        assert not stage.delivery.synced.is_set()
        assert stage.api.requests == []
        stage.lists.works = True
        await stage.until(lambda: stage.open == ["shop"])
        assert stage.delivery.synced.is_set()
