"""The log: one event a line for machines, short for people, and nothing in it drives a terminal."""

from __future__ import annotations

import json
import logging

import pytest
from delayq.service.logs import ConsoleFormatter, JsonFormatter

HOSTILE = "\x1b]0;owned\x07 \x9b31m \u202egnp.exe \x7f \u2028 \U000e0001 end"


def record(event: str = "handler_failed", **fields: object) -> logging.LogRecord:
    made = logging.makeLogRecord({"msg": event, "levelname": "WARNING", "name": "delayq.worker.executor"})
    made.fields = fields
    return made


def raising(text: str) -> logging.LogRecord:
    made = record("step_failed")
    error = ValueError(text)
    made.exc_info = (ValueError, error, error.__traceback__)
    return made


@pytest.mark.parametrize(
    "made",
    [
        record(error=HOSTILE),
        record(event=HOSTILE),
        record(traceback=[{"error": HOSTILE, "frames": [HOSTILE]}]),
        raising(HOSTILE),
    ],
    ids=["field", "message", "traceback", "exception"],
)
def test_nothing_that_failed_can_drive_the_terminal_of_who_reads_the_log(made: logging.LogRecord) -> None:
    for line in (JsonFormatter().format(made), ConsoleFormatter().format(made)):
        assert all(char.isprintable() or char == "\n" for char in line), ascii(line)
        assert "end" in line


def test_json_says_the_same_as_before_it_was_escaped() -> None:
    line = JsonFormatter().format(record(error=HOSTILE, name="ü漢🙂"))
    assert (json.loads(line)["error"], json.loads(line)["name"]) == (HOSTILE, "ü漢🙂")
    assert "ü漢🙂" in line


def test_the_traceback_of_a_handler_stands_below_its_line_for_people() -> None:
    frames = ["shop:handle line 3: load(task)", "shop:load line 9: raise KeyError(key)"]
    made = record(task_id="order-7", traceback=[{"error": "KeyError: 'order'", "frames": frames}])
    first, *below = ConsoleFormatter().format(made).splitlines()
    assert first.endswith("warning handler_failed task_id=order-7")
    assert below == ["    KeyError: 'order'", *(f"      {frame}" for frame in frames)]
