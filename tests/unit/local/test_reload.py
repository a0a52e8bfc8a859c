"""Which files `delayq run --reload` watches, and how it learns whether they can be used."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest
from delayq.local.errors import CannotRun
from delayq.local.process import Command
from delayq.local.relay import IMPORTED
from delayq.local.reload import Reloader, Sources

from tests.unit.local.test_plan import HTTP, plan, served

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("path", "counts"),
    [
        ("tasks.py", True),
        ("shop/orders/tasks.py", True),
        ("deploy/queue.yaml", True),
        ("other.yaml", False),
        ("notes.txt", False),
        (".venv/lib/python3.13/site-packages/delayq/app.py", False),
        ("env/lib/python3.13/site-packages/delayq/app.py", False),
        (".git/hooks/hook.py", False),
        ("node_modules/tool/gyp.py", False),
        ("shop/__pycache__/tasks.py", False),
        (".delayq/redis/x.py", False),
    ],
)
def test_code_and_documents_count_and_nothing_that_is_installed_or_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str, *, counts: bool
) -> None:
    """Also if the project itself is below a hidden directory."""
    here = tmp_path / ".worktrees" / "project"
    here.mkdir(parents=True)
    monkeypatch.chdir(here)
    read: Any = None
    sources = Sources((here / "deploy" / "queue.yaml",), read)
    assert sources.directories == [here]
    assert sources.has(here / path) is counts


def test_each_set_of_workers_is_checked_once() -> None:
    shared = plan(
        served("orders", **HTTP), served("mails", **HTTP), served("refunds", worker={"replicas": 3})
    )
    words = [each.argv[each.argv.index("delayq.local.check") + 3 :] for each in shared.checks(None)]
    assert words == [
        ("queue.yaml", "orders", "queue.yaml", "mails"),
        ("queue.yaml", "refunds"),
    ]


class Checked:
    """A plan with these checks."""

    def __init__(self, *sources: str) -> None:
        argvs = [(sys.executable, "-I", "-S", "-c", source) for source in sources]
        self.commands = [Command(argv, dict(os.environ)) for argv in argvs]

    def checks(self, _url: str | None) -> list[Command]:
        return self.commands


async def test_a_change_during_a_check_begins_it_again_and_an_error_waits_for_the_next_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An import may hang for ever, or end its process with exit code 0. Without workers, nothing is checked."""
    monkeypatch.chdir(tmp_path)
    good: Any = Checked(f"raise SystemExit({IMPORTED})")
    without_workers: Any = Checked()
    hanging, broken = Checked("import time; time.sleep(600)"), Checked("raise SystemExit('broken')")
    plans: Any = iter([hanging, broken, Checked("import os; os._exit(0)"), good, without_workers])
    said = asyncio.Queue[str]()
    sources = Sources((tmp_path / "queue.yaml",), lambda: next(plans))
    async with Reloader(sources, said.put_nowait) as reloader:
        found = asyncio.create_task(reloader.next_plan(None))
        async with asyncio.timeout(120):
            said_so = [await _after_save(tmp_path, said), await _after_save(tmp_path, said), await said.get()]
            assert said_so == ["changed: tasks.py"] * 2 + ["not reloaded, the old processes go on:\nbroken"]
            said_so = [await _after_save(tmp_path, said), await said.get()]
            assert said_so[1].endswith("\nthe check of the import ended by exit code 0")
            for each in (good, without_workers):
                assert await _after_save(tmp_path, said) == "changed: tasks.py"
                assert await found is each
                found = asyncio.create_task(reloader.next_plan(None))
            found.cancel()


async def _after_save(folder: Path, said: asyncio.Queue[str]) -> str:
    """Save the code until the watcher, which begins a moment after it was started, has seen it."""
    while True:
        (folder / "tasks.py").write_text(f"# {time.monotonic()}")
        with suppress(TimeoutError):
            async with asyncio.timeout(10):  # a late event of the save before would be one more change
                return await said.get()


async def test_a_directory_that_cannot_be_watched_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    read: Any = None
    gone = tmp_path.parent / "gone"
    async with Reloader(Sources((gone / "queue.yaml",), read), lambda _: None) as reloader:
        with pytest.raises(CannotRun, match=f"cannot watch .*{gone}"):
            await reloader.next_plan(None)
