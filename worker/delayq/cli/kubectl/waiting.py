"""When the waiting tasks of a queue fall due, as a trace for `delayq simulate`: run in a pod, where Redis is.

`python3 -m delayq.cli.kubectl.waiting DOCUMENT MS`. Counts by due time and nothing of the tasks. The simulation may
take more memory than a scanner has, so it runs where the user is.
"""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

from delayq.client.blocking import SyncClient
from delayq.errors import DelayQError
from delayq.simulation.snapshot import take

if TYPE_CHECKING:
    from collections.abc import Iterator


def main(document: str, until: str) -> None:
    """Write a line for each time at which tasks fall due."""
    try:
        for line in lines(document, int(until)):
            sys.stdout.write(f"{line}\n")
    except DelayQError as error:
        sys.exit(f"error: {error}")


def lines(document: str, until_ms: int) -> Iterator[str]:
    """Yield the trace, in Unix milliseconds by Redis' clock."""
    with SyncClient.from_document(document) as client:
        found = take(client.counts, until_ms, 0.0)
    start_ms = round(found.start * 1000)
    for each in found.arrivals:
        row = {"due": start_ms + round(each.due * 1000), "scheduled": start_ms, "count": each.tasks}
        yield json.dumps(row, separators=(",", ":"))


if __name__ == "__main__":
    main(*sys.argv[1:])
