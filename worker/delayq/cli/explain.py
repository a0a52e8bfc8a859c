"""delayq explain: the reference of the document's fields, from the parser's declarations."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Any, Final

import click

from delayq.cli.exits import NOT_FOUND, CommandError
from delayq.cli.output import Table, emit, output_option
from delayq.contract.kinds import Dictionary, Listing
from delayq.contract.problems import quote
from delayq.contract.queue import DelayQueue
from delayq.contract.record import Section, declared
from delayq.contract.schedule import DelaySchedule

if TYPE_CHECKING:
    from delayq.cli.output import Output
    from delayq.contract.record import Declared

DOCUMENTS: Final = {each.__name__: each for each in (DelayQueue, DelaySchedule)}


@click.command()
@click.argument("path", metavar="[FIELD]", default="")
@output_option
def explain(path: str, *, output: Output) -> None:
    """Describe a field of the document, like spec.delivery.backoff.

    It also lists the fields inside it. A field of a schedule is written as DelaySchedule.spec.cron.
    """
    about, record = _find(path)
    fields = [_view(each) for each in declared(record)] if record else []
    value = {**(_view(about) if about else {"field": "", "doc": record.__doc__}), "fields": fields}
    if about and output == "table":
        click.echo(_sentence(path, about))
    rows = [[each["field"], each["takes"], _default(each), each["doc"]] for each in fields]
    if output != "table" or rows:
        emit(output, value, Table(["FIELD", "TAKES", "DEFAULT", "MEANING"], rows))


def _find(path: str) -> tuple[Declared | None, Any]:
    about: Declared | None = None
    words = [word.removesuffix("[]").removesuffix("{}") for word in path.split(".") if word]
    record: Any = DOCUMENTS[words.pop(0) if words and words[0] in DOCUMENTS else DelayQueue.__name__]
    for at, name in enumerate(words):
        known = {field.name: field for field in declared(record)} if record else {}
        if name not in known:
            raise CommandError(_unknown(".".join(words[:at]), name, list(known)), code=NOT_FOUND)
        about = known[name]
        record = _inside(about)
    return about, record


def _unknown(parent: str, name: str, known: list[str]) -> str:
    near = difflib.get_close_matches(name, known, n=1)
    hint = f"did you mean {near[0]}?" if near else f"expected {', '.join(known) or 'none: it has no fields'}"
    return f"{parent or 'the document'} has no field {quote(name)}: {hint}"


def _inside(field: Declared) -> Any:  # noqa: ANN401 -- a dataclass
    kind = field.kind
    if isinstance(kind, Listing | Dictionary):
        kind = kind.item if isinstance(kind, Listing) else kind.value
    return kind.record if isinstance(kind, Section) else None


def _view(field: Declared) -> dict[str, Any]:
    default = None if field.default is None or field.required else field.kind.write(field.default)
    return {
        "field": field.name,
        "takes": field.kind.expected,
        "required": field.required,
        "default": default,
        "doc": field.doc,
    }


def _default(view: dict[str, Any]) -> str:
    if view["required"]:
        return "required"
    if isinstance(view["default"], dict):
        return "its defaults"
    return "absent" if view["default"] is None else str(view["default"])


def _sentence(path: str, about: Declared) -> str:
    view = _view(about)
    return f"{path}: {view['takes']}; default: {_default(view)}\n{view['doc']}"
