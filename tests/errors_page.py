"""docs/reference/redis-errors.md as data: the error replies that it names, and the cause of each."""

from __future__ import annotations

import re
from pathlib import Path

PAGE = (Path(__file__).parents[1] / "docs" / "reference" / "redis-errors.md").read_text(encoding="utf-8")
_ROW = re.compile(r"^\| (`[^|]+`) \| `(\w+)` \|", re.MULTILINE)


def replies() -> dict[str, str]:
    """Each error reply, or how it begins → its cause. Rows without a cause, or without a reply, are not here."""
    rows = _ROW.findall(PAGE)
    return {reply: cause for said, cause in rows for reply in re.findall("`([^`]+)`", said)}
