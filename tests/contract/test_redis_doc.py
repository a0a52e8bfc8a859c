"""docs/how-to/redis.md says what is measured, what the rule is and which servers are tested, and nothing else."""

from __future__ import annotations

import json
import re
from pathlib import Path
from statistics import mean

import pytest
from delayq.contract.acl import rule, sentinel_rule
from delayq.protocol.keys import SLOTS, Keys

from benchmarks.report import RESULTS
from benchmarks.scale.sizing import FIRST, LAST, table
from tests.servers import FLAVOURS

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "how-to" / "redis.md").read_text()
NODES, NAMES = 3, 2000


def between(name: str) -> str:
    first, last = f"<!-- {name}: checked by tests/contract/test_redis_doc.py -->", f"<!-- end of {name} -->"
    return PAGE.split(first)[1].split(last)[0]


@pytest.mark.parametrize(
    ("name", "user", "expected"),
    [
        (
            "acl",
            "delayq-orders",
            rule(queue="orders"),
        ),  # tests run under rule(), as their queues have many names
        ("sentinel acl", "delayq", sentinel_rule()),
    ],
)
def test_the_rule_is_the_one_that_tests_run_under(name: str, user: str, expected: str) -> None:
    said = ["ACL", "SETUSER", user, "on", ">password", *expected.split()]
    assert between(name).replace("```", "").split() == said


def test_the_sizing_table_is_made_of_the_figures_that_are_kept() -> None:
    kept = json.loads((RESULTS / "scale.json").read_text())
    assert PAGE.split(FIRST)[1].split(LAST)[0] == table(kept), "run: make bench-scale BENCH_ARGS=--keep"


def test_every_server_of_the_tests_is_named() -> None:
    section = PAGE.split("## Versions")[1]
    for flavour in FLAVOURS:
        name = (
            f"Valkey {flavour.removeprefix('valkey')}" if flavour.startswith("valkey") else f"Redis {flavour}"
        )
        assert name in section


def test_shards_spread_over_nodes_as_the_page_says() -> None:
    rows = re.findall(r"^\| (\d+) \| (\d+) % \| (\d+) % \|$", between("spread"), re.MULTILINE)
    assert rows
    for row in rows:
        shards, most, without = map(int, row)
        shares = [per_node(f"queue-{nth}", shards) for nth in range(NAMES)]
        assert most == round(100 * mean(max(each) / shards for each in shares))
        assert without == round(100 * mean(0 in each for each in shares))


def per_node(queue: str, shards: int) -> list[int]:
    """How many shards each node has, when the slots are cut evenly."""
    found = [0] * NODES
    for shard in range(shards):
        found[Keys("delayq", queue, shard).slot * NODES // SLOTS] += 1
    return found
