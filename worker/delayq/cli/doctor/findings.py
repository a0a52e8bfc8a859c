"""The findings of checks."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING

from delayq.client.document import InvalidFields
from delayq.contract.outages import remedy

if TYPE_CHECKING:
    from collections.abc import Mapping

    from delayq.errors import DelayQError, InvalidDocument


class Level(StrEnum):
    """Severity."""

    OK = "ok"
    SKIPPED = "skipped"
    WARNING = "warning"
    FAILED = "failed"


MARKS = {Level.OK: "✓", Level.SKIPPED: "-", Level.WARNING: "!", Level.FAILED: "✗"}


@dataclass(frozen=True)
class Finding:
    """The result of one check."""

    check: str
    level: Level
    message: str
    hint: str = ""
    unreachable: bool = False  # later checks cannot run
    path: str = ""  # of the field of the document that the message is about
    line: int | None = None  # of that field


def ok(check: str, message: str) -> Finding:
    """Return a passed check."""
    return Finding(check, Level.OK, message)


def skipped(check: str, message: str) -> Finding:
    """Return a check that cannot run here, and where it can."""
    return Finding(check, Level.SKIPPED, message)


def warning(check: str, message: str, hint: str) -> Finding:
    """Return a limitation: it works, but not as promised."""
    return Finding(check, Level.WARNING, message, hint)


def failed(check: str, message: str, hint: str) -> Finding:
    """Return a failure."""
    return Finding(check, Level.FAILED, message, hint)


def invalid(check: str, error: InvalidDocument, hint: str) -> Finding:
    """Return a failure of the document, with its field and line if it has one problem."""
    finding, wrong = failed(check, str(error), hint), error.wrong if isinstance(error, InvalidFields) else ()
    if len(wrong) != 1:
        return finding
    return replace(finding, path=wrong[0].problem.path, line=wrong[0].line or None)


def unreachable(check: str, message: str, hint: str) -> Finding:
    """Return a failure that prevents the later checks."""
    return Finding(check, Level.FAILED, message, hint, unreachable=True)


def cures(*errors: DelayQError) -> str:
    """Return what to do about these errors of Redis, each cure once."""
    return "; ".join(dict.fromkeys(remedy(error.outage).cure for error in errors))


def merged(found: Mapping[str, list[Finding]]) -> list[Finding]:
    """Merge equal findings of several servers, in the order of the checks, with the servers' names."""
    if len(found) == 1:
        return next(iter(found.values()))
    by_finding: dict[Finding, list[str]] = {}
    for where, findings in found.items():
        for finding in findings:
            by_finding.setdefault(finding, []).append(where)
    checks = list(dict.fromkeys(finding.check for finding in by_finding))
    return [
        replace(finding, message=_with_servers(finding.message, of, len(found)))
        for finding, of in sorted(by_finding.items(), key=lambda each: checks.index(each[0].check))
    ]


def _with_servers(message: str, of: list[str], servers: int) -> str:
    if message.startswith(of[0]):  # it names the server already
        return message
    return f"{f'all {servers} servers' if len(of) == servers else ', '.join(of)}: {message}"
