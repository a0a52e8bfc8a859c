"""The payload of a DelaySchedule is JSON as text, and is checked before it is parsed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from delayq.contract import SpecError, to_document
from delayq.contract.document import parse_schedule, parse_schedule_spec
from delayq.contract.json_text import MOST_BYTES, MOST_LEVELS

if TYPE_CHECKING:
    from delayq.contract.schedule import ScheduledTask


def task(payload: object, **more: object) -> ScheduledTask:
    fields = {"payload": payload, **more}
    return parse_schedule_spec("a", {"queueRef": {"name": "q"}, "everySeconds": 1, "task": fields}).spec.task


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (
            '{"region": "eu", "tags": [1, 0.5, null, "[{\\"]"]}\n',
            {"region": "eu", "tags": [1, 0.5, None, '[{"]']},
        ),
        ("null", None),
        ('"é\\u00e9"', "éé"),
        ("[" * MOST_LEVELS + "]" * MOST_LEVELS, None),
        (f'"{"x" * (MOST_BYTES - 2)}"', "x" * (MOST_BYTES - 2)),
    ],
)
def test_a_payload_is_the_value_that_its_text_says(text: str, value: object) -> None:
    found = task(text)
    assert found.payload == text
    assert found.value == value or text.startswith("[")


def test_without_a_payload_a_kind_has_no_arguments_and_others_have_null() -> None:
    assert (task(None).value, task(None, kind="report").value) == (None, {})


WRONG: dict[Any, str] = {
    "[" * (MOST_LEVELS + 1) + "]" * (MOST_LEVELS + 1): "of at most 64 levels",
    "[" * MOST_BYTES: "of at most 64 levels",
    f'"{"é" * 32_768}"': "at most 65,536 bytes of it, got 65,538",
    "": "got text that is none: Expecting value at line 1, column 1",
    "region: eu": "got text that is none: Expecting value at line 1, column 1",
    '{"a": 1}}': "got text that is none: Extra data at line 1, column 9",
    "NaN": "got text that is none: NaN is not JSON",
    "1e999": "got text that is none: a number is too large",
    '"\ud800"': "got no valid Unicode",
    '["\\ud800"]': "got an escape that is half a character, such as \\ud800",
    "1" * 5_000: "got text that is none: a number has 5,000 digits, expected at most 4,300",
    7: "got a number: write `|`, and the JSON below it",
    True: "got true or false: write `|`, and the JSON below it",
}


@pytest.mark.parametrize("payload", WRONG, ids=range(len(WRONG)))
def test_what_is_no_json_text_is_refused_by_one_sentence(payload: object) -> None:
    with pytest.raises(SpecError) as raised:
        task(payload)
    assert str(raised.value) == f"spec.task.payload: expected JSON as text, {WRONG[payload]}"


def test_the_error_of_the_old_form_has_the_new_one() -> None:
    with pytest.raises(
        SpecError, match=r"payload: expected JSON as text, got a mapping: write `\|`, and the JSON"
    ):
        task({"region": "eu"})


def test_a_document_is_rendered_with_the_text() -> None:
    spec = {"queueRef": {"name": "q"}, "everySeconds": 1, "task": {"payload": '{"b": 1,\n "a": 2}'}}
    rendered = to_document(parse_schedule_spec("a", spec))
    assert parse_schedule(rendered) == parse_schedule_spec("a", spec)
