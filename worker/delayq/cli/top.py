"""delayq top: live counts and rates of several queues. snapshot.py samples one queue."""

from __future__ import annotations

import os
import select
import sys
import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import click

from delayq.cli.exits import UNAVAILABLE, errors_as_exits
from delayq.cli.formats import length
from delayq.cli.inputs import examples
from delayq.cli.on_queue import redis_options
from delayq.cli.output import Table, emit, emit_next, output_option
from delayq.cli.snapshot import take_snapshot
from delayq.cli.status import documented, following, interval_option, oldest, on_hold, pause_seconds
from delayq.cli.target import QUEUE, resolve
from delayq.contract.metrics import STATES
from delayq.errors import Unavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from delayq.cli import views
    from delayq.cli.output import Output
    from delayq.cli.snapshot import Snapshot
    from delayq.cli.target import TargetClient
    from delayq.protocol.results import Counts


@contextmanager
def keyboard() -> Iterator[Callable[[float], str]]:
    """Yield a function that waits some seconds for a key, and returns it or an empty string."""
    if not sys.stdin.isatty():
        yield _sleep
        return
    import termios  # noqa: PLC0415 -- not on every platform
    import tty  # noqa: PLC0415 -- as above

    before = termios.tcgetattr(sys.stdin)
    try:
        tty.setcbreak(sys.stdin)
        yield _pressed
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)


def _sleep(seconds: float) -> str:
    time.sleep(seconds)
    return ""


def _pressed(seconds: float) -> str:
    ready, _, _ = select.select([sys.stdin], [], [], seconds)
    # Not sys.stdin.read(): it would read ahead into a buffer that select() does not see.
    return os.read(sys.stdin.fileno(), 1).decode(errors="replace") if ready else ""


RATES = ("scheduled", "claimed", "acked", "retried", "buried")


@dataclass
class Watched:
    """A queue, its last sample, and the rates of its counters."""

    client: TargetClient
    seen: Snapshot | None = None
    trouble: str = ""
    per_second: Mapping[str, float] = field(default_factory=dict)

    def sample(self) -> None:
        """Take a sample. Rates use Redis' clock and need two samples."""
        before = self.seen
        try:
            self.seen = take_snapshot(self.client)
        except Unavailable as error:
            self.trouble = f"{error}; trying again"
            self.seen, self.per_second = None, {}
            return
        found = self.seen.found
        notes = [*documented(self.client), *on_hold(self.client, found), *self.seen.notes]
        self.trouble = "; ".join(notes).replace("note: ", "")
        comparable = before is not None and before.away.keys() == self.seen.away.keys()
        self.per_second = rates(before.found, found) if comparable and before is not None else {}

    @property
    def found(self) -> Counts | None:
        """Counts of the last sample; None while Redis is unavailable."""
        return None if self.seen is None else self.seen.found

    def view(self) -> views.View:
        """Return the JSON view of the sample."""
        if self.seen is None:
            return {"queue": self.client.queue, "error": self.trouble}
        return self.seen.view(self.client) | {"per_second": dict(self.per_second)}


def table(watched: Sequence[Watched]) -> Table:
    """Return a column for each queue, a row for each value, and problems below."""
    columns = [_column(each) for each in watched]
    rows = [[name, *(column.get(name, "") for column in columns)] for name in max(columns, key=len)]
    troubles = [f"{each.client.queue}: {each.trouble}" for each in watched if each.trouble]
    return Table(["", *(f">{each.client.queue}" for each in watched)], rows, troubles)


def _column(watched: Watched) -> dict[str, str]:
    found = watched.found
    if found is None:
        return {}
    states = {
        state.replace("_", " "): f"{getattr(found, state):,}"
        for state in STATES
        if state != "parked" or found.parked
    }
    due = {f"due in {length(horizon)}": f"{tasks:,}" for horizon, tasks in found.due_within.items()}
    speeds = {
        f"{name}/s": f"{watched.per_second[name]:,.1f}" if name in watched.per_second else "-"
        for name in RATES
    }
    weight = {} if watched.client.limits.max_bytes is None else {"bytes": f"{found.bytes:,}"}
    times = {"oldest due": oldest(found), "next due": following(found)}
    return {**states, **weight, **times, **due, **speeds}


def rates(before: Counts, after: Counts) -> dict[str, float]:
    """Return each counter's rate per second; 0 after a reset."""
    seconds = (after.now_ms - before.now_ms) / 1000
    if seconds <= 0:
        return {}
    rose = {name: after.stats.get(name, 0) - before.stats.get(name, 0) for name in RATES}
    return {name: round(max(0, count) / seconds, 1) for name, count in rose.items()}


@click.command(epilog=examples("delayq top orders"))
@click.argument("queues", metavar="QUEUE...", type=QUEUE, nargs=-1, required=True)
@redis_options
@click.option(
    "--once",
    is_flag=True,
    help="Take two samples, print one table, and exit; the default without a terminal.",
)
@interval_option
@output_option
def top(queues: tuple[str, ...], *, once: bool, interval: int, output: Output, **where: Any) -> None:  # noqa: ANN401 -- redis_options
    """Show the tasks and rates of queues, updated continuously.

    Quit with q or Ctrl-C.
    """
    pause = pause_seconds(interval)
    with errors_as_exits(), ExitStack() as stack:
        targets = [resolve(queue, **where) for queue in queues]
        watched = [Watched(stack.enter_context(target.client())) for target in targets]
        if output != "table" and not once:
            _stream(watched, pause, output)
        elif once or not sys.stdout.isatty():
            with errors_as_exits(targets[0].hint):
                _once(watched, pause, output)
        else:
            _live(watched, pause)


def _once(watched: Sequence[Watched], pause: float, output: Output) -> None:
    for nth in range(2):
        time.sleep(pause * nth)
        for each in watched:
            each.sample()
            if each.found is None:
                each.client.counts()  # raises the error, for a non-zero exit code
    emit(output, [each.view() for each in watched], table(watched))
    sys.exit(UNAVAILABLE if any(each.seen is not None and each.seen.away for each in watched) else 0)


def _stream(watched: Sequence[Watched], pause: float, output: Output) -> None:
    while True:
        for each in watched:
            each.sample()
            emit_next(output, each.view())
        time.sleep(pause)


def _live(watched: Sequence[Watched], pause: float) -> None:
    from rich.live import Live  # noqa: PLC0415 -- pipes need not load it

    with keyboard() as pressed, Live(auto_refresh=False, screen=True) as live:
        while True:
            for each in watched:
                each.sample()
            live.update(table(watched).rich(), refresh=True)
            if pressed(pause) in ("q", "Q"):
                return
