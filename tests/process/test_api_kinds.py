"""`delayq api` checks kinds and arguments by what real workers publish: it has no App of its own."""

from __future__ import annotations

import json
import time
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest
from delayq.connection import Address, SyncConnection
from delayq.protocol.commands import KINDS_KEEP_MS, Commands

from tests.process.http_api import QUEUE, serving
from tests.processes import DELAYQ, PATIENCE_SECONDS, Process, poll_pause
from tests.redis.state import State, seed

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.process.http_api import Reply, Served

ROUTED = {"push": {"http": {"url": "http://127.0.0.1:9/"}}}
APP: dict[str, Any] = {"python": {"app": "release:app"}, "kinds": ROUTED}
OLD = """
from delayq import App
app = App()

@app.task
def remind(order: int) -> None: ...

@app.task
def gone_soon(order: int) -> None: ...
"""
NEW = """
from dataclasses import dataclass
from delayq import App
app = App()

@dataclass
class Line:
    product: int

@app.task
def remind(order: str, *, lines: list[Line] = []) -> None: ...

@app.task(name="remind", version=2)
def remind_again(order: int) -> None: ...

@app.task(batch=2)
def count(items: list[int]) -> None: ...
"""


class Workers:
    """Workers of the queue that an API serves; each release of the App is in a directory of its own."""

    def __init__(self, api: Served) -> None:
        self._api, self._running = api, list[Process]()

    def start(self, release: str, kind: str) -> Process:
        """Start a worker, and wait until the API lists a kind of it."""
        folder = self._api.dir / f"release-{len(self._running)}"
        folder.mkdir()
        (folder / "release.py").write_text(release)
        where = (str(self._api.config), "--redis", self._api.server.url, "--port", "0")
        process = Process.quick(DELAYQ, "worker", *where, cwd=folder)
        self._running.append(process)
        began = time.monotonic()
        while kind not in listed(self._api):
            waited = time.monotonic() - began
            assert waited < PATIENCE_SECONDS, process.output
            time.sleep(poll_pause(waited))
        return process

    def close(self) -> None:
        """Stop all of them."""
        for each in self._running:
            each.stop()


def listed(api: Served) -> dict[str, list[Any]]:
    reply = api.call("GET", "/kinds")
    assert reply.status == 200
    return {
        f"{each['kind']} {each.get('version', '')}".strip(): each["schemas"] for each in reply.body["items"]
    }


@pytest.fixture(scope="module")
def served(flavour: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving(flavour, tmp_path_factory.mktemp("api"), handler=APP) as found:
        yield found


@pytest.fixture
def api(served: Served, tmp_path: Path) -> Served:
    """The same without a task, and without a kind."""
    with served.server.client(decode=False) as redis:
        seed(redis, served.keys, State())
        redis.delete(served.keys.kinds)
    served.dir = tmp_path
    return served


@pytest.fixture
def workers(api: Served) -> Iterator[Workers]:
    with closing(Workers(api)) as found:
        yield found


def put(api: Served, kind: str, payload: object, query: str = "", **more: object) -> Reply:
    return api.call("PUT", f"/tasks/{kind}/1{query}", {"payload": payload, "delay": "1h", **more})


def refusal(reply: Reply) -> tuple[str, str]:
    """Path and message of the only problem."""
    assert (reply.status, reply.kind) == (400, "invalid-request")
    [found] = reply.body["errors"]
    return found["path"], found["message"]


def test_without_a_worker_every_task_is_stored(api: Served) -> None:
    """So it is if workers run a version of delayq that publishes nothing, or have no App."""
    assert put(api, "anything", {"x": 1}).status == 201
    assert listed(api) == {"push": []}


def test_what_no_worker_takes_is_refused(api: Served, workers: Workers) -> None:
    workers.start(OLD, "remind 1")
    path, message = refusal(put(api, "remnd", {"order": 7}))
    anyway = "; ?unknownKind=true stores it for workers that will take it"
    assert (path, message) == ("kind", f'no worker takes "remnd"; did you mean remind?{anyway}')
    _, message = refusal(put(api, "zzz", {}))
    assert message == f'no worker takes "zzz"; they take gone_soon, push, remind{anyway}'
    _, message = refusal(put(api, "remind", {"order": 7}, version=2))
    assert message == f'no worker takes "remind" version 2; they take version 1{anyway}'
    assert refusal(put(api, "remind", {"order": "seven"})) == (
        "payload.order",
        "expected a number, got text",
    )
    assert refusal(put(api, "remind", {})) == ("payload.order", "required, but missing")
    assert refusal(api.call("POST", "/tasks", {"kind": "remind"})) == (
        "payload",
        "expected an object, got null",
    )
    assert put(api, "remind", {"order": "7"}).status == 201, "the App takes it"
    assert put(api, "push", {"anything": 1}, version=9).status == 201, "the document routes it"
    assert put(api, "later", {}, "?unknownKind=true").status == 201
    refusal(put(api, "remind", {}, "?unknownKind=true"))
    raw = {"payloadBase64": "e30=", "contentType": "text/plain"}
    assert api.call("PUT", "/tasks/remind/2", raw).status == 201, "bytes are left to the worker"


def test_what_a_new_worker_takes_is_stored_before_the_next_look_at_redis(
    api: Served, workers: Workers
) -> None:
    """The API looks every five seconds, and before each refusal."""
    workers.start(OLD, "remind 1")
    refusal(put(api, "fresh", {}))
    commands = Commands(QUEUE)
    accepts = {"type": ["object"], "required": ["order"]}
    for number, item in enumerate(({"name": "fresh", "version": 1}, {"name": "remind", "version": 1})):
        text = json.dumps({"kinds": [{**item, "accepts": accepts}]})
        with closing(SyncConnection(Address.from_url(api.server.url))) as connection:
            connection.run([commands.publish_kinds(f"release-{number}", text)])
        payload = {"order": [number]}
        assert put(api, item["name"], payload).status == 201  # type: ignore[arg-type] # the name is text
    tasks = [{"kind": "remind", "payload": {"order": [n]}} for n in range(3)]
    assert api.call("POST", "/tasks:batch", {"tasks": tasks}).body["stored"] == 3


def test_a_batch_names_each_task_that_no_worker_takes_and_stores_nothing(
    api: Served, workers: Workers
) -> None:
    workers.start(OLD, "remind 1")
    tasks = [{"kind": "remind", "payload": {"order": n}} for n in range(250)]
    tasks[3] = {"kind": "nothing", "payload": {}}
    tasks[120] = {"kind": "remind", "payload": {"ordr": 1}}
    tasks[200] = {"kind": "remind", "payload": {"order": 1}, "tags": ["a b"]}
    reply = api.call("POST", "/tasks:batch", {"tasks": tasks})
    assert reply.status == 400
    assert [each["path"] for each in reply.body["errors"]] == [
        "tasks[3].kind",
        "tasks[120].payload.order",
        "tasks[200].tags",
    ]
    assert api.call("GET", "/queue").body["scheduled"] == 0
    del tasks[200], tasks[120], tasks[3]
    assert api.call("POST", "/tasks:batch", {"tasks": tasks}).body["stored"] == 247


def test_two_releases_side_by_side(api: Served, workers: Workers) -> None:
    """A task is stored if a worker of one of them takes it. A new kind is known at once, a dead one for 15 minutes."""
    old = workers.start(OLD, "remind 1")
    refusal(put(api, "count", 7))
    workers.start(NEW, "count 1")
    kinds = listed(api)
    assert {*kinds} == {"push", "remind 1", "gone_soon 1", "remind 2", "count 1"}
    assert {each["properties"]["order"]["type"] for each in kinds["remind 1"]} == {"integer", "string"}
    for payload in ({"order": 7}, {"order": "seven"}, {"order": "x", "lines": [{"product": 1}]}):
        assert put(api, "remind", payload, "?ifExists=replace").status < 300
    path, _ = refusal(put(api, "remind", {"order": []}))
    assert path == "payload.order"
    assert put(api, "count", 7).status == 201
    assert refusal(put(api, "count", {"items": [7]})) == ("payload", "expected a number, got a mapping")
    assert put(api, "gone_soon", {"order": 7}).status == 201
    old.stop()
    with api.server.client() as redis:
        [field] = [name for name, text in redis.hgetall(api.keys.kinds).items() if "gone_soon" in text]
        redis.hincrby(api.keys.kinds, f"{field}:until", -KINDS_KEEP_MS)
    assert {*listed(api)} == {"push", "remind 1", "remind 2", "count 1"}
    path, _ = refusal(put(api, "gone_soon", {"order": 7}))
    assert path == "kind"


@pytest.mark.parametrize(
    "text", ["no JSON", "[]", '{"kinds": [{"name": 7}]}', '{"kinds": [{"name": "a", "accepts": 7}]}']
)
def test_a_text_of_another_program_refuses_nothing_and_is_logged_once(
    api: Served, workers: Workers, text: str
) -> None:
    """A later version of delayq may have written it: which kinds its workers take is not known."""
    workers.start(OLD, "remind 1")
    logged = len(api.process.lines)
    with api.server.client() as redis:
        until = str(round(time.time() * 1000) + KINDS_KEEP_MS)
        redis.hset(api.keys.kinds, mapping={f"other-{text}": text, f"other-{text}:until": until})
    assert put(api, "unheard_of", {}).status == 201
    api.process.wait_line("published_kinds_unreadable", after=logged)
    assert put(api, "unheard_of_too", {}).status == 201
    listed(api)
    events = [each for each in api.process.lines[logged:] if "published_kinds_unreadable" in each]
    assert len(events) == 1
    assert json.loads(events[0])["release"] == f"other-{text}"
    with api.server.client() as redis:
        redis.hdel(api.keys.kinds, f"other-{text}:until")
    listed(api)
    refusal(put(api, "unheard_of_now", {}))
