"""Draw docs/images/top.svg from a real `delayq top`: `.venv/bin/python -m tools.pictures.top`.

Three queues run on a Redis of their own while tasks are scheduled. It takes half a minute.
"""

from __future__ import annotations

import os
import pty
import re
import subprocess
import time
from typing import Final

from rich.console import Console
from rich.text import Text

from tests.processes import DELAYQ
from tools.pictures.demo import QUEUES, ROOT, queues_at_work

FILE: Final = ROOT / "docs" / "images" / "top.svg"
SECONDS: Final = 20
WIDTH: Final = 64


def shown(*command: str) -> str:
    """What the command prints on a terminal."""
    ours, theirs = pty.openpty()
    environment = os.environ | {"TERM": "xterm-256color", "COLUMNS": str(WIDTH)}
    process = subprocess.Popen(command, stdout=theirs, stderr=theirs, stdin=theirs, env=environment)  # noqa: S603 -- ours
    os.close(theirs)
    output = b""
    try:
        while chunk := os.read(ours, 4096):
            output += chunk
    except OSError:  # the terminal is closed
        pass
    os.close(ours)
    if process.wait():
        raise SystemExit(output.decode())
    return output.decode().replace("\r\n", "\n")


def main() -> None:
    with queues_at_work() as url:
        time.sleep(SECONDS)
        output = shown(DELAYQ, "top", *QUEUES, f"--redis={url}", "--once")
    console = Console(record=True, width=WIDTH)
    console.print(Text.from_ansi(output))
    picture = console.export_svg(title=f"delayq top {' '.join(QUEUES)}")
    FILE.write_text(
        re.sub(r"@font-face \{.*?\}\s*|<!--.*?-->\s*", "", picture, flags=re.DOTALL)
    )  # fonts of the reader


if __name__ == "__main__":
    main()
