"""delayq-operator: the command that starts the operator."""

from __future__ import annotations

import sys


def main() -> None:
    """Start the operator; the extra it needs may be missing."""
    try:
        from delayq_operator.cli import delayq_operator  # noqa: PLC0415 -- kopf and the rest are an extra
    except ModuleNotFoundError as error:
        sys.exit(f"delayq-operator: {error.name} is not installed; install delayq[operator]")
    delayq_operator()


if __name__ == "__main__":
    main()
