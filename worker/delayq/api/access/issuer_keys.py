"""The keys that sign tokens of ServiceAccounts, from a file that the operator keeps.

The file is a JSON Web Key Set (RFC 7517) with one member more, `issuer`. Both are in one file, so a read never pairs an
issuer with the keys of another.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from jwt import PyJWK, PyJWTError

from delayq.errors import InvalidDocument

if TYPE_CHECKING:
    from collections.abc import Mapping

ALGORITHMS: Final[Mapping[tuple[str, str], str]] = {
    ("RSA", ""): "RS256",
    ("EC", "P-256"): "ES256",
    ("EC", "P-384"): "ES384",
    ("EC", "P-521"): "ES512",
}
"""Type and curve of a key → its only algorithm, the one that the API server signs with. Tokens do not choose."""
LEAST_RSA_BITS: Final = 2048


@dataclass(frozen=True, slots=True)
class Key:
    """A public key, and the algorithm of its signatures."""

    public: Any
    algorithm: str


@dataclass(frozen=True, slots=True)
class IssuerKeys:
    """The issuer of tokens, and its keys by `kid`."""

    issuer: str
    keys: Mapping[str, Key]


def parse(content: bytes) -> IssuerKeys:
    """Read the file. InvalidDocument if it has no issuer or no key of a known type; other keys are left out."""
    try:
        found = json.loads(content)
    except (ValueError, RecursionError):
        raise InvalidDocument("expected a JSON Web Key Set with its issuer, got no JSON") from None
    issuer = found.get("issuer") if isinstance(found, dict) else None
    listed = found.get("keys") if isinstance(found, dict) else None
    if not isinstance(issuer, str) or not issuer or not isinstance(listed, list):
        raise InvalidDocument("expected a JSON Web Key Set: a mapping with issuer (text) and keys (a list)")
    keys = {each["kid"]: key for each in listed if (key := _key(each)) is not None}
    if not keys:
        raise InvalidDocument(f"expected a key with its kid for {' or '.join(ALGORITHMS.values())}, got none")
    return IssuerKeys(issuer, keys)


def _key(jwk: object) -> Key | None:
    if not isinstance(jwk, dict) or not isinstance(jwk.get("kid"), str) or "d" in jwk:  # d: a private key
        return None
    kind = jwk.get("kty")
    algorithm = ALGORITHMS.get((str(kind), str(jwk.get("crv")) if kind == "EC" else ""))
    if algorithm is None or jwk.get("alg", algorithm) != algorithm or jwk.get("use", "sig") != "sig":
        return None
    try:
        public = PyJWK(jwk, algorithm=algorithm).key
    except (PyJWTError, ValueError, TypeError, KeyError):
        return None
    if kind == "RSA" and public.key_size < LEAST_RSA_BITS:
        return None
    return Key(public, algorithm)
