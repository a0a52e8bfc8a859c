"""Exit codes, the same for every command, and how errors are said: what is wrong, then what to do."""

from __future__ import annotations

import re
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import click

from delayq.errors import (
    DelayQError,
    InvalidDocument,
    NotConfirmed,
    Refused,
    TaskExists,
    TasksRefused,
    Unavailable,
)
from delayq.service.terminal import safe

if TYPE_CHECKING:
    from collections.abc import Iterator

FAILED = 1  # something unexpected; the message says what
USAGE = 2  # click's own: unknown option, missing argument
INVALID = 3  # the document, or something it names, cannot be used
UNAVAILABLE = 4  # Redis, or a guard's store, cannot be reached or will not serve
REFUSED = 5  # the queue turned the call down and stored nothing
NOT_FOUND = 6  # no such task or dead letter
NOT_CONFIRMED = 7  # stored, and not confirmed in time by what spec.durability names
INTERRUPTED = 130  # Ctrl-C, as shells count it: 128 + SIGINT
PIPE_CLOSED = 141  # 128 + SIGPIPE: who read our output had enough

DENIED: Final = re.compile(r"NOPERM|can't run this command|no permissions", re.IGNORECASE)
"""What Redis says of a right that the user lacks, of a call or, with each version in its own words, in a script."""


_REPEAT: Final = "repeat it with --id ID --if-exists keep: a task that is done by then runs once more"


class Wrong(click.ClickException):
    """A sentence on stderr, a hint below it, an exit code."""

    def __init__(self, message: str, hint: str = "", code: int = USAGE) -> None:
        """`hint` says what to do next."""
        super().__init__(message)
        self.hint, self.code = hint, code


@contextmanager
def errors_as_exits(hint: str = "") -> Iterator[None]:
    """Turn delayq's errors into a line on stderr, a hint, and an exit code."""
    try:
        yield
    except InvalidDocument as error:
        click.echo(safe(str(error)), err=True)
        sys.exit(INVALID)
    except Unavailable as error:
        complain(str(error), hint)
        sys.exit(UNAVAILABLE)
    except TaskExists as error:
        complain(f"task {error.task_id} exists already", "--if-exists keep, or replace")
        sys.exit(REFUSED)
    except NotConfirmed as error:
        complain(str(error), f"{_REPEAT}; {hint}")
        sys.exit(NOT_CONFIRMED)
    except (Refused, TasksRefused) as error:
        complain(str(error))
        sys.exit(REFUSED)
    except DelayQError as error:
        complain(str(error), _denied(hint) if DENIED.search(str(error)) else hint)
        sys.exit(FAILED)


def _denied(hint: str) -> str:
    """Name the command that prints the rule beside the one that says what of it lacks."""
    return f"delayq acl prints what the user needs; {hint or 'delayq doctor QUEUE says what it lacks'}"


def complain(message: str, hint: str = "") -> None:
    """Say what is wrong, and what to do about it."""
    click.echo(f"error: {safe(message)}", err=True)
    if hint:
        click.echo(f"hint:  {safe(hint)}", err=True)
