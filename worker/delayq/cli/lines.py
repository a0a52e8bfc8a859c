"""One line of `schedule --many`: from JSON to a task, or to what is wrong with it."""

from __future__ import annotations

import base64
import difflib
from typing import TYPE_CHECKING, Any, Final

from delayq.cli.inputs import strict_json
from delayq.cli.words import duration_ms, instant_ms
from delayq.client.encoding import NewTask
from delayq.contract.problems import quote, type_name

if TYPE_CHECKING:
    from collections.abc import Mapping

WHEN: Final = ("in", "at", "delay_ms", "due_ms")
PAYLOADS: Final = ("payload", "payload_base64")
READ: Final = (*WHEN, *PAYLOADS, "id", "headers", "content_type")
# What an export tells beside the task itself.
PASSED_OVER: Final = frozenset(
    {
        *(
            "state",
            "due",
            "died",
            "died_ms",
            "lease_expires",
            "lease_expires_ms",
            "scheduled",
            "scheduled_ms",
            "token",
        ),
        *("failures", "crashes", "reason", "error"),
    }
)


def new_task(line: bytes) -> NewTask:
    """Read a line; ValueError says what is wrong with it."""
    fields = strict_json(line)
    if not isinstance(fields, dict):
        expected = 'a JSON object like {"payload": …, "in": "30m"}'
        raise ValueError(f"expected {expected}, got {type_name(fields)}")  # noqa: TRY004 -- a file's fault, not a caller's
    _refuse_unknown(fields)
    return NewTask(
        _payload(fields),
        **_when(fields),
        task_id=fields.get("id"),
        headers=fields.get("headers"),
        content_type=fields.get("content_type"),
    )


def _refuse_unknown(fields: Mapping[str, Any]) -> None:
    for name in fields:
        if name not in READ and name not in PASSED_OVER:
            near = difflib.get_close_matches(name, READ, n=1)
            hint = f"did you mean {near[0]}?" if near else f"expected {', '.join(READ)}"
            raise ValueError(f"{quote(name)}: unknown field, {hint}")


def _payload(fields: Mapping[str, Any]) -> Any:  # noqa: ANN401 -- any JSON value, or bytes
    match [name for name in PAYLOADS if name in fields]:
        case ["payload"]:
            return fields["payload"]
        case ["payload_base64"]:
            return _decoded(fields["payload_base64"])
    raise ValueError("expected exactly one of payload and payload_base64")


def _decoded(text: object) -> bytes:
    try:
        return base64.b64decode(text, validate=True)  # type: ignore[arg-type] # a TypeError is caught below
    except (TypeError, ValueError):
        raise ValueError("payload_base64: expected base64 text") from None


def _when(fields: Mapping[str, Any]) -> dict[str, Any]:
    given = [name for name in WHEN if fields.get(name) is not None]
    if len(given) > 1:
        raise ValueError(f"expected one of {', '.join(WHEN)}, got {' and '.join(given)}")
    if not given:
        return {"delay_ms": 0}
    [name] = given
    value = fields[name]
    if name in ("delay_ms", "due_ms"):
        return {name: value}
    if not isinstance(value, str):
        raise ValueError(f"{name}: expected text, got {type_name(value)}")  # noqa: TRY004 -- as above
    try:
        return {"delay_ms": duration_ms(value)} if name == "in" else {"due_ms": instant_ms(value)}
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None
