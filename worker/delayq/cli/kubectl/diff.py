"""kubectl dq diff: what a new DelayQueue would change, and which pods it would replace. Nothing is changed.

The API server says what the file comes to (defaults, CEL), the operator's own desired() what follows from it, and the
API server again what each child would look like.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, BinaryIO

import click
import yaml
from delayq_operator.base import names

from delayq.cli.exits import FAILED, INVALID, USAGE, Wrong
from delayq.cli.kubectl import queues, rolls, surroundings, unified
from delayq.cli.kubectl.comparison import compare
from delayq.cli.kubectl.options import kubectl_options
from delayq.cli.kubectl.tolerant import one_or_none
from delayq.client.document import Loader
from delayq.contract import SpecError, parse
from delayq.contract.problems import show

if TYPE_CHECKING:
    from collections.abc import Iterator

    from delayq.cli.kubectl.kubectl import Kubectl, Object
    from delayq.contract import Problem

CHANGES, SAME = 1, 0
MOST_NAMED = 5
BESIDES = ("Secret", "ConfigMap")


@click.command()
@click.option(
    "-f", "--filename", "file", type=click.File("rb"), required=True, help="The new DelayQueue; - is stdin."
)
@click.option("--server-side", is_flag=True, help="As kubectl apply --server-side would apply it.")
@kubectl_options
def diff(kubectl: Kubectl, *, file: BinaryIO, server_side: bool) -> int:
    """Show what applying a DelayQueue would change, and which pods would be replaced, and why.

    Secrets and ConfigMaps in the same file count, too; what they hold is not shown. Exits with 0 when nothing would
    change, with 1 when something would, and with more than 1 when that cannot be told.
    """
    with _more_than_one():
        wanted, besides = _documents(file)
        how = ["--server-side", "--force-conflicts"] if server_side else []
        changed = [_diff(kubectl, document, besides, how) for document in wanted]
    return CHANGES if any(changed) else SAME


@contextmanager
def _more_than_one() -> Iterator[None]:
    """1 means that there are changes: trouble has to be more."""
    try:
        yield
    except Wrong as error:
        error.code = USAGE if error.code == FAILED else error.code
        raise
    except SpecError as error:
        raise Wrong("\n".join(map(str, error.problems)), "", INVALID) from None
    except OSError as error:
        raise Wrong(f"{error.strerror or type(error).__name__}", "", USAGE) from None


def _documents(file: BinaryIO) -> tuple[list[Object], list[Object]]:
    """Return the DelayQueues of a file, and the Secrets and ConfigMaps that come with them."""
    name = getattr(file, "name", "stdin")
    try:
        found: list[Any] = [each for each in yaml.load_all(file.read(), Loader) if isinstance(each, dict)]
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise Wrong(f"{name}: not YAML: {' '.join(str(error).split())[:300]}", "", INVALID) from None
    wanted = [each for each in found if each.get("kind") == names.DELAY_QUEUE.kind]
    if not wanted:
        kinds = ", ".join(show(each.get("kind")) for each in found[:MOST_NAMED]) or "no document"
        raise Wrong(f"{name}: expected kind {names.DELAY_QUEUE.kind}, got {kinds}", "", INVALID)
    problems = [f"{name}: {problem}" for each in wanted for problem in _problems(each)]
    if problems:
        raise Wrong("\n".join(problems), "", INVALID)
    return wanted, [each for each in found if each.get("kind") in BESIDES]


def _problems(document: Object) -> tuple[Problem, ...]:
    """Say what `delayq validate` would: it knows what a word was meant to be, and the API server does not."""
    try:
        parse(document)
    except SpecError as error:
        return error.problems
    return ()


def _diff(kubectl: Kubectl, document: Object, besides: list[Object], how: list[str]) -> bool:
    new = applied(kubectl, document, how)
    namespace, name = queues.place(new)
    old = one_or_none(kubectl, name, namespace)
    world = surroundings.look(kubectl, old, new, [applied(kubectl, each, how, namespace) for each in besides])
    found = compare(kubectl, world)
    for text in (unified.of_queue(old, new), *(unified.of_child(each) for each in found.children)):
        if text:
            click.echo(text)
    for line in rolls.told(world, found):
        click.echo(line)
    for note in (*world.notes, *found.notes):
        click.echo(f"note: {note}", err=True)
    return bool(unified.of_queue(old, new)) or bool(found.children)


def applied(kubectl: Kubectl, document: Object, how: list[str], namespace: str | None = None) -> Object:
    """Return what the API server would make of a document."""
    text = yaml.safe_dump(document, allow_unicode=True)
    return kubectl.json("apply", "--dry-run=server", *how, "--filename=-", text=text, namespace=namespace)
