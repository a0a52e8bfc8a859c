"""Render the pages of the commands: `python -m tools.reference.commands docs/reference` writes them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click
from delayq.cli import exits
from delayq.cli.root import delayq

from tools.reference.result_keys import KEYS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

WIDTH = 100
MEANINGS: Final[Mapping[int, str]] = {
    0: "Done.",
    exits.FAILED: "Something unexpected, or a check of `doctor` failed; the message says what.",
    exits.USAGE: "Wrong options or arguments.",
    exits.INVALID: "The document, or something it names, cannot be used.",
    exits.UNAVAILABLE: "Redis, or for `guard` and `doctor` the guard's store, cannot be reached, or refuses.",
    exits.REFUSED: "The queue refused the call and stored nothing; with `--many`, it refused some tasks.",
    exits.NOT_FOUND: "No such task, dead letter or record of a guard; of `explain`, no such field.",
    exits.NOT_CONFIRMED: "Stored, but not confirmed in time by what `durability` names.",
    exits.INTERRUPTED: "Interrupted by Ctrl-C; `run`, `scanner`, `worker`, `reaper` and `api` end with 0 instead.",
    exits.PIPE_CLOSED: "The reader of the output closed the pipe.",
    exits.TERMINATED: "Ended by SIGTERM in a container, before the command had started.",
}
MADE: Final = (
    "<!-- Made by `python -m tools.reference.commands docs/reference`; change the commands instead. -->"
)
INTRODUCTION: Final = f"""\
# Commands

{MADE}

## QUEUE and DOCUMENT

The first argument says what a command works on, and no option does:

- **QUEUE** is one queue: the path of a DelayQueue [document](document.md), or the queue's name.
- **DOCUMENT** is the path of a file with one or several documents. `run` and the processes serve all their queues,
  but `api` serves one.
- `scanner`, `worker`, `reaper`, `api`, `erase`, `guard init` and `guard prune` work without it in a pod, where the
  document is `/etc/delayq/queue.yaml`.
- [`kubectl dq`](kubectl.md) takes NAME instead: the name of a DelayQueue.

How a command finds QUEUE:

- **A path** contains `/`, or ends in `.yaml` or `.yml`, or is an existing file.
- **A name** finds the document in `$DELAYQ_CONFIG`, in `./queue.yaml`, or in a pod in `/etc/delayq/queue.yaml`, if
  its queue has that name. Otherwise pass `--redis URL`, and `--key-prefix` if it is not `delayq`. For a queue that is
  not in use yet, `--shards` sets the number of shards.

## Which Redis

The Redis of a queue is the first of these. A scanner, worker, reaper or API does not look for a `delayq run`:

1. `--redis URL`, or `$DELAYQ_REDIS_URL`
2. the Redis of a running `delayq run` of this document, which stores its URL in `.delayq/redis.url` beside the
   document. If several runs share a directory, the file has one URL: use `--redis` for the others.
3. `spec.redis`

A program reads neither the variable nor the file by itself. The examples pass
`url=os.environ.get("DELAYQ_REDIS_URL")` to the App or the client: without the variable, they use `spec.redis`.
`delayq run` reads the variable, too. So set it beside a `delayq run` for the program only:
`DELAYQ_REDIS_URL=$(cat .delayq/redis.url) python plan.py`.

## Output

Tables are for people, `-o json` and `-o yaml` for programs. On a terminal, the last column is cut to fit. Results go to
stdout; errors, hints and notes go to stderr. With `--watch`, JSON is one object per line. An instant has two keys:
`due_ms` is Unix milliseconds by Redis' clock, `due` the same as ISO 8601. Relative times ("in 3m") use that clock, too.
[Keys of results](cli-keys.md) explains each key.
"""

KEYS_INTRODUCTION: Final = """\
The keys of `-o json` and `-o yaml`, for [every command](cli.md). A key has the same meaning everywhere, unless the
table names a command. Beside an instant such as `due`, `due_ms` has the same as Unix milliseconds.
"""


PAGES: Final = {
    "cli-tasks": ("Commands for tasks", ("schedule", "task")),
    "cli-dead-letters": ("Commands for dead letters", ("dlq",)),
    "cli-queues": (
        "Commands for queues",
        ("status", "top", "suspend", "resume", "forecast", "doctor", "guard", "erase"),
    ),
    "cli-cron": ("Commands for recurring schedules", ("cron",)),
    "cli-documents": (
        "Commands for documents",
        ("validate", "explain", "alerts", "acl", "crd", "replay", "completion"),
    ),
    "cli-processes": (
        "Commands that run processes",
        ("run", "scanner", "worker", "reaper", "api", "api-token"),
    ),
}
"""File name to title and commands."""


def pages() -> dict[str, str]:
    """Return each page's text by its file name."""
    context = _context(delayq, "delayq", None)
    links = [
        f"- [{title}]({name}.md): {', '.join(f'`{command}`' for command in commands)}"
        for name, (title, commands) in PAGES.items()
    ]
    found = {
        "cli.md": "\n".join([INTRODUCTION, *_exits(), "## Commands\n", *links, "", *_help(delayq, context)])
    }
    found["cli-keys.md"] = "\n".join([f"# Keys of results\n\n{MADE}\n\n{KEYS_INTRODUCTION}", *_keys()])
    for name, (title, commands) in PAGES.items():
        parts = [
            f"# {title}\n\n{MADE}\n\nQUEUE, output and exit codes are those of [every command](cli.md).\n"
        ]
        for command in commands:
            if inner := delayq.get_command(context, command):
                parts += _commands(inner, ["delayq", command], context)
        found[f"{name}.md"] = "\n".join(parts)
    return found


def _keys() -> Iterator[str]:
    yield "| key | meaning |\n|---|---|"
    yield from (f"| `{name}` | {KEYS[name]} |" for name in sorted(KEYS))
    yield ""


def _exits() -> Iterator[str]:
    yield "## Exit codes\n\n| code | means |\n|---|---|"
    yield from (f"| {code} | {meaning} |" for code, meaning in MEANINGS.items())
    yield ""


def _commands(command: click.Command, words: list[str], parent: click.Context | None = None) -> Iterator[str]:
    context = _context(command, words[-1], parent)
    yield f"## {' '.join(words)}\n"
    yield from _help(command, context)
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            if inner is not None:
                yield from _commands(inner, [*words, name], context)


def _help(command: click.Command, context: click.Context) -> Iterator[str]:
    yield f"```text\n{command.get_help(context).rstrip()}\n```\n"


def _context(command: click.Command, name: str, parent: click.Context | None) -> click.Context:
    settings = {**command.context_settings, "terminal_width": WIDTH, "max_content_width": WIDTH}
    return click.Context(command, parent, name, **settings)


if __name__ == "__main__":
    for file, text in pages().items():
        (Path(sys.argv[1]) / file).write_text(text)
