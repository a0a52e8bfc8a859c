"""How a run lets the other commands find a Redis that is not its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from delayq.contract.files import RUN_URL
from delayq.local.datadir import DataDir, published
from delayq.local.errors import CannotRun

if TYPE_CHECKING:
    from pathlib import Path

FIRST, SECOND = "redis://127.0.0.1:1/0", "redis://127.0.0.1:2/0"


def test_a_run_beside_one_with_another_redis_warns_that_commands_use_the_first(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with published(tmp_path, FIRST), published(tmp_path, FIRST):
        assert caplog.messages == []
        with published(tmp_path, SECOND):
            assert (tmp_path / RUN_URL).read_text() == f"{FIRST}\n"
            assert caplog.messages == ["redis_not_published"]
            assert SECOND not in caplog.text, "a URL may hold a password"
    assert not (tmp_path / RUN_URL).exists()
    embedded = DataDir.take(tmp_path)
    embedded.publish(FIRST)
    with published(tmp_path, SECOND):
        assert caplog.messages == ["redis_not_published"] * 2
    embedded.release()


def test_a_data_directory_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    said = f"cannot use the data directory {tmp_path}/file/data: Not a directory"
    with pytest.raises(CannotRun, match=said):
        DataDir.take(tmp_path / "file" / "data")
