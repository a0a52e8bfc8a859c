"""Logs in a report: delayq's own lines, and of what handlers say only that they said something."""

from __future__ import annotations

import json

from delayq.plugin.loglines import own

STARTED = '{"time": "2026-01-01T00:00:00.000+00:00", "level": "info", "logger": "delayq.runtime", "event": "started"}'


def event(**fields: str) -> str:
    return json.dumps({"level": "warning", "logger": "delayq.running", **fields})


def test_own_lines_stay_and_others_are_counted() -> None:
    log = f"{STARTED}\npaying 4111 for Ada\nand more\n{STARTED}\nbye"
    assert own(log).splitlines() == [
        STARTED,
        "<2 lines that delayq did not write>",
        STARTED,
        "<1 line that delayq did not write>",
    ]


def test_json_of_others_is_not_ours() -> None:
    """A handler may log JSON, with an event, too."""
    assert own('{"event": "paid", "card": "4111"}') == "<1 line that delayq did not write>"
    assert own('{"event": "paid", "logger": "shop", "card": "4111"}') == "<1 line that delayq did not write>"
    assert own('{"event": {"card": "4111"}, "logger": "delayq"}') == "<1 line that delayq did not write>"
    assert own('{"broken') == "<1 line that delayq did not write>"


def test_of_a_failed_handler_the_kind_of_error_stays() -> None:
    said = json.loads(own(event(event="handler_failed", task_id="order-7", error="ValueError: card 4111")))
    assert said["error"] == "ValueError: <redacted>"
    assert said["task_id"] == "order-7"
    said = json.loads(own(event(event="handler_buried", error="card 4111 is no good")))
    assert said["error"] == "<redacted>"


def test_errors_of_delayq_itself_stay() -> None:
    line = event(event="counts_unavailable", error="connection refused")
    assert own(line) == line


def test_of_a_traceback_the_places_stay() -> None:
    trace = (
        "Traceback (most recent call last):\n"
        '  File "/app/shop.py", line 7, in pay\n'
        '    charge(card="4111")\n'
        "shop.DeclinedError: card 4111\n"
    )
    assert own(trace).splitlines() == [
        "Traceback (most recent call last):",
        '  File "/app/shop.py", line 7, in pay',
        "<1 line that delayq did not write>",
        "shop.DeclinedError: <redacted>",
    ]
    said = json.loads(own(event(event="loop_failed", trace=trace)))
    assert "4111" not in said["trace"]


def test_lines_for_people_are_known_too() -> None:
    log = (
        "12:00:01.234 info    started port=8080\n"
        "12:00:01.234 warning handler_failed task_id=a attempt=1 error=ValueError: card 4111 task_id=b\n"
        "12:00 lunch"
    )
    assert own(log).splitlines() == [
        "12:00:01.234 info    started port=8080",
        "12:00:01.234 warning handler_failed task_id=a attempt=1 <redacted>",
        "<1 line that delayq did not write>",
    ]
