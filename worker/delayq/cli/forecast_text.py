"""Format a forecast: a table with bars, a summary, JSON. delayq/forecast computes it."""

from __future__ import annotations

from math import ceil, isinf
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from delayq.cli import unstored
from delayq.cli.formats import length, tasks
from delayq.cli.output import Table
from delayq.cli.views import instant
from delayq.forecast import label, offset
from delayq.scaling.model import RESERVE
from delayq.scaling.sentences import seconds

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from delayq.forecast import Bin, Expected, Now, Supply
    from delayq.protocol.results import Counts
    from delayq.schedules.unstored import Unstored

BAR: Final = 20
EIGHTHS: Final = "▏▎▍▌▋▊▉█"
GUESSES: Final = {
    "concurrency": "concurrency of a worker (set by a document)",
    "max_workers": "maximum number of workers (--max)",
    "handler_ms": "handler time (--handler-time)",
    "lead_ms": "lead time (--lead)",
}
"""Keys of assumed defaults → their descriptions."""

RESERVED: Final = f"leave a reserve for handlers that take {round((RESERVE - 1) * 100)} % longer"


class Terms(NamedTuple):
    """Inputs of a forecast."""

    supply: Supply
    fixed: bool
    """Whether the number of workers stays as it is."""
    assumed: tuple[str, ...]
    """Assumed defaults: keys of the view."""


class Forecast(NamedTuple):
    """A computed forecast with its inputs."""

    queue: str
    now: Now
    spans: list[Expected]
    """If tasks are overdue, the first span is theirs and has zero length."""
    terms: Terms
    counts: Counts
    bins: Sequence[Bin]
    """Bins of the histogram, finer than the spans."""
    unstored: Unstored | None
    """Occurrences of schedules among the tasks that are not stored yet; None without schedules."""

    @property
    def within_ms(self) -> int:
        """Length of the forecast."""
        return self.spans[-1].end_ms - self.spans[0].start_ms

    @property
    def tasks(self) -> int:
        """Tasks in all spans."""
        return sum(span.tasks for span in self.spans)

    @property
    def peak(self) -> Expected:
        """The span that needs the most workers."""
        return max(self.spans, key=lambda span: span.workers)

    @property
    def late_seconds(self) -> float:
        """Greatest lateness."""
        return max(span.late_seconds for span in self.spans)

    @property
    def next_due_ms(self) -> int | None:
        """When the next task or occurrence is due; None without any."""
        known = [self.counts.next_due_ms, *(self.unstored.due_ms[:1] if self.unstored else ())]
        return min((at_ms for at_ms in known if at_ms is not None), default=None)

    def when(self, span: Expected) -> str:
        """Label a span by its start; the current span by its end."""
        if span.end_ms == span.start_ms:
            return "due"
        begun = span.start_ms == self.now.at_ms
        return f"until {self.clock(span.end_ms)}" if begun else self.clock(span.start_ms)

    def clock(self, at_ms: int) -> str:
        """Format an instant."""
        return label(at_ms, self.now.at_ms, self.within_ms, None)

    def instant_ms(self, span: Expected) -> int | None:
        """Return when most tasks of a span fall due; without a narrow peak, when the first one does; else None."""
        inside = [each for each in self.bins if span.start_ms <= each.start_ms < span.end_ms]
        most = max(inside, key=lambda each: each.tasks, default=None)
        if most is not None and most.tasks and most.width_ms <= self.terms.supply.short_ms:
            return most.roundest_ms
        following = self.next_due_ms
        return following if following is not None and span.start_ms <= following < span.end_ms else None


def view(found: Forecast) -> dict[str, Any]:
    """Return the JSON view."""
    supply = found.terms.supply
    return {
        "queue": found.queue,
        **instant("now", found.now.at_ms),
        **instant("until", found.spans[-1].end_ms),
        "tasks": found.tasks,
        **unstored.view(found.unstored),
        "due": found.now.overdue,
        "in_flight": found.now.processing,
        "workers": found.peak.workers,
        "max_workers": supply.workers,
        "late_ms": _ms(found.late_seconds),
        "objective_ms": round(supply.lateness_seconds * 1000),
        "concurrency": supply.slots,
        "handler_ms": supply.handler_seconds * 1000,
        "lead_ms": round(supply.lead_seconds * 1000),
        "assumed": list(found.terms.assumed),
        "spans": [_span(span) for span in _merged(found.spans)],
    }


def _merged(spans: list[Expected]) -> list[Expected]:
    """Merge overdue tasks into the current span."""
    first, *rest = spans
    if first.end_ms > first.start_ms:
        return spans
    second, *rest = rest
    worse = max(first.workers, second.workers), max(first.late_seconds, second.late_seconds)
    return [
        second._replace(tasks=first.tasks + second.tasks, workers=worse[0], late_seconds=worse[1]),
        *rest,
    ]


def _span(span: Expected) -> dict[str, Any]:
    return {
        **instant("start", span.start_ms),
        **instant("end", span.end_ms),
        "tasks": span.tasks,
        "workers": span.workers,
        "late_ms": _ms(span.late_seconds),
    }


def _ms(late_seconds: float) -> int | None:
    return None if isinf(late_seconds) else round(late_seconds * 1000)


def shown(found: Forecast) -> Table | str:
    """Return the table, or a sentence if no task falls due."""
    if not found.tasks:
        return _nothing(found)
    workers = tasks(found.terms.supply.workers, "worker")
    late = f"LATE ({workers})" if found.terms.fixed else f"LATE (at most {workers})"
    headings = [f"WHEN ({offset(found.now.at_ms, None)})", ">DUE", "", ">WORKERS", late]
    return Table(headings, list(_rows(found)))


def _rows(found: Forecast) -> Iterator[list[str]]:
    """Yield a row for each span up to the last with tasks; collapse empty spans."""
    most = max(span.tasks for span in found.spans)
    empty = False
    last = max(number for number, span in enumerate(found.spans) if span.tasks)
    for span in found.spans[: last + 1]:
        if span.tasks:
            yield [
                found.when(span),
                f"{span.tasks:,}",
                _bar(span.tasks / most),
                f"{span.workers:,}",
                _late(span.late_seconds),
            ]
        elif not empty:
            yield ["…", "", "", "", ""]
        empty = not span.tasks


def _bar(share: float) -> str:
    """Draw a bar, rounded up to an eighth of a character."""
    whole, eighths = divmod(ceil(share * BAR * 8), 8)
    return EIGHTHS[-1] * whole + (EIGHTHS[eighths - 1] if eighths else "")


def _late(late_seconds: float) -> str:
    if isinf(late_seconds):
        return "never start"
    return seconds(late_seconds) if late_seconds else "-"


def _nothing(found: Forecast) -> str:
    counts, nothing = found.counts, f"nothing falls due in {found.queue} within {length(found.within_ms)}"
    if counts.next_due_ms is None:
        return f"nothing waits in {found.queue}"
    soon = length(counts.next_due_ms - counts.now_ms)
    return f"{nothing}; the next of {tasks(counts.scheduled)} falls due in {soon}"


def summary(found: Forecast) -> str:
    """Return the forecast in one sentence."""
    supply, peak = found.terms.supply, found.peak
    worst = max(found.spans, key=lambda span: span.late_seconds)
    late, limit = f"start up to {seconds(worst.late_seconds)} late", tasks(supply.workers, "worker")
    have, enough = f"at most {limit}", f"the maximum of {limit} is enough"
    if found.terms.fixed:
        have, enough = limit, f"{limit} {'is' if supply.workers == 1 else 'are'} enough"
    are = "is" if peak.workers == 1 else "are"
    most, when = tasks(peak.workers, "worker"), _needed_at(found, peak)
    needed = f"{most} {are} needed {when}"
    if isinf(worst.late_seconds):
        result = "without workers, no task starts"
    elif peak.workers > supply.workers and worst.late_seconds <= supply.lateness_seconds:
        needed, result = f"{enough}, and tasks {late}", f"{most} {when} {RESERVED}"
    elif peak.workers > supply.workers:
        result = f"with {have}, tasks {late}"
    elif worst.late_seconds > supply.lateness_seconds:
        result = f"{enough}, but tasks due {_at(found, worst)} {late}"
    else:
        result = enough
    return f"{tasks(found.tasks)} within {length(found.within_ms)}: {needed}; {result}."


def _needed_at(found: Forecast, span: Expected) -> str:
    """Format the start of the need, as precisely as the histogram allows."""
    at_ms = found.instant_ms(span)
    return _at(found, span) if at_ms is None else f"from {found.clock(at_ms)} on"


def _at(found: Forecast, span: Expected) -> str:
    if span.end_ms == span.start_ms:
        return "now"
    begun = span.start_ms == found.now.at_ms
    return f"before {found.clock(span.end_ms)}" if begun else f"from {found.clock(span.start_ms)} on"


def notes(found: Forecast) -> Iterator[str]:
    """Yield the inputs of the forecast, and which of them are assumed."""
    supply = found.terms.supply
    parts = [
        f"{seconds(supply.handler_seconds)} a task",
        f"{supply.slots:,} at a time in a worker",
        *([f"{seconds(supply.lead_seconds)} until a new worker claims"] if supply.lead_seconds else []),
        f"{seconds(supply.lateness_seconds)} of accepted lateness",
    ]
    among = unstored.text(found.unstored)
    included = f"; with {among}" if among else ""
    yield f"note: computed with {', '.join(parts)}{included}; without tasks that are scheduled from now on"
    yield from unstored.notes(found.unstored)
    if found.terms.assumed:
        yield f"note: assumed defaults: {', '.join(GUESSES[key] for key in found.terms.assumed)}"
