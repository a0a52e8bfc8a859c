"""What to write instead of a cron expression that other programs take, and a document does not."""

from __future__ import annotations

import re
from typing import Final

_WORDS: Final = re.compile(r"@\w+.*")
_ZONE: Final = re.compile(r"(CRON_)?TZ=.*", re.IGNORECASE)
_SIX: Final = re.compile(r"\s*\S+(\s+\S+){5,6}\s*")
_OUTSIDE: Final = re.compile(r"\s.*|.*\s", re.DOTALL)


def hint(value: str, *, interval: str, question: bool = False) -> str:
    """Return what to do next; empty for a value that nothing is known of, or that may be a URL with a password.

    `interval`: how a fixed interval is written. `question`: a ? is valid.
    """
    if "@" in value[1:]:
        return ""
    if value.startswith("@every"):
        return f"for a fixed interval, {interval}"
    if _WORDS.fullmatch(value):
        return "the words are @hourly, @daily, @midnight, @weekly, @monthly, @yearly and @annually"
    if _ZONE.fullmatch(value):
        return "set the zone in timeZone"
    hints = {
        f"leave out the field of seconds or years; for seconds, {interval}": _SIX.fullmatch(value),
        "write * instead of ?": "?" in value and not question,
        "separate the fields with spaces, not with tabs": "\t" in value.strip(),
        "leave out the space or line break around it": _OUTSIDE.fullmatch(value),
    }
    return "; ".join(each for each, applies in hints.items() if applies)
