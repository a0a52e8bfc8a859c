"""kubectl dq cron: what a DelaySchedule will do, and the commands of `delayq cron` that fit Kubernetes.

Not apply and delete: kubectl does that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import click
from delayq.cli.cron import next_options, print_next
from delayq.cli.exits import INVALID, CommandError
from delayq.cli.root import load
from delayq.contract.document import parse_schedule_spec
from delayq.contract.problems import SpecError

from delayq_operator.base import names
from delayq_operator.kubectl.passed import passed

if TYPE_CHECKING:
    from delayq_operator.kubectl.kubectl import Kubectl

KIND: Final = f"{names.DELAY_SCHEDULE.plural}.{names.DELAY_SCHEDULE.group}"
_ALL: Any = load("cron")
_PASSED: Final = {
    each: passed(_ALL.commands[each], ("cron", each)) for each in ("list", "next", "run", "backfill")
}

cron = click.Group("cron", _PASSED, help="Recurring schedules: resources of kind DelaySchedule.")


@cron.command()
@click.argument("name", metavar="SCHEDULE")
@next_options
@click.pass_obj
def preview(kubectl: Kubectl, /, name: str, **options: Any) -> None:  # noqa: ANN401 -- next_options
    """Print what the next times of a DelaySchedule will be, and where a change of clocks moves one."""
    try:
        schedule = parse_schedule_spec(name, kubectl.json("get", KIND, name)["spec"])
    except SpecError as error:
        raise CommandError(f"DelaySchedule {name}: {error}", code=INVALID) from None
    print_next(f"DelaySchedule {name}", [schedule], **options)
