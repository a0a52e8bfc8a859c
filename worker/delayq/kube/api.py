"""A small client of the Kubernetes API with the token of a pod: list, watch, write a status, post an event.

Not the operator's client: that one needs the library of Kubernetes, which takes more memory than a whole scanner.
"""

from __future__ import annotations

import json
import os
import ssl
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

import aiohttp

from delayq.kube.errors import NoCluster, Unavailable, answered
from delayq.kube.objects import path
from delayq.kube.watching import events

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping
    from pathlib import Path

    from delayq.kube.objects import Kind, Object
    from delayq.kube.watching import Event

APPLY: Final = "application/apply-patch+yaml"
PAGE: Final = 20  # objects of at most 1.5 MiB each: a page must fit into the memory of a scanner
TIMEOUT_SECONDS: Final = 10.0
FAILED: Final = 400  # and above


class PodApi:
    """The API server of the cluster that this pod runs in, with the rights of its ServiceAccount."""

    def __init__(self, server: str, directory: Path, session: aiohttp.ClientSession) -> None:
        """Use open(). The token is read for each request: the kubelet renews the file."""
        self._server, self._token, self._session = server, directory / "token", session
        self.namespace = (directory / "namespace").read_text(encoding="utf-8").strip()

    @classmethod
    def open(cls, directory: Path) -> PodApi:
        """Return a client, which sends nothing yet. NoCluster if this is no pod, or if it has no token."""
        host, port = os.environ.get("KUBERNETES_SERVICE_HOST"), os.environ.get("KUBERNETES_SERVICE_PORT")
        if not host or not port:
            raise NoCluster("expected KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT, as a pod has them")
        try:
            trust = ssl.create_default_context(cafile=str(directory / "ca.crt"))
            # Python 3.13 sets it, and the authorities of many clusters lack what it asks for.
            trust.verify_flags &= ~ssl.VERIFY_X509_STRICT
            session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(ssl=trust),
                headers={"User-Agent": "delayq-scanner"},
                cookie_jar=aiohttp.DummyCookieJar(),
                trust_env=False,
            )
            return cls(f"https://{f'[{host}]' if ':' in host else host}:{port}", directory, session)
        except OSError as error:
            raise NoCluster(f"the pod has no token of a ServiceAccount: {error}") from error

    async def close(self) -> None:
        """Close the connections."""
        await self._session.close()

    async def pages(self, kind: Kind, namespace: str | None) -> AsyncIterator[Object]:
        """List objects page by page; each page has items, and metadata.resourceVersion to watch from. Raises Gone."""
        query = {"limit": str(PAGE)}
        while query.get("continue") != "":
            page = await self._call("GET", path(kind, namespace), query=query)
            yield page
            query["continue"] = page["metadata"].get("continue", "")

    async def watch(
        self,
        kind: Kind,
        namespace: str | None,
        *,
        resource_version: str,
        timeout_seconds: int,
        silence_seconds: float,
    ) -> AsyncIterator[Event]:
        """Watch changes and bookmarks until the server ends the stream. Raises Unavailable if it stalls."""
        query = {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": resource_version,
            "timeoutSeconds": str(timeout_seconds),
        }
        patience = aiohttp.ClientTimeout(total=None, sock_connect=TIMEOUT_SECONDS, sock_read=silence_seconds)
        async with self._sent("GET", path(kind, namespace), query, timeout=patience) as response:
            async for event in events(response.content.iter_any()):
                yield event

    async def get(self, kind: Kind, namespace: str, name: str) -> Object:
        """Read one object; raises NotFound."""
        return await self._call("GET", path(kind, namespace, name))

    async def apply_status(self, kind: Kind, body: Object, *, manager: str) -> Object:
        """Replace what `manager` has written of the status by server-side apply; returns the object."""
        metadata = body["metadata"]
        where = path(kind, metadata["namespace"], metadata["name"], "status")
        query = {"fieldManager": manager, "force": "true"}
        return await self._call("PATCH", where, query=query, body=body, content_type=APPLY)

    async def create(self, kind: Kind, body: Object) -> None:
        """Create an object; raises Conflict if the name exists."""
        await self._call("POST", path(kind, body["metadata"]["namespace"]), body=body)

    async def _call(
        self,
        verb: str,
        where: str,
        *,
        query: Mapping[str, str] | None = None,
        body: Object | None = None,
        content_type: str = "application/json",
    ) -> Object:
        patience = aiohttp.ClientTimeout(total=TIMEOUT_SECONDS)
        data = None if body is None else json.dumps(body).encode()
        headers = {} if body is None else {"Content-Type": content_type}
        async with self._sent(
            verb, where, query or {}, timeout=patience, data=data, headers=headers
        ) as response:
            found: Object = json.loads(await response.read())
            return found

    @asynccontextmanager
    async def _sent(
        self,
        verb: str,
        where: str,
        query: Mapping[str, str],
        *,
        headers: Mapping[str, str] | None = None,
        **options: Any,  # noqa: ANN401 -- aiohttp's
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Send a request; errors of the connection and of the server are KubernetesErrors."""
        try:
            token = self._token.read_text(encoding="utf-8").strip()
            given = {"Authorization": f"Bearer {token}", "Accept": "application/json", **(headers or {})}
            async with self._session.request(
                verb, self._server + where, params=query, headers=given, **options
            ) as response:
                if response.status >= FAILED:
                    raise answered(response.status, response.reason or "", await response.read())
                yield response
        except (TimeoutError, aiohttp.ClientError, OSError, json.JSONDecodeError, RecursionError) as error:
            raise Unavailable(str(error) or type(error).__name__) from error
