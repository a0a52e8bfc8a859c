"""What an answer of the API server means: for the request, for the object, for all that is asked of it."""

from __future__ import annotations

import json

import pytest
from delayq.kube.errors import (
    ApiError,
    Conflict,
    Denied,
    Failed,
    Gone,
    Invalid,
    NotFound,
    Unavailable,
    answered,
)

TYPED = "failed to create typed patch object (shop/orders-worker; apps/v1, Kind=Deployment): .spec.x: not declared"
CONVERT = "failed to convert new object (shop/orders-worker; apps/v1, Kind=Deployment) to proper version: no"
HOOK = 'Internal error occurred: failed calling webhook "h.example.com": connection refused'
STORE = "rpc error: code = Unavailable desc = keepalive ping failed to receive ACK within timeout"


def answer(code: int, message: str = "why", reason: str = "") -> ApiError | Unavailable:
    status = {"kind": "Status", "code": code, "reason": reason, "message": message}
    return answered(code, "HTTP says", json.dumps(status))


def test_the_code_says_what_to_do_and_of_500_the_message() -> None:
    """It may be about the object, the request or the server."""
    codes: dict[type, tuple[int, ...]] = {
        Denied: (401, 403),
        NotFound: (404,),
        Conflict: (409,),
        Gone: (410,),
        ApiError: (405,),
        Invalid: (400, 422),
        Failed: (500, 501, 507),
        Unavailable: (429, 503, 504),
    }
    messages: dict[type, tuple[str, ...]] = {
        Invalid: (TYPED, CONVERT),
        Failed: (HOOK, "anything else"),
        Unavailable: (STORE, "etcdserver: leader changed", "", "context deadline exceeded"),
    }
    assert {kind: {type(answer(code)) for code in of} for kind, of in codes.items()} == {
        kind: {kind} for kind in codes
    }
    assert {kind: {type(answer(500, message)) for message in of} for kind, of in messages.items()} == {
        kind: {kind} for kind in messages
    }


def test_a_kind_that_the_api_server_has_not_discovered_yet_is_no_missing_right() -> None:
    """An admission plugin says so of the owner of a child, for seconds after the CRD was created."""
    message = (
        'services "orders-metrics" is forbidden: cannot set blockOwnerDeletion in this case because cannot find '
        'RESTMapping for APIVersion delayq.dev/v1alpha1 Kind DelayQueue: no matches for kind "DelayQueue"'
    )
    assert type(answer(403, message, "Forbidden")) is Unavailable


@pytest.mark.parametrize("body", ["<html>Bad Gateway</html>", None, "null", "{}"])
def test_without_a_status_5xx_comes_from_something_before_an_api_server_that_is_away(
    body: str | None,
) -> None:
    found = answered(502, "Bad Gateway", body)
    assert (type(found), str(found)) == (Unavailable, "(502 Bad Gateway)")
    assert isinstance(answered(404, "Not Found", body), NotFound)
