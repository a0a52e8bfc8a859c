"""Hostile ids, headers and bytes all the way from a client, or from another program, to a command: whole or refused."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

from delayq import NewTask
from delayq.protocol.envelope import encode
from delayq.protocol.results import State

from tests.process.fleet import until

if TYPE_CHECKING:
    from pathlib import Path

    from tests.process.fleet import NewFleet

IDS = [
    *("--help", "-", "*", "$(touch${IFS}owned)", "`id`", "'", '"', "\\", "ü-漢-🙂"),
    *("%00", "a:b:", "{q}", "../..", "=", "x" * 200),
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
"""Ids that no client lets through: another program wrote them into Redis."""
PAYLOAD = b"\x00\xff\r\n\r\n--"
SPEC: dict[str, Any] = {
    "delivery": {"maxAttempts": 1, "maxBlockMilliseconds": 500},
    "worker": {"concurrency": 8},
}
COMMAND = """
import json, os, sys, uuid
found = {name: value for name, value in os.environ.items() if name.startswith('DELAYQ_')}
found['stdin'], found['PATH'] = sys.stdin.buffer.read().hex(), os.environ.get('PATH', '')
with open(os.path.join(sys.argv[1], uuid.uuid4().hex), 'w') as file:
    json.dump(found, file)
"""


def test_a_command_gets_every_id_and_header_whole_and_nothing_of_it_is_run(
    new_fleet: NewFleet, tmp_path: Path
) -> None:
    """The worker is alive at the end, and its log can be read."""
    found = tmp_path / "found"
    found.mkdir()
    fleet = new_fleet(SPEC | {"handler": {"exec": {"command": [sys.executable, "-c", COMMAND, str(found)]}}})
    worker = fleet.start("worker")
    with fleet.client() as client, fleet.server.client() as redis:
        client.schedule_many(NewTask(PAYLOAD, delay_ms=0, task_id=each, headers=HEADERS) for each in IDS)
        body = encode(PAYLOAD, None, None)[0] + fleet.server.now_ms().to_bytes(6, "big")
        for raw in FOREIGN:
            redis.hset(fleet.keys.tasks, raw, body)
            redis.zadd(fleet.keys.delayed, {raw: 1})

        def ended() -> bool:
            counts = client.counts()
            return counts.stats.get("acked", 0) + counts.dead == len(IDS) + len(FOREIGN)

        until(ended, "all have ended")
        assert [row.id for row in client.list(State.DEAD)] == ["\x00"]  # which no environment can hold
    assert worker.alive
    for line in worker.lines:
        assert isinstance(json.loads(line), dict), line
    by_id = {run["DELAYQ_TASK_ID"]: run for run in (json.loads(file.read_text()) for file in found.iterdir())}
    for task_id in IDS:
        run = by_id[task_id]
        assert (json.loads(run["DELAYQ_HEADERS"]), bytes.fromhex(run["stdin"])) == (HEADERS, PAYLOAD)
        assert run["PATH"] != "/nowhere"
    assert not list(tmp_path.rglob("owned"))
