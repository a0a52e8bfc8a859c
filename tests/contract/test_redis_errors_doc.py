"""docs/reference/redis-errors.md names every error reply that has a cause, and every cause with its remedy."""

from __future__ import annotations

from pathlib import Path

import pytest
from delayq.connection import translated
from delayq.connection.outages import CODES
from delayq.contract.metrics import OUTAGES
from delayq.contract.outages import REMEDIES
from redis.exceptions import ResponseError

from tests.errors_page import PAGE, replies

DOCS = Path(__file__).parents[2] / "docs"


def test_every_cause_has_a_remedy_which_the_page_repeats() -> None:
    section = PAGE.split("<!-- causes: checked by tests/contract/test_redis_errors_doc.py -->")[1]
    rows = [f"| `{cause}` | {remedy.what} | {remedy.cure} |" for cause, remedy in REMEDIES.items()]
    table = "\n".join(["| cause | what it is | what to do |", "|---|---|---|", *rows])
    assert section.split("<!-- end of causes -->")[0].strip() == table
    assert tuple(REMEDIES) == OUTAGES


@pytest.mark.parametrize("page", ["reference/metrics.md", "runbooks/DelayQueueRedisDown.md"])
def test_pages_about_the_metric_name_every_cause(page: str) -> None:
    text = (DOCS / page).read_text(encoding="utf-8")
    assert [cause for cause in OUTAGES if f"`{cause}`" not in text] == []


@pytest.mark.parametrize(("reply", "cause"), replies().items())
def test_a_reply_of_the_page_has_the_cause_of_the_page(reply: str, cause: str) -> None:
    more = " 5 there:6379" if reply in ("MOVED", "ASK") else ""
    assert translated(ResponseError(f"{reply}{more}"), "there:6379", "connect").outage == cause


def test_every_code_is_on_the_page() -> None:
    named = {reply.split()[0] for reply in replies()}
    redirections = {"MOVED", "ASK", "Script", "script"}  # followed; the page has them without a cause
    assert CODES.keys() - redirections - {"WAITAOF"} <= named
