"""Which dead letters a command is for: some ids, a group, or all."""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from delayq.cli.exits import NOT_FOUND, Wrong
from delayq.cli.output import note
from delayq.client.encoding import checked_id
from delayq.contract.problems import quote

if TYPE_CHECKING:
    from collections.abc import Callable

    from delayq.client.blocking import SyncClient

_NUMBER = re.compile("[1-9][0-9]{0,9}")


@dataclass(frozen=True)
class Choice:
    """What was asked for."""

    ids: tuple[str, ...] = ()
    group: int | None = None
    every: bool = False


def choice_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command ID..., --group and --all; the function gets a Choice."""

    @functools.wraps(command)
    def choosing(*args: Any, ids: tuple[str, ...], group: str | None, every: bool, **rest: Any) -> None:  # noqa: ANN401 -- click's
        command(*args, choice=_choice(ids, group, every=every), **rest)

    for option in (
        click.option("--all", "every", is_flag=True, help="All dead letters."),
        click.option(
            "--group",
            metavar="N",
            help="Those of the group that delayq dlq groups gives this number, or all.",
        ),
        click.argument("ids", metavar="[ID...]", nargs=-1),
    ):
        choosing = option(choosing)
    return choosing


def _choice(ids: tuple[str, ...], group: str | None, *, every: bool) -> Choice:
    if bool(ids) + (group is not None) + every > 1:
        raise Wrong("expected one of ID..., --group and --all, got more")
    if group is None or group == "all":
        return Choice(ids, None, every or group == "all")
    if not _NUMBER.fullmatch(group):
        raise Wrong(
            f"--group: expected a number from 1, or all, got {quote(group)}", "delayq dlq groups lists them"
        )
    return Choice(group=int(group))


def chosen(client: SyncClient, choice: Choice, *, every: bool = False) -> tuple[dict[str, int], set[str]]:
    """Return dead letters with their times of death, and which of those asked for are none.

    `every` is what no choice means.
    """
    if choice.ids:
        return _named(client, choice.ids)
    if choice.group is not None:
        return _of_group(client, choice.group), set()
    if not (choice.every or every):
        raise Wrong("which dead letters? expected ID..., --group N or --all", "delayq dlq groups lists them")
    return {row.id: row.at_ms for row in client.dlq_list()}, set()


def _named(client: SyncClient, ids: tuple[str, ...]) -> tuple[dict[str, int], set[str]]:
    wanted = [checked_id(task_id) for task_id in dict.fromkeys(ids)]
    dead = {view.id: view.at_ms for view in client.dlq_get(wanted)}
    return dead, set(wanted) - dead.keys()


def _of_group(client: SyncClient, number: int) -> dict[str, int]:
    """Say which error it is: the numbers change when tasks die or are redriven."""
    groups = client.dlq_groups()
    if number > len(groups):
        raise Wrong(
            f"--group: expected a number up to {len(groups)}, got {number}", "delayq dlq groups", NOT_FOUND
        )
    group = groups[number - 1]
    note(f"group {number}: {group.error.partition(chr(10))[0]}")
    return dict.fromkeys(group.ids, group.last_ms)
