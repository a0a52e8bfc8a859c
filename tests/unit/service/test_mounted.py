"""Values in mounted files: there at the start, rotated later, never suddenly gone."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from delayq.errors import InvalidDocument
from delayq.service.mounted import Mounted

if TYPE_CHECKING:
    from pathlib import Path


def parse(content: bytes) -> int:
    try:
        return int(content)
    except ValueError:
        raise InvalidDocument("expected a number, got something else") from None


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "key").write_text("41")
    return tmp_path / "key"


def test_a_replaced_file_is_read_again(path: Path) -> None:
    """At the next use, though it has the same length."""
    mounted = Mounted(path, parse, field="spec.x")
    assert mounted.read() == 41
    (path.parent / "new").write_text("42")
    (path.parent / "new").replace(path)
    assert mounted.read() == 42


@pytest.mark.parametrize(
    ("content", "problem"),
    [(None, "No such file or directory"), ("secret", "expected a number, got something else")],
)
def test_a_value_that_cannot_be_read_again_stays_and_the_log_says_why(
    path: Path, caplog: pytest.LogCaptureFixture, content: str | None, problem: str
) -> None:
    mounted = Mounted(path, parse, field="spec.x")
    path.unlink()
    if content is not None:
        path.write_text(content)
    assert [mounted.read() for _ in range(3)] == [41, 41, 41]
    assert [(record.getMessage(), record.fields) for record in caplog.records] == [  # type: ignore[attr-defined]
        ("secret_unreadable", {"field": "spec.x", "path": str(path), "problem": problem})
    ]


def test_a_pipe_in_the_place_of_the_file_blocks_nothing(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    mounted = Mounted(path, parse, field="spec.x")
    path.unlink()
    os.mkfifo(path)
    assert mounted.read() == 41
    assert [record.getMessage() for record in caplog.records] == ["secret_unreadable"]
    with pytest.raises(InvalidDocument, match="expected a file, got a pipe"):
        Mounted(path, parse, field="spec.x")


def test_the_next_outage_of_the_same_file_is_logged_too(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A volume that was away for a moment: the file is back with the same stat."""
    mounted = Mounted(path, parse, field="spec.x")
    for _ in range(2):
        path.rename(path.parent / "away")
        assert [mounted.read() for _ in range(2)] == [41, 41]
        (path.parent / "away").rename(path)
        assert mounted.read() == 41
    assert [record.getMessage() for record in caplog.records] == ["secret_unreadable"] * 2


@pytest.mark.parametrize(
    ("content", "problem"), [(None, "cannot read .*No such"), ("", ".*expected a number")]
)
def test_without_a_value_nothing_starts(path: Path, content: str | None, problem: str) -> None:
    path.unlink()
    if content is not None:
        path.write_text(content)
    with pytest.raises(InvalidDocument, match=f"^spec.x: {problem}"):
        Mounted(path, parse, field="spec.x")
