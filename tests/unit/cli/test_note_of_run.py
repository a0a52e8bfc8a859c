"""The note that a command uses the Redis of `delayq run`: once for each start of the run."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from delayq.cli.target import _is_first

if TYPE_CHECKING:
    from pathlib import Path


def test_the_first_command_after_each_start_of_the_run_is_the_first(tmp_path: Path) -> None:
    url = tmp_path / "redis.url"
    url.touch()
    assert [_is_first(url), _is_first(url)] == [True, False]
    later = url.stat().st_mtime_ns + 1_000_000_000
    os.utime(url, ns=(later, later))
    assert _is_first(url), "the run has started again"


def test_a_directory_that_the_command_cannot_write_does_not_stop_it(tmp_path: Path) -> None:
    assert _is_first(tmp_path / "gone" / "redis.url")
