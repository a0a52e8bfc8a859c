"""What the commands read: lines of a file, keys of a terminal."""

from __future__ import annotations

import io
import os
import tty
from contextlib import closing

import pytest
from delayq.cli import many, top


@pytest.mark.parametrize("end", [b"", b"\n"])
def test_a_line_of_the_greatest_size_is_taken_and_a_longer_one_is_refused_alone(
    monkeypatch: pytest.MonkeyPatch, end: bytes
) -> None:
    monkeypatch.setattr(many, "MAX_BYTES", 6)
    progress = many.Progress("tasks")
    lines = [b"1234567\n", b"12345\n", b" \n", b"12345678901234\n", b"123456" + end]
    assert [*many._lines(io.BytesIO(b"".join(lines)), progress)] == [b"12345\n", b"123456" + end]
    assert [line for line, _ in progress.refused] == [1, 4]


def test_keys_that_are_pressed_together_are_each_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """A read-ahead would hide the second one until a third is pressed."""
    keyboard, terminal = os.openpty()
    with closing(os.fdopen(keyboard, "wb", 0)) as typed, closing(os.fdopen(terminal)) as stdin:
        monkeypatch.setattr("sys.stdin", stdin)
        tty.setcbreak(stdin)
        typed.write(b"xq")
        assert [top._pressed(5.0), top._pressed(5.0), top._pressed(0.0)] == ["x", "q", ""]
