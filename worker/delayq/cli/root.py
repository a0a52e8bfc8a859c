"""The root command: it loads commands and turns errors into exit codes.

It imports a module only when its command is used: `delayq schedule` starts in a third of the time of `delayq worker`,
and works without the extra [worker].
"""

from __future__ import annotations

import gc
import io
import logging
import os
import sys
from difflib import get_close_matches
from importlib import import_module
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TextIO

import click

from delayq.cli.exits import FAILED, INTERRUPTED, PIPE_CLOSED, USAGE, CommandError, print_error
from delayq.service import extras

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

SECTIONS: Final[Mapping[str, Sequence[str]]] = {
    "Tasks": ("schedule", "task", "dlq", "cron"),
    "Queues": ("status", "top", "forecast", "suspend", "resume", "doctor", "guard", "erase"),
    "Documents": ("validate", "explain", "replay"),
    "Processes": ("run", "worker", "scanner", "reaper", "api"),
    "Setup": ("crd", "acl", "alerts", "api-token", "completion"),
}
"""Title of a part of the help → its commands. Each command is in the module of its name, but `crd`."""
COMMANDS: Final = tuple(chain.from_iterable(SECTIONS.values()))
GROUPS: Final = ("task", "dlq", "cron")
"""Those with commands of their own."""


class Root(click.Group):
    """Loads commands on demand, and turns every error into an exit code."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 -- click's signature
        """Return the names of all commands, in the order of the help."""
        return list(COMMANDS)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 -- as above
        """Write the commands by purpose. Click writes one flat list."""
        width = max(map(len, COMMANDS))
        for title, names in SECTIONS.items():
            limit = formatter.width - width - 6
            rows = [(name.ljust(width), load(name).get_short_help_str(limit)) for name in names]
            with formatter.section(title):
                formatter.write_dl(rows)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 -- as above
        """Load a command; a command without its extra fails when it is used."""
        return load(cmd_name) if cmd_name in COMMANDS else None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command; an error of a wrong name has the nearest ones. Click has only those that are loaded."""
        name = args[0]
        if not (name in self.list_commands(ctx) or name.startswith("-") or ctx.resilient_parsing):
            if name == "schedules":
                ctx.fail("No such command 'schedules': it is 'cron' since version 0.8.")
            near = " or ".join(f"'{each}'" for each in self._near(ctx, name))
            ctx.fail(f"No such command '{name}'." + (f" Did you mean {near}?" if near else ""))
        return super().resolve_command(ctx, args)

    def _near(self, ctx: click.Context, name: str) -> list[str]:
        """Return the commands that a wrong name may mean, also those of groups (`task cancel`), at most three."""
        names = self.list_commands(ctx)
        known = [(each, each) for each in names]
        for group in [each for each in names if each in GROUPS]:
            command = self.get_command(ctx, group)
            inner = command.commands if isinstance(command, click.Group) else ()
            known += [(each, f"{group} {each}") for each in inner]
        near = get_close_matches(name, dict(known), 2, 0.75)
        return [shown for each in near for word, shown in known if word == each][:3]

    def main(self, *args: Any, **extra: Any) -> Any:  # noqa: ANN401 -- click's signature
        """Run and exit; user errors never print a traceback."""
        _settle_streams()
        try:
            code = self._code(*args, **extra)
        except BrokenPipeError:
            code = _pipe_closed()
        sys.exit(code)

    def _code(self, *args: Any, **extra: Any) -> int:  # noqa: ANN401 -- as above
        try:
            code = super().main(*args, **{**extra, "standalone_mode": False})
        except click.exceptions.NoArgsIsHelpError as error:
            error.show()
            return USAGE
        except click.ClickException as error:
            return _print_click_error(error)
        except ModuleNotFoundError as error:
            message = extras.sentence(error.name)
            if not message:
                raise
            print_error(message)
            return FAILED
        except click.Abort:  # Ctrl-C, or the end of input at a prompt
            return INTERRUPTED
        except OSError as error:
            where = f"{error.filename}: " if error.filename else ""
            print_error(f"{where}{error.strerror or type(error).__name__}")
            _discard_unwritten()
            return FAILED
        return code if isinstance(code, int) else 0

    def invoke(self, ctx: click.Context) -> Any:  # noqa: ANN401 -- click's signature
        """Run the command; click itself would exit with 1 when the reader closes the pipe."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            return _pipe_closed()


def _pipe_closed() -> int:
    _discard(sys.__stdout__, sys.__stderr__)
    return PIPE_CLOSED


def _discard_unwritten() -> None:
    """Discard unwritten output: otherwise the interpreter's last flush fails, with exit code 120."""
    try:
        sys.stdout.flush()
    except OSError:
        _discard(sys.__stdout__)


def _discard(*streams: TextIO | None) -> None:
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in streams:
        if stream is not None:
            os.dup2(nowhere, stream.fileno())


def _settle_streams() -> None:
    """Replace closed streams, and escape characters that the terminal's encoding lacks."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open(mode, encoding="utf-8"))  # noqa: SIM115 -- open until the process ends
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def load(name: str) -> click.Command:
    """Import a command from its module."""
    attribute = name.replace("-", "_")
    module = "validate" if name == "crd" else attribute
    try:
        command: click.Command = getattr(import_module(f"delayq.cli.{module}"), attribute)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] == "delayq":
            raise
        return _unavailable(name, error.name)
    finally:
        # Exclude modules from garbage collection: scanning them takes an eighth of a worker's start, and time later.
        gc.freeze()
        gc.enable()
    return command


def _unavailable(name: str, missing: str) -> click.Command:
    def fail() -> None:
        raise CommandError(f"delayq {name} needs {missing}, which is not installed", hint, FAILED)

    hint = f"install {extras.BROUGHT_BY.get(missing.partition('.')[0], 'delayq[worker]')}"
    # Accept all options, so that the error is the missing module and not an unknown option.
    anything = {"ignore_unknown_options": True, "allow_extra_args": True}
    about = f"Needs {missing}: {hint}."
    return click.Command(name, callback=fail, context_settings=anything, help=about)


def _print_click_error(error: click.ClickException) -> int:
    """Print click's own errors in delayq's format; return the exit code."""
    hint = error.hint if isinstance(error, CommandError) else ""
    if isinstance(error, click.UsageError) and error.ctx is not None:
        hint = f"{error.ctx.command_path} --help"
        if isinstance(error, click.NoSuchOption) and error.option_name == "--config":  # until version 0.7
            hint = (
                f"since version 0.8, the document is the first argument: {error.ctx.command_path} queue.yaml"
            )
    print_error(error.format_message().replace("Invalid value for ", ""), hint)
    return error.code if isinstance(error, CommandError) else error.exit_code


EXITS: Final = (
    "Exit codes: 0 done, 1 unexpected or a check failed, 2 wrong usage, 3 a document cannot be used, 4 Redis or a "
    "guard's database cannot be reached or refuses, 5 the queue refused, 6 not found, 7 stored but not confirmed."
)


@click.group(
    cls=Root, epilog=EXITS, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}
)
@click.version_option(package_name="delayq", prog_name="delayq")
def delayq() -> None:
    """A delay queue on Redis: tasks run when they fall due, never early, never lost.

    QUEUE is the path of a DelayQueue document, or the name of a queue. DOCUMENT is the path of a file of documents.
    """
    logging.getLogger("delayq").addHandler(logging.NullHandler())  # commands print their own messages


if sys.flags.safe_path:
    # Import all modules of processes before `delayq run` adds the working directory to the path: a queue.py beside
    # queue.yaml must not replace the standard library's module.
    for each in ("run", "scanner", "worker", "reaper"):
        load(each)
