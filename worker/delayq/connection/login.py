"""Who we are to Redis. What is mounted is read at each connect: a password that rotates needs no restart.

Kubernetes swaps a Secret's files at once, by a symbolic link, so that a file is read whole, old or new.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from redis.exceptions import AuthenticationError

from delayq.contract.files import config_map_path, secret_path
from delayq.contract.references import CaConfigMapRef, SecretRef
from delayq.errors import InvalidDocument

if TYPE_CHECKING:
    from pathlib import Path

    from delayq.contract.store import Auth


class Unreadable(Exception):
    """A file that was to be mounted cannot be read; the message says whose and where."""


@dataclass(frozen=True, slots=True)
class Given:
    """Words that stood in a URL."""

    text: str = field(repr=False)

    def read(self) -> str:
        """Return them."""
        return self.text


@dataclass(frozen=True, slots=True)
class Mounted:
    """A file. `what` begins the sentence about it: `Secret shop-redis: expected its key password as the file`."""

    path: Path
    what: str

    @classmethod
    def of(cls, secrets_dir: Path, ref: SecretRef | CaConfigMapRef | None) -> Mounted | None:
        """Return the file that a key of a Secret or ConfigMap is mounted as; None for none."""
        if ref is None:
            return None
        kind, path = ("Secret", secret_path) if isinstance(ref, SecretRef) else ("ConfigMap", config_map_path)
        what = f"{kind} {ref.name}: expected its key {ref.key} as the file"
        return cls(path(secrets_dir, ref.name, ref.key), what)

    def content(self) -> bytes:
        """Return what is in it now; Unreadable otherwise."""
        try:
            return self.path.read_bytes()
        except FileNotFoundError:
            raise Unreadable(f"{self.what} {self.path}, found none") from None
        except OSError as error:
            raise Unreadable(f"{self.what} {self.path}, could not read it: {error.strerror}") from None

    def read(self) -> str:
        """Return its text, without the line's end that editors add; Unreadable otherwise. It is never quoted."""
        try:
            return self.content().decode().strip()
        except UnicodeDecodeError:
            raise Unreadable(f"{self.what} {self.path}, got what is not UTF-8") from None


@dataclass(frozen=True, slots=True)
class Login:
    """A user and a password, each from wherever it is; a credential provider, as redis-py calls it."""

    user: Given | Mounted | None = None
    password: Given | Mounted | None = None

    @classmethod
    def of(cls, auth: Auth | None, secrets_dir: Path) -> Login:
        """Take them from a document's Secrets; InvalidDocument when it is not mounted."""
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
        """Whether there is anything to log in with."""
        return self.user is not None or self.password is not None

    def name(self) -> str | None:
        """Return the user's name as it is now, None for the default user or when it cannot be read."""
        try:
            return None if self.user is None else self.user.read() or None
        except Unreadable:
            return None

    def get_credentials(self) -> tuple[str] | tuple[str, str]:
        """Return what AUTH takes. redis-py calls this at each connect."""
        try:
            return self._words()
        except Unreadable as error:
            raise AuthenticationError(str(error)) from None

    async def get_credentials_async(self) -> tuple[str] | tuple[str, str]:
        """As get_credentials: a mounted Secret is in memory, so that reading it waits for nothing."""
        return self.get_credentials()

    def _words(self) -> tuple[str] | tuple[str, str]:
        password = "" if self.password is None else self.password.read()
        return (password,) if self.user is None else (self.user.read(), password)


ANONYMOUS: Final = Login()
