"""How a forecast is told: a table with its shape, a sentence, JSON. Not here: how it is reckoned (delayq/forecast)."""

from __future__ import annotations

from math import ceil, isinf
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from delayq.cli.output import Table
from delayq.cli.views import instant
from delayq.cli.words import length, tasks
from delayq.forecast import label, offset
from delayq.scaling.sentences import counted, seconds

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from datetime import tzinfo

    from delayq.forecast import Bin, Expected, Now, Supply
    from delayq.protocol.results import Counts

BAR: Final = 20
EIGHTHS: Final = "▏▎▍▌▋▊▉█"
GUESSES: Final = {
    "concurrency": "tasks at a time in a worker (a document says)",
    "max_workers": "the most workers (--max)",
    "handler_ms": "how long a task takes (--handler-time)",
    "lead_ms": "how long a worker takes to start (--lead)",
}
"""Keys of what may be a guess → what people are told."""


class Terms(NamedTuple):
    """What a forecast counts with."""

    supply: Supply
    fixed: bool
    """Whether the number of workers stays as it is."""
    assumed: tuple[str, ...]
    """Assumed defaults: keys of the view."""


class Forecast(NamedTuple):
    """All there is to tell."""

    queue: str
    now: Now
    spans: list[Expected]
    """When tasks are overdue, the first is theirs: it ends as it begins."""
    terms: Terms
    counts: Counts
    bins: Sequence[Bin] = ()
    """What is known more finely."""
    zone: tzinfo | None = None

    @property
    def within_ms(self) -> int:
        """How far it looks."""
        return self.spans[-1].end_ms - self.spans[0].start_ms

    @property
    def tasks(self) -> int:
        """All that it is about."""
        return sum(span.tasks for span in self.spans)

    @property
    def peak(self) -> Expected:
        """The span that needs the most workers."""
        return max(self.spans, key=lambda span: span.workers)

    @property
    def late_seconds(self) -> float:
        """How late tasks begin at the most."""
        return max(span.late_seconds for span in self.spans)

    def when(self, span: Expected) -> str:
        """Name a span by its beginning; the one that has begun by its end."""
        if span.end_ms == span.start_ms:
            return "due"
        begun = span.start_ms == self.now.at_ms
        return f"until {self.clock(span.end_ms)}" if begun else self.clock(span.start_ms)

    def clock(self, at_ms: int) -> str:
        """Name an instant."""
        return label(at_ms, self.now.at_ms, self.within_ms, self.zone)

    def instant_ms(self, span: Expected) -> int | None:
        """Say when most of a span falls due, if that is known: when it is at once, or from the next task on."""
        inside = [each for each in self.bins if span.start_ms <= each.start_ms < span.end_ms]
        most = max(inside, key=lambda each: each.tasks, default=None)
        if most is not None and most.tasks and most.width_ms <= self.terms.supply.short_ms:
            return most.roundest_ms
        following = self.counts.next_due_ms
        return following if following is not None and span.start_ms <= following < span.end_ms else None


def view(found: Forecast) -> dict[str, Any]:
    """Return a forecast for programs."""
    supply = found.terms.supply
    return {
        "queue": found.queue,
        **instant("now", found.now.at_ms),
        **instant("until", found.spans[-1].end_ms),
        "tasks": found.tasks,
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
    """Count overdue tasks in the span that has begun."""
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
    """Return a forecast for people."""
    if not found.tasks:
        return _nothing(found)
    workers = counted(found.terms.supply.workers, "worker")
    late = f"LATE ({workers})" if found.terms.fixed else f"LATE (at most {workers})"
    headings = [f"WHEN ({offset(found.now.at_ms, found.zone)})", ">DUE", "", ">WORKERS", late]
    return Table(headings, list(_rows(found)))


def _rows(found: Forecast) -> Iterator[list[str]]:
    """Yield a row for each span up to the last in which something falls due; empty ones are drawn together."""
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
    """Draw a share of the longest bar; the least that there is can be seen."""
    whole, eighths = divmod(ceil(share * BAR * 8), 8)
    return EIGHTHS[-1] * whole + (EIGHTHS[eighths - 1] if eighths else "")


def _late(late_seconds: float) -> str:
    if isinf(late_seconds):
        return "never begin"
    return seconds(late_seconds) if late_seconds else "-"


def _nothing(found: Forecast) -> str:
    counts, nothing = found.counts, f"nothing falls due in {found.queue} within {length(found.within_ms)}"
    if counts.next_due_ms is None:
        return f"nothing waits in {found.queue}"
    soon = length(counts.next_due_ms - counts.now_ms)
    return f"{nothing}; the next of {tasks(counts.scheduled)} falls due in {soon}"


def summary(found: Forecast) -> str:
    """Say in a sentence what it comes to."""
    supply, peak = found.terms.supply, found.peak
    worst = max(found.spans, key=lambda span: span.late_seconds)
    late, have = f"begin up to {seconds(worst.late_seconds)} late", counted(supply.workers, "worker")
    have = have if found.terms.fixed else f"at most {have}"
    are = "is" if peak.workers == 1 else "are"
    needed = f"{counted(peak.workers, 'worker')} {are} needed {_needed_at(found, peak)}"
    if isinf(worst.late_seconds):
        told = "without workers, no task begins"
    elif peak.workers > supply.workers:
        told = f"with {have}, tasks {late}"
    elif worst.late_seconds > supply.lateness_seconds:
        told = f"{have} will do, but tasks due {_at(found, worst)} {late}"
    else:
        told = f"{have} will do"
    return f"{tasks(found.tasks)} within {length(found.within_ms)}: {needed}; {told}."


def _needed_at(found: Forecast, span: Expected) -> str:
    """Say since when, as precisely as is known."""
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
        f"{seconds(supply.lateness_seconds)} late at the most",
    ]
    yield f"note: counted with {', '.join(parts)}; not with what is scheduled from now on"
    if found.terms.assumed:
        yield f"note: assumed defaults: {', '.join(GUESSES[key] for key in found.terms.assumed)}"
