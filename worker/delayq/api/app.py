"""The ASGI application: finds the route, parses the request, and answers with JSON.

Not here: the bound on the time for request line and headers, which server.py has.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from delayq.api import openapi, problems
from delayq.api.access import Denied
from delayq.api.bodies import Room
from delayq.api.calls import Answer, Call
from delayq.api.heads import LOCAL, check_head, check_site
from delayq.api.models import dumps, parse, parse_query
from delayq.api.problems import ApiError, invalid
from delayq.api.routes import BATCH, PREFIX, ROUTES
from delayq.client.encoding import new_ids
from delayq.contract.json_text import MOST_LEVELS, is_deeper, strict_json

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Mapping, MutableMapping, Sequence

    from delayq.api.access import Access
    from delayq.api.calls import Route, Served

    Scope = MutableMapping[str, Any]  # of ASGI, as the next three
    Message = MutableMapping[str, Any]
    Receive = Callable[[], Awaitable[Message]]
    Send = Callable[[Message], Awaitable[None]]
    Endpoint = Callable[["_Request", Mapping[str, str]], Awaitable[Answer]]

log = logging.getLogger(__name__)

BODY_SECONDS: Final = 30.0
ANSWER_SECONDS: Final = 20.0
BATCH_BYTES: Final = 8 << 20
LEAST_BYTES: Final = 2 << 20  # 5,000 IDs fit
DISCARD_SECONDS: Final = 2.0
DISCARD_BYTES: Final = 16 << 20
MOST_CONTAINERS: Final = 500_000
"""Lists and objects of a body: each takes up to 30 times as much memory as its text."""
COMPLETE: Final = "delayq.complete"
"""In the scope of a request: the server has received its body."""
_REQUEST_ID: Final = re.compile(r"[A-Za-z0-9_.-]{1,64}")


class Api:
    """The API of one queue."""

    def __init__(self, served: Served, access: Access, *, hosts: Sequence[str] | None) -> None:
        """`hosts`: names in the header Host that are accepted besides those of this machine; None: any."""
        self.served, self.access = served, access
        self.requests = Counter[tuple[str, int]]()  # by operation and status
        self.stopping = False
        self._hosts = None if hosts is None else {*LOCAL, *(each.lower() for each in hosts)}
        self.room = Room(2 * served.queue.spec.limits.max_payload_bytes)
        self._ids = new_ids()
        self._paths = list(_paths(self))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        request = _Request(scope, receive, send, fresh=self._ids, closing=self.stopping)
        refusal: Answer | None = None
        try:
            self._check(request)
            endpoint, parameters = self._find(request.method, scope["path"])
            await request.answer(await endpoint(request, parameters))
        except Exception as error:  # noqa: BLE001 -- each request has an answer
            refusal = request.refusal(error)
        # Outside of `except`, so that the frames of the error do not keep a body in memory.
        if refusal is not None:
            await request.refuse(refusal)
        self.requests[request.operation, request.status] += 1

    def _check(self, request: _Request) -> None:
        check_head(request.scope)
        if self._hosts is not None:
            check_site(request.method, request.headers, self._hosts)

    def _find(self, method: str, path: str) -> tuple[Endpoint, Mapping[str, str]]:
        """Return what answers a request, and the parameters in its path."""
        allowed = ""
        for pattern, endpoints in self._paths:
            if (found := pattern.fullmatch(path)) is None:
                continue
            if method in endpoints:
                return endpoints[method], found.groupdict()
            allowed = allowed or ", ".join(sorted(endpoints))
        if allowed:
            detail = f"expected {allowed}, got {method}"
            raise ApiError("method-not-allowed", detail, headers={"Allow": allowed})
        raise ApiError("not-found", f"no such path{_wrong_prefix(path)}: see {PREFIX}/openapi.json")

    def most_bytes(self, route: Route) -> int:
        """Return the largest body of a route."""
        limits = self.served.queue.spec.limits
        return BATCH_BYTES if route.name == BATCH else max(LEAST_BYTES, 2 * limits.max_payload_bytes)


def _paths(api: Api) -> Iterator[tuple[re.Pattern[str], Mapping[str, Endpoint]]]:
    """Yield the pattern of each path and its endpoints by method, in the order in which they are tried."""
    by_path: dict[str, dict[str, Endpoint]] = {}
    for route in ROUTES:
        by_path.setdefault(route.path, {})[route.method] = _Endpoint(api, route)
    by_path["/openapi.json"] = {"GET": _Document(openapi.document())}
    for path, endpoints in by_path.items():
        if "GET" in endpoints:
            endpoints["HEAD"] = endpoints["GET"]
        # An ID may have slashes, which servers decode.
        pattern = re.sub("{(\\w+)}", "(?P<\\1>[^/]+)", path.replace("{id}", "(?P<id>.*)"))
        yield re.compile(re.escape(PREFIX) + pattern, re.DOTALL), endpoints


class _Request:
    """What was received, and whether an answer was sent."""

    def __init__(
        self, scope: Scope, receive: Receive, send: Send, *, fresh: Iterator[str], closing: bool
    ) -> None:
        """`fresh`: IDs for requests without one."""
        self.scope, self.method = scope, scope["method"]
        self.headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        given = self.headers.get("x-request-id", "")
        self.id = given if _REQUEST_ID.fullmatch(given) else next(fresh)
        self.operation, self.status = "none", 0
        self._receive, self._send, self._closing = receive, send, closing
        self._unread = "content-length" in self.headers or "transfer-encoding" in self.headers

    async def read(self, most: int, grow: Callable[[int], None] | None) -> bytes:
        """Return the body; ApiError if it is too large or does not arrive in time. `grow` is of Room."""
        length = self.headers.get("content-length", "")
        if length.isdecimal() and (len(length) > 15 or int(length) > most):  # noqa: PLR2004 -- a petabyte
            raise _too_large(most)
        if self.scope.get(COMPLETE):  # as most: a timer takes longer than to read a body that is there
            return await self._body(most, grow)
        try:
            async with asyncio.timeout(BODY_SECONDS):
                return await self._body(most, grow)
        except TimeoutError:
            detail = f"the body did not arrive within {BODY_SECONDS:g} s"
            raise ApiError("timeout", detail) from None

    async def _body(self, most: int, grow: Callable[[int], None] | None) -> bytes:
        content = bytearray()
        while await self._read_part(content):
            if len(content) > most:
                raise _too_large(most)
            if grow is not None:
                grow(len(content))
        self._unread = False
        if len(content) > most:
            raise _too_large(most)
        return bytes(content)

    async def _read_part(self, content: bytearray) -> bool:
        """Add the next part of the body; return whether more follows."""
        message = await self._receive()
        if message["type"] == "http.disconnect":
            raise _Gone
        content += message.get("body", b"")
        return bool(message.get("more_body", False))

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
        content = answer.text or dumps(
            {key: value for key, value in answer.value.items() if value is not None}
        )
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

    def refusal(self, error: Exception) -> Answer | None:
        """Log an error; return the answer to it, None if there can be none any more."""
        if isinstance(error, _Gone):
            return None
        found = _problem(error)
        fields = {"request": self.id, "operation": self.operation, "status": found.status}
        if found.kind == "internal":
            log.error("api_failed", extra={"fields": fields}, exc_info=error)
        elif found.status >= 500:  # noqa: PLR2004 -- an error of the server
            log.warning("api_unavailable", extra={"fields": {**fields, "error": found.detail}})
        view = {**found.view(), "requestId": self.id}
        return None if self.status else Answer(view, found.status, found.headers)

    async def refuse(self, answer: Answer) -> None:
        """Send the answer to an error."""
        await self.discard()
        await self.answer(answer, problems.CONTENT_TYPE)


class _Gone(Exception):
    """The client closed the connection before its request was complete."""


def _too_large(most: int) -> ApiError:
    return ApiError("too-large", f"expected a body of at most {most:,} bytes, got more")


def _problem(error: Exception) -> ApiError:
    if isinstance(error, Denied):
        challenge = {} if error.challenge is None else {"WWW-Authenticate": error.challenge}
        kind = "unauthenticated" if error.status == problems.TYPES["unauthenticated"] else "busy"
        return ApiError(kind, error.why, headers=challenge)
    return problems.of(error) or ApiError("internal", "an error of delayq, which is in its log")


def _wrong_prefix(path: str) -> str:
    if path.startswith(PREFIX * 2):
        return f", it has {PREFIX} twice"
    return "" if path.startswith(PREFIX) else f", all begin with {PREFIX}"


async def _answered(route: Route, call: Call) -> Answer:
    """Run a route. Clients wait for half a minute or so, and the tries of a call to a frozen Redis take longer."""
    try:
        async with asyncio.timeout(None if route.long else ANSWER_SECONDS):
            return await route.run(call)
    except TimeoutError:
        detail = f"Redis did not answer within {ANSWER_SECONDS:g} s; the request may take effect: repeat it"
        raise ApiError("redis-unavailable", detail) from None


class _Document:
    """Serves openapi.json."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        self._text = dumps(document)  # once: it is large, and needs no token

    async def __call__(self, request: _Request, _parameters: Mapping[str, str]) -> Answer:
        request.operation = "openapi"
        return Answer({}, text=self._text)


class _Endpoint:
    """One operation."""

    def __init__(self, api: Api, route: Route) -> None:
        self._api, self._route = api, route

    async def __call__(self, request: _Request, parameters: Mapping[str, str]) -> Answer:
        route, request.operation = self._route, self._route.name
        caller = self._api.access.caller(request.headers.get("authorization"))
        query = parse_query(route.query, request.scope["query_string"])
        room = self._api.room
        with room.batch() if route.name == BATCH else room.body() as grow:
            body = None if route.body is None else await self._body(request, route, grow)
            call = Call(
                served=self._api.served,
                caller=caller,
                request_id=request.id,
                path=parameters,
                query=query,
                body=body,
            )
            return await _answered(route, call)

    async def _body(self, request: _Request, route: Route, grow: Callable[[int], None] | None) -> Any:  # noqa: ANN401 -- of the route's model
        assert route.body is not None  # noqa: S101 -- for mypy
        content = await request.read(self._api.most_bytes(route), grow)
        if not content:
            return parse(route.body, {})
        kind, _, parameters = request.headers.get("content-type", "").lower().partition(";")
        if kind.strip() != "application/json" or parameters.strip() not in ("", "charset=utf-8"):
            raise ApiError("unsupported-media-type", "expected Content-Type: application/json, in UTF-8")
        if content.count(b"[") + content.count(b"{") > MOST_CONTAINERS:
            raise invalid("body", f"expected at most {MOST_CONTAINERS:,} lists and objects, got more")
        try:
            value = strict_json(content)
        except ValueError as error:
            raise invalid("body", f"expected JSON, {error}") from None
        if is_deeper(value):
            raise invalid("body", f"expected JSON of at most {MOST_LEVELS} levels")
        return parse(route.body, value)
