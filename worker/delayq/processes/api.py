"""`delayq api`: serves the HTTP API of one queue."""

from __future__ import annotations

import asyncio
import logging
import resource
import socket
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, replace
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any

from delayq.api.access import OPEN, access_of
from delayq.api.app import Api
from delayq.api.calls import Served
from delayq.api.published import PublishedKinds
from delayq.api.server import MOST_CONNECTIONS, Server
from delayq.api.tls import Certificate
from delayq.client.aio import Client
from delayq.client.encoding import TaskEncoder
from delayq.client.taken_kinds import TakenKinds
from delayq.connection import AsyncConnection
from delayq.errors import InvalidDocument
from delayq.processes.runtime import STOP_SECONDS, Opened, counted, serve_queues
from delayq.protocol.alarm import Alarm
from delayq.service import metrics
from delayq.service.counters import ProcessCounters
from delayq.service.http_server import EVERYWHERE
from delayq.service.loop import Loop
from delayq.service.shutdown import run

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Sequence

    from delayq.api.calls import Check
    from delayq.processes.runtime import Setting
    from delayq.service.exposition import Family

log = logging.getLogger(__name__)

LOOK_SECONDS = 5.0
DRAIN_SECONDS = 30.0  # for requests that run when a signal comes


@dataclass(frozen=True, kw_only=True)
class Listen:
    """Where and how an API is served."""

    host: str
    port: int
    allowed_hosts: Sequence[str] = ()
    """Names in the header Host that are accepted besides those of this machine."""
    unauthenticated: bool = False
    """Take every request, whatever spec.api says: for `delayq run`."""
    any_free_port: bool = False
    """Use another port if this one is taken."""


def run_api(setting: Setting, listen: Listen, check: Check) -> None:
    """Serve the API of a queue until SIGTERM or SIGINT. `check`: see Served.

    Without spec.api, which says who may do what, it serves on loopback only: InvalidDocument otherwise.
    """
    # Python's logging HOWTO, "Optimization": no event shows its line of code; the search took a tenth of a request.
    logging._srcfile = None  # noqa: SLF001 -- documented there
    if listen.unauthenticated:
        spec = replace(setting.queue.spec, api=None)
        document = setting.document._replace(queue=replace(setting.queue, spec=spec))
        setting = replace(setting, document=document)

    @asynccontextmanager
    async def opened(setting: Setting) -> AsyncIterator[Opened]:
        client = Client.from_document(setting.queue, url=setting.address)
        spec = setting.queue.spec
        encoder = TaskEncoder(spec.limits, spec.delivery.deadline_ms)
        encoder.taken = TakenKinds.of(spec.handler)
        connection = AsyncConnection(setting.address)
        has_app = spec.handler.python is not None and spec.handler.python.app is not None
        published = PublishedKinds(spec.handler, client.commands, connection) if has_app else None
        served = Served(queue=setting.queue, client=client, encoder=encoder, check=check, published=published)
        access = None if spec.api is None else access_of(spec.api, setting.secrets_dir)
        # With tokens, no web page can send a request that counts, and callers know the API by any name.
        hosts = listen.allowed_hosts if access is None else None
        api = Api(served, access or OPEN, hosts=hosts)
        tls = spec.api.tls if spec.api else None
        certificate = Certificate(tls, setting.secrets_dir) if tls else None
        async with client, AsyncExitStack() as stack:
            stack.push_async_callback(connection.close)
            process = ApiProcess(api, _sockets(listen, only_loopback=access is None), certificate)

            def families() -> Iterable[Family]:
                yield from metrics.api_families(process.counters, api.requests)
                if access is not None:
                    yield metrics.missing_references({setting.queue.queue: access.missing})

            yield Opened(process, counted(families), DRAIN_SECONDS + STOP_SECONDS)

    run(serve_queues("api", [setting], opened))


class ApiProcess:
    """The API and what its probes check: whether Redis serves."""

    def __init__(
        self, api: Api, sockets: Sequence[socket.socket], certificate: Certificate | None = None
    ) -> None:
        """Serve nothing yet. `sockets` are bound. Without a certificate, they serve plain HTTP."""
        self.counters = ProcessCounters("api", api.served.queue.queue)
        self._api, self._sockets, self._certificate = api, sockets, certificate
        self.loops = [Loop(_Look(api.served.client), self.counters)]
        if api.served.published is not None:
            self.loops.append(Loop(api.served.published, self.counters))
        if certificate is not None:
            self.loops.append(Loop(_Renew(certificate), self.counters))

    async def run(self, stop: asyncio.Event, hurry: asyncio.Event) -> None:  # noqa: ARG002 -- as other processes
        """Serve until `stop`."""
        _limit_files()
        host, port = self._sockets[0].getsockname()[:2]
        tls = self._certificate.context if self._certificate else None
        url = f"{'http' if tls is None else 'https'}://{f'[{host}]' if ':' in host else host}:{port}"
        log.info("api_serving", extra={"fields": {"url": url, "host": host, "api_port": port}})
        looking = [asyncio.create_task(loop.run()) for loop in self.loops]
        try:
            await Server(self._api, self._sockets, tls).run(stop, DRAIN_SECONDS)
        finally:
            for loop in self.loops:
                loop.stop()
            for each in looking:
                each.cancel()
            await asyncio.gather(*looking, return_exceptions=True)


class _Look:
    """Reads the counts of the queue: a probe of Redis."""

    name, blocks = "api", False

    def __init__(self, client: Client) -> None:
        self.alarm, self._client = Alarm(), client

    async def step(self) -> float:
        """Read them."""
        await self._client.counts()
        return LOOK_SECONDS


class _Renew:
    """Reads a renewed certificate."""

    name, blocks = "certificate", False

    def __init__(self, certificate: Certificate) -> None:
        self.alarm, self._certificate = Alarm(), certificate

    async def step(self) -> float:
        """Look whether there is one."""
        self._certificate.refresh()
        return LOOK_SECONDS


def _sockets(listen: Listen, *, only_loopback: bool) -> list[socket.socket]:
    """Return bound sockets of all addresses of the host; InvalidDocument if there is none.

    `only_loopback`: refuse a host with an address that other machines reach, whatever its name is.
    """
    host = None if listen.host == EVERYWHERE else listen.host
    try:
        found = socket.getaddrinfo(host, listen.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        if only_loopback and not all(_is_loopback(address) for *_, address in found):
            raise InvalidDocument(
                f"spec.api: expected who may do what, to listen on {listen.host}: without it, everyone who reaches "
                "the address may do everything; add spec.api.access, or listen on 127.0.0.1"
            )
        return _bound(found)
    except OSError as error:
        if listen.any_free_port and listen.port:
            return _sockets(replace(listen, port=0), only_loopback=only_loopback)
        where = f"{listen.host}:{listen.port}"
        raise InvalidDocument(
            f"cannot listen on {where}: {error.strerror}; choose another --api-port"
        ) from error


def _is_loopback(address: Sequence[Any]) -> bool:
    return ip_address(str(address[0]).partition("%")[0]).is_loopback  # `fe80::1%eth0` has a zone


def _bound(found: Sequence[Any]) -> list[socket.socket]:
    made, port = list[socket.socket](), 0
    try:
        for family, kind, protocol, _, address in dict.fromkeys(found):
            each = socket.socket(family, kind, protocol)
            made.append(each)
            each.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                each.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            each.bind((address[0], address[1] or port, *address[2:]))
            each.listen(1024)
            port = each.getsockname()[1]
    except OSError:
        for each in made:
            each.close()
        raise
    return made


def _limit_files() -> None:
    """Allow as many open files as there may be connections, if the system does, and few more.

    A TLS handshake that waits is no connection of the server yet, and takes 60 KB: without descriptors, no more are
    accepted.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST_CONNECTIONS + 256
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(wanted, hard) if hard >= 0 else wanted, hard))
