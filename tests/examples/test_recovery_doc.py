"""docs/how-to/recovery.md: its documents are accepted, its function and its JSON give the verdicts that it says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from delayq import Verdict
from delayq.connection import Address
from delayq.contract import parse
from delayq.handlers.http_response import Answer
from delayq.protocol.envelope import Task
from delayq.recovery import checks
from delayq.recovery.checks.http import read

from tests.examples.running import blocks

if TYPE_CHECKING:
    from delayq.contract import DelayQueue

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "how-to" / "recovery.md").read_text()
DOCUMENTS, [FUNCTION], [JSON] = (blocks(PAGE, kind) for kind in ("yaml", "python", "json"))


def document(block: str) -> DelayQueue:
    """A whole document around what the page shows of one."""
    spec: dict[str, Any] = {
        "redis": {"standalone": {"host": "redis"}},
        "handler": {"http": {"url": "http://shop/"}},
    }
    return parse(
        {
            "apiVersion": "delayq.dev/v1alpha1",
            "kind": "DelayQueue",
            "metadata": {"name": "orders"},
            "spec": spec | yaml.safe_load(block),
        }
    )


def test_every_document_is_accepted() -> None:
    assert len(DOCUMENTS) == 3
    asked = [document(block).spec.recovery.check for block in DOCUMENTS]
    assert [bool(check and (check.python, check.http, check.guard)[at]) for at, check in enumerate(asked)]


@pytest.mark.parametrize(
    ("run", "verdict"),
    [(("order-1", 1), Verdict.COMPLETE), (("order-2", 4), Verdict.BURY), (("order-2", 1), Verdict.REQUEUE)],
)
async def test_the_function_gives_its_verdicts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: tuple[str, int], verdict: Verdict
) -> None:
    task_id, attempt = run
    (tmp_path / "shop_of_the_page").mkdir()
    (tmp_path / "shop_of_the_page" / "orders.py").write_text(FUNCTION)
    monkeypatch.syspath_prepend(tmp_path)
    queue = document(DOCUMENTS[0].replace("shop.orders", "shop_of_the_page.orders"))
    check = checks.build(queue, Address.from_url("redis://unused"), secrets_dir=tmp_path)
    assert check is not None
    task = Task(task_id, "orders", attempt, 7, 0, 0, b"{}", "application/json", {})
    assert (await check.ask(task)).verdict is verdict


def test_the_json_is_a_verdict() -> None:
    answer = Answer(status=200, body=JSON.encode(), retry_after=None, date=None, location=None)
    assert read(answer) == (Verdict.COMPLETE, "refunded on 2 May")


def test_the_page_says_the_defaults_and_bounds_there_are() -> None:
    check = document(DOCUMENTS[0]).spec.recovery.check
    assert check is not None
    assert f"`timeoutSeconds` ({check.timeout_seconds})" in PAGE
    assert f"`retryAfterSeconds` ({check.retry_after_seconds})" in PAGE
    assert f"`{check.on_failure}`, the default" in PAGE
    assert f"asks about {checks.CONCURRENCY} tasks" in PAGE
    assert f"one of the {checks.CONCURRENCY} slots" in PAGE


def test_every_verdict_is_in_the_table() -> None:
    assert re.findall(r"^\| `(\w+)` \|", PAGE, re.MULTILINE) == list(Verdict)
