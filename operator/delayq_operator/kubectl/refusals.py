"""Turn kubectl's errors into exit codes, and add what to do next. Pure."""

from __future__ import annotations

import re
from typing import Final

from delayq.cli.exits import FAILED, INVALID, NOT_FOUND, REFUSED, UNAVAILABLE, USAGE, CommandError

NOISE: Final = re.compile(r"[EWI]\d{4} |Warning: |command terminated with exit code ")
PREFIX: Final = re.compile(r"^(?:error: |Error from server(?: \(\w+\))?: )", re.MULTILINE)
NO_POD: Final = "does not have a host assigned|container not found|timed out waiting for the condition"
NO_KIND: Final = "have a resource type .?delayqueue|no matches for kind .?DelayQueue"
NO_CONFIG: Final = "server localhost:8080 was refused|http://localhost:8080/"  # kubectl's default address
AWAY: Final = "The connection to the server|connection refused|no such host|i/o timeout|deadline exceeded"
FAILING: Final = r"Unable to connect|\((?:ServiceUnavailable|Timeout|TooManyRequests|InternalError)\)"

KNOWN: Final = (
    (r"Error from server \(NotFound\)", NOT_FOUND, "kubectl dq status lists queues; -n names a namespace"),
    (NO_POD, UNAVAILABLE, "no scanner pod runs: kubectl dq status NAME"),
    (NO_KIND, UNAVAILABLE, "install the operator and the CRD: delayq crd | kubectl apply --server-side -f -"),
    (
        r"\(Forbidden\)|is forbidden: User ",
        REFUSED,
        "ask for this right; kubectl auth can-i --list shows yours",
    ),
    (r"Unauthorized|must be logged in", REFUSED, "log in to the cluster: no login, or it has expired"),
    (NO_CONFIG, UNAVAILABLE, "no kubeconfig is in use: export KUBECONFIG=…, or name it with --kubeconfig"),
    (f"{AWAY}|{FAILING}|request canceled", UNAVAILABLE, "kubectl cluster-info"),
    (r"context \S+ does not exist|no context exists", USAGE, "kubectl config get-contexts"),
    (r"\((?:Invalid|BadRequest)\)| is invalid: ", INVALID, ""),
)
"""Pattern, exit code and hint; the first that matches."""

LONGEST: Final = 2000


def refusal(err: str) -> CommandError:
    """Return the error for kubectl's stderr, in its own words."""
    lines = err.strip().splitlines()
    text = "\n".join(line for line in lines if not NOISE.match(line)).strip() or "\n".join(lines)
    message = PREFIX.sub("", text, count=1)[:LONGEST] or "kubectl failed without a message"
    code, hint = next(
        ((code, hint) for pattern, code, hint in KNOWN if re.search(pattern, text)), (FAILED, "")
    )
    return CommandError(f"not allowed: {message}" if code == REFUSED else message, hint, code)
