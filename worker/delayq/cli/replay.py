"""delayq replay: recompute a scaling decision that an event records."""

from __future__ import annotations

from typing import BinaryIO, Final

import click

from delayq.cli.exits import INVALID, CommandError
from delayq.scaling import replayed, sentence

MOST_BYTES: Final = 1 << 20


@click.command()
@click.argument("file", type=click.File("rb"))
def replay(file: BinaryIO) -> None:
    """Recompute a scaling decision of the operator.

    The output has the decision and its inputs. FILE contains the annotation delayq.dev/decision of a ScaledUp or
    ScaledDown event; - reads from stdin.
    """
    try:
        decision = replayed(file.read(MOST_BYTES).decode())
    except ValueError as error:
        hint = "kubectl get event -o json shows it in the annotation delayq.dev/decision"
        raise CommandError(f"{getattr(file, 'name', '-')}: {error}", hint, INVALID) from None
    click.echo(sentence(decision))
