"""Times as the API writes them, said as a person would; `now` is in Unix seconds. Pure."""

from __future__ import annotations

from datetime import datetime

from delayq.cli.words import length


def unix(time: object) -> float | None:
    """Read a time of the API; None when it is none."""
    try:
        return datetime.fromisoformat(str(time)).timestamp()
    except ValueError:
        return None


def since(time: object, now: float) -> str:
    """Say for how long: 3m. Clocks differ, and nothing is younger than now."""
    at = unix(time)
    return "?" if at is None else length(max(0.0, now - at) * 1000) if now - at >= 1 else "0s"


def ago(time: object, now: float) -> str:
    """Say when it was: 3m ago."""
    said = since(time, now)
    return {"?": "at an unknown time", "0s": "just now"}.get(said, f"{said} ago")


def until(time: object, now: float) -> str:
    """Say when it will be: in 3m; now, when that time has come."""
    at = unix(time)
    if at is None:
        return "at an unknown time"
    return f"in {length((at - now) * 1000)}" if at - now >= 1 else "now"
