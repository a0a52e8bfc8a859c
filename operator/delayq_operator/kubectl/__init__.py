"""kubectl dq: queues of a cluster, by the user's own kubectl, login and rights.

It says how DelayQueues are, holds them and collects reports. Commands on tasks are those of `delayq`, and run in a pod
of the queue: their options go there unread.
"""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line. Exit with a message when its extra is missing."""
    try:
        from delayq_operator.kubectl.root import kubectl_dq  # noqa: PLC0415 -- click is an extra
    except ModuleNotFoundError as error:
        sys.exit(f"kubectl-dq: {error.name} is not installed; install delayq[cli]")
    kubectl_dq(prog_name="kubectl dq")


def complete() -> None:
    """Print completions: kubectl runs this as `kubectl_complete-dq`."""
    try:
        from delayq_operator.kubectl.root import candidates  # noqa: PLC0415 -- as above
    except ModuleNotFoundError:
        return
    for line in candidates(sys.argv[1:]):
        print(line)  # noqa: T201 -- what kubectl reads
