"""Finds the caller by the header Authorization."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from delayq.api.access.rights import Caller
from delayq.contract.api import VERBS

if TYPE_CHECKING:
    from delayq.api.access.named_tokens import NamedTokens
    from delayq.api.access.rights import Rights
    from delayq.api.access.service_accounts import ServiceAccounts
    from delayq.contract.files import Reference

LONGEST: Final = 8192
"""Characters of a token. Those of ServiceAccounts have about 1,200."""
UNAUTHENTICATED: Final = 401


class Denied(Exception):
    """The caller is not known. `status` is that of the answer: 401, or 503 while keys cannot be read."""

    def __init__(self, status: int, why: str, *, given: bool = True) -> None:
        """`why` is a sentence for the caller without a part of its token. `given`: whether a token came at all."""
        super().__init__(why)
        self.status, self.why, self._given = status, why, given

    @property
    def challenge(self) -> str | None:
        """The header WWW-Authenticate of the answer (RFC 6750); None if there is none."""
        if self.status != UNAUTHENTICATED:
            return None
        return 'Bearer error="invalid_token"' if self._given else "Bearer"


class Access(Protocol):
    """Finds out who calls."""

    def caller(self, authorization: str | None) -> Caller:
        """Return the caller by the header Authorization, None if absent; raise Denied if it proves nothing."""
        ...


class Open:
    """Every request has all rights."""

    _anyone: Final = Caller("anyone", dict.fromkeys(VERBS))

    def caller(self, authorization: str | None) -> Caller:  # noqa: ARG002 -- as in Access
        """Return the same caller for every request."""
        return self._anyone


class Bearer:
    """Takes tokens of ServiceAccounts, which are JWTs with two dots, and named tokens, which have none."""

    def __init__(
        self, rights: Rights, *, accounts: ServiceAccounts | None = None, tokens: NamedTokens | None = None
    ) -> None:
        """Without `accounts` or `tokens`, tokens of that kind are refused."""
        self._rights, self._accounts, self._tokens = rights, accounts, tokens

    def caller(self, authorization: str | None) -> Caller:
        """Return the caller, also one without any right: the HTTP server refuses it with 403."""
        token = _token(authorization)
        source = self._accounts if "." in token else self._tokens
        if source is None:
            raise Denied(UNAUTHENTICATED, self._expected)
        return self._rights.of(source.name(token))

    @property
    def missing(self) -> list[Reference]:
        """The keys of the Secret with named tokens that have no valid hash."""
        return self._tokens.missing if self._tokens else []

    @property
    def lack(self) -> str:
        """Why tokens of ServiceAccounts cannot be verified yet; empty if they can, or need not."""
        return self._accounts.lack if self._accounts else ""

    @property
    def _expected(self) -> str:
        taken = [("ServiceAccount tokens", self._accounts), ("named tokens", self._tokens)]
        return (
            f"this queue accepts {' and '.join(what for what, source in taken if source) or 'no token'} only"
        )


def _token(authorization: str | None) -> str:
    if not authorization:
        raise Denied(
            UNAUTHENTICATED, "expected the header Authorization: Bearer TOKEN, got none", given=False
        )
    scheme, _, token = authorization.partition(" ")
    token = token.strip()
    if scheme.lower() != "bearer" or not token:
        raise Denied(UNAUTHENTICATED, "expected the header Authorization: Bearer TOKEN, got another scheme")
    if len(token) > LONGEST or not token.isascii():
        raise Denied(UNAUTHENTICATED, f"expected a token of at most {LONGEST} ASCII characters")
    return token
