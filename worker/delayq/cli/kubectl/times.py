"""Format the API's times as text; `now` is in Unix seconds. Pure."""

from __future__ import annotations

from datetime import datetime

from delayq.cli.formats import length


def unix(time: object) -> float | None:
    """Parse a time of the API; None if invalid."""
    try:
        return datetime.fromisoformat(str(time)).timestamp()
    except ValueError:
        return None


def since(time: object, now: float) -> str:
    """Format the duration since a time: 3m. Clocks differ, so a future time counts as now."""
    at = unix(time)
    return "?" if at is None else length(max(0.0, now - at) * 1000) if now - at >= 1 else "0s"


def ago(time: object, now: float) -> str:
    """Format a past time: 3m ago."""
    age = since(time, now)
    return {"?": "at an unknown time", "0s": "just now"}.get(age, f"{age} ago")


def until(time: object, now: float) -> str:
    """Format a future time: in 3m; a past time is now."""
    at = unix(time)
    if at is None:
        return "at an unknown time"
    return f"in {length((at - now) * 1000)}" if at - now >= 1 else "now"
