"""The delayq command. One module per group of commands; this one only puts them together."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line; the extras it needs may be missing."""
    try:
        from delayq.cli.root import delayq  # noqa: PLC0415 -- click is an extra
    except ModuleNotFoundError as error:
        sys.exit(
            f"delayq: {error.name} is not installed; install delayq[worker], or delayq[cli] without processes"
        )
    delayq()
