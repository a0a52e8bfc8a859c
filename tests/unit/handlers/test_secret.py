"""Mounted secrets: there at the start, rotated later, never suddenly empty."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from delayq.handlers.base import HandlerSetupError
from delayq.handlers.http_post import SecretFile

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "key").write_bytes(b"first\n")
    return tmp_path / "key"


def opened(path: Path) -> SecretFile:
    secret = SecretFile(path, field="spec.x")
    secret.open()
    return secret


def test_a_replaced_file_is_read_again(path: Path) -> None:
    """A rotation is noticed at the next use, though the value has the same length."""
    secret = opened(path)
    assert secret.read() == b"first"
    (path.parent / "new").write_bytes(b"other\n")
    (path.parent / "new").replace(path)
    assert secret.read() == b"other"


@pytest.mark.parametrize("content", [None, b"", b"\n"])
def test_a_value_lost_during_a_rotation_is_kept(
    path: Path, events: Callable[[str], list[dict[str, Any]]], content: bytes | None
) -> None:
    """Deliveries go on with the last good value, and the log says why."""
    secret = opened(path)
    path.unlink()
    if content is not None:
        path.write_bytes(content)
    assert secret.read() == b"first"
    assert [event["path"] for event in events("secret_unreadable")] == [str(path)]


@pytest.mark.parametrize(("content", "problem"), [(None, "cannot read"), (b"\n", "is empty")])
def test_without_a_value_nothing_opens(path: Path, content: bytes | None, problem: str) -> None:
    """The error names the field of the document and the file."""
    path.unlink()
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(HandlerSetupError, match=f"^spec.x: .*{problem}|^spec.x: {problem}"):
        opened(path)
