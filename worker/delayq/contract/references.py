"""References to a key of a Secret or ConfigMap in the queue's own namespace; a document never holds a secret itself."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import ClassVar

from delayq.contract.fields import text
from delayq.contract.files import Reference
from delayq.contract.record import Shape, camel
from delayq.contract.words import CONFIG_MAP_KEY, CONFIG_MAP_NAME, HEADER_SCHEME, SECRET_KEY, SECRET_NAME


@dataclass(frozen=True, slots=True, kw_only=True)
class SecretRef:
    """One key of a Secret."""

    SHAPE: ClassVar[Shape] = Shape(atomic=True)

    name: str = text(SECRET_NAME, doc="Name of the Secret.")
    key: str = text(SECRET_KEY, doc="Key in the Secret.")

    @property
    def reference(self) -> Reference:
        """What it refers to."""
        return Reference("Secret", self.name, self.key)


@dataclass(frozen=True, slots=True, kw_only=True)
class UsernameSecretRef(SecretRef):
    """Where the name of the ACL user is."""

    key: str = text(SECRET_KEY, default="username", doc="Key of the user's name.")


@dataclass(frozen=True, slots=True, kw_only=True)
class PasswordSecretRef(SecretRef):
    """Where the password is."""

    key: str = text(SECRET_KEY, default="password", doc="Key of the password.")


@dataclass(frozen=True, slots=True, kw_only=True)
class CaSecretRef(SecretRef):
    """Where the certificate authority's certificate is."""

    key: str = text(SECRET_KEY, default="ca.crt", doc="Key of the certificates, PEM.")


@dataclass(frozen=True, slots=True, kw_only=True)
class CaConfigMapRef:
    """Where the certificate authority's certificate is, as trust-manager and cert-manager distribute it."""

    SHAPE: ClassVar[Shape] = Shape(atomic=True)

    name: str = text(CONFIG_MAP_NAME, doc="Name of the ConfigMap.")
    key: str = text(CONFIG_MAP_KEY, default="ca.crt", doc="Key of the certificates, PEM.")

    @property
    def reference(self) -> Reference:
        """What it refers to."""
        return Reference("ConfigMap", self.name, self.key)


@dataclass(frozen=True, slots=True, kw_only=True)
class CertSecretRef(SecretRef):
    """Where the certificate is that the client shows."""

    key: str = text(SECRET_KEY, default="tls.crt", doc="Key of the certificate, PEM.")


@dataclass(frozen=True, slots=True, kw_only=True)
class KeySecretRef(SecretRef):
    """Where the private key of that certificate is."""

    key: str = text(SECRET_KEY, default="tls.key", doc="Key of the private key, PEM.")


@dataclass(frozen=True, slots=True, kw_only=True)
class SigningSecretRef(SecretRef):
    """Where the key that signs HTTP calls is."""

    key: str = text(SECRET_KEY, default="key", doc="Key of the signing key.")


@dataclass(frozen=True, slots=True, kw_only=True)
class HeaderSecretRef(SecretRef):
    """Where the value of a header is."""

    scheme: str | None = text(
        HEADER_SCHEME,
        default=None,
        doc="Word before the value, with a space between them, such as Bearer. Absent: the value alone.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class UrlsSecretRef(SecretRef):
    """Where the URLs of several Redis servers are, one per line."""

    key: str = text(SECRET_KEY, default="urls", doc="Key of the URLs, one per line.")


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseSecretRef(SecretRef):
    """Where the URL of a database is."""

    key: str = text(SECRET_KEY, default="url", doc="Key of the database's SQLAlchemy URL.")


def references(part: object, path: str = "spec") -> Iterator[tuple[str, Reference]]:
    """Yield what a part of a document refers to, each with its path in the document; `path` is that of the part."""
    if isinstance(part, SecretRef | CaConfigMapRef):
        yield path, part.reference
    elif isinstance(part, Mapping):
        for name, item in part.items():
            yield from references(item, f'{path}["{name}"]')
    elif isinstance(part, tuple):
        for index, item in enumerate(part):
            yield from references(item, f"{path}[{index}]")
    elif is_dataclass(part):
        # Where a key is a name that others use, such as that of a token.
        yield from ((f"{path}.{where}", each) for where, each in getattr(part, "more_references", ()))
        for field in fields(part):
            yield from references(getattr(part, field.name), f"{path}.{camel(field.name)}")
