"""`python -m benchmarks.simulation QUEUE`: how a queue would scale, with production's decisions, in virtual time.

Not here: where the tasks come from (workload.py), how the result is shown (tables.py).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import click
from delayq.cli.exits import CommandError, errors_as_exits
from delayq.cli.inputs import DURATION
from delayq.cli.output import note, output_option
from delayq.cli.target import document_of
from delayq.scaling import Policy

from benchmarks import simulation
from benchmarks.simulation import tables
from benchmarks.simulation.run import refuse_too_long
from benchmarks.simulation.workload import load, source_options

if TYPE_CHECKING:
    from delayq.cli.output import Output
    from delayq.contract import DelayQueue

    from benchmarks.simulation.workload import Source, Workload

NOWHERE: Final = 946_684_800.0
"""2000-01-01T00:00:00Z: when a simulation begins whose tasks have no date, the same every time."""


@click.command()
@click.argument("queue")
@source_options
@click.option("--min", "least", type=click.IntRange(0, 10_000), metavar="N", help="Instead of minReplicas.")
@click.option("--max", "most", type=click.IntRange(1, 10_000), metavar="N", help="Instead of maxReplicas.")
@click.option(
    "--lead",
    type=DURATION,
    help="How long a worker takes to claim.  [default: leadTimeSeconds, or 15s]",
)
@click.option(
    "--replicas",
    type=click.IntRange(0, 10_000),
    metavar="N",
    help="Workers at the start.  [default: the fewest]",
)
@click.option("--fresh", is_flag=True, help="Learn handler and lead time on the way, as for a new queue.")
@click.option(
    "--by-kind", is_flag=True, help="Tasks with the same handler time are of one kind, and kinds are known."
)
@click.option(
    "--compare",
    type=click.Choice(["reactive"]),
    help="Beside it, what KEDA and the HPA would do with their defaults, knowing only what is due.",
)
@click.option(
    "--png", type=click.Path(dir_okay=False, writable=True), help="Draw the chart into a file, too."
)
@output_option
def simulate(
    queue: str,
    *,
    source: Source,
    output: Output,
    **trial: Any,  # noqa: ANN401 -- the options above
) -> None:
    """Simulate how the number of workers would follow the work, with the decisions of production.

    QUEUE is the path of a DelayQueue document, or the name of a queue that has one. Without --trace, the tasks
    are those of a scenario: 2,000 that fall due at one instant.
    """
    with errors_as_exits():
        document = _document(queue)
    policy = _policy(document, trial["least"], trial["most"])
    lead = policy.lead(None) if trial["lead"] is None else trial["lead"] / 1000
    work = load(source, policy.window(lead) + policy.period_seconds)
    first = policy.min_replicas if trial["replicas"] is None else trial["replicas"]
    known = simulation.Known() if trial["fresh"] else simulation.Known(work.tasks.mean_handler_seconds, lead)
    if trial["by_kind"]:
        known = known._replace(kinds=tuple(sorted(set(work.tasks.handler_seconds))))
    runs = _runs(work, policy, lead=lead, replicas=first, known=known, compare=trial["compare"])
    if trial["png"]:
        tables.draw(runs, policy, work.start, trial["png"])
    tables.show(runs, policy, work.start, output)


def _document(queue: str) -> DelayQueue:
    """Find the document; a queue's name is enough where it is the one beside."""
    path, document = document_of(queue, "which says how it scales")
    if document.spec.autoscaling is None:
        note(f"note: {path} has no spec.autoscaling, so its defaults count")
    return document


def _policy(document: DelayQueue, least: int | None, most: int | None) -> Policy:
    policy = Policy.of(document.spec)
    policy = replace(
        policy,
        min_replicas=policy.min_replicas if least is None else least,
        max_replicas=policy.max_replicas if most is None else most,
    )
    if policy.min_replicas > policy.max_replicas:
        raise CommandError(
            f"expected --min not above --max, got {policy.min_replicas} and {policy.max_replicas}"
        )
    return policy


def _runs(
    work: Workload,
    policy: Policy,
    *,
    lead: float,
    replicas: int,
    known: simulation.Known,
    compare: str | None,
) -> list[simulation.Run]:
    start = NOWHERE if work.start is None else work.start
    pilots: list[simulation.Pilot] = [
        simulation.Production(policy, replicas=replicas, start=start, known=known)
    ]
    if compare:
        pilots.append(simulation.Reactive(policy, replicas=replicas))
    try:
        refuse_too_long(
            work.tasks, slots=policy.max_replicas * policy.slots, period_seconds=policy.period_seconds
        )
        return [
            simulation.simulate(
                work.tasks,
                pilot,
                simulation.Plant(
                    work.tasks,
                    slots=policy.slots,
                    lead_seconds=lead,
                    replicas=replicas,
                    limits=policy.limits,
                ),
            )
            for pilot in pilots
        ]
    except simulation.TooLong as error:
        raise CommandError(str(error), "more workers with --max, or less time with --for") from None


if __name__ == "__main__":
    simulate()
