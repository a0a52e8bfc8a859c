"""What a check finds: good, doubtful or bad, and what to do about it. Not here: checks."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


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


def merged(found: Mapping[str, list[Finding]]) -> list[Finding]:
    """Put what is found of several servers together: each check in order, and who it is said of."""
    if len(found) == 1:
        return next(iter(found.values()))
    said: dict[Finding, list[str]] = {}
    for where, findings in found.items():
        for finding in findings:
            said.setdefault(finding, []).append(where)
    checks = list(dict.fromkeys(finding.check for finding in said))
    return [
        replace(finding, message=_said(finding.message, of, len(found)))
        for finding, of in sorted(said.items(), key=lambda each: checks.index(each[0].check))
    ]


def _said(message: str, of: list[str], servers: int) -> str:
    if message.startswith(of[0]):  # it says so itself
        return message
    return f"{f'all {servers} servers' if len(of) == servers else ', '.join(of)}: {message}"
