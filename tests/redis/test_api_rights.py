"""Rights in the HTTP API: on each route, by kind, also where a path, a filter or an ID names another kind."""

from __future__ import annotations

import asyncio
import http.client
import json
import socket
import time
from contextlib import asynccontextmanager, closing
from typing import TYPE_CHECKING, Any

from delayq import Client, DelaySchedule, parse_schedule
from delayq.api.access import Caller, Denied, Grant, Rights
from delayq.api.app import Api
from delayq.api.calls import Served
from delayq.api.routes import ROUTES
from delayq.api.server import Server
from delayq.client.encoding import TaskEncoder
from delayq.contract import parse

from tests.redis.state import State, seed

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from delayq.api.access import Verb

    from tests.redis.state import Shard

MAIL: tuple[Verb, ...] = (
    *("schedule", "cancel", "reschedule", "read", "read-payloads"),
    *("dead-letters", "run-schedules", "suspend"),
)
RIGHTS = Rights(
    [
        Grant("mailer", MAIL, ("email",)),
        Grant("reader", ("read",)),
        Grant("plain", ("schedule",), ()),
        Grant("letters", ("dead-letters",)),
    ]
)


class Names:
    """Takes the name of the caller as its token."""

    def caller(self, authorization: str | None) -> Caller:
        if authorization is None:
            raise Denied(401, "expected a token", given=False)
        return RIGHTS.of(authorization.removeprefix("Bearer "))


@asynccontextmanager
async def served(shard: Shard) -> AsyncIterator[int]:
    """Serve the queue of a shard; yields the port."""
    name = shard.commands.queue
    document = {
        "apiVersion": "delayq.dev/v1alpha1",
        "kind": "DelayQueue",
        "metadata": {"name": name},
        "spec": {"redis": {"standalone": {"host": "x"}}, "handler": {"http": {"url": "http://x/"}}},
    }
    queue, stop = parse(document), asyncio.Event()
    async with Client(shard.server.url, queue=name) as client:
        encoder = TaskEncoder(queue.spec.limits)
        api = Api(
            Served(queue=queue, client=client, encoder=encoder, check=lambda _: None), Names(), hosts=None
        )
        with closing(socket.create_server(("127.0.0.1", 0))) as listening:
            running = asyncio.create_task(Server(api, [listening]).run(stop, 1))
            yield listening.getsockname()[1]
            stop.set()
            await running


async def status(port: int, who: str | None, request: str, body: object = None) -> tuple[int, Any]:
    """Send `METHOD /path`, and return status and body."""

    def send() -> tuple[int, Any]:
        method, path = request.split()
        headers = {} if who is None else {"Authorization": f"Bearer {who}"}
        content = None if body is None else json.dumps(body)
        with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=30)) as connection:
            connection.request(
                method, f"/v1alpha1{path}", content, headers | {"Content-Type": "application/json"}
            )
            reply = connection.getresponse()
            return reply.status, json.loads(reply.read())

    return await asyncio.to_thread(send)


BODIES: dict[str, object] = {
    "scheduleBatch": {"tasks": [{}]},
    "cancelTasks": {"tag": "eu"},
    "rescheduleTasks": {"tag": "eu", "shift": "1m"},
    "rescheduleTask": {"delay": "1m"},
    "rescheduleTaskById": {"delay": "1m"},
    "redriveDeadLetters": {"all": True},
    "purgeDeadLetters": {"all": True},
}


async def test_every_route_needs_a_token_and_its_right(shard: Shard) -> None:
    """A caller without rights changes and reads nothing."""
    async with served(shard) as port:
        for route in ROUTES:
            path = route.path.format(kind="email", id="a", name="nightly")
            path += {"countTasks": "?tag=eu"}.get(route.name, "?id=a" if route.name.endswith("ById") else "")
            request = f"{route.method} {path}"
            assert (await status(port, None, request, BODIES.get(route.name)))[0] == 401, request
            found, body = await status(port, "nobody", request, BODIES.get(route.name))
            allowed = route.name in ("listSchedules", "groupDeadLetters", "listKinds")  # without items
            assert (found, body.get("items")) == ((200, []) if allowed else (403, None)), request


async def test_a_right_on_one_kind_reaches_no_other_kind(shard: Shard) -> None:
    now_ms = round(time.time() * 1000)
    with shard.server.on(shard.keys) as redis:
        seed(redis, shard.keys, State(dlq={"sms:dead": now_ms}))
    async with Client(shard.server.url, queue=shard.commands.queue) as client:
        await client.schedule(1, kind="sms", task_id="a", delay="1h", tags=["eu"])
        fresh = (await client.schedule(1, kind="sms", delay="1h")).id  # without the kind in its ID
    async with served(shard) as port:
        for request, body in (
            ("PUT /tasks/sms/b", {}),
            ("PUT /tasks/-/b", {}),
            ("PUT /tasks/-/sms:a?ifExists=replace", {}),
            ("POST /tasks", {"kind": "sms"}),
            ("POST /tasks:batch", {"tasks": [{"kind": "email"}, {"kind": "sms"}]}),
            ("GET /tasks/sms/a", None),
            ("GET /tasks/-/sms:a", None),
            (f"GET /tasks/-/{fresh}", None),
            ("DELETE /tasks/sms/a", None),
            ("DELETE /tasks/-/sms:a", None),
            (f"DELETE /tasks/-/{fresh}", None),
            ("PATCH /tasks/-/sms:a", {"delay": "1m"}),
            ("GET /tasks", None),
            ("GET /tasks:count?tag=eu", None),
            ("POST /tasks:cancel", {"tag": "eu"}),
            ("POST /tasks:reschedule", {"kind": "sms", "shift": "1m"}),
            ("GET /deadletters", None),
            ("POST /deadletters:redrive", {"all": True}),
            ("POST /deadletters:purge", {"ids": ["sms:dead"]}),
            ("GET /queue", None),
            ("POST /queue:suspend", {}),
        ):
            assert (await status(port, "mailer", request, body))[0] == 403, request
        hint = (await status(port, "mailer", "GET /tasks", None))[1]["detail"].rpartition("; ")[2]
        assert hint == "filter by a kind that it has the right on: email"
        assert (await status(port, "mailer", "PUT /tasks/email/a", {}))[0] == 201
        other = (await status(port, "mailer", "PUT /tasks/email/sms:a?ifExists=replace", {}))[1]["id"]
        assert (other, await status(port, "mailer", f"DELETE /tasks/-/{other}")) == (
            "email:sms:a",
            (200, {"outcome": "cancelled"}),
        )
        assert (await status(port, "mailer", "GET /tasks/-/email:a"))[0] == 200
        assert (await status(port, "mailer", "POST /tasks:cancel", {"kind": "email"}))[1]["tasks"] == 1
    async with Client(shard.server.url, queue=shard.commands.queue) as client:
        found = await client.counts()
    assert (found.scheduled, found.due, found.dead) == (2, 0, 1)


async def test_payloads_and_headers_are_read_by_a_right_of_their_own(shard: Shard) -> None:
    async with served(shard) as port:
        await status(port, "mailer", "PUT /tasks/email/a", {"payload": {"secret": 1}, "headers": {"a": "b"}})
        _, whole = await status(port, "mailer", "GET /tasks/email/a")
        _, part = await status(port, "reader", "GET /tasks/email/a")
        _, listed = await status(port, "reader", "GET /tasks")
    assert (whole["payload"], whole["headers"]) == ({"secret": 1}, {"a": "b"})
    assert whole.keys() - part.keys() == {"payload", "headers"}
    assert listed["items"][0].keys().isdisjoint({"payload", "headers"})


async def test_an_answer_does_not_tell_whether_a_task_of_another_kind_exists(shard: Shard) -> None:
    """Nor a dead letter, a group of them or a schedule."""
    now_ms = round(time.time() * 1000)
    with shard.server.on(shard.keys) as redis:
        died = State(dlq={"sms:dead": now_ms, "parcel": now_ms}, dlq_info={"sms:dead": "buried gone"})
        seed(redis, shard.keys, died)
    async with Client(shard.server.url, queue=shard.commands.queue) as client:
        await client.schedule(1, kind="sms", task_id="a", delay="1h")
        fresh = (await client.schedule(1, kind="sms", delay="1h")).id
        await client.apply_schedule(schedule("nightly", shard.commands.queue))
    pairs: list[tuple[str, str, str, Any]] = [
        ("sms:a", "sms:b", "GET /tasks/-/{}", None),
        ("sms:a", "sms:b", "DELETE /tasks/-/{}", None),
        ("sms:a", "sms:b", "PATCH /tasks/-/{}", {"delay": "1m"}),
        (fresh, "A" * 12, "GET /tasks/-/{}", None),
        (fresh, "A" * 12, "DELETE /tasks/-/{}?running=true", None),
        ("sms:dead", "sms:none", "POST /deadletters:purge", "ids"),
        ("parcel", "none", "POST /deadletters:redrive", "ids"),
        ("nightly", "none", "GET /schedules/{}", None),
        ("nightly", "none", "POST /schedules/{}:run", None),
    ]
    async with served(shard) as port:
        for there, missing, request, body in pairs:
            answers = []
            for name in (there, missing):
                content = {"ids": [name], "dryRun": True} if body == "ids" else body
                found, problem = await status(port, "mailer", request.format(name), content)
                answers.append((found, problem["detail"].replace(name, "NAME")))
            assert answers[0] == answers[1], request
            assert answers[0][0] == 403, request
        groups = await status(port, "letters", "GET /deadletters:groups")
        for group in (groups[1]["items"][0]["group"], "0" * 16):
            assert (await status(port, "mailer", "POST /deadletters:purge", {"group": group}))[0] == 404
        assert (await status(port, "mailer", "POST /deadletters:purge", {"ids": ["email:none"]}))[1][
            "tasks"
        ] == 0


def schedule(name: str, queue: str) -> DelaySchedule:
    """Its tasks are of a kind that the caller has no right on."""
    document = {
        "apiVersion": "delayq.dev/v1alpha1",
        "kind": "DelaySchedule",
        "metadata": {"name": name},
        "spec": {"queueRef": {"name": queue}, "cron": "0 2 * * *", "task": {"payload": "1", "kind": "sms"}},
    }
    made = parse_schedule(document)
    assert isinstance(made, DelaySchedule)
    return made
