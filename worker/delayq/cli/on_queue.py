"""QUEUE and the connection options, shared by every command on a queue."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import click

from delayq.cli.exits import errors_as_exits
from delayq.cli.inputs import options
from delayq.cli.target import QUEUE, URL_VARIABLE, resolve
from delayq.contract.queue import MOST_SHARDS

if TYPE_CHECKING:
    from collections.abc import Callable

QUEUE_HELP = "QUEUE is the path of a DelayQueue document, or the name of a queue."


redis_options = options(
    click.option(
        "--redis",
        metavar="URL",
        envvar=URL_VARIABLE,
        show_envvar=True,
        help="Redis to use instead of spec.redis.",
    ),
    click.option(
        "--shards",
        type=click.IntRange(1, MOST_SHARDS),
        metavar="N",
        help="With a name and a URL: number of shards of a queue that is not in use yet.",
    ),
    click.option("--key-prefix", metavar="PREFIX", help="With a name and a URL: spec.redis.keyPrefix."),
)
"""Add the options that locate a queue; resolve() takes their values."""


def on_queue(command: Callable[..., None]) -> Callable[..., None]:
    """Add QUEUE and its options to a command; its function receives a client of that queue as first argument."""

    @functools.wraps(command)
    def connected(*, queue: str, **rest: Any) -> None:  # noqa: ANN401 -- redis_options, and the command's own
        with errors_as_exits():
            target = resolve(queue, **{name: rest.pop(name) for name in ("redis", "shards", "key_prefix")})
        with errors_as_exits(target.hint, target.away), target.client() as client:
            command(client, **rest)

    return redis_options(click.argument("queue", type=QUEUE)(connected))
