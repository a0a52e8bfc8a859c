from __future__ import annotations

import asyncio
import os
import sys
from typing import TYPE_CHECKING

from delayq.local.keeper import Keeper
from delayq.local.process import Command

if TYPE_CHECKING:
    import pytest


class Starts:
    """Counts the starts of a process; sets `third` at the third one."""

    def __init__(self) -> None:
        self.count, self.third = 0, asyncio.Event()

    def begin(self) -> None:
        self.count += 1
        if self.count == 3:
            self.third.set()

    def parse(self, _stream: int, _line: str) -> bool:
        return True

    def ended(self, code: int) -> None:
        pass


async def _third_start(exit_code: int, every_seconds: float | None) -> None:
    starts = Starts()
    argv = (sys.executable, "-I", "-S", "-c", f"raise SystemExit({exit_code})")
    keeper = Keeper(lambda: Command(argv, dict(os.environ)), "child", starts, every_seconds)
    task = keeper.start()
    await asyncio.wait_for(starts.third.wait(), 30)
    keeper.stop()
    await task


async def test_a_process_that_fails_is_started_again_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    await _third_start(3, every_seconds=600)
    keeper = [
        record for record in caplog.records if record.name == "delayq.local.keeper"
    ]  # asyncio warns of others
    fields = [record.fields for record in keeper]  # type: ignore[attr-defined]  # delayq's own
    assert [each["restart_in_seconds"] for each in fields] == [0.1, 0.2]
    assert {each["by"] for each in fields} == {"exit code 3"}


async def test_a_process_that_ends_by_itself_starts_again_at_its_interval(
    caplog: pytest.LogCaptureFixture,
) -> None:
    await _third_start(0, every_seconds=0.01)
    assert not caplog.records
