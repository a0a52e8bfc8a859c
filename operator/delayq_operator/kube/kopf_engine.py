"""Runs kopf: its settings, and a thread with an event loop of its own.

When kopf ends by an error, it leaves watches running. Here they end with their event loop, and all else of the process,
with what it has learnt, goes on. Not here: event handlers (handlers.py); when kopf begins anew (runtime/delivery.py).
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, cast

import aiohttp
import kopf
from aiohttp import client_reqrep

from delayq_operator.base import names
from delayq_operator.kube.page import PAGE, Page

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Collection, Mapping

    from aiohttp.connector import Connection

BACKOFFS: Final = (0.5, 1.0, *(2.0,) * 9)
"""Seconds between attempts after an answer of 403, 429 or 5xx: for 20 s, in which an API server that just started reads
its own roles. Where it gets no answer, kopf tries again without end. A watch that is silent for longer than
`silence_seconds` begins again with the first of these: that must be longer than all of them."""
WATCH_SECONDS: Final = 300
"""RBAC is checked only at the start of a watch: this limits how long a revocation is not noticed."""
BEAT_SECONDS: Final = 1.0
FORBIDDEN: Final = 403
IDENTITY: Final = ("name", "namespace", "uid", "resourceVersion")


class Pace:
    """Limit to one a second: otherwise kopf would send requests without a pause while the API server replies 401."""

    def __init__(self) -> None:
        self._next = 0.0

    async def keep(self) -> None:
        """Wait until the next attempt is due."""
        now = asyncio.get_running_loop().time()
        pause, self._next = max(0.0, self._next - now), max(now, self._next) + 1.0
        await asyncio.sleep(pause)


class Nothing(kopf.DiffBaseStorage):
    """No last-handled configuration: no handler compares, and kopf would copy each object to keep it."""

    def build(self, **_: Any) -> kopf.BodyEssence:  # noqa: ANN401 -- kopf's
        return cast("kopf.BodyEssence", {})

    def fetch(self, **_: Any) -> kopf.BodyEssence | None:  # noqa: ANN401 -- kopf's
        return None

    def store(self, **_: Any) -> None:  # noqa: ANN401 -- kopf's
        """Store nothing."""


def session(info: kopf.ConnectionInfo, answered: Callable[[], None]) -> kopf.AiohttpSession:
    """Return a session in which kopf's lists tell the version of each object only: our own lists tell the rest.

    kopf lists all kinds at a time, and keeps whole pages as Python objects. Here, one page at a time is in memory.
    `answered` is called for each watch that the API server accepts.
    """
    one_at_a_time, trust = asyncio.Lock(), info.as_ssl_context()
    # Python 3.13 sets it, and the authorities of many clusters lack what it asks for.
    trust.verify_flags &= ~ssl.VERIFY_X509_STRICT

    class Response(aiohttp.ClientResponse):
        async def start(self, connection: Connection) -> aiohttp.ClientResponse:
            await super().start(connection)
            self.content = cast("aiohttp.StreamReader", _Watched(self.content))
            if "watch" in self.url.query and self.ok:
                answered()
            return self

        async def json(self, **options: Any) -> Any:  # noqa: ANN401 -- as aiohttp's
            if "limit" not in self.url.query or not self.ok:
                return await super().json(**options)
            async with one_at_a_time:
                page = Page(await self.content.read())
                items = [
                    {"metadata": {field: body["metadata"][field] for field in IDENTITY}}
                    for body in page.objects()
                ]
            return page.head | {"items": items}

    return kopf.AiohttpSession(
        aiohttp_session=aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, ssl=trust),
            headers=info.as_http_headers(),
            proxy=info.proxy_url,
            trust_env=info.trust_env,
            response_class=Response,
        ),
        server=info.server,
        default_namespace=info.default_namespace,
    )


class _Watched:
    """A stream that ends by an error that kopf expects if its session is closed between two reads, as by a login.

    aiohttp raises RuntimeError then, which ends kopf.
    """

    def __init__(self, stream: aiohttp.StreamReader) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 -- of the stream
        return getattr(self._stream, name)

    async def iter_chunked(self, size: int) -> AsyncIterator[bytes]:
        try:
            async for chunk in self._stream.iter_chunked(size):
                yield chunk
        except RuntimeError as error:
            raise aiohttp.ClientConnectionError(str(error)) from error


async def configure(settings: kopf.OperatorSettings, **_: Any) -> None:  # noqa: ANN401 -- kopf's
    """Configure kopf: no state on objects or shared with other operators, and no permissions but those of watches."""
    # A peering object named "default" could suspend kopf; the Lease elects the leader.
    settings.peering.standalone = True
    settings.scanning.disabled = True  # otherwise it would watch CRDs and namespaces
    # Never set, as no handler needs one. It must differ from ours: kopf removes a finalizer that it does not need.
    settings.persistence.finalizer = f"{names.OPERATOR}/kopf"
    settings.persistence.progress_storage = kopf.AnnotationsProgressStorage(prefix=names.OPERATOR)
    settings.persistence.diffbase_storage = Nothing()
    settings.posting.enabled = False  # events.py posts
    settings.networking.error_backoffs = BACKOFFS
    settings.networking.connect_timeout = 5
    settings.networking.request_timeout = 120  # lists wait for one another
    settings.watching.reconnect_backoff = 0.1
    settings.watching.server_timeout = WATCH_SECONDS
    settings.watching.chunk_size = PAGE
    settings.queueing.idle_timeout = 0.1  # how long the last event of an object is kept in memory
    settings.queueing.exit_timeout = 0.5
    # Otherwise kopf sends SIGKILL after each restart.
    settings.process.ultimate_exiting_timeout = None
    logging.getLogger("kopf.objects").setLevel(logging.WARNING)  # "handler succeeded", for each event


async def run(
    registry: kopf.OperatorRegistry,
    memo: object,
    *,
    namespaces: Collection[str],
    selectors: Mapping[tuple[str, str, str], str],
    silence_seconds: float,
    beat: Callable[[], None],
) -> None:
    """Run kopf until cancelled; raises what ended it. Calls `beat` in its thread while its event loop keeps time."""
    logging.getLogger("kopf._core.reactor.running").setLevel(logging.ERROR)  # it warns that it is in a thread
    settings = kopf.OperatorSettings()
    settings.watching.inactivity_timeout = silence_seconds
    for resource, selector in selectors.items():
        settings.watching.label_selectors[resource] = selector
    stop = asyncio.Event()
    loops: list[asyncio.AbstractEventLoop] = []

    async def inside() -> None:
        loops.append(asyncio.get_running_loop())
        # Set, because kopf would look up the user name, and the user of a container may have none.
        tasks = await kopf.spawn_tasks(
            identity=cast("Any", names.OPERATOR),
            registry=registry,
            settings=settings,
            memo=memo,
            standalone=True,
            clusterwide=not namespaces,
            namespaces=namespaces,
            stop_flag=stop,
        )
        done: set[asyncio.Task[None]] = set()
        try:
            while not done:
                beat()
                _drop_frames()
                done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED, timeout=BEAT_SECONDS)
            for task in done:
                task.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)  # closes its connections
            await _end_others()
            _drop_frames()

    try:
        await asyncio.to_thread(lambda: asyncio.run(inside()))
    finally:
        if not loops:  # it has not begun
            stop.set()
        for loop in loops:
            with suppress(RuntimeError):  # it is over
                loop.call_soon_threadsafe(stop.set)


def _drop_frames() -> None:
    """Let go of the frames of responses that were closed while they were read.

    aiohttp raises one exception object for all of them, whose traceback would keep every frame for ever.
    """
    shared = getattr(client_reqrep, "_CONNECTION_CLOSED_EXCEPTION", None)  # there is no public way
    if shared is not None:
        shared.__traceback__ = None


async def _end_others() -> None:
    """End what kopf leaves running in its event loop, one by one.

    A watch that is cancelled at the same time as a task that it waits for would go on.
    """
    while others := asyncio.all_tasks() - {asyncio.current_task()}:
        for task in others:
            task.cancel()
            await asyncio.wait({task}, timeout=BEAT_SECONDS)


def forbidden(error: BaseException) -> bool:
    """Whether kopf ended because it lacks a right."""
    return getattr(error, "status", None) == FORBIDDEN
