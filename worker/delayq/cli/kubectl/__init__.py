"""kubectl dq: the delayq command for queues in a cluster. It finds the queue and its Redis, and runs the CLI there.

It accesses the cluster only through kubectl, with the user's login and rights.
"""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line. Exit with a message when its extra is missing."""
    try:
        from delayq.cli.kubectl.root import kubectl_dq  # noqa: PLC0415 -- click is an extra
    except ModuleNotFoundError as error:
        sys.exit(f"kubectl-dq: {error.name} is not installed; install delayq[cli]")
    kubectl_dq(prog_name="kubectl dq")


def complete() -> None:
    """Print completions: kubectl runs this as `kubectl_complete-dq`."""
    try:
        from delayq.cli.kubectl.root import candidates  # noqa: PLC0415 -- as above
    except ModuleNotFoundError:
        return
    for line in candidates(sys.argv[1:]):
        print(line)  # noqa: T201 -- what kubectl reads
