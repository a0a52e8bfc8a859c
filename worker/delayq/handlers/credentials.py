"""What a call of an HTTP service carries to be trusted, and whom it trusts: headers, key and authority from files.

Each file is read again when it changes, at the next call. A file that has not been there yet is awaited.
"""

from __future__ import annotations

import re
import ssl
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

from delayq.errors import InvalidDocument
from delayq.handlers import signature
from delayq.service.mounted import Mounted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from delayq.contract.files import Reference
    from delayq.contract.http_service import HttpService
    from delayq.contract.references import CaConfigMapRef, SecretRef

T = TypeVar("T")

MOST_BYTES: Final = 16_384  # of a header's value; many servers take less
_PRINTABLE = re.compile(rb"[\x20-\x7e]+")


class Credentials:
    """The mounted files of one service."""

    def __init__(self, spec: HttpService, *, field: str, secrets_dir: Path) -> None:
        """Read nothing yet. `field` is the path in the document that errors name."""
        self._field, self._secrets_dir = field, secrets_dir
        self._headers = {
            name: each
            for name, ref in (spec.secret_headers or {}).items()
            if (each := self._file(f'secretHeaders["{name}"]', ref, partial(_value, scheme=ref.scheme)))
        }
        self._key = self._file("signingSecretRef", spec.signing_secret_ref, _signing_key)
        self._authority = self._file("caSecretRef", spec.ca_secret_ref, _authority) or self._file(
            "caConfigMapRef", spec.ca_config_map_ref, _authority
        )

    def _file(
        self, name: str, ref: SecretRef | CaConfigMapRef | None, parse: Callable[[bytes], T]
    ) -> Mounted[T] | None:
        if ref is None:
            return None
        field, reference = f"{self._field}.{name}", ref.reference
        where = reference.file(self._secrets_dir)
        return Mounted(where, parse, field=field, reference=reference, awaited=True)

    @property
    def files(self) -> list[Mounted[Any]]:
        """All of them."""
        others = (self._key, self._authority)
        return [*self._headers.values(), *(each for each in others if each is not None)]

    @property
    def proves(self) -> bool:
        """Whether calls carry what a service may refuse: a secret header, or a signature."""
        return bool(self._headers) or self._key is not None

    def lacks(self) -> dict[Reference, str]:
        """Return the files without which no call can be sent, and why each cannot be used.

        One that could be used once is not among them.
        """
        return {each.reference: why for each in self.files if each.reference and (why := each.lack)}

    def headers(self) -> dict[str, str]:
        """Return the headers whose values are in files; InvalidDocument while one is lacking, as below."""
        return {name: each.read() for name, each in self._headers.items()}

    def key(self) -> bytes | None:
        """Return the key to sign with; None without one."""
        return None if self._key is None else self._key.read()

    def trust(self) -> ssl.SSLContext | bool:
        """Return the `ssl` argument of a request; True trusts the system's authorities."""
        return True if self._authority is None else self._authority.read()


def lacking(services: Iterable[tuple[str, HttpService]], secrets_dir: Path) -> list[str]:
    """Return what is wrong with the files of several services, each with its path in the document."""
    made = (Credentials(spec, field=field, secrets_dir=secrets_dir) for field, spec in services)
    return [why for each in made for why in each.lacks().values()]


def _value(content: bytes, scheme: str | None) -> str:
    """Return a header's value, without the newline that editors and `echo` add, and spaces, which receivers strip."""
    value = content.removesuffix(b"\n").removesuffix(b"\r").strip(b" ")
    got = ""
    if not value:
        got = "an empty file"
    elif len(value) > MOST_BYTES:
        got = f"{len(value):,} bytes"
    elif not _PRINTABLE.fullmatch(value):
        got = "a line break, or a character that is not printable ASCII"
    if got:
        expected = f"one line of at most {MOST_BYTES:,} printable ASCII characters"
        raise InvalidDocument(f"expected {expected} as the value of a header, got {got}")
    return f"{scheme} {value.decode()}" if scheme else value.decode()


def _signing_key(content: bytes) -> bytes:
    if key := signature.trim(content):
        return key
    raise InvalidDocument("expected a key to sign with, got an empty file")


def _authority(content: bytes) -> ssl.SSLContext:
    """Return a context that trusts these only: ssl.create_default_context(cadata="") would trust the system's."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        context.load_verify_locations(cadata=content.decode("ascii", "ignore"))  # comments: in any language
    except (ssl.SSLError, ValueError) as error:
        why = getattr(error, "reason", None) or str(error)
        raise InvalidDocument(f"expected certificates of authorities, PEM; got {why}") from None
    return context
