"""The paths of the document and the secrets in a pod. `delayq run` sets other paths by option."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from delayq.contract.words import CONFIG_MAP_NAME, SECRET_KEY, SECRET_NAME

if TYPE_CHECKING:
    from pathlib import Path

    from delayq.contract.kinds import Text

CONFIG_FILE: Final = "/etc/delayq/queue.yaml"
"""The document, rendered in full by the operator."""

SECRETS_DIR: Final = "/etc/delayq/secrets"
"""Each Secret is a directory here, each of its keys a file."""

CONFIG_MAPS: Final = "_configmaps"
"""Each ConfigMap is a directory in this one, beside the Secrets; no Secret can have this name."""

RUN_DIR: Final = ".delayq"
"""The data directory of `delayq run`, beside the document."""

RUN_URL: Final = "redis.url"
"""The file in RUN_DIR with the URL of the Redis of `delayq run`."""

DATABASE_URL: Final = "DELAYQ_DATABASE_URL"
"""Environment variable that replaces the file with the URL of a guard's database."""


class Reference(NamedTuple):
    """A key of a Secret or ConfigMap, which a pod has as a file."""

    kind: Literal["Secret", "ConfigMap"]
    name: str
    key: str

    def __str__(self) -> str:
        """As errors and conditions call it: `key token of Secret shop`."""
        return f"key {self.key} of {self.kind} {self.name}"

    def file(self, secrets_dir: Path) -> Path:
        """Return its file; ValueError for a name that could leave the directory."""
        path = secret_path if self.kind == "Secret" else config_map_path
        return path(secrets_dir, self.name, self.key)


def secret_path(secrets_dir: Path, name: str, key: str) -> Path:
    """Return the file of a key of a Secret; ValueError for a name that could leave the directory."""
    return secrets_dir / _checked(name, SECRET_NAME) / _checked(key, SECRET_KEY)


def config_map_path(secrets_dir: Path, name: str, key: str) -> Path:
    """Return the file of a key of a ConfigMap, in the same way."""
    return secrets_dir / CONFIG_MAPS / _checked(name, CONFIG_MAP_NAME) / _checked(key, SECRET_KEY)


def _checked(text: str, kind: Text) -> str:
    # Neither pattern lets a slash or a leading ".." pass.
    if not kind.fits(text):
        message = f"expected {kind.expected}"
        raise ValueError(message)
    return text
