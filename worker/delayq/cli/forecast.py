"""delayq forecast: when tasks fall due, the workers they need, and their lateness with the allowed workers.

delayq/forecast computes it; forecast_text.py formats it.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import click

from delayq.cli import forecast_text, unstored
from delayq.cli.exits import errors_as_exits
from delayq.cli.forecast_text import Forecast, Terms
from delayq.cli.inputs import DURATION, examples
from delayq.cli.on_queue import redis_options
from delayq.cli.output import emit, note, output_option
from delayq.cli.target import QUEUE, resolve
from delayq.contract import Worker
from delayq.forecast import LONGEST_MS, ROUNDS, Histogram, Now, Supply, outlook, spans
from delayq.scaling.policy import HANDLER_SECONDS, LEAD_SECONDS, Policy

if TYPE_CHECKING:
    from delayq.cli.output import Output
    from delayq.cli.target import Target
    from delayq.client.blocking import SyncClient


@click.command(epilog=examples("delayq forecast orders --within 2h"))
@click.argument("queue", type=QUEUE)
@redis_options
@click.option(
    "--within", type=DURATION, default="24h", show_default=True, help="Time span of the forecast, up to 366d."
)
@click.option(
    "--max",
    "most",
    type=click.IntRange(0, 10_000),
    metavar="N",
    help="Maximum number of workers.  [default: autoscaling.maxReplicas, else worker.replicas]",
)
@click.option(
    "--handler-time",
    "handler_ms",
    type=DURATION,
    help=f"Mean duration of a handler.  [default: {HANDLER_SECONDS:g}s, an assumption]",
)
@click.option(
    "--lead",
    "lead_ms",
    type=DURATION,
    help="Time from the creation of a worker to its first claim.  [default: autoscaling.leadTimeSeconds, else "
    f"{LEAD_SECONDS:g}s, an assumption]",
)
@output_option
def forecast(
    queue: str,
    *,
    within: int,
    most: int | None,
    handler_ms: int | None,
    lead_ms: int | None,
    output: Output,
    **where: Any,  # noqa: ANN401 -- redis_options
) -> None:
    """Forecast when tasks fall due, and how many workers they need.

    It also shows how late tasks start with the allowed workers.

    QUEUE's document sets the concurrency of a worker, the accepted lateness, and the number of workers. The forecast
    includes the occurrences of schedules, and not the tasks that are scheduled or retried from now on.
    """
    if not 0 < within <= LONGEST_MS:
        raise click.BadParameter("expected a time above 0 and up to 366d", param_hint="'--within'")
    if handler_ms == 0:
        raise click.BadParameter("expected a time above 0", param_hint="'--handler-time'")
    with errors_as_exits():
        target = resolve(queue, **where)
        terms = _terms(target, most, handler_ms, None if lead_ms is None else lead_ms / 1000)
    with errors_as_exits(_hint(target)), target.client() as client:
        found = _computed(client, within, terms)
    emit(output, forecast_text.view(found), forecast_text.shown(found))
    if output == "table" and found.tasks:
        click.echo(forecast_text.summary(found))
        for each in forecast_text.notes(found):
            note(each)


def _hint(target: Target) -> str:
    """Return the hint for an unreachable Redis, which may be reachable only from inside the cluster."""
    outside = target.source == "spec.redis" and "KUBERNETES_SERVICE_HOST" not in os.environ
    return f"{target.hint}; in a cluster: kubectl dq forecast {target.queue}" if outside else target.hint


def _terms(target: Target, most: int | None, handler_ms: int | None, lead: float | None) -> Terms:
    """Combine options, document and assumed defaults; the output lists the assumptions."""
    spec = None if target.document is None else target.document.spec
    policy = Policy(slots=Worker().concurrency) if spec is None else Policy.of(spec)
    fixed = most is None and spec is not None and spec.autoscaling is None
    assumed = {
        "concurrency": spec is None,
        "max_workers": spec is None and most is None,
        "handler_ms": handler_ms is None,
        "lead_ms": lead is None and policy.lead_seconds is None and not fixed,
    }
    if lead is None:
        lead = 0.0 if fixed else policy.lead(None)  # a fixed number of workers already runs
    supply = Supply(
        slots=policy.slots,
        handler_seconds=HANDLER_SECONDS if handler_ms is None else handler_ms / 1000,
        lateness_seconds=policy.lateness_seconds,
        workers=most if most is not None else spec.worker.replicas if fixed and spec else policy.max_replicas,
        lead_seconds=lead,
    )
    return Terms(supply, fixed, tuple(name for name, is_so in assumed.items() if is_so))


def _computed(client: SyncClient, within_ms: int, terms: Terms) -> Forecast:
    """Refine the histogram of due times in rounds, and compute the forecast."""
    supply, found = terms.supply, client.counts()
    extra = unstored.unstored(client, found.now_ms, found.now_ms + within_ms)
    parts = spans(found.now_ms, within_ms, None)
    histogram = Histogram(parts, few=supply.slots, short_ms=supply.short_ms)
    for nth in range(ROUNDS):
        instants = histogram.next_instants()
        if not instants:
            break
        counts = client.counts(instants_ms=instants)
        histogram.add({at: due + (extra.due_by(at) if extra else 0) for at, due in counts.due_by.items()})
        found = counts if nth == 0 else found
    now = Now(parts[0][0], found.due, found.late_ms, found.in_flight)
    if now.overdue:
        parts = [(now.at_ms, now.at_ms), *parts]  # overdue tasks have their own span
    expected = outlook(histogram.bins, parts, now, supply)
    return Forecast(client.queue, now, expected, terms, found, histogram.bins, extra)
