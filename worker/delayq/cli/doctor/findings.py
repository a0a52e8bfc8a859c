"""What a check finds: good, doubtful or bad, and what to do about it. Not here: checks."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Level(StrEnum):
    """How bad it is."""

    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"


MARKS = {Level.OK: "✓", Level.WARNING: "!", Level.FAILED: "✗"}


@dataclass(frozen=True)
class Finding:
    """What one check found."""

    check: str
    level: Level
    message: str
    hint: str = ""
    unreachable: bool = False  # nothing after it can be checked


def ok(check: str, message: str) -> Finding:
    """Return that all is well."""
    return Finding(check, Level.OK, message)


def warning(check: str, message: str, hint: str) -> Finding:
    """Return what works, but not as promised."""
    return Finding(check, Level.WARNING, message, hint)


def failed(check: str, message: str, hint: str) -> Finding:
    """Return what does not work."""
    return Finding(check, Level.FAILED, message, hint)


def unreachable(check: str, message: str, hint: str) -> Finding:
    """Return why Redis cannot be asked any further."""
    return Finding(check, Level.FAILED, message, hint, unreachable=True)
