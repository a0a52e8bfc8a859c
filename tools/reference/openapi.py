"""Write docs/reference/openapi.json: `python -m tools.reference.openapi docs/reference`."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from delayq.api.openapi import document


def text() -> str:
    """Return the text of the file."""
    return json.dumps(document(), indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    Path(sys.argv[1], "openapi.json").write_text(text())
