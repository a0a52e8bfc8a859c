"""Malformed HTTP: each request has one answer, which is a problem, and no byte of it is taken for another request."""

from __future__ import annotations

import json
import re
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from tests.process.http_api import PREFIX, received, serving

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.process.http_api import Served


@pytest.fixture(scope="module")
def api(flavour: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving(flavour, tmp_path_factory.mktemp("api")) as served:
        yield served


HOST = b"Host: localhost\r\n"
JSON = HOST + b"Content-Type: application/json\r\n"
LAST = HOST + b"Connection: close\r\nContent-Length: 0\r\n\r\n"
CHUNKS = b"\r\n2\r\n{}\r\n0\r\n\r\n"
PUT = f"PUT {PREFIX}/tasks/-/x HTTP/1.1\r\n".encode()


def target(text: bytes) -> bytes:
    """A request that would store a task."""
    return b"PUT " + PREFIX.encode() + text + b" HTTP/1.1\r\n" + LAST


MALFORMED = {
    "length and chunks": PUT + JSON + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n" + CHUNKS,
    "chunks and length": PUT + JSON + b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n" + CHUNKS,
    "two lengths": PUT + JSON + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}",
    "a list of lengths": PUT + JSON + b"Content-Length: 2, 2\r\n\r\n{}",
    "a signed length": PUT + JSON + b"Content-Length: +2\r\n\r\n{}",
    "a negative length": PUT + JSON + b"Content-Length: -1\r\n\r\n{}",
    "a huge length": PUT + JSON + b"Content-Length: 99999999999999999999999\r\n\r\n{}",
    "another coding": PUT + JSON + b"Transfer-Encoding: xchunked\r\n" + CHUNKS,
    "chunked is not the last coding": PUT + JSON + b"Transfer-Encoding: chunked, identity\r\n" + CHUNKS,
    "bare LF": PUT.replace(b"\r", b"") + LAST.replace(b"\r", b""),
    "bare LF in chunks": PUT + JSON + b"Transfer-Encoding: chunked\r\n\r\n2\n{}\n0\n\n",
    "bare CR": PUT + b"Host: localhost\rX: y\r\n\r\n",
    "a folded header": PUT + HOST + b"Transfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n",
    "a space before the colon": PUT + HOST + b"Content-Length : 0\r\n\r\n",
    "no colon": PUT + HOST + b"Content-Length\r\n\r\n",
    "NUL in a header": PUT + HOST + b"X: a\0b\r\n\r\n",
    "another method": b"FOO" + target(b"/tasks/-/x")[3:],
    "HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "HTTP/3": PUT.replace(b"1.1", b"3.0") + LAST,
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    "CONNECT": b"CONNECT localhost:80 HTTP/1.1\r\n" + LAST,
    "NUL in the target": target(b"/tasks/-/a\0b"),
    "a byte that is not ASCII": target(b"/tasks/-/a\xff"),
    "half a percent sign": target(b"/tasks/-/a%zz"),
    "percent at the end": target(b"/tasks/-/a%2"),
    "a fragment": target(b"/tasks/-/a#b"),
    "%00": target(b"/tasks/-/a%00b"),
    "an ID that is no UTF-8": target(b"/tasks/-/a%FF"),
    "an ID that is half a character": target(b"/tasks/-/a%ED%A0%80"),
    "a parameter that is no UTF-8": target(b"/tasks/-?id=a%FF"),
    "no ID": target(b"/tasks/email/"),
    "two hosts": PUT + b"Host: evil.example\r\n" + LAST,
    "two types": PUT + b"Content-Type: text/plain\r\nContent-Type: application/json\r\n" + LAST,
    "two credentials": PUT + b"Authorization: Bearer a\r\nAuthorization: Bearer b\r\n" + LAST,
    "two sites": PUT + b"Sec-Fetch-Site: cross-site\r\nSec-Fetch-Site: none\r\n" + LAST,
}


@pytest.mark.parametrize("sent", MALFORMED.values(), ids=MALFORMED)
def test_a_malformed_request_is_400_and_stores_nothing(api: Served, sent: bytes) -> None:
    """Another server before this one may read such a request in another way."""
    status, problem = answered(api, sent)
    assert (status, problem["type"], problem["status"]) == (400, "urn:delayq:invalid-request", 400)
    queue = api.call("GET", "/queue").body
    assert (queue["due"], queue["scheduled"]) == (0, 0)


@pytest.mark.parametrize("origin", ["http://[", "http://", "null", "", "http://localhost:1", "localhost"])
def test_an_origin_of_any_shape_is_refused(api: Served, origin: str) -> None:
    status, problem = answered(api, PUT + f"Origin: {origin}\r\n".encode() + LAST)
    assert (status, problem["type"]) == (403, "urn:delayq:cross-site")


@pytest.mark.parametrize("size", [17_000, 40_000])
def test_a_long_target_is_refused_also_if_it_arrives_at_once(api: Served, size: int) -> None:
    status, _ = answered(
        api, b"GET " + PREFIX.encode() + b"/tasks?tag=" + b"x" * size + b" HTTP/1.1\r\n" + LAST
    )
    assert status == 431


def answered(api: Served, sent: bytes) -> tuple[int, dict[str, object]]:
    """The only answer on a connection, which the server closes after it."""
    with closing(api.socket()) as connection:
        connection.sendall(sent)
        head, _, content = received(connection).partition(b"\r\n\r\n")
    first, *headers = head.decode().lower().split("\r\n")
    assert "content-type: application/problem+json" in headers
    assert "connection: close" in headers
    return int(first.split()[1]), json.loads(content)


def test_trailers_are_no_headers(api: Served) -> None:
    """They come after the checks of headers, even if all arrives at once."""
    sent = PUT + b"Host: evil.example\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nHost: localhost\r\n\r\n"
    with closing(api.socket()) as connection:
        connection.sendall(sent)
        assert connection.recv(100).startswith(b"HTTP/1.1 421 ")


def test_offers_of_other_protocols_are_answered_by_http_1_and_not_logged(api: Served) -> None:
    """curl --http2 offers h2c with each request."""
    for offer in (b"h2c", b"websocket"):
        upgrade = b"Connection: close, Upgrade\r\nUpgrade: " + offer + b"\r\nContent-Length: 2\r\n\r\n{}"
        with closing(api.socket()) as connection:
            connection.sendall(PUT.replace(b"/x ", b"/upgraded ") + JSON + upgrade)
            assert received(connection).startswith((b"HTTP/1.1 201 ", b"HTTP/1.1 200 "))
    assert api.call("DELETE", "/tasks/-/upgraded").status == 200
    assert "uvicorn" not in api.process.output


def test_pipelined_requests_are_answered_in_order_and_a_malformed_one_takes_no_answer_of_another(
    api: Served,
) -> None:
    first = PUT.replace(b"/x ", b"/first ") + HOST + b"Content-Length: 0\r\n\r\n"
    with closing(api.socket()) as connection:
        connection.sendall(first * 2 + PUT.replace(b"/x ", b"/last ") + LAST)
        answers = received(connection)
    assert re.findall(rb"HTTP/1.1 (\d+)", answers) == [b"201", b"200", b"201"]
    with closing(api.socket()) as connection:
        connection.sendall(first + b"garbage\r\n\r\n")
        assert not received(connection).startswith(b"HTTP/1.1 400 "), "the first request is not malformed"
    for name in ("first", "last"):
        assert api.call("DELETE", f"/tasks/-/{name}").status == 200
