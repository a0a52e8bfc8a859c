"""Runs commands on a shard whose clock stands still, and the states they are run on."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from tests.redis.state import NOW, Shard, State
from tests.unit.cli.runner import run

if TYPE_CHECKING:
    from pathlib import Path

    from click.testing import Result

LATER = NOW + 1_800_000
ISO_LATER = "2030-01-01T00:30:00.000Z"
ERROR_404 = "1 0 buried HTTPStatusError: 404 Not Found (shop.orders:cancel_unpaid line 41)"
TOO_LONG = "3 0 attempts task ran longer than handlerTimeoutSeconds (30)"
DEAD = State(
    dlq={f"o-{n:03}": NOW - 120_000 for n in range(212)} | {f"t-{n}": NOW - 14_400_000 for n in range(3)},
    dlq_info={f"o-{n:03}": ERROR_404 for n in range(212)} | {f"t-{n}": TOO_LONG for n in range(3)},
)
EVERY_STATE = State(
    delayed={"a": LATER}, retry={"b": NOW - 3000}, processing={"c:7": NOW + 30_000}, dlq={"d": NOW - 9000}
)
DOCUMENT = """\
apiVersion: delayq.dev/v1alpha1
kind: DelayQueue
metadata: {name: orders}
spec:
  redis: {standalone: {host: 127.0.0.1, port: PORT}}
  handler: {python: {callable: "json:dumps"}}
"""
NIGHTLY = """\
apiVersion: delayq.dev/v1alpha1
kind: DelaySchedule
metadata: {name: nightly}
spec:
  queueRef: {name: orders}
  cron: "0 3 * * *"
  concurrencyPolicy: Forbid
  task: {kind: report, payload: '{"region":"eu"}', tags: [eu]}
"""
HANDLER = '{python: {callable: "json:dumps"}}'


def document(directory: Path, port: int | str, more: str = "", *, handler: str = HANDLER) -> str:
    """Write the document of a queue `orders`, with further fields of its spec; returns its path."""
    path = directory / "queue.yaml"
    path.write_text(DOCUMENT.replace("PORT", str(port)).replace(HANDLER, handler) + more)
    return str(path)


def on(shard: Shard, *args: str, stdin: bytes = b"") -> Result:
    """Run a command on the Redis of a shard."""
    return run(*args, stdin=stdin, DELAYQ_REDIS_URL=shard.server.url)


def answer(shard: Shard, *args: str, code: int = 0) -> Any:  # noqa: ANN401  parsed JSON
    """What a command says in JSON."""
    result = on(shard, *args, "-o", "json")
    assert result.exit_code == code, result.output
    return json.loads(result.stdout)
