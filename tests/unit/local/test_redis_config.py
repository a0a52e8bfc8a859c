"""Which server wrote the data of `delayq run`: it is noted after its start, and else seen in the files."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from delayq.local.redis_config import APPEND_ONLY_DIR, APPEND_ONLY_FILE, Access, written_by
from delayq.local.releases import Kind, Release

if TYPE_CHECKING:
    from pathlib import Path


def data(directory: Path, magic: bytes) -> None:
    parts = directory / APPEND_ONLY_DIR
    parts.mkdir()
    (parts / f"{APPEND_ONLY_FILE}.1.base.rdb").write_bytes(magic + b"\xfa")


@pytest.mark.parametrize(
    ("magic", "kind", "version"),
    [
        (b"", "redis", (7, 0)),
        (b"*3\r\n$3", "redis", (7, 0)),
        (b"REDIS0010", "redis", (7, 0)),
        (b"REDIS0011", "redis", (7, 2)),
        (b"REDIS0012", "redis", (7, 4)),
        (b"VALKEY080", "valkey", (9, 0)),
    ],
)
def test_data_without_a_note_shows_its_server_in_the_snapshot(
    tmp_path: Path, magic: bytes, kind: Kind, version: tuple[int, int]
) -> None:
    data(tmp_path, magic)
    assert written_by(tmp_path) == Release(kind, version)
    Access(20_000, "0" * 32).write(tmp_path, ["127.0.0.1"], None)
    assert written_by(tmp_path) == Release(kind, version), "a server that has not started wrote nothing"


def test_a_note_counts_before_the_files(tmp_path: Path) -> None:
    assert written_by(tmp_path) is None
    data(tmp_path, b"REDIS0012")
    writer = Release("valkey", (9, 1, 2))
    Access(20_000, "0" * 32).write(tmp_path, ["127.0.0.1"], writer)
    assert (written_by(tmp_path), Access.kept(tmp_path)) == (writer, Access(20_000, "0" * 32))
