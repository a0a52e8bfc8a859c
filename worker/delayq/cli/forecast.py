"""delayq forecast: what falls due when, how many workers that takes, how late tasks begin with the most allowed.

Not here: how it is reckoned (delayq/forecast), what is said about it (forecasted.py).
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import click

from delayq.cli import forecasted
from delayq.cli.exits import errors_as_exits
from delayq.cli.forecasted import Forecast, Terms
from delayq.cli.inputs import DURATION
from delayq.cli.on_queue import redis_options
from delayq.cli.output import emit, note, output_option
from delayq.cli.target import resolve
from delayq.client.document import read
from delayq.contract import Worker
from delayq.forecast import ROUNDS, Histogram, Now, Supply, outlook, spans
from delayq.scaling.policy import HANDLER_SECONDS, LEAD_SECONDS, Policy

if TYPE_CHECKING:
    from delayq.cli.output import Output
    from delayq.cli.target import Target
    from delayq.client.blocking import SyncClient
    from delayq.contract import Spec

LONGEST_MS = 366 * 86_400_000


@click.command()
@click.argument("queue")
@redis_options
@click.option(
    "--within", type=DURATION, default="24h", show_default=True, help="How far to look, up to 366d."
)
@click.option(
    "--max",
    "most",
    type=click.IntRange(0, 10_000),
    metavar="N",
    help="The most workers.  [default: autoscaling.maxReplicas, else worker.replicas]",
)
@click.option(
    "--handler-time",
    "handler_ms",
    type=DURATION,
    help=f"How long a handler takes on average.  [default: {HANDLER_SECONDS:g}s, an assumption]",
)
@click.option(
    "--lead",
    "lead_ms",
    type=DURATION,
    help="How long a new worker takes until it claims.  [default: autoscaling.leadTimeSeconds, else "
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
    """Say what falls due when, how many workers that takes, and how late tasks begin with the most allowed.

    QUEUE's document says how many tasks a worker runs at a time, how late they may begin, and how many workers there
    can be. What will be scheduled from now on is not in it, nor what is retried then.
    """
    if not 0 < within <= LONGEST_MS:
        raise click.BadParameter("expected a time above 0 and up to 366d", param_hint="'--within'")
    if handler_ms == 0:
        raise click.BadParameter("expected a time above 0", param_hint="'--handler-time'")
    with errors_as_exits():
        target = resolve(queue, **where)
        terms = _terms(target, most, handler_ms, None if lead_ms is None else lead_ms / 1000)
    with errors_as_exits(_hint(target)), target.client() as client:
        found = _reckoned(client, within, terms)
    emit(output, forecasted.view(found), forecasted.shown(found))
    if output == "table" and found.tasks:
        click.echo(forecasted.summary(found))
        for each in forecasted.notes(found):
            note(each)


def _hint(target: Target) -> str:
    """Where a document's Redis does not answer, it may be one that only the cluster reaches."""
    outside = target.source == "spec.redis" and "KUBERNETES_SERVICE_HOST" not in os.environ
    return f"{target.hint}; in a cluster: kubectl dq forecast {target.queue}" if outside else target.hint


def _terms(target: Target, most: int | None, handler_ms: int | None, lead: float | None) -> Terms:
    """Combine options and document; what neither sets is assumed, and the output names it."""
    spec = None if target.document is None else read(target.document).spec
    policy = Policy(slots=Worker().concurrency) if spec is None else Policy.of(spec)
    fixed = most is None and spec is not None and spec.autoscaling is None
    assumed = {
        "concurrency": spec is None,
        "max_workers": spec is None and most is None,
        "handler_ms": handler_ms is None,
        "lead_ms": lead is None and policy.lead_seconds is None and not fixed,
    }
    if lead is None:
        lead = 0.0 if fixed else policy.lead(None)  # a number that never changes is there already
    supply = Supply(
        slots=policy.slots,
        handler_seconds=HANDLER_SECONDS if handler_ms is None else handler_ms / 1000,
        lateness_seconds=policy.lateness_seconds,
        workers=_workers(spec, policy) if most is None else most,
        lead_seconds=lead,
    )
    return Terms(supply, fixed, tuple(name for name, is_so in assumed.items() if is_so))


def _workers(spec: Spec | None, policy: Policy) -> int:
    if spec is None or spec.autoscaling is not None:
        return policy.max_replicas
    return spec.worker.replicas


def _reckoned(client: SyncClient, within_ms: int, terms: Terms) -> Forecast:
    """Ask Redis what falls due when, ever more finely, and reckon with it."""
    supply, found = terms.supply, client.counts()
    parts = spans(found.now_ms, within_ms, None)
    histogram = Histogram(parts, few=supply.slots, short_ms=supply.short_ms)
    for nth in range(ROUNDS):
        asked = histogram.asks()
        if not asked:
            break
        told = client.counts(instants_ms=asked)
        histogram.told(told.due_by)
        found = told if nth == 0 else found
    now = Now(parts[0][0], found.due, found.late_ms, found.in_flight)
    if now.overdue:
        parts = [(now.at_ms, now.at_ms), *parts]  # told apart from what is still to come
    told_spans = outlook(histogram.bins, parts, now, supply)
    return Forecast(client.queue, now, told_spans, terms, found, histogram.bins)
