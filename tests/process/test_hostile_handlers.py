"""Hostile ids, headers and bytes all the way to commands and HTTP servers: whole or refused, never another header."""

from __future__ import annotations

import json
import sys
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from delayq import NewTask
from delayq.protocol.envelope import encode
from delayq.protocol.results import State

from tests.process.fleet import until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.process.fleet import Fleet, NewFleet

IDS = [
    "--help",
    "-",
    "*",
    "$(touch${IFS}owned)",
    "`id`",
    "'",
    '"',
    "\\",
    "ü-漢-🙂",
    "%00",
    "a:b:",
    "{q}",
    "../..",
    "=",
    "x" * 200,
]
HEADERS = {
    "a\r\nX-Evil": "b\r\n\r\nGET /",
    "nul": "\x00",
    "": "",
    "ü": "漢",
    "DELAYQ_TASK_ID": "not me",
    "PATH": "/nowhere",
}
FOREIGN = [b"with space", b"new\nline: 1", b"\x00", b"\xff\xfe", b"y" * 5000, b"\r\nX-Evil: 1"]
"""Ids that no client lets through, and that somebody else wrote into Redis."""
PAYLOAD = b"\x00\xff\r\n\r\n--"
SPEC: dict[str, Any] = {
    "delivery": {"maxAttempts": 1, "maxBlockMilliseconds": 500},
    "worker": {"concurrency": 8},
}
COMMAND = """
import json, os, sys, uuid
found = {name: value for name, value in os.environ.items() if name.startswith('DELAYQ_')}
found['stdin'], found['PATH'] = sys.stdin.buffer.read().hex(), os.environ.get('PATH', '')
with open(os.path.join(sys.argv[1], uuid.uuid4().hex + '.part'), 'w') as file:
    json.dump(found, file)
os.rename(file.name, file.name[:-5] + '.json')
"""


@contextmanager
def listening(seen: list[dict[str, Any]]) -> Iterator[str]:
    """A server that notes what reaches it."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            seen.append({"path": self.path, "headers": self.headers.items(), "stdin": body.hex()})
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Not on stderr."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/take"
    finally:
        server.shutdown()
        server.server_close()


def write_foreign(fleet: Fleet) -> None:
    """As somebody who has the password and no client would."""
    body = encode(PAYLOAD, None, None)[0] + fleet.server.now_ms().to_bytes(6, "big")
    with fleet.server.client() as redis:
        for raw in FOREIGN:
            redis.hset(fleet.keys.tasks, raw, body)
            redis.zadd(fleet.keys.delayed, {raw: 1})


def play(fleet: Fleet) -> list[str]:
    """Run everything, and return what the worker wrote; it is alive at the end and has lost nothing."""
    worker, _ = fleet.start_all("worker", "scanner")
    with fleet.client() as client:
        client.schedule_many(
            NewTask(PAYLOAD, delay_ms=0, task_id=task_id, headers=HEADERS) for task_id in IDS
        )
        write_foreign(fleet)
        done = len(IDS) + len(FOREIGN)

        def ended() -> bool:
            counts = client.counts()
            return counts.stats.get("acked", 0) + counts.dead == done

        until(ended, "all have ended", timeout_s=60)
        letters = [row.id for row in client.list(State.DEAD)]
    assert worker.alive
    assert not set(letters) & set(IDS)
    for line in worker.lines:
        assert isinstance(json.loads(line), dict), line
    return letters


def test_commands_get_every_id_and_header_whole_and_nothing_of_it_is_run(
    new_fleet: NewFleet, tmp_path: Path
) -> None:
    found = tmp_path / "found"
    found.mkdir()
    fleet = new_fleet(SPEC | {"handler": {"exec": {"command": [sys.executable, "-c", COMMAND, str(found)]}}})
    letters = play(fleet)
    runs = [json.loads(file.read_text()) for file in found.glob("*.json")]
    by_id = {run["DELAYQ_TASK_ID"]: run for run in runs}
    assert set(IDS) <= set(by_id)
    for task_id in IDS:
        run = by_id[task_id]
        assert (json.loads(run["DELAYQ_HEADERS"]), bytes.fromhex(run["stdin"])) == (HEADERS, PAYLOAD)
        assert run["PATH"] != "/nowhere"
    assert letters == ["\x00"]  # which no environment can hold
    assert not list(tmp_path.rglob("owned"))


def test_servers_get_every_id_and_header_encoded_and_no_other_header(new_fleet: NewFleet) -> None:
    seen: list[dict[str, Any]] = []
    with listening(seen) as url:
        letters = play(new_fleet(SPEC | {"handler": {"http": {"url": url}}}))
    assert letters == []
    assert {each["path"] for each in seen} == {"/take"}
    by_id = {read(dict(each["headers"])["Delayq-Task-Id"]): each for each in seen}
    assert set(IDS) <= set(by_id)
    for each in seen:
        names = [name.lower() for name, _ in each["headers"]]
        assert "x-evil" not in names
        assert len(names) == len(set(names))
        assert bytes.fromhex(each["stdin"]) == PAYLOAD
    for task_id in IDS:
        found = dict(by_id[task_id]["headers"])
        prefix = "Delayq-Header-"
        assert {
            unquote(name.removeprefix(prefix)): read(value)
            for name, value in found.items()
            if name.startswith(prefix)
        } == HEADERS


def read(value: str) -> str:
    """As docs/how-to/handlers.md tells receivers to."""
    return unquote(value.removeprefix("UTF-8''")) if value.startswith("UTF-8''") else value
