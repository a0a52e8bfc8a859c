"""What keeps due tasks waiting though workers are idle is said: it is a limit, and no fault."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.redis.state import NOW, Shard, State, shard_on
from tests.redis.test_cli_doctor import DOCUMENT
from tests.unit.cli.runner import run

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.servers import RedisServer

LIMITS = "  limits: {maxInFlight: 1, maxBytes: 1048576}\n"
HELD = "held back by spec.limits.maxInFlight = 1 (1 in flight)"


@pytest.fixture
def orders(redis_server: RedisServer) -> Iterator[Shard]:
    with shard_on(redis_server, "orders") as shard:
        shard.seed(State(delayed={"a": NOW - 60_000}, processing={"b:7": NOW + 30_000}))
        yield shard


@pytest.fixture
def document(orders: Shard, redis_server: RedisServer, tmp_path: Path) -> str:
    path = tmp_path / f"{orders.commands.queue}.yaml"
    path.write_text(DOCUMENT.replace("PORT", str(redis_server.port)) + LIMITS)
    return str(path)


def test_the_limit_is_named_and_doctor_finds_no_fault_in_it(orders: Shard, document: str) -> None:
    result = run("status", document)
    assert result.stderr == f"note: due tasks are {HELD}\n"
    told = json.loads(run("status", document, "-o", "json").stdout)
    assert told["held_by"] == "maxInFlight = 1 (1 in flight)"
    assert told["bytes"] > 0
    assert "BYTES" in result.stdout
    assert f" {told['bytes']} " in result.stdout
    found = {each["check"]: each for each in json.loads(run("doctor", document, "-o", "json").stdout)}
    assert (found["tasks"]["level"], HELD in found["tasks"]["message"]) == ("ok", True)
    unlimited = run("status", "orders", "--redis", orders.server.url)
    assert (unlimited.stderr, "BYTES" in unlimited.stdout) == ("", False)
