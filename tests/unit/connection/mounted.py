"""Secrets as a pod finds them: files that are symbolic links, all of which Kubernetes swaps at once."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, Any

from delayq.contract import parse

if TYPE_CHECKING:
    from pathlib import Path

    from delayq.contract import Redis

_numbers = count()


def mount(directory: Path, name: str, **files: bytes) -> None:
    """Write some keys of a Secret, and keep the others; an underscore in a key's name stands for a dot."""
    home = directory / name
    home.mkdir(exist_ok=True)
    data, version = home / "..data", home / f"..{next(_numbers)}"
    before = {file.name: file.read_bytes() for file in data.iterdir()} if data.exists() else {}
    version.mkdir()
    for key, content in (before | {key.replace("_", "."): content for key, content in files.items()}).items():
        (version / key).write_bytes(content)
        if not (home / key).is_symlink():
            (home / key).symlink_to(f"..data/{key}")
    new = home / "..data_tmp"
    new.symlink_to(version.name)
    new.replace(data)


def spec(**redis: Any) -> Redis:  # noqa: ANN401  any part of a document
    """What a document says of Redis."""
    document = {
        "apiVersion": "delayq.dev/v1alpha1",
        "kind": "DelayQueue",
        "metadata": {"name": "q"},
        "spec": {"redis": redis, "handler": {"python": {"callable": "shop:cancel"}}},
    }
    return parse(document).spec.redis
