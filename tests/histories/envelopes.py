"""Envelopes as bytes in text of one byte a letter. Read here once more, for the model uses nothing of the product."""

from __future__ import annotations

from typing import Final

from tests.histories.history import Parsed

KIND, DEADLINE, LATEST = 1, 2, 4
EXTENDED: Final = 32  # the first byte of an envelope with further fields, at least


def parsed(envelope: str) -> Parsed:
    """Read an envelope; the latest due time of its content is set to zero."""
    raw = envelope.encode("latin-1")
    due, at, latest = int.from_bytes(raw[-6:], "big"), 2, None
    if raw[0] >= EXTENDED and raw[1] & LATEST:
        at += 3 + raw[2] if raw[1] & KIND else 0
        at += 5 if raw[1] & DEADLINE else 0
        latest = int.from_bytes(raw[at : at + 6], "big")
        raw = raw[:at] + bytes(6) + raw[at + 6 :]
    return Parsed(raw[:-6].decode("latin-1"), latest, due)


def deadline_of(body: str) -> int | None:
    """The deadline in a body, ms after its due time."""
    raw = body.encode("latin-1")
    if raw[0] < EXTENDED or not raw[1] & DEADLINE:
        return None
    at = 2 + (3 + raw[2] if raw[1] & KIND else 0)
    return int.from_bytes(raw[at : at + 5], "big")


def kind_of(body: str) -> str:
    """The kind in a body; "-" without one."""
    raw = body.encode("latin-1")
    return raw[3 : 3 + raw[2]].decode() if raw[0] >= EXTENDED and raw[1] & KIND else "-"
