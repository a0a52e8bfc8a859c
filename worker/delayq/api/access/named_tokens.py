"""Named tokens, for callers outside the cluster. A Secret has the SHA-256 of each, never the token.

A hash without salt and rounds is enough: a token has 256 random bits, so no list of likely tokens helps to find it.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import re
import secrets
import time
from typing import TYPE_CHECKING, Final

from delayq.api.access.bearer import UNAUTHENTICATED, Denied
from delayq.api.access.rights import token as named
from delayq.errors import InvalidDocument
from delayq.service.resources import is_lack

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

    from delayq.contract.files import Reference

log = logging.getLogger(__name__)

PREFIX: Final = "delayq_"
"""Of every token, so that a scan of a repository finds one that was committed."""
LOOK_SECONDS: Final = 1.0
"""How long a changed file may go unnoticed."""
_BYTES: Final = 32
_MOST_HASHES: Final = 8
_HASH: Final = re.compile("[0-9a-f]{64}")


def new_token() -> str:
    """Return a new random token, without a dot."""
    return PREFIX + secrets.token_urlsafe(_BYTES)


def hash_of(token: str) -> str:
    """Return what the Secret has for a token: its SHA-256 in hexadecimal digits."""
    return hashlib.sha256(token.encode()).hexdigest()


class NamedTokens:
    """The tokens whose hashes are in files, one file for each name.

    A file that is gone or not valid denies its token: that is how a token is revoked.
    """

    def __init__(
        self,
        references: Iterable[Reference],
        secrets_dir: Path,
        *,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """`references`: the key of each name in a Secret."""
        self._files = [(each, each.file(secrets_dir)) for each in references]
        self._now, self._looked = now, -LOOK_SECONDS
        self._hashes: list[tuple[bytes, str]] = []
        self._problems: dict[Reference, str] = {}

    def name(self, token: str) -> str:
        """Return the name of the caller, or raise Denied."""
        self._refresh()
        given, found = hash_of(token).encode(), ""
        for each, name in self._hashes:  # all of them: the time does not depend on the token
            if hmac.compare_digest(each, given):
                found = name
        if not found:
            raise Denied(UNAUTHENTICATED, "the token is not known, or not any more")
        return found

    @property
    def problems(self) -> Mapping[Reference, str]:
        """The keys without a valid hash, and what was expected."""
        self._refresh()
        return self._problems

    @property
    def missing(self) -> list[Reference]:
        """The keys without a valid hash."""
        return list(self.problems)

    def _refresh(self) -> None:
        if self._now() - self._looked < LOOK_SECONDS:
            return
        self._looked = self._now()
        hashes, problems = [], {}
        for reference, path in self._files:
            try:
                hashes += [(each, named(reference.key)) for each in _hashes(path.read_bytes())]
            except OSError as error:
                if is_lack(error):
                    return  # of descriptors or memory: the file is still there, so its tokens are, too
                problems[reference] = f"cannot read {path}: {error.strerror}"
            except InvalidDocument as error:
                problems[reference] = str(error)
        self._log(problems)
        self._hashes, self._problems = hashes, problems

    def _log(self, problems: dict[Reference, str]) -> None:
        """Log each problem once."""
        for reference, problem in problems.items():
            if self._problems.get(reference) != problem:
                fields = {"token": reference.key, "secret": reference.name, "problem": problem}
                log.warning("api_token_unusable", extra={"fields": fields})


def _hashes(content: bytes) -> list[bytes]:
    """Return the hashes of a file, one on each line."""
    lines = content.decode("ascii", "replace").split()
    if not 1 <= len(lines) <= _MOST_HASHES or not all(_HASH.fullmatch(line) for line in lines):
        expected = (
            f"1 to {_MOST_HASHES} lines, each the SHA-256 of a token in 64 lower-case hexadecimal digits"
        )
        raise InvalidDocument(f"expected {expected}, as `delayq api-token` prints it")
    return [line.encode() for line in lines]
