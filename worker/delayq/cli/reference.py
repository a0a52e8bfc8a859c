"""Render docs/cli.md from the commands themselves: `python -m delayq.cli.reference > docs/cli.md`; a test compares."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from delayq.cli.exits import MEANINGS
from delayq.cli.result_keys import KEYS
from delayq.cli.root import delayq

if TYPE_CHECKING:
    from collections.abc import Iterator

WIDTH = 100
INTRODUCTION = """\
# Commands

<!-- Made by `python -m delayq.cli.reference > docs/cli.md`; change the commands, not this page. -->

## QUEUE

Every command that works on a queue takes QUEUE: the path of a DelayQueue [document](document.md), or a queue's name.

- A path contains `/`, or ends in `.yaml` or `.yml`, or is an existing file. The document says everything. Its Redis is,
  in this order: `--redis URL` (or `$DELAYQ_REDIS_URL`), the Redis of a `delayq run` of this document that is running
  (it leaves its address in `.delayq/redis.url` beside the document, and the command says so on stderr), `spec.redis`.
  One directory has one such address: a second run with another Redis warns that commands need `--redis` to find it.
- A name finds the document named in `$DELAYQ_CONFIG`, or `./queue.yaml`, when its queue has that name. Otherwise give
  `--redis URL`, and `--key-prefix` when it is not `delayq`. `--shards` is how many a queue gets that nobody has used
  yet; any other tells how many it has.

## Output

Tables are for people: on a terminal the last column is cut to fit, in a pipe every cell is whole. `-o json` and
`-o yaml` are for programs. Results go to stdout; errors, hints and notes to stderr. With `--watch`, JSON is one object
a line. Instants are given twice: `due_ms` is Unix milliseconds by Redis' clock, `due` the same as ISO 8601. What is
relative ("in 3m") is relative to Redis' clock, too.
"""


def render() -> str:
    """Write the page."""
    return "\n".join([INTRODUCTION, *_keys(), *_exits(), *_commands(delayq, ["delayq"])])


def _keys() -> Iterator[str]:
    yield "| key | meaning |\n|---|---|"
    yield from (f"| `{name}` | {meaning} |" for name, meaning in KEYS.items())
    yield ""


def _exits() -> Iterator[str]:
    yield "## Exit codes\n\n| code | means |\n|---|---|"
    yield from (f"| {code} | {meaning} |" for code, meaning in MEANINGS.items())
    yield ""


def _commands(command: click.Command, words: list[str], parent: click.Context | None = None) -> Iterator[str]:
    context = _context(command, words[-1], parent)
    yield f"## {' '.join(words)}\n"
    yield f"```text\n{command.get_help(context).rstrip()}\n```\n"
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            if inner is not None:
                yield from _commands(inner, [*words, name], context)


def _context(command: click.Command, name: str, parent: click.Context | None) -> click.Context:
    settings = {**command.context_settings, "terminal_width": WIDTH, "max_content_width": WIDTH}
    return click.Context(command, parent, name, **settings)


if __name__ == "__main__":
    sys.stdout.write(render())
