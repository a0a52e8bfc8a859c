"""References to Secrets in the queue's own namespace; a document never holds a secret itself."""

from __future__ import annotations

from dataclasses import dataclass

from delayq.contract.fields import text
from delayq.contract.words import SECRET_KEY, SECRET_NAME


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthSecretRef:
    """Where the user name and password for Redis are."""

    name: str = text(SECRET_NAME, doc="Name of the Secret.")
    username_key: str | None = text(
        SECRET_KEY, default=None, doc="Key of the ACL user's name. Absent: Redis' default user."
    )
    password_key: str = text(SECRET_KEY, default="password", doc="Key of the password.")


@dataclass(frozen=True, slots=True, kw_only=True)
class CaSecretRef:
    """Where the certificate authority's certificate is."""

    name: str = text(SECRET_NAME, doc="Name of the Secret.")
    key: str = text(SECRET_KEY, default="ca.crt", doc="Key of the certificates, PEM.")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientCertSecretRef:
    """Where the certificate this client shows is; the key names are those of a TLS Secret."""

    name: str = text(SECRET_NAME, doc="Name of the Secret.")
    cert_key: str = text(SECRET_KEY, default="tls.crt", doc="Key of the certificate, PEM.")
    key_key: str = text(SECRET_KEY, default="tls.key", doc="Key of its private key, PEM.")


@dataclass(frozen=True, slots=True, kw_only=True)
class SigningSecretRef:
    """Where the key that signs HTTP calls is."""

    name: str = text(SECRET_NAME, doc="Name of the Secret.")
    key: str = text(SECRET_KEY, default="key", doc="Key of the signing key.")


@dataclass(frozen=True, slots=True, kw_only=True)
class UrlsSecretRef:
    """Where the URLs of several Redis servers are, one per line."""

    name: str = text(SECRET_NAME, doc="Name of the Secret.")
    key: str = text(SECRET_KEY, default="urls", doc="Key of the URLs, one per line.")


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseSecretRef:
    """Where the URL of a database is."""

    name: str = text(SECRET_NAME, doc="Name of the Secret.")
    key: str = text(SECRET_KEY, default="url", doc="Key of the database's SQLAlchemy URL.")
