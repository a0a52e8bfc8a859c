"""kubectl's errors, by what to do about them. Pure."""

from __future__ import annotations

import re
from typing import Final

from delayq.cli.exits import FAILED, INVALID, NOT_FOUND, REFUSED, UNAVAILABLE, USAGE, Wrong

INSTALL: Final = "delayq crd | kubectl apply --server-side -f -, and install the operator's chart"
_NOISE: Final = re.compile(r"^(?:[EWI]\d{4} |Warning: |command terminated with exit code )")
_SERVER: Final = re.compile(r"^Error from server(?: \((?P<reason>\w+)\))?: (?P<message>.*)", re.DOTALL)
_UPGRADE: Final = re.compile(
    r"unable to upgrade connection: (?P<message>.* is forbidden: User .*)", re.DOTALL
)
_AWAY: Final = (
    "Unable to connect to the server",
    "The connection to the server",
    "connection refused",
    "no such host",
    "i/o timeout",
    "context deadline exceeded",
    "net/http: request canceled",
)
_KNOWN: Final = tuple(
    (re.compile(pattern), text, hint, code)
    for pattern, text, hint, code in (
        (
            r"doesn't have a resource type .?delayqueue|no matches for kind .?DelayQueue",
            "this cluster has no DelayQueues: the CRD is not installed",
            INSTALL,
            UNAVAILABLE,
        ),
        (
            r"Unauthorized|must be logged in",
            "the API server does not know you: not logged in, or not any more",
            "",
            REFUSED,
        ),
        (
            # Where kubectl looks that knows of no cluster.
            r"connection to the server localhost:8080 was refused|http://localhost:8080/",
            "cannot reach the API server: {message}",
            "no kubeconfig is in use: export KUBECONFIG=…, or name it with --kubeconfig",
            UNAVAILABLE,
        ),
        (
            "|".join(_AWAY),
            "cannot reach the API server: {message}",
            "kubectl cluster-info",
            UNAVAILABLE,
        ),
        (r"context \S+ does not exist|no context exists", "{message}", "kubectl config get-contexts", USAGE),
        (r" is invalid: ", "{message}", "", INVALID),
    )
)
_LONGEST: Final = 2000


def refusal(err: str) -> Wrong:
    """Make of kubectl's stderr a sentence, a hint and an exit code."""
    said = "\n".join(line for line in err.strip().splitlines() if not _NOISE.match(line)).strip()
    if found := _SERVER.search(said):
        return _by_reason(found["reason"] or "", found["message"])
    if found := _UPGRADE.search(said):
        return _by_reason("Forbidden", found["message"])
    message = (
        said.removeprefix("error: ")[:_LONGEST] or err.strip()[:_LONGEST] or "kubectl failed and said nothing"
    )
    for pattern, text, hint, code in _KNOWN:
        if pattern.search(said):
            return Wrong(text.format(message=message), hint, code)
    return Wrong(message, "", FAILED)


def _by_reason(reason: str, message: str) -> Wrong:
    message = message.strip()[:_LONGEST]
    if reason == "NotFound":
        return Wrong(message, "", NOT_FOUND)
    if reason == "Forbidden":
        return Wrong(f"not allowed: {message}", _ask_for(message), REFUSED)
    if reason in ("Invalid", "BadRequest"):
        return Wrong(message, "", INVALID)
    if reason in ("ServiceUnavailable", "Timeout", "TooManyRequests", "InternalError"):
        return Wrong(message, "", UNAVAILABLE)
    return Wrong(message, "", FAILED)


def _ask_for(message: str) -> str:
    found = re.search(
        r'cannot (\w+) resource "([^"]+)"(?: in API group "([^"]*)")?(?:.* namespace "([^"]+)")?', message
    )
    if not found:
        return ""
    verb, resource, group, namespace = found.groups()
    base, slash, sub = resource.partition("/")
    what = f"{base}{'.' + group if group else ''}{' --subresource=' + sub if slash else ''}"
    return f"kubectl auth can-i {verb} {what}{' -n ' + namespace if namespace else ''} says the same"
