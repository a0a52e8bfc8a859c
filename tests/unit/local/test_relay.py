"""What the end of a process means for its run."""

from __future__ import annotations

import json

import pytest
from delayq.errors import InvalidDocument
from delayq.local.process import STDERR
from delayq.local.relay import INVALID, Relay

STARTED = json.dumps({"time": "2026-11-25T12:00:00Z", "level": "debug", "event": "started", "port": 1})
BROKEN = "delayq: handler: cannot import shop"


def test_a_handler_that_cannot_be_used_ends_the_run_at_its_first_start_only() -> None:
    lines: list[tuple[str, str]] = []
    relay = Relay("orders/worker-1", lambda name, line: lines.append((name, line)), lambda: None)
    relay.parse(STDERR, BROKEN)
    with pytest.raises(InvalidDocument, match=BROKEN):
        relay.ended(INVALID)
    relay.begin()
    assert relay.parse(STDERR, STARTED)
    relay.ended(-9)
    relay.begin()
    relay.parse(STDERR, BROKEN)
    assert lines == []
    relay.ended(INVALID)
    assert lines == [("orders/worker-1", BROKEN)]


def test_a_guard_serves_after_its_first_check_and_after_an_outage() -> None:
    relay = Relay("orders/worker-1", lambda *_: None, lambda: None)
    opened = {"event": "guard_breaker_opened", "where": "db", "error": "connection refused"}
    seen: list[str | None] = [relay.guard]
    for event in ({"event": "guard_checked"}, opened, {"event": "guard_breaker_closed"}):
        relay.parse(STDERR, json.dumps({"time": "2026-11-25T12:00:00Z", "level": "info"} | event))
        seen.append(relay.guard)
    assert seen == [None, "", "connection refused (db)", ""]
