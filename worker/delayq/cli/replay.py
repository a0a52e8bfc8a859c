"""delayq replay: the decision on the number of workers that an event records, made again."""

from __future__ import annotations

from typing import BinaryIO, Final

import click

from delayq.cli.exits import INVALID, Wrong
from delayq.scaling import replayed, sentence

MOST_BYTES: Final = 1 << 20


@click.command()
@click.argument("file", type=click.File("rb"))
def replay(file: BinaryIO) -> None:
    """Make a scaling decision of the operator again, and print it with its inputs.

    FILE holds the annotation delayq.dev/decision of a ScaledUp or ScaledDown event; - is stdin.
    """
    try:
        decision = replayed(file.read(MOST_BYTES).decode())
    except ValueError as error:
        hint = "kubectl get event -o json shows it in the annotation delayq.dev/decision"
        raise Wrong(f"{getattr(file, 'name', '-')}: {error}", hint, INVALID) from None
    click.echo(sentence(decision))
