"""kopf ends at the first odd answer, and is started again without a trace of the run before.

Decision 0049 rests on two gaps of the installed kopf. The tests that name them fail when a new kopf closes them.
"""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import kopf
from aiohttp import web
from delayq_operator import handlers
from delayq_operator.base import names
from delayq_operator.kube import kopf_engine

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Collection

    import pytest
    from delayq_operator.base.names import Key

QUEUE = names.DELAY_QUEUE


class ApiServer:
    """Serves DelayQueues: lists and watches as scripted for each namespace, and then none that ends."""

    def __init__(self) -> None:
        self.lists: dict[str, list[dict[str, Any]]] = defaultdict(list)
        self.watches: dict[str, list[list[dict[str, Any]]]] = defaultdict(list)
        self.asked: list[str] = []
        self.story: list[str] = []
        """What the handler told of DelayQueues."""

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        version = {"version": QUEUE.version, "groupVersion": QUEUE.api_version}
        kind = {
            "name": QUEUE.plural,
            "kind": QUEUE.kind,
            "namespaced": True,
            "singularName": "",
            "verbs": ["list", "watch", "patch"],
        }
        found: dict[str, dict[str, Any]] = {
            "/api": {"versions": ["v1"]},
            "/api/v1": {
                "resources": [{**kind, "name": "namespaces", "kind": "Namespace", "namespaced": False}]
            },
            "/apis": {"groups": [{"name": QUEUE.group, "preferredVersion": version, "versions": [version]}]},
            f"/apis/{QUEUE.api_version}": {"resources": [kind]},
        }
        if request.path in found:
            return web.json_response(found[request.path])
        namespace = request.path.split("/")[-2]
        if "watch" not in request.query:
            self.asked.append("list")
            return web.json_response(self.lists[namespace].pop(0) if self.lists[namespace] else listed(1))
        self.asked.append(f"watch from {request.query['resourceVersion']}")
        response = web.StreamResponse()
        await response.prepare(request)
        if not self.watches[namespace]:
            await asyncio.Event().wait()
        for event in self.watches[namespace].pop(0):
            await response.write(json.dumps(event).encode() + b"\n")
        return response

    # In the place of Queues and of WatchVerifier.
    def seen(self, body: dict[str, Any]) -> None:
        self.story.append(body["metadata"]["name"])

    def gone(self, key: Key, _uid: str) -> None:
        self.story.append(f"{key.name} is gone")

    def brought(self, *_: object, **__: object) -> None:
        """Take it."""


def body(name: str) -> dict[str, Any]:
    metadata = {"namespace": "shop", "name": name, "uid": f"uid-{name}", "resourceVersion": "5"}
    return {"apiVersion": QUEUE.api_version, "kind": QUEUE.kind, "metadata": metadata}


def listed(version: int, *found: str) -> dict[str, Any]:
    return {
        "items": [body(name) for name in found],
        "metadata": {"resourceVersion": str(version), "continue": ""},
    }


def error(code: int) -> dict[str, Any]:
    return {"type": "ERROR", "object": {"kind": "Status", "code": code, "message": "scripted"}}


def watches_running() -> int:
    return sum(task.get_name().startswith("watcher for ") for task in asyncio.all_tasks())


async def eventually(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not true():  # noqa: ASYNC110 -- kopf sets no event
            await asyncio.sleep(0.005)


@asynccontextmanager
async def kopf_running(
    api: ApiServer, monkeypatch: pytest.MonkeyPatch, *namespaces: str
) -> AsyncIterator[None]:
    """The operator's kopf, on this API server, which is quick to start again."""
    monkeypatch.setattr(kopf_engine, "BEGIN_ANEW_SECONDS", 0.01)
    monkeypatch.setattr(kopf_engine.Pace, "keep", lambda _: asyncio.sleep(0))
    runner = web.ServerRunner(web.Server(api.handle), shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    login = kopf.ConnectionInfo(server=f"http://127.0.0.1:{runner.addresses[0][1]}")
    monkeypatch.setattr(kopf, "login_with_kubeconfig", lambda **_: login)
    memo: Any = handlers.Memo(queues=api, watch_verifier=api)  # type: ignore[arg-type]
    task = asyncio.create_task(kopf_engine.run(memo, namespaces, started=lambda: None))
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await runner.cleanup()


async def test_a_list_after_410_does_not_tell_what_was_deleted_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """First gap: for this the watch verifier lists DelayQueues itself."""
    api = ApiServer()
    api.lists["shop"] = [listed(7, "a", "b"), listed(9, "b")]
    api.watches["shop"] = [[error(410)], [{"type": "ADDED", "object": body("last")}]]
    async with kopf_running(api, monkeypatch, "shop"):
        await eventually(lambda: "last" in api.story)
    assert api.asked[:4] == ["list", "watch from 7", "list", "watch from 9"]
    assert sorted(api.story) == ["a", "b", "b", "last"]


async def test_an_error_in_one_namespace_ends_kopf_and_the_watches_that_it_leaves_running_are_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Second gap. Without the second step each error in one namespace would add a watch of every other one."""
    left: list[int] = []
    cancel = kopf_engine._cancelled

    async def cancelled(tasks: Collection[asyncio.Task[None]]) -> list[BaseException | None]:
        found = await cancel(tasks)
        left.append(watches_running())
        return found

    monkeypatch.setattr(kopf_engine, "_cancelled", cancelled)
    api = ApiServer()
    api.lists["bad"], api.watches["bad"] = [listed(5), listed(6), listed(7)], [[error(500)]] * 2
    async with kopf_running(api, monkeypatch, "bad", "good"):
        await eventually(lambda: "watch from 7" in api.asked)
        assert left == [1, 0] * 2, "after kopf's own tasks were cancelled, and after the leftovers were"
        assert watches_running() == 2
    assert watches_running() == 0
