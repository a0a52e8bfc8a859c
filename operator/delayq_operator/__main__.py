"""delayq-operator: the command that starts the operator."""

from __future__ import annotations

import os
import signal
import sys


def main() -> None:
    """Start the operator; the extra it needs may be missing."""
    # Importing takes a second, and process 1 of a container is deaf to signals that it has no handler for.
    # Not sys.exit: an import may lose its exception (3 of 100 did).
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    try:
        from delayq_operator.runtime.cli import delayq_operator  # noqa: PLC0415 -- kopf and the rest are an extra
    except ModuleNotFoundError as error:
        sys.exit(f"delayq-operator: {error.name} is not installed; install delayq[operator]")
    delayq_operator()


if __name__ == "__main__":
    main()
