"""Start a scanner, worker, reaper or API of `delayq run`: set the parent-death signal, then run `delayq …`.

    python -P -m delayq.local.child PARENT DIRECTORY worker DOCUMENT…

-P keeps the current directory off the path until delayq is loaded: a `queue.py` beside `queue.yaml` must not replace
the standard library's module.
"""

from __future__ import annotations

import io
import signal
import sys
from importlib import import_module
from pathlib import Path

from delayq.handlers import python  # noqa: F401 -- imports all modules that handlers need, see above
from delayq.local.tether import tie


def main() -> None:
    """Run the command of argv, with the current directory and the document's on the path."""
    parent, beside, *arguments = sys.argv[1:]
    tie(int(parent), signal.SIGKILL)
    # Import by name: this is a process entry point, not a dependency on the layer above.
    import_module(f"delayq.cli.{arguments[0]}")
    command = import_module("delayq.cli.root").delayq
    sys.path[:0] = dict.fromkeys((str(Path.cwd()), beside))
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True)  # show a handler's output at once
    command(arguments, prog_name="delayq")


if __name__ == "__main__":
    main()
