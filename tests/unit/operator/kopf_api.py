"""An API server of scripted answers for the installed kopf: what kopf asks, and what it tells its handlers."""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import kopf
from aiohttp import web

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine

GROUP, VERSION = "kopf.dev", "v1"  # of kopf's own peerings, too
LAST = "last"
"""The object that ends a story."""


@dataclass
class Answers:
    """What the lists and watches of one path are answered, in this order; then none is answered any more."""

    lists: list[dict[str, Any] | int] = field(default_factory=list)
    watches: list[list[dict[str, Any]] | None] = field(default_factory=list)
    """The events of a stream that the server then closes; None for a stream that stays open and silent."""


class ApiServer:
    """Answers as scripted, and notes what was asked."""

    def __init__(self, *plurals: str, group: str = GROUP, version: str = VERSION) -> None:
        """Serve these kinds, each without an object."""
        self.plurals = list(plurals)
        self.group, self.version = group, version
        self.answers: dict[str, Answers] = defaultdict(Answers)
        self.asked: list[str] = []
        self.requests: list[web.BaseRequest] = []
        self.patches: list[tuple[str, Any]] = []
        self.over = asyncio.Event()
        self.silent = 0
        """So many watches get no answer: their connection is closed."""
        self.open: list[str] = []
        """Paths of the silent watches that are open now."""

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer a request of kopf's."""
        self.requests.append(request)
        if request.method == "PATCH":
            self.patches.append((request.path, await request.json()))
            return web.json_response(body("a", 1))
        if found := self._discovery(request.path):
            return web.json_response(found)
        answers = self.answers[request.path]
        if "watch" in request.query and self.silent:
            self.silent -= 1
            assert request.transport is not None
            request.transport.close()
            return web.Response()
        if "watch" in request.query:
            self.asked.append(f"watch from {request.query['resourceVersion']}")
            return await self._watch(request, answers)
        self.asked.append("list")
        page = answers.lists.pop(0) if answers.lists else listed(1)
        if isinstance(page, int):
            return web.json_response({"kind": "Status", "code": page, "message": "scripted"}, status=page)
        return web.json_response(page)

    async def _watch(self, request: web.BaseRequest, answers: Answers) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        events = answers.watches.pop(0) if answers.watches else None
        for event in events or ():
            await response.write(json.dumps(event).encode() + b"\n")
        if events is None:
            self.open.append(request.path)
            await eventually(lambda: self.over.is_set() or request.transport is None)
            self.open.remove(request.path)
        return response

    def _discovery(self, path: str) -> dict[str, Any] | None:
        version = {"version": self.version, "groupVersion": f"{self.group}/{self.version}"}
        kinds = [
            {**NAMED, "name": name, "kind": name.title(), "namespaced": not name.startswith("cluster")}
            for name in self.plurals
        ]
        group = {"name": self.group, "preferredVersion": version, "versions": [version]}
        found: dict[str, dict[str, Any]] = {
            "/api": {"versions": ["v1"]},
            "/api/v1": {"resources": [{**NAMED, "name": "namespaces", "kind": "Namespace"}]},
            "/apis": {"groups": [group]},
            f"/apis/{self.group}/{self.version}": {"resources": kinds},
        }
        return found.get(path)


NAMED = {"singularName": "", "namespaced": False, "verbs": ["get", "list", "watch", "patch"]}


@dataclass
class Operator:
    """A kopf of its own that asks a scripted API server."""

    api: ApiServer
    registry: kopf.OperatorRegistry
    settings: kopf.OperatorSettings
    story: list[str] = field(default_factory=list)
    """Type and name of the object of `on.event`."""
    told_last: asyncio.Event = field(default_factory=asyncio.Event)
    ready: asyncio.Event = field(default_factory=asyncio.Event)
    url: str = ""
    left_running: int = 0
    """Watches that kopf did not end with itself."""

    def follow(self, plural: str) -> None:
        """Have `on.event` tell of a kind."""

        @kopf.on.event(GROUP, VERSION, plural, registry=self.registry)
        async def tell(event: kopf.RawEvent, name: str, **_: Any) -> None:  # noqa: ANN401 -- kopf's
            self.story.append(f"{event['type']} {name}")
            if name == LAST:
                self.told_last.set()

    async def run(self, *namespaces: str) -> None:
        """Run until kopf ends; raises what ended it."""
        tasks = await kopf.spawn_tasks(
            identity="test",  # type: ignore[arg-type]  # kopf's own type of str
            registry=self.registry,
            settings=self.settings,
            clusterwide=not namespaces,
            namespaces=namespaces,
            ready_flag=self.ready,
        )
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            self.api.over.set()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            left = watches_running()
            self.left_running = len(left)
            for task in left:
                task.cancel()
            await asyncio.gather(*left, return_exceptions=True)

    async def until(self, happened: Coroutine[Any, Any, Any]) -> None:
        """Run until something has happened."""
        running, awaited = asyncio.create_task(self.run()), asyncio.create_task(happened)
        try:
            async with asyncio.timeout(20):
                await asyncio.wait({running, awaited}, return_when=asyncio.FIRST_COMPLETED)
                assert awaited.done(), "kopf ended"
        finally:
            awaited.cancel()
            running.cancel()
            await asyncio.gather(running, awaited, return_exceptions=True)

    async def tell_all(self) -> list[str]:
        """Run until kopf has reported the last object; return its reports."""
        await self.until(self.told_last.wait())
        return self.story


@asynccontextmanager
async def serving(api: ApiServer) -> AsyncIterator[Operator]:
    """Serve on loopback, for a kopf that is set up as the operator's."""
    server = web.Server(api.handle)
    runner = web.ServerRunner(server, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    registry, settings = kopf.OperatorRegistry(), kopf.OperatorSettings()
    settings.peering.standalone = settings.scanning.disabled = True
    settings.posting.enabled = False
    settings.watching.reconnect_backoff = 0.01
    settings.networking.error_backoffs = (0.01,)
    settings.queueing.idle_timeout = settings.queueing.exit_timeout = 0.1
    settings.process.ultimate_exiting_timeout = None

    @kopf.on.login(registry=registry)
    def login(**_: Any) -> kopf.ConnectionInfo:  # noqa: ANN401 -- kopf's
        return kopf.ConnectionInfo(server=f"http://127.0.0.1:{port}")

    try:
        yield Operator(api, registry, settings, url=f"http://127.0.0.1:{port}")
    finally:
        api.over.set()
        await runner.cleanup()


def path(plural: str, namespace: str | None = None) -> str:
    where = f"namespaces/{namespace}/" if namespace else ""
    return f"/apis/{GROUP}/{VERSION}/{where}{plural}"


def body(name: str, version: int) -> dict[str, Any]:
    metadata = {"namespace": "shop", "name": name, "uid": f"uid-{name}", "resourceVersion": str(version)}
    return {"apiVersion": f"{GROUP}/{VERSION}", "kind": "Things", "metadata": metadata}


def listed(version: int, *names: str, further: str = "") -> dict[str, Any]:
    """Return a list, or a page of one."""
    items = [body(name, version) for name in names]
    return {"items": items, "metadata": {"resourceVersion": str(version), "continue": further}}


def event(what: str, name: str, version: int) -> dict[str, Any]:
    return {"type": what, "object": body(name, version)}


def error(code: int) -> dict[str, Any]:
    """Return the line that ends a watch."""
    return {"type": "ERROR", "object": {"kind": "Status", "code": code, "message": "scripted"}}


def watches_running() -> list[asyncio.Task[Any]]:
    return [task for task in asyncio.all_tasks() if task.get_name().startswith("watcher for ")]


async def eventually(true: Callable[[], bool]) -> None:
    while not true():  # noqa: ASYNC110 -- kopf sets no event
        await asyncio.sleep(0.005)
