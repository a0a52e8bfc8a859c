"""http handlers: what a receiver gets, and what its answer does to the task."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from aiohttp import web
from delayq.errors import Bury, Retry
from delayq.handlers.http_response import HTTPStatusError

from tests.unit.handlers.receivers import Receiver, http_handler
from tests.unit.handlers.support import a_task

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    async with Receiver.listening() as receiver:
        yield receiver


async def test_the_payload_arrives_as_it_was_scheduled_with_what_is_known_of_the_task(
    receiver: Receiver,
) -> None:
    """One POST: body and content type untouched, the task's facts and the document's headers beside them."""
    async with http_handler(receiver.url, headers={"X-Shop": "paris"}) as handler:
        await handler.call(a_task(b"\x00\xff", content_type="image/png", headers={"Tenant_id": "acme"}))
    assert (receiver.methods, receiver.bodies) == (["POST"], [b"\x00\xff"])
    sent = receiver.headers[0]
    unchanging = {name: sent[name] for name in sent if name not in {"Host", "Accept"}}
    assert unchanging == {
        "Accept-Encoding": "identity",
        "Content-Length": "2",
        "Content-Type": "image/png",
        "Delayq-Attempt": "2",
        "Delayq-Due-Ms": "1700000060000",
        "Delayq-Header-Tenant_id": "acme",
        "Delayq-Queue": "orders",
        "Delayq-Scheduled-Ms": "1700000000000",
        "Delayq-Task-Id": "order-7",
        "Delayq-Token": "41",
        "Idempotency-Key": "orders/order-7",
        "User-Agent": "delayq",
        "X-Shop": "paris",
    }


async def test_no_task_can_add_a_header(receiver: Receiver) -> None:
    """Line ends in ids, names and values arrive encoded, inside the header they were written for."""
    evil = "x\r\nX-Admin: yes"
    async with http_handler(receiver.url) as handler:
        await handler.call(a_task(task_id=evil, headers={evil: evil, "City": "Orléans"}))
    sent = receiver.headers[0]
    assert "X-Admin" not in sent
    assert sent["Delayq-Task-Id"] == "UTF-8''x%0D%0AX-Admin%3A%20yes"
    assert sent["Delayq-Header-x%0D%0AX-Admin%3A%20yes"] == "UTF-8''x%0D%0AX-Admin%3A%20yes"
    assert sent["Delayq-Header-City"] == "UTF-8''Orl%C3%A9ans"


async def test_what_may_pass_is_retried_when_the_receiver_says(receiver: Receiver) -> None:
    """Overload and server errors run the task again, counted as an attempt; 204 then acks."""
    receiver.answers = [
        web.Response(status=503, reason="Anything"),
        web.Response(status=429, headers={"Retry-After": "7"}),
    ]
    async with http_handler(receiver.url) as handler:
        for delay_ms in (None, 7_000):
            with pytest.raises(Retry, match=r"^HTTPStatusError: ") as retry:
                await handler.call(a_task())
            assert (retry.value.delay_ms, retry.value.charge) == (delay_ms, True)
            assert isinstance(retry.value.__cause__, HTTPStatusError)
        await handler.call(a_task())


async def test_what_cannot_get_better_is_buried_with_the_beginning_of_the_answer(receiver: Receiver) -> None:
    """The first line groups dead letters; the second tells a person what the receiver said."""
    redirect = web.Response(status=308, headers={"Location": receiver.url})
    receiver.answers = [web.Response(status=404, text="no such\n\x1b[2Jorder " + "x" * 500), redirect]
    async with http_handler(receiver.url) as handler:
        with pytest.raises(Bury) as bury:
            await handler.call(a_task())
        with pytest.raises(Bury, match=r"308 Permanent Redirect: redirects are not followed\nLocation: http"):
            await handler.call(a_task())
    assert len(receiver.bodies) == 2
    title, detail = str(bury.value).split("\n")
    assert title == "HTTPStatusError: 404 Not Found"
    assert detail == ("no such �[2Jorder " + "x" * 500)[:200]


async def test_cookies_and_proxies_of_the_environment_are_not_used(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    receiver.answers = [web.Response(headers={"Set-Cookie": "session=7; Path=/"})]
    # By name: for bare addresses no client keeps cookies anyway.
    async with http_handler(receiver.url.replace("127.0.0.1", "localhost")) as handler:
        await handler.call(a_task())
        await handler.call(a_task(b"", content_type="text/plain"))
    assert "Cookie" not in receiver.headers[1]
    assert (receiver.bodies[1], receiver.headers[1]["Content-Type"]) == (b"", "text/plain")
    assert receiver.connections == 1
