"""The snippets of docs/reference/client.md and results.md run, and print what the comments beside them say."""

from __future__ import annotations

import asyncio
import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from delayq.connection import Address, SyncConnection
from delayq.protocol.commands import Commands

from tests.examples.running import blocks

if TYPE_CHECKING:
    import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "reference" / "client.md").read_text()
BLOCKS = blocks(PAGE)
URL = "redis://localhost:6379/0"


def promised(block: str) -> list[str]:
    """What each print says according to its comment; one in a loop says several things, one in brackets none."""
    comments = re.findall(r"^ *print\(.*\)  # (.+)$", block, re.MULTILINE)
    assert len(comments) == block.count("print("), "a print without a comment"
    return [line for comment in comments if comment[0] != "(" for line in comment.split(", ")]


def bury_two_orders(url: str) -> None:
    """The dead letters that the page talks about."""
    commands, connection = (
        Commands("orders", prefix="delayq", shards=1),
        SyncConnection(Address.from_url(url)),
    )
    bodies = [item for n in (1, 2) for item in (f"order-{n}", "+0", b'\x11{"order":%d}' % n)]
    call = commands.schedule(0, bodies, if_exists="reject", repeated=0, max_length=10, max_delay_ms=1000)
    connection.run([call])
    [claimed] = connection.run([commands.claim(0, 10, 60_000)])
    errors = {"order-1": "card 17 is damaged", "order-2": "card 18 is damaged"}
    settles = [item for lease in claimed.leases for item in (lease.member, errors[lease.task.id])]
    connection.run([commands.bury(0, settles)])
    connection.close()


def test_every_snippet_does_what_the_page_says(
    redis_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copy(ROOT / "examples" / "hello" / "queue.yaml", tmp_path)  # the queue is called orders there too
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DELAYQ_REDIS_URL", redis_url)
    bury_two_orders(redis_url)
    assert len(BLOCKS) == PAGE.count("```python") == 9
    namespace: dict[str, Any] = {}
    for block in BLOCKS:
        exec(block.replace(URL, redis_url), namespace)  # noqa: S102 -- our own page
        if "def main" not in block:
            continue  # a handler, which a worker runs
        asyncio.run(namespace.pop("main")())
        assert capsys.readouterr().out.splitlines() == promised(block)


def test_the_page_of_results_reads_one_task(redis_url: str, capsys: pytest.CaptureFixture[str]) -> None:
    [block] = blocks((ROOT / "docs" / "reference" / "results.md").read_text())
    exec(block.replace(URL, redis_url), {})  # noqa: S102 -- our own page
    assert capsys.readouterr().out.splitlines() == promised(block)
