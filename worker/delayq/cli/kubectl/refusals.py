"""Turn kubectl's errors into a message, a hint and an exit code. Pure."""

from __future__ import annotations

import re
from typing import Final

from delayq.cli.exits import FAILED, INVALID, NOT_FOUND, REFUSED, UNAVAILABLE, USAGE, CommandError

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
            "the API server rejects your login: not logged in, or the login has expired",
            "",
            REFUSED,
        ),
        (
            # kubectl's default address without a kubeconfig.
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


def refusal(err: str) -> CommandError:
    """Return the error for kubectl's stderr."""
    text = "\n".join(line for line in err.strip().splitlines() if not _NOISE.match(line)).strip()
    if found := _SERVER.search(text):
        return _by_reason(found["reason"] or "", found["message"])
    if found := _UPGRADE.search(text):
        return _by_reason("Forbidden", found["message"])
    message = (
        text.removeprefix("error: ")[:_LONGEST]
        or err.strip()[:_LONGEST]
        or "kubectl failed without a message"
    )
    for pattern, template, hint, code in _KNOWN:
        if pattern.search(text):
            return CommandError(template.format(message=message), hint, code)
    return CommandError(message, "", FAILED)


def _by_reason(reason: str, message: str) -> CommandError:
    message = message.strip()[:_LONGEST]
    if reason == "NotFound":
        return CommandError(message, "", NOT_FOUND)
    if reason == "Forbidden":
        return CommandError(f"not allowed: {message}", _ask_for(message), REFUSED)
    if reason in ("Invalid", "BadRequest"):
        return CommandError(message, "", INVALID)
    if reason in ("ServiceUnavailable", "Timeout", "TooManyRequests", "InternalError"):
        return CommandError(message, "", UNAVAILABLE)
    return CommandError(message, "", FAILED)


def _ask_for(message: str) -> str:
    found = re.search(
        r'cannot (\w+) resource "([^"]+)"(?: in API group "([^"]*)")?(?:.* namespace "([^"]+)")?', message
    )
    if not found:
        return ""
    verb, resource, group, namespace = found.groups()
    base, slash, sub = resource.partition("/")
    what = f"{base}{'.' + group if group else ''}{' --subresource=' + sub if slash else ''}"
    return f"kubectl auth can-i {verb} {what}{' -n ' + namespace if namespace else ''} checks this right"
