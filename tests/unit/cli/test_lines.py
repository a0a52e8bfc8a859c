"""One line of `schedule --many`: what it may be, and what is said when it is not."""

from __future__ import annotations

import contextlib
import json

import pytest
from delayq.cli.many import new_task
from delayq.client.encoding import NewTask
from hypothesis import given
from hypothesis import strategies as st


def test_a_line_says_all_that_schedule_takes() -> None:
    line = b'{"payload": {"order": 7}, "in": "30m", "id": "order-7", "headers": {"k": "v"}}'
    assert new_task(line) == NewTask({"order": 7}, 1_800_000, None, "order-7", {"k": "v"}, None)
    late = b'{"payload": 1, "deadline": "2h", "expires_ms": 5, "expires": "x"}'
    assert (
        new_task(late)
        == NewTask(1, 0, deadline_ms=7_200_000)
        == new_task(b'{"payload": 1, "deadline_ms": 7200000}')
    )
    of_bytes = b'{"payload_base64": "/wA=", "content_type": "image/png"}'
    assert new_task(of_bytes) == NewTask(b"\xff\x00", 0, content_type="image/png")
    exported = b'{"payload": 1, "state": "dlq", "died_ms": 5, "failures": 2, "error": "x", "scheduled_ms": 4}'
    assert new_task(exported) == NewTask(1, 0), "what an export tells beside the task is passed over"


@pytest.mark.parametrize(
    ("when", "task"),
    [
        ({}, NewTask(None, delay_ms=0)),
        ({"delay_ms": 5}, NewTask(None, delay_ms=5)),
        ({"due_ms": 5}, NewTask(None, due_ms=5)),
        ({"at": "2026-12-01T09:00:00Z"}, NewTask(None, due_ms=1_796_115_600_000)),
        ({"in": None, "due_ms": 5}, NewTask(None, due_ms=5)),
    ],
)
def test_it_says_when_in_one_of_four_ways(when: dict[str, object], task: NewTask) -> None:
    assert new_task(json.dumps({"payload": None} | when).encode()) == task


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b"", "Expecting value at line 1, column 1"),
        (b"[]", 'expected a JSON object like {"payload": …, "in": "30m"}, got a list'),
        (b"{}", "expected exactly one of payload and payload_base64"),
        (b'{"payload": NaN}', "NaN is not JSON"),
        (b'{"payload": 1, "deadline": "0s"}', "deadline: expected at least 1ms, got 0s"),
        (b'{"payload": 1, "in": "4000d"}', "in: expected at most 3660d, got 4000d"),
        (b'{"payload": 1, "delayms": 5}', '"delayms": unknown field, did you mean delay_ms?'),
        (b'{"payload": 1, "in": "5m", "due_ms": 5}', "got in and due_ms"),
        (b'{"payload": 1, "in": 5}', "in: expected text, got a number"),
        (b'{"payload": 1, "at": "2026-12-01"}', "at: expected a time with its zone"),
        (b'{"payload_base64": "*"}', "payload_base64: expected base64 text"),
        (b'{"payload": "\xff"}', "not UTF-8 at byte 13"),
        (b"[" * 100_000, "nested too deeply"),
        (b'{"payload": ' + b"9" * 5000 + b"}", "digits"),
    ],
)
def test_what_is_wrong_is_said(line: bytes, said: str) -> None:
    with pytest.raises(ValueError) as wrong:  # noqa: PT011  the message is compared below
        new_task(line)
    assert said in str(wrong.value)


@given(
    st.binary()
    | st.recursive(st.none() | st.integers() | st.text(), st.lists).map(lambda x: json.dumps(x).encode())
)
def test_no_line_ends_in_anything_but_a_task_or_a_sentence(line: bytes) -> None:
    with contextlib.suppress(ValueError):
        new_task(line)
