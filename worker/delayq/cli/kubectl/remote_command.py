"""A command of the CLI to run in a pod: its arguments as typed, and the local file to send. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import click

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

OWN: Final = ("queue", "queues", "forwarded", "redis_namespace")
PAYLOAD: Final = "payload"
ASKING: Final = ("cancel", "reschedule", "purge")
"""Commands that ask on a terminal without --yes. `schedule` does so only for a queue without a document."""


@dataclass(frozen=True, kw_only=True)
class RemoteCommand:
    """A command of the CLI with its files."""

    path: tuple[str, ...]
    typed: tuple[str, ...]
    """Options and arguments as the user typed them, for this machine."""
    sent: tuple[str, ...]
    """The same with stdin and stdout in place of local files, for a pod."""
    source: Any = None
    """Local file to send on stdin."""
    target: Any = None
    """Local file to write stdout to."""
    reads_stdin: bool = False
    """Whether the command reads stdin."""
    terminal: bool = False
    """Whether it draws on a terminal, or asks a question there."""
    long: bool = False
    """Whether it runs until it is interrupted, or for as long as there are tasks."""

    def argv(self, document: str, *, here: bool = False) -> list[str]:
        """Return the arguments of `delayq`, for this machine (`here`) or for a pod."""
        args = self.typed if here else self.sent
        at = args.index("--") + 1
        return [*self.path, *args[:at], document, *args[at:]]


def remote_command(
    command: click.Command, raw: Mapping[str, Any], values: Mapping[str, Any]
) -> RemoteCommand:
    """Return the command for `raw` arguments as typed, and parsed `values` with open files."""
    files = {
        each.name: each for each in command.params if isinstance(each.type, click.File) and _given(raw, each)
    }
    source = next((values[name] for name, each in files.items() if "r" in each.type.mode), None)  # type: ignore[attr-defined]
    target = next((values[name] for name, each in files.items() if "w" in each.type.mode), None)  # type: ignore[attr-defined]
    payload = raw.get(PAYLOAD)
    streams = command.name == "top" and not values["once"]
    many = "dry_run" in values and not (values.get("ids") or values.get("task_id"))
    if isinstance(payload, str) and payload.startswith("@"):
        source = click.open_file(payload[1:], "rb")
    return RemoteCommand(
        path=getattr(command, "path", (str(command.name),)),
        typed=tuple(_words(command, raw)),
        sent=tuple(_words(command, _sent(raw, files))),
        source=source,
        target=target if raw.get("file") != "-" else None,
        reads_stdin=source is not None or payload == "-",
        terminal=(streams and values["output"] == "table") or _asks(command, values, many=many),
        long=streams or many,
    )


def _asks(command: click.Command, values: Mapping[str, Any], *, many: bool) -> bool:
    """Whether the command asks before it changes tasks: `dlq purge` also if these are named by ID."""
    if command.name not in ASKING or values["yes"] or values["dry_run"]:
        return False
    return many or command.name == "purge"


def _given(raw: Mapping[str, Any], param: click.Parameter) -> bool:
    return isinstance(raw.get(str(param.name)), str)


def _sent(raw: Mapping[str, Any], files: Mapping[str, click.Parameter]) -> dict[str, Any]:
    """Replace an input file by stdin, and leave out an output file: the default is stdout."""
    sent = dict(raw)
    for name, param in files.items():
        if "r" in param.type.mode:  # type: ignore[attr-defined]
            sent[str(name)] = "-"
        else:
            del sent[str(name)]
    if isinstance(raw.get(PAYLOAD), str) and raw[PAYLOAD].startswith("@"):
        sent[PAYLOAD] = "-"
    return sent


def _words(command: click.Command, raw: Mapping[str, Any]) -> Iterator[str]:
    options = [each for each in command.params if isinstance(each, click.Option) and each.expose_value]
    for option in options:
        if option.name not in OWN:
            yield from _option(option, raw.get(str(option.name)))
    yield "--"
    for argument in command.params:
        if isinstance(argument, click.Argument) and argument.name not in OWN:
            value = raw.get(str(argument.name))
            yield from [value] if isinstance(value, str) else _texts(value)


def _option(option: click.Option, value: object) -> Iterator[str]:
    name = max(option.opts, key=len)
    if option.is_flag:
        if value is True:
            yield name
        elif value is False and option.secondary_opts:
            yield option.secondary_opts[0]
    elif isinstance(value, str):
        yield f"{name}={value}"
    else:
        yield from (f"{name}={text}" for text in _texts(value))


def _texts(value: object) -> list[str]:
    """Return the values that the user typed for a repeatable parameter; without any, an empty list."""
    return [text for text in value if isinstance(text, str)] if isinstance(value, list | tuple) else []
