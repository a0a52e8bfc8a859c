"""The Redis login. Mounted files are read at each connect: a rotated password needs no restart.

Kubernetes replaces the files of a Secret atomically, with a symbolic link: a read returns the old or the new content.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from redis.exceptions import AuthenticationError

from delayq.errors import InvalidDocument

if TYPE_CHECKING:
    from pathlib import Path

    from delayq.contract.references import CaConfigMapRef, SecretRef
    from delayq.contract.store import Auth


class Unreadable(Exception):
    """A mounted file cannot be read. The message names the Secret or ConfigMap and the path."""


@dataclass(frozen=True, slots=True)
class Given:
    """A user or password from a URL."""

    text: str = field(repr=False)

    def read(self) -> str:
        """Return the text."""
        return self.text


@dataclass(frozen=True, slots=True)
class Mounted:
    """A mounted file. `what` starts error messages: `Secret shop-redis: expected its key password as the file`."""

    path: Path
    what: str

    @classmethod
    def of(cls, secrets_dir: Path, ref: SecretRef | CaConfigMapRef | None) -> Mounted | None:
        """Return the file for a key of a Secret or ConfigMap; None without a reference."""
        if ref is None:
            return None
        kind, name, key = ref.reference
        return cls(ref.reference.file(secrets_dir), f"{kind} {name}: expected its key {key} as the file")

    def content(self) -> bytes:
        """Return its current content; Unreadable otherwise."""
        try:
            return self.path.read_bytes()
        except FileNotFoundError:
            raise Unreadable(
                f"{self.what} {self.path}, found none; check that the file exists, or that the key is mounted"
            ) from None
        except OSError as error:
            raise Unreadable(f"{self.what} {self.path}, which cannot be read: {error.strerror}") from None

    def read(self) -> str:
        """Return its text without surrounding whitespace, such as a final newline; Unreadable otherwise."""
        try:
            return self.content().decode().strip()
        except UnicodeDecodeError:
            raise Unreadable(f"{self.what} {self.path} in UTF-8, got bytes that are not UTF-8") from None


@dataclass(frozen=True, slots=True)
class Login:
    """A user and a password, each from a URL or a file. redis-py calls this a credential provider."""

    user: Given | Mounted | None = None
    password: Given | Mounted | None = None

    @classmethod
    def of(cls, auth: Auth | None, secrets_dir: Path) -> Login:
        """Return the login of a document's Secrets; InvalidDocument when one is not mounted."""
        if auth is None:
            return cls()
        user = Mounted.of(secrets_dir, auth.username_secret_ref)
        login = cls(user, Mounted.of(secrets_dir, auth.password_secret_ref))
        try:
            login._words()
        except Unreadable as error:
            raise InvalidDocument(str(error)) from None
        return login

    def __bool__(self) -> bool:
        """Whether there is a user or a password."""
        return self.user is not None or self.password is not None

    def name(self) -> str | None:
        """Return the current user name; None for the default user, or when the file cannot be read."""
        try:
            return None if self.user is None else self.user.read() or None
        except Unreadable:
            return None

    def get_credentials(self) -> tuple[str] | tuple[str, str]:
        """Return the arguments of AUTH. redis-py calls this at each connect."""
        try:
            return self._words()
        except Unreadable as error:
            raise AuthenticationError(str(error)) from None

    async def get_credentials_async(self) -> tuple[str] | tuple[str, str]:
        """As get_credentials(). Mounted Secrets are in memory, so reading does not block the event loop."""
        return self.get_credentials()

    def _words(self) -> tuple[str] | tuple[str, str]:
        password = "" if self.password is None else self.password.read()
        return (password,) if self.user is None else (self.user.read(), password)


ANONYMOUS: Final = Login()
