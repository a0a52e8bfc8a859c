"""The ASGI application: finds the route, parses the request, and answers with JSON.

Not here: the bound on the time for request line and headers, which server.py has.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections import Counter
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from starlette.exceptions import HTTPException
from starlette.routing import Route as PathRoute
from starlette.routing import Router

from delayq.api import openapi, problems
from delayq.api.access import Denied
from delayq.api.calls import Answer, Call
from delayq.api.models import dumps, parse, parse_query
from delayq.api.problems import ApiError
from delayq.api.routes import BATCH, PREFIX, ROUTES
from delayq.client.encoding import new_id
from delayq.contract.json_text import MOST_LEVELS, is_deeper, strict_json

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from starlette.types import Message, Receive, Scope, Send

    from delayq.api.access import Access
    from delayq.api.calls import Route, Served

log = logging.getLogger(__name__)

BODY_SECONDS: Final = 30.0
BATCH_BYTES: Final = 8 << 20
LEAST_BYTES: Final = 2 << 20  # 5,000 IDs fit
DISCARD_SECONDS: Final = 2.0
DISCARD_BYTES: Final = 16 << 20
BATCHES: Final = 2
"""That are read, checked and stored at a time: each needs memory for its text and its tasks."""
HEAD_BYTES: Final = 16 << 10
LOCAL: Final = ("localhost", "127.0.0.1", "[::1]")
SAFE: Final = ("GET", "HEAD")
_REQUEST_ID: Final = re.compile(r"[A-Za-z0-9_.-]{1,64}")


class Api:
    """The API of one queue."""

    def __init__(self, served: Served, access: Access, *, hosts: Sequence[str] | None) -> None:
        """`hosts`: names in the header Host that are accepted besides those of this machine; None: any."""
        self.served, self.access = served, access
        self.requests = Counter[tuple[str, int]]()  # by operation and status
        self.stopping = False
        self._hosts = None if hosts is None else {*LOCAL, *(each.lower() for each in hosts)}
        self._batches = 0
        by_path: dict[str, dict[str, Route]] = {}
        for route in ROUTES:
            by_path.setdefault(route.path, {})[route.method] = route
        self._router = Router(
            [
                PathRoute(f"{PREFIX}/openapi.json", _Document(openapi.document()), methods=["GET"]),
                *(
                    PathRoute(_starlette(path), _Endpoint(self, routes), methods=[*routes])
                    for path, routes in by_path.items()
                ),
            ],
            redirect_slashes=False,
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        request = _Request(scope, receive, send, closing=self.stopping)
        scope["app"], scope["delayq"] = self, request
        try:
            self._check(request)
            await self._router(scope, receive, send)
        except Exception as error:  # noqa: BLE001 -- each request has an answer
            await request.fail(error)
        self.requests[request.operation, request.status] += 1

    def _check(self, request: _Request) -> None:
        """Refuse what a web page of another site makes a browser send, and too large heads."""
        headers = request.headers
        if sum(len(name) + len(value) for name, value in headers.items()) > HEAD_BYTES:
            raise ApiError("header-too-large", f"expected at most {HEAD_BYTES:,} bytes of headers, got more")
        host = headers.get("host", "").lower()
        if self._hosts is None:
            return
        if _name(host) not in self._hosts:
            detail = f"Host: expected {', '.join(sorted(self._hosts))}; --allow-host adds a name"
            raise ApiError("misdirected", detail)
        if request.method in SAFE:
            return
        site, origin = headers.get("sec-fetch-site", "none"), headers.get("origin")
        if site not in ("same-origin", "none") or (
            origin is not None and urlsplit(origin).netloc.lower() != host
        ):
            raise ApiError("cross-site", "a web page of another origin may not change the queue")

    @contextmanager
    def batch(self, route: Route) -> Iterator[None]:
        """Bound how many batches are in memory."""
        if route.name != BATCH:
            yield
            return
        if self._batches >= BATCHES:
            raise ApiError("busy", f"{BATCHES} batches are in memory already: send it again later")
        self._batches += 1
        try:
            yield
        finally:
            self._batches -= 1

    def most_bytes(self, route: Route) -> int:
        """Return the largest body of a route."""
        limits = self.served.queue.spec.limits
        return BATCH_BYTES if route.name == BATCH else max(LEAST_BYTES, 2 * limits.max_payload_bytes)


def _starlette(path: str) -> str:
    """Return the path for Starlette; an ID may have slashes, which servers decode."""
    return PREFIX + path.replace("{id}", "{id:path}")


def _name(host: str) -> str:
    """Return the header Host without its port."""
    return re.sub(r":[0-9]+$", "", host)


class _Request:
    """What was received, and whether an answer was sent."""

    def __init__(self, scope: Scope, receive: Receive, send: Send, *, closing: bool) -> None:
        self.scope, self.method = scope, scope["method"]
        self.headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        given = self.headers.get("x-request-id", "")
        self.id = given if _REQUEST_ID.fullmatch(given) else new_id()
        self.operation, self.status = "none", 0
        self._receive, self._send, self._closing = receive, send, closing
        self._unread = "content-length" in self.headers or "transfer-encoding" in self.headers

    async def read(self, most: int) -> bytes:
        """Return the body; ApiError if it is too large or does not arrive in time."""
        length = self.headers.get("content-length", "")
        if length.isdecimal() and (len(length) > 15 or int(length) > most):  # noqa: PLR2004 -- a petabyte
            raise _too_large(most)
        chunks, size = list[bytes](), 0
        try:
            async with asyncio.timeout(BODY_SECONDS):
                while True:
                    message = await self._receive()
                    if message["type"] == "http.disconnect":
                        raise _Gone
                    chunks.append(message.get("body", b""))
                    size += len(chunks[-1])
                    if size > most:
                        raise _too_large(most)
                    if not message.get("more_body", False):
                        break
        except TimeoutError:
            detail = f"the body did not arrive within {BODY_SECONDS:g} s"
            raise ApiError("timeout", detail) from None
        self._unread = False
        return b"".join(chunks)

    async def discard(self) -> None:
        """Read a body that is refused, up to a bound: a client that still sends would not read the answer."""
        size = 0
        with suppress(TimeoutError):
            async with asyncio.timeout(DISCARD_SECONDS):
                while self._unread and "expect" not in self.headers and size < DISCARD_BYTES:
                    message = await self._receive()
                    size += len(message.get("body", b""))
                    self._unread = bool(message.get("more_body", False))

    async def answer(self, answer: Answer, content_type: str = "application/json") -> None:
        """Send an answer. The connection is closed if the body was not read."""
        content = dumps({key: value for key, value in answer.value.items() if value is not None})
        headers = [
            (b"content-type", content_type.encode()),
            (b"content-length", str(len(content)).encode()),
            (b"cache-control", b"no-store"),
            (b"x-content-type-options", b"nosniff"),
            (b"x-request-id", self.id.encode()),
            *((name.lower().encode(), value.encode("latin-1")) for name, value in answer.headers.items()),
        ]
        if self._unread or self._closing:
            headers.append((b"connection", b"close"))
        self.status = answer.status
        start: Message = {"type": "http.response.start", "status": answer.status, "headers": headers}
        await self._send(start)
        await self._send({"type": "http.response.body", "body": content})

    async def fail(self, error: Exception) -> None:
        """Send the answer to an error."""
        if isinstance(error, _Gone):
            return
        found = _problem(error, self)
        fields = {"request": self.id, "operation": self.operation, "status": found.status}
        if found.kind == "internal":
            log.error("api_failed", extra={"fields": fields}, exc_info=error)
        elif found.status >= 500:  # noqa: PLR2004 -- an error of the server
            log.warning("api_unavailable", extra={"fields": {**fields, "error": found.detail}})
        view = {**found.view(), "requestId": self.id}
        if not self.status:
            await self.discard()
            await self.answer(Answer(view, found.status, found.headers), problems.CONTENT_TYPE)


class _Gone(Exception):
    """The client closed the connection before its request was complete."""


def _too_large(most: int) -> ApiError:
    return ApiError("too-large", f"expected a body of at most {most:,} bytes, got more")


def _problem(error: Exception, request: _Request) -> ApiError:
    if isinstance(error, Denied):
        challenge = {} if error.challenge is None else {"WWW-Authenticate": error.challenge}
        kind = "unauthenticated" if error.status == problems.TYPES["unauthenticated"] else "busy"
        return ApiError(kind, error.why, headers=challenge)
    if isinstance(error, HTTPException):  # of Starlette's router
        if error.status_code == problems.TYPES["method-not-allowed"]:
            allowed = ", ".join(sorted((error.headers or {})["Allow"].split(", ")))
            detail = f"expected {allowed}, got {request.method}"
            return ApiError("method-not-allowed", detail, headers={"Allow": allowed})
        return ApiError(
            "not-found", f"no such path{_wrong_prefix(request.scope['path'])}: see {PREFIX}/openapi.json"
        )
    return problems.of(error) or ApiError("internal", "an error of delayq, which is in its log")


def _wrong_prefix(path: str) -> str:
    if path.startswith(PREFIX * 2):
        return f", it has {PREFIX} twice"
    return "" if path.startswith(PREFIX) else f", all begin with {PREFIX}"


class _Document:
    """Serves openapi.json."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        self._document = document

    async def __call__(self, scope: Scope, _receive: Receive, _send: Send) -> None:
        request: _Request = scope["delayq"]
        request.operation = "openapi"
        await request.answer(Answer(self._document))


class _Endpoint:
    """The operations of one path."""

    def __init__(self, api: Api, routes: Mapping[str, Route]) -> None:
        self._api, self._routes = api, routes

    async def __call__(self, scope: Scope, _receive: Receive, _send: Send) -> None:
        request: _Request = scope["delayq"]
        route = self._routes.get("GET" if request.method == "HEAD" else request.method)
        if route is None:
            raise HTTPException(404)
        request.operation = route.name
        caller = self._api.access.caller(request.headers.get("authorization"))
        query = parse_query(route.query, scope["query_string"].decode("latin-1"))
        with self._api.batch(route):
            body = None if route.body is None else await self._body(request, route)
            call = Call(
                served=self._api.served,
                caller=caller,
                request_id=request.id,
                path=scope["path_params"],
                query=query,
                body=body,
            )
            answer = await route.run(call)
        await request.answer(answer)

    async def _body(self, request: _Request, route: Route) -> Any:  # noqa: ANN401 -- of the route's model
        assert route.body is not None  # noqa: S101 -- for mypy
        content = await request.read(self._api.most_bytes(route))
        if not content:
            return parse(route.body, {})
        kind, _, parameters = request.headers.get("content-type", "").lower().partition(";")
        if kind.strip() != "application/json" or parameters.strip() not in ("", "charset=utf-8"):
            raise ApiError("unsupported-media-type", "expected Content-Type: application/json, in UTF-8")
        try:
            value = strict_json(content)
        except ValueError as error:
            raise problems.invalid("body", f"expected JSON, {error}") from None
        if is_deeper(value):
            raise problems.invalid("body", f"expected JSON of at most {MOST_LEVELS} levels")
        return parse(route.body, value)
