"""kubectl dq schedules: what a DelaySchedule will do, and the commands of `delayq schedules` that fit Kubernetes.

Not apply and delete: kubectl does that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click
from delayq_operator.base import names

from delayq.cli.exits import INVALID, CommandError
from delayq.cli.kubectl.options import kubectl_options, where_params
from delayq.cli.kubectl.passed import passed
from delayq.cli.root import load
from delayq.cli.schedules import next_options, print_next
from delayq.contract.document import parse_schedule_spec
from delayq.contract.problems import SpecError

if TYPE_CHECKING:
    from delayq.cli.kubectl.kubectl import Kubectl
    from delayq.cli.output import Output

KIND: Final = f"{names.DELAY_SCHEDULE.plural}.{names.DELAY_SCHEDULE.group}"
PASSED: Final = ("list", "run", "backfill")


@click.command(name="next")
@click.argument("name", metavar="SCHEDULE")
@next_options
@kubectl_options
def next_times(kubectl: Kubectl, *, name: str, count: int, from_ms: int | None, output: Output) -> None:
    """Print the next times of a DelaySchedule, and where a change of clocks moves one."""
    spec = kubectl.json("get", KIND, name)["spec"]
    try:
        schedule = parse_schedule_spec(name, spec)
    except SpecError as error:
        raise CommandError(f"DelaySchedule {name}: {error}", code=INVALID) from None
    print_next(f"DelaySchedule {name}", [schedule], count=count, from_ms=from_ms, output=output)


_ORIGINAL = load("schedules")
assert isinstance(_ORIGINAL, click.Group)  # noqa: S101 -- for mypy
schedules = click.Group(
    "schedules",
    {
        "next": next_times,
        **{name: passed(_ORIGINAL.commands[name], ("schedules", name)) for name in PASSED},
    },
    help="Recurring tasks: resources of kind DelaySchedule.",
    params=where_params(),
)
