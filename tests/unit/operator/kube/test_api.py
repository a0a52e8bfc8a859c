"""What an answer of the API server means: for the request, for the object, for all that is asked of it."""

from __future__ import annotations

import json

import pytest
from delayq_operator.base.errors import (
    ApiError,
    Conflict,
    Denied,
    Failed,
    Gone,
    Invalid,
    NotFound,
    Unavailable,
)
from delayq_operator.kube import api
from kubernetes.aio.client.exceptions import ApiException

TYPED = "failed to create typed patch object (shop/orders-worker; apps/v1, Kind=Deployment): .spec.x: not declared"
CONVERT = "failed to convert new object (shop/orders-worker; apps/v1, Kind=Deployment) to proper version: no"
HOOK = 'Internal error occurred: failed calling webhook "h.example.com": connection refused'
STORE = "rpc error: code = Unavailable desc = keepalive ping failed to receive ACK within timeout"


def answer(code: int, message: str = "why", reason: str = "") -> ApiError | Unavailable:
    error = ApiException(status=code, reason="HTTP says")
    error.body = json.dumps({"kind": "Status", "code": code, "reason": reason, "message": message})
    return api._answered(error)


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        *[(400, Invalid), (401, Denied), (403, Denied), (404, NotFound), (409, Conflict), (410, Gone)],
        *[(422, Invalid), (405, ApiError), (500, Failed), (501, Failed), (507, Failed)],
        *[(429, Unavailable), (503, Unavailable), (504, Unavailable)],
    ],
)
def test_the_code_says_what_to_do(code: int, expected: type) -> None:
    assert type(answer(code)) is expected


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        *[(TYPED, Invalid), (CONVERT, Invalid), (HOOK, Failed), ("anything else", Failed)],
        *[(STORE, Unavailable), ("etcdserver: leader changed", Unavailable), ("", Unavailable)],
        ("context deadline exceeded", Unavailable),
    ],
)
def test_500_may_be_about_the_object_the_request_or_the_server(message: str, expected: type) -> None:
    assert type(answer(500, message)) is expected


@pytest.mark.parametrize("body", ["<html>Bad Gateway</html>", "", None, "null", "[]", "{}"])
def test_5xx_without_a_status_comes_from_something_before_an_api_server_that_is_away(
    body: str | None,
) -> None:
    error = ApiException(status=502, reason="Bad Gateway")
    error.body = body
    found = api._answered(error)
    assert isinstance(found, Unavailable)
    assert str(found) == "(502 Bad Gateway)"


def test_4xx_without_a_status_keeps_its_meaning() -> None:
    error = ApiException(status=404, reason="Not Found")
    error.body = "404 page not found"
    found = api._answered(error)
    assert isinstance(found, NotFound)
    assert found.message == "Not Found"


def test_an_error_in_a_watch_is_mapped_like_a_response() -> None:
    line = {"type": "ERROR", "object": {"kind": "Status", "code": 410, "reason": "Expired", "message": "old"}}
    with pytest.raises(Gone):
        api._event(line)
    with pytest.raises(Unavailable):
        api._event({"type": "ERROR", "object": {}})
