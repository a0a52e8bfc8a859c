"""Who calls the HTTP API, and what the caller may do. Not here: HTTP, and which request needs which right.

A credential comes with each request, in the header Authorization. It is a token of a Kubernetes ServiceAccount, or a
named token of a Secret. Rights come from the document and are fixed while the process runs; keys and tokens are files
that are read again when they change.
"""

from __future__ import annotations

from delayq.api.access.audit import changed, refused
from delayq.api.access.bearer import Access, Bearer, Denied, Open
from delayq.api.access.rights import VERBS, Caller, Grant, Rights, Verb

__all__ = [
    "OPEN",
    "VERBS",
    "Access",
    "Bearer",
    "Caller",
    "Denied",
    "Grant",
    "Rights",
    "Verb",
    "changed",
    "refused",
]

OPEN: Access = Open()
"""Lets everything pass, for `delayq run` on loopback."""
