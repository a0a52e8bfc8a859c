"""A snapshot of a queue for `status` and `top`: counts, unavailable shards, and limits that delay tasks.

A client's counts() fails when any shard is unavailable. A snapshot leaves out only the shards of that node.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from delayq.cli import views
from delayq.client.operations import summed
from delayq.connection import SyncConnection
from delayq.errors import DelayQError, Unavailable
from delayq.protocol.results import combined
from delayq.protocol.shard_map import ASKED

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from delayq.cli.target import TargetClient
    from delayq.client.blocking import SyncClient
    from delayq.contract import Limits
    from delayq.protocol.commands import Commands
    from delayq.protocol.results import Counts, ParkedKind


@dataclass(frozen=True)
class Snapshot:
    """Counts of one moment."""

    found: Counts
    shards: int
    away: Mapping[int, Unavailable] = field(default_factory=dict)  # by shard
    held: str = ""  # the limits that delay due tasks
    parked: Sequence[ParkedKind] = ()

    @property
    def notes(self) -> list[str]:
        """Shards that are not counted, and limits that delay tasks."""
        notes = [f"note: {each}, so its tasks are not counted" for each in not_served(self.away, self.shards)]
        return [*notes, *([f"note: due tasks are held back by spec.limits.{self.held}"] if self.held else [])]

    def view(self, client: TargetClient) -> views.View:
        """Return the JSON view."""
        away = [
            {"shard": shard, "server": error.where, "error": error.why} for shard, error in self.away.items()
        ]
        kinds = [views.parked(each) for each in self.parked]
        return views.counts(client.queue, self.found) | {
            **views.suspension(self.found.suspension, document=bool(client.target.suspension)),
            "held_by": self.held or None,
            "parked_kinds": kinds,
            "not_served": away,
        }


def not_served(away: Mapping[int, Unavailable], shards: int) -> list[str]:
    """Return a sentence for each server: shard 0, 4 of 6 not served (127.0.0.1:7001: connection refused)."""
    by_server: dict[str, list[str]] = {}
    for shard, error in away.items():
        by_server.setdefault(f"{error.where}: {error.why}", []).append(str(shard))
    return [f"shard {', '.join(those)} of {shards} not served ({why})" for why, those in by_server.items()]


def take_snapshot(client: SyncClient) -> Snapshot:
    """Count the tasks of all available shards; Unavailable when none is available."""
    try:
        found, away = client.counts(horizons_ms=views.HORIZONS_MS), dict[int, Unavailable]()
    except Unavailable:
        if not client.address.is_cluster:
            raise
        found, away = _by_shard(client)
    held = _held(client, found, away) if found.due else ""
    parked = _parked(client, away) if found.parked else []
    return Snapshot(found, client.shard_map.shards_in_use, away, held, parked)


def _by_shard(client: SyncClient) -> tuple[Counts, dict[int, Unavailable]]:
    commands = client.commands
    with closing(SyncConnection(client.address)) as connection:
        fetch_shard_map(connection, commands)
        answers = connection.answers(
            [commands.counts(shard, views.HORIZONS_MS) for shard in range(commands.shard_map.widest)]
        )
    covered = range(commands.shard_map.shards_in_use)
    away = {shard: answers[shard] for shard in covered if isinstance(answers[shard], Unavailable)}
    refused = [
        each for each in answers if isinstance(each, DelayQError) and not isinstance(each, Unavailable)
    ]
    found = [each for each in answers if not isinstance(each, DelayQError)]
    if refused or not found:
        raise next(iter((*refused, *away.values(), *answers)))
    return summed(found), away


def fetch_shard_map(connection: SyncConnection, commands: Commands) -> None:
    """Use the newest shard map of all available shards."""
    shards = max(commands.shard_map.shards_in_use, ASKED) if connection.address.is_cluster else 1
    calls = [commands.sync_shard_map(shard) for shard in range(shards)]
    for reply in connection.answers(calls):
        if not isinstance(reply, DelayQError) and reply.shard_map is not None:
            commands.apply_shard_map(reply.shard_map)


def _parked(client: SyncClient, away: Mapping[int, Unavailable]) -> list[ParkedKind]:
    shards = [shard for shard in range(client.shard_map.shards_in_use) if shard not in away]
    with closing(SyncConnection(client.address)) as connection:
        answers = connection.answers([client.commands.parked(shard) for shard in shards])
    # A user without the right to ZLEXCOUNT sees the number of parked tasks only.
    return combined(kind for each in answers if not isinstance(each, Exception) for kind in each)


def _held(client: SyncClient, found: Counts, away: Mapping[int, Unavailable]) -> str:
    with closing(SyncConnection(client.address)) as connection:
        shards = [shard for shard in range(client.shard_map.shards_in_use) if shard not in away]
        return held_by(connection, client.commands, limits=client.limits, found=found, shards=shards)


def held_by(
    connection: SyncConnection, commands: Commands, *, limits: Limits, found: Counts, shards: Sequence[int]
) -> str:
    """Return the limits that delay due tasks of these shards; empty for none."""
    if limits.rate_per_second is None and limits.max_in_flight is None:
        return ""
    waits = connection.answers([commands.wake(shard) for shard in shards])
    held = [each for each in waits if not isinstance(each, DelayQError) and each.held]
    # Only the rate limit's token bucket predicts when it has room again; maxInFlight does not.
    rate = any(each.room_seconds is not None for each in held)
    running = any(each.room_seconds is None for each in held)
    names = (
        f"maxInFlight = {limits.max_in_flight:,} ({found.in_flight:,} in flight)" if running else "",
        f"ratePerSecond = {limits.rate_per_second:,}" if rate else "",
    )
    return " and ".join(filter(None, names))
