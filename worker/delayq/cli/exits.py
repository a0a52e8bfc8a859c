"""Exit codes and error output of every command: an error, then a hint."""

from __future__ import annotations

import re
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import click

from delayq.contract.problems import SpecError
from delayq.errors import (
    DelayQError,
    InvalidDocument,
    InvalidTask,
    NoSuchSchedule,
    NotConfirmed,
    Refused,
    ScheduleRefused,
    TaskExists,
    TasksRefused,
    Unavailable,
)
from delayq.service.terminal import safe

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

FAILED = 1  # unexpected error; see the message
USAGE = 2  # click's own: unknown option, missing argument
INVALID = 3  # the document, or an object that it names, cannot be used
UNAVAILABLE = 4  # Redis, or a guard's store, is unreachable or refuses to serve
REFUSED = 5  # the queue refused the call and stored nothing
NOT_FOUND = 6  # no such task, dead letter, record of a guard, or field
NOT_CONFIRMED = 7  # stored, but not confirmed in time as spec.durability requires
INTERRUPTED = 130  # Ctrl-C, as shells count it: 128 + SIGINT
PIPE_CLOSED = 141  # 128 + SIGPIPE: the reader closed the pipe
TERMINATED = 143  # 128 + SIGTERM, in a container that has not begun: see delayq.cli.main

_REPEAT: Final = "repeat it with --id ID --if-exists keep: a task that has already finished runs once more"

OPTIONS: Final[Mapping[str, str]] = {
    "task_id": "ID",
    "tag": "--tag",
    "tags": "--tag",
    "kind": "--kind",
    "version": "--kind-version",
    "headers": "--header",
    "content_type": "--content-type",
}
"""Parameters of Client that its errors name → what the user typed."""
_NAMED: Final = re.compile(r"([a-z_]+)(?: of task \S+)?: ")


class CommandError(click.ClickException):
    """An error message, a hint for the next step, and an exit code."""

    def __init__(self, message: str, hint: str = "", code: int = USAGE) -> None:
        """`hint`: what the user can do next; empty for none."""
        super().__init__(message)
        self.hint, self.code = hint, code


@contextmanager
def errors_as_exits(hint: str = "", away: Callable[[], str] = str) -> Iterator[None]:
    """Print delayq's errors with `hint` to stderr, and exit with their code. `away`: a hint if Redis is unreachable."""
    try:
        yield
    except (InvalidDocument, SpecError) as error:
        click.echo(safe(str(error)), err=True)
        sys.exit(INVALID)
    except Unavailable as error:
        print_error(str(error), "; ".join(filter(None, (away(), hint))))
        sys.exit(UNAVAILABLE)
    except TaskExists as error:
        print_error(f"task {error.task_id} exists already", "--if-exists keep, or replace")
        sys.exit(REFUSED)
    except NotConfirmed as error:
        print_error(str(error), f"{_REPEAT}; {hint}")
        sys.exit(NOT_CONFIRMED)
    except InvalidTask as error:
        print_error(as_typed(str(error)))
        sys.exit(REFUSED)
    except NoSuchSchedule as error:
        print_error(str(error))
        sys.exit(NOT_FOUND)
    except (Refused, ScheduleRefused, TasksRefused) as error:
        print_error(str(error))
        sys.exit(REFUSED)
    except DelayQError as error:
        print_error(str(error), _denied(hint) if error.outage == "denied" else hint)
        sys.exit(FAILED)


def as_typed(message: str, names: Mapping[str, str] = OPTIONS) -> str:
    """Return the message of an InvalidTask with what the user typed in place of the names of Client's parameters."""
    found = _NAMED.match(message)
    if found and found[1] in names:
        message = f"{names[found[1]]}: {message[found.end() :]}"
    return message.replace('if_exists="debounce"', "--if-exists debounce")


def _denied(hint: str) -> str:
    """Add `delayq acl` to the hint of an error about missing rights."""
    return f"delayq acl prints the rights that the user needs; {hint or 'delayq doctor QUEUE names the missing ones'}"


def print_error(message: str, hint: str = "") -> None:
    """Print an error and a hint to stderr."""
    click.echo(f"error: {safe(message)}", err=True)
    if hint:
        click.echo(f"hint:  {safe(hint)}", err=True)
