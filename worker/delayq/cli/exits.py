"""Exit codes, the same for every command."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from delayq.errors import DelayQError, InvalidDocument, Refused, TasksRefused, Unavailable

if TYPE_CHECKING:
    from collections.abc import Iterator

FAILED = 1  # something unexpected; the message says what
USAGE = 2  # click's own: unknown option, missing argument
INVALID = 3  # the document, or something it names, cannot be used
UNAVAILABLE = 4  # Redis cannot be reached or will not serve
REFUSED = 5  # the queue turned the call down and stored nothing
NOT_FOUND = 6  # no such task or dead letter


@contextmanager
def errors_as_exits(hint: str = "") -> Iterator[None]:
    """Turn delayq's errors into a line on stderr, a hint, and an exit code."""
    try:
        yield
    except InvalidDocument as error:
        click.echo(str(error), err=True)
        sys.exit(INVALID)
    except Unavailable as error:
        click.echo(f"error: {error}", err=True)
        if hint:
            click.echo(f"hint:  {hint}", err=True)
        sys.exit(UNAVAILABLE)
    except (Refused, TasksRefused) as error:
        click.echo(f"error: {error}", err=True)
        sys.exit(REFUSED)
    except DelayQError as error:
        click.echo(f"error: {error}", err=True)
        sys.exit(FAILED)
