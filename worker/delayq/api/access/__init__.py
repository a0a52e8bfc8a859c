"""Who calls the HTTP API, and what the caller may do. Not here: HTTP, and which request needs which right.

A credential comes with each request, in the header Authorization. It is a token of a Kubernetes ServiceAccount, or a
named token of a Secret. Rights come from the document and are fixed while the process runs; keys and tokens are files
that are read again when they change.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from delayq.api.access.bearer import Access, Bearer, Denied, Open
from delayq.api.access.named_tokens import NamedTokens
from delayq.api.access.rights import Caller, Grant, Rights, grants
from delayq.contract.api import VERBS, Verb
from delayq.contract.files import issuer_file

if TYPE_CHECKING:
    from pathlib import Path

    from delayq.contract.api import Api

__all__ = [
    "OPEN",
    "VERBS",
    "Access",
    "Caller",
    "Denied",
    "Grant",
    "Rights",
    "Verb",
    "access_of",
]


def access_of(api: Api, secrets_dir: Path) -> Bearer:
    """Return the access of spec.api. No file is read before the first request that needs it.

    `secrets_dir`: a directory for each Secret, each of its keys a file; the keys of the cluster (issuer_keys.py) are
    beside it. ImportError without the extra [api] if a ServiceAccount has rights.
    """
    accounts = tokens = None
    if any(rule.service_account for rule in api.access):
        from delayq.api.access.service_accounts import ServiceAccounts  # noqa: PLC0415 -- cryptography takes 9 MB

        accounts = ServiceAccounts(issuer_file(secrets_dir))
    if keys := list(dict.fromkeys(key for _, key in api.more_references)):
        tokens = NamedTokens(keys, secrets_dir)
    return Bearer(Rights(grants(api.access)), accounts=accounts, tokens=tokens)


OPEN: Access = Open()
"""Lets everything pass, for `delayq run` on loopback."""
