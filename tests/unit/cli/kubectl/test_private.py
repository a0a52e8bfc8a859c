"""What a report is written with: for nobody else to read, whatever was there."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
from delayq.cli.kubectl.private import replace


@pytest.mark.parametrize("before", [None, 0o644, 0o444])
def test_a_file_that_all_can_read_becomes_one_that_nobody_else_can(
    tmp_path: Path, before: int | None
) -> None:
    """A new one takes its place: who has the old one open, or another name for it, sees nothing of the new."""
    target, other = tmp_path / "report", tmp_path / "other name"
    if before is not None:
        target.write_bytes(b"old")
        target.chmod(before)
        other.hardlink_to(target)
    replace(target, b"new")
    assert (target.read_bytes(), stat.S_IMODE(target.stat().st_mode)) == (b"new", 0o600)
    assert before is None or other.read_bytes() == b"old"
    assert {each.name for each in tmp_path.iterdir()} <= {"report", "other name"}


def test_a_symbolic_link_is_not_followed_and_stays(tmp_path: Path) -> None:
    """/dev/stdout is one."""
    (tmp_path / "read by all").write_bytes(b"old")
    (tmp_path / "report").symlink_to("read by all")
    with pytest.raises(OSError, match="is there, and not a file"):
        replace(tmp_path / "report", b"new")
    assert (tmp_path / "report").readlink() == Path("read by all")
    assert (tmp_path / "read by all").read_bytes() == b"old"


def test_a_directory_is_not_replaced(tmp_path: Path) -> None:
    """And nothing is left beside it."""
    (tmp_path / "report").mkdir()
    with pytest.raises(OSError, match="is there, and not a file"):
        replace(tmp_path / "report", b"new")
    assert [each.name for each in tmp_path.iterdir()] == ["report"]
