"""How a scanner, worker or reaper of `delayq run` starts: tied to its parent, then `delayq …` like any other.

    python -P -m delayq.local.child PARENT DIRECTORY worker --config …

-P keeps the current directory off the path until delayq is loaded: a `queue.py` beside `queue.yaml` is likely, and
must not become the standard library's.
"""

from __future__ import annotations

import io
import signal
import sys
from importlib import import_module
from pathlib import Path

from delayq.handlers import python  # noqa: F401 -- loads all that a handler's thread pool stands on, see above
from delayq.local.tether import tie


def main() -> None:
    """Run the command that argv names, able to import from here and from beside the document."""
    parent, beside, *arguments = sys.argv[1:]
    tie(int(parent), signal.SIGKILL)
    # By name: this is how a process starts, not a use of the layer above. The first loads what the second loads late.
    import_module(f"delayq.cli.{arguments[0]}")
    command = import_module("delayq.cli.root").delayq
    sys.path[:0] = dict.fromkeys((str(Path.cwd()), beside))
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True)  # what a handler prints is shown when it prints it
    command(arguments, prog_name="delayq")


if __name__ == "__main__":
    main()
