"""Say what suspends a queue: the document, the command `delayq suspend`, or both."""

from __future__ import annotations

from typing import TYPE_CHECKING

from delayq.cli.formats import clean, relative

if TYPE_CHECKING:
    from delayq.cli.target import Target
    from delayq.protocol.results import Suspension

WORKERS = "workers claim no tasks"


def by_command(found: Suspension, now_ms: int) -> str:
    """Describe what `delayq suspend` stored: `suspended by delayq suspend 3m ago (incident 7)`."""
    drain = " --drain" if found.drain else ""
    reason = f" ({clean(found.reason)})" if found.reason else ""
    return f"suspended by delayq suspend{drain} {relative(found.since_ms, now_ms)}{reason}"


def by_document(target: Target) -> str:
    """Describe how the document suspends the queue; empty if it does not."""
    return f"suspended by the document: {target.suspension}" if target.suspension else ""


def resume_document(target: Target) -> str:
    """Return what to do about the document."""
    name = target.delay_queue
    return f"kubectl dq resume {name}" if name else "set spec.suspend to false, and restart the workers"


def resume_command(target: Target) -> str:
    """Return the command that undoes `delayq suspend`. `kubectl dq resume` changes the document instead."""
    name = target.delay_queue
    if name:
        return f"kubectl exec deploy/{name}-scanner -- delayq resume {target.path}"
    return target.command("resume")
