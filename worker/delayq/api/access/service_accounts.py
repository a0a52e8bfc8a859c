"""Verifies tokens of ServiceAccounts offline, by the keys of the cluster. It never asks the API server.

So producers go on while the API server is away. The price: a deleted account, pod or token is found by nobody before
the token expires; LONGEST_SECONDS bounds that.
"""

from __future__ import annotations

import hashlib
import time
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import jwt

from delayq.api.access.bearer import UNAUTHENTICATED, Denied
from delayq.api.access.issuer_keys import parse
from delayq.api.access.rights import account
from delayq.errors import InvalidDocument
from delayq.service.mounted import Mounted

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from jwt.types import Options

    from delayq.api.access.issuer_keys import IssuerKeys, Key

AUDIENCE: Final = "delayq"
LONGEST_SECONDS: Final = 70 * 60
"""Longest lifetime of a token. An hour is the default of projected tokens; ten minutes are for those who round up."""
LEEWAY_SECONDS: Final = 10
"""How far the clock of the API server may be ahead. `exp` has no leeway: no token is accepted after it."""
MOST_REMEMBERED: Final = 4096
"""Verified tokens: about 1 MB. A verification takes 0.3 to 1.2 ms of a core, a look-up 8 µs."""
UNAVAILABLE: Final = 503
_OPTIONS: Final[Options] = {
    "require": ["exp", "nbf", "iat", "aud", "iss", "sub"],
    # _times() checks these: with a clock of ours, and with no leeway for the first.
    "verify_exp": False,
    "verify_nbf": False,
    "verify_iat": False,
}


class _Verified(NamedTuple):
    name: str
    expires: int


class ServiceAccounts:
    """The ServiceAccounts of the cluster, known by their tokens."""

    def __init__(self, path: Path, *, now: Callable[[], float] = time.time) -> None:
        """`path`: see issuer_keys.py. Until the file is there, each token is denied with 503."""
        self._file = Mounted(path, parse, field="spec.api.access", awaited=True)
        self._now = now
        self._keys: IssuerKeys | None = None
        self._verified: OrderedDict[bytes, _Verified] = OrderedDict()  # by hash: no token stays in memory

    @property
    def lack(self) -> str:
        """Why no token can be verified yet; empty once the keys are there."""
        return self._file.lack

    def name(self, token: str) -> str:
        """Return the name of the caller, or raise Denied."""
        keys = self._current()
        digest, now = hashlib.sha256(token.encode()).digest(), self._now()
        found = self._verified.get(digest) or _verify(token, keys, now)
        if now >= found.expires:
            self._verified.pop(digest, None)
            raise _denied("the token has expired")
        self._verified[digest] = found
        if len(self._verified) > MOST_REMEMBERED:
            self._verified.popitem(last=False)
        return found.name

    def _current(self) -> IssuerKeys:
        """Return the keys. The file is looked at each time, and read only when it has changed.

        With other keys, all tokens are verified again: the key of one may be gone.
        """
        try:
            keys = self._file.read()
        except InvalidDocument as error:
            raise Denied(UNAVAILABLE, f"the keys of the cluster cannot be read yet: {error}") from None
        if keys is not self._keys:
            self._keys = keys
            self._verified.clear()
        return keys


def _verify(token: str, keys: IssuerKeys, now: float) -> _Verified:
    claims = _signed(token, _key(token, keys), keys.issuer)
    issued, expires = _times(claims, now)
    if expires - issued > LONGEST_SECONDS:
        wanted = f"expected a token of at most {LONGEST_SECONDS // 60} minutes"
        raise _denied(f"{wanted}, got one of {-(-(expires - issued) // 60)}: set expirationSeconds: 3600")
    return _Verified(_subject(claims), expires)


def _key(token: str, keys: IssuerKeys) -> Key:
    try:
        header = jwt.get_unverified_header(token)
    except (jwt.PyJWTError, ValueError, RecursionError):
        raise _denied("the token is not a JSON Web Token") from None
    kid = header.get("kid")
    key = keys.keys.get(kid) if isinstance(kid, str) else None
    if key is None:
        raise _denied("the token is signed with a key that is not one of this cluster, or not yet known")
    if "crit" in header:
        raise _denied("the token has critical extensions, which are not supported")
    return key


def _signed(token: str, key: Key, issuer: str) -> Mapping[str, Any]:
    """Return the claims if signature, issuer and audience are right."""
    try:
        claims: Mapping[str, Any] = jwt.decode(
            token,
            key.public,
            algorithms=[key.algorithm],
            audience=AUDIENCE,
            issuer=issuer,
            options=_OPTIONS,
        )
    except jwt.InvalidAudienceError:
        raise _denied(f"expected a token with the audience {AUDIENCE}: set audience: {AUDIENCE}") from None
    except jwt.InvalidIssuerError:
        raise _denied("the token is of another issuer than this cluster's") from None
    except jwt.MissingRequiredClaimError as error:
        raise _denied(f"the token lacks the claim {error.claim}") from None
    except (jwt.PyJWTError, ValueError, TypeError, RecursionError):
        raise _denied("the signature of the token is not valid") from None
    return claims


def _times(claims: Mapping[str, Any], now: float) -> tuple[int, int]:
    """Return when the token was issued and when it expires, both in seconds."""
    times = [claims[name] for name in ("iat", "nbf", "exp")]
    if not all(type(each) is int for each in times):
        raise _denied("the times of the token are not whole numbers")
    issued, valid_from, expires = times
    if max(issued, valid_from) > now + LEEWAY_SECONDS:
        raise _denied("the token is not valid yet: compare the clocks of the nodes")
    return issued, expires


def _subject(claims: Mapping[str, Any]) -> str:
    """Return the name of the ServiceAccount, which the claim kubernetes.io must confirm."""
    about = claims.get("kubernetes.io")
    of = about.get("serviceaccount") if isinstance(about, dict) else None
    namespace, name = (
        about.get("namespace") if isinstance(about, dict) else None,
        of.get("name") if isinstance(of, dict) else None,
    )
    plain = isinstance(namespace, str) and isinstance(name, str) and ":" not in namespace + name
    if not plain or claims["sub"] != account(str(namespace), str(name)):
        raise _denied("the token is not one of a ServiceAccount")
    return str(claims["sub"])


def _denied(why: str) -> Denied:
    return Denied(UNAUTHENTICATED, why)
