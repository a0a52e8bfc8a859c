"""The command: run the checks in order, and stop where a failure prevents the rest."""

from __future__ import annotations

import sys
from contextlib import closing, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from delayq.cli.doctor.api import api as check_api
from delayq.cli.doctor.findings import (
    MARKS,
    Finding,
    Level,
    cures,
    failed,
    invalid,
    merged,
    ok,
    unreachable,
    warning,
)
from delayq.cli.doctor.guard import guard as check_guard
from delayq.cli.doctor.handler import files as check_files
from delayq.cli.doctor.handler import handler as check_handler
from delayq.cli.doctor.poison import poison
from delayq.cli.doctor.queue import formats, serving
from delayq.cli.doctor.queue import queue as check_queue
from delayq.cli.doctor.reach import clock, connect, latency, login, mode
from delayq.cli.doctor.rights import run_scripts
from delayq.cli.doctor.schedules import schedules as check_schedules
from delayq.cli.doctor.server import fsynced, server
from delayq.cli.doctor.topology import find
from delayq.cli.exits import FAILED, UNAVAILABLE
from delayq.cli.formats import clean
from delayq.cli.inputs import examples
from delayq.cli.on_queue import redis_options
from delayq.cli.output import Output, emit, output_option
from delayq.cli.snapshot import fetch_shard_map
from delayq.cli.suspension import WORKERS, by_document, resume_document
from delayq.cli.target import QUEUE, Target, is_path, resolve
from delayq.client.document import read
from delayq.connection import Address, SyncConnection
from delayq.errors import DelayQError, InvalidDocument, Unavailable
from delayq.protocol.commands import Commands

if TYPE_CHECKING:
    from collections.abc import Iterator

    from delayq.contract.durability import DurabilitySpec


@click.command(epilog=examples("delayq doctor orders --strict"))
@click.argument("queue", type=QUEUE)
@redis_options
@click.option("--strict", is_flag=True, help="Count warnings as failures.")
@output_option
def doctor(queue: str, *, strict: bool, output: Output, **where: Any) -> None:  # noqa: ANN401 -- redis_options
    """Check all that a working queue needs, and suggest corrections.

    Exits with 1 if a check fails, with 4 if Redis or the guard's store is unreachable. It changes no task. It imports
    the document's callable, to check whether a worker can start. With durability.confirm, it tests a write of its own.
    """
    findings: list[Finding] = []
    for finding in examine(queue, **where):
        findings.append(finding)
        if output == "table":
            click.echo(text(finding))
    if output != "table":
        emit(output, [view(each) for each in findings], "")
    sys.exit(verdict(findings, strict=strict))


def examine(queue: str, **where: Any) -> Iterator[Finding]:  # noqa: ANN401 -- as above
    """Yield the findings of each check in order; leave out checks that cannot run."""
    try:
        if is_path(queue):
            yield ok("document", f"{queue} is a valid DelayQueue: {read(queue).queue}")
    except InvalidDocument as error:
        yield invalid("document", error, "correct it; delayq explain describes every field")
        return
    try:
        target = resolve(queue, **where)
    except InvalidDocument as error:
        yield invalid("redis", error, "mount it, set $DELAYQ_SECRETS_DIR, or give --redis URL")
        return
    yield ok("redis", f"{target.address.where}, {_source(target)}")
    if document := by_document(target):
        yield warning("suspend", f"{document}: {WORKERS}", resume_document(target))
    reached = True
    for found in _redis(target):
        reached = reached and not found.unreachable
        away = target.away() if found.unreachable and found.check == "connect" else ""
        yield replace(found, hint=f"{away}; {found.hint}") if away else found
    yield from check_handler(target)
    if reached:
        yield from check_schedules(target)
    yield from check_files(target)
    yield from check_api(target)
    yield from check_guard(target, reached=reached)


def _source(target: Target) -> str:
    secrets = target.source == "spec.redis" and target.address.login
    return f"by {target.source}{', secrets readable' if secrets else ''}"


def _redis(target: Target) -> Iterator[Finding]:
    findings, servers = find(target.address, _commands(target).shards if target.address.is_cluster else ())
    yield from findings
    findings = merged(
        {
            each.where: list(_server(each, target.durability, is_cluster=target.address.is_cluster))
            for each in servers
        }
    )
    yield from findings
    reached = any(each.check == "login" and not each.unreachable for each in findings)
    other = any(each.check == "mode" for each in findings)
    if servers and not other and (reached or not any(each.unreachable for each in findings)):
        refuted = any(each.check == "durability" and each.level is Level.FAILED for each in findings)
        yield from _together(target, _commands(target), refuted=refuted)


def _commands(target: Target) -> Commands:
    """Return the queue's commands, with the shard map from Redis."""
    commands = Commands(target.queue, prefix=target.key_prefix, shards=target.shards, limits=target.limits)
    with closing(SyncConnection(target.address)) as connection, suppress(DelayQError, ValueError):
        fetch_shard_map(connection, commands)
    return commands


def _server(address: Address, asked: DurabilitySpec, *, is_cluster: bool) -> Iterator[Finding]:
    """Check one of the queue's servers."""
    found = connect(address)
    yield found
    if found.unreachable:
        return
    with closing(SyncConnection(address)) as connection:
        found = login(connection)
        yield found
        if found.unreachable:
            return
        try:
            other = mode(connection, is_cluster=is_cluster)
            if other is not None:
                yield other
                return
            yield from server(connection, asked)
            yield latency(connection)
            yield clock(connection)
        except DelayQError as error:
            yield _gone(error)


def _together(target: Target, commands: Commands, *, refuted: bool) -> Iterator[Finding]:
    """Check the queue across all servers. `refuted`: Redis says that it cannot confirm writes."""
    with closing(SyncConnection(target.address)) as connection:
        try:
            away, served = serving(connection, commands)
            yield from away
            wrong = [*formats(connection, commands, served), *poison(connection, commands, served)]
            yield from wrong
            if any(each.level is Level.FAILED for each in wrong):
                return
            scripts = run_scripts(connection, commands, target.durability, served)
            yield scripts
            if scripts.level is not Level.FAILED:
                if target.durability.confirm == "Fsynced" and not refuted:
                    yield fsynced(target)
                yield from check_queue(connection, commands, target, served)
        except DelayQError as error:
            yield _gone(error)


def _gone(error: DelayQError) -> Finding:
    if isinstance(error, Unavailable):
        return unreachable(
            "connection", str(error), "Redis became unavailable during the checks: run them again"
        )
    return failed("rights", str(error), cures(error))


def view(finding: Finding) -> dict[str, Any]:
    """Return a finding for programs."""
    value = {"check": finding.check, "level": finding.level.value, "message": finding.message}
    return value | {"hint": finding.hint, "path": finding.path, "line": finding.line}


def text(finding: Finding) -> str:
    """Format a finding, its hint below it."""
    first, *rest = [clean(line) for line in finding.message.split("\n")]
    lines = [f"{MARKS[finding.level]} {finding.check:<12}{first}", *(f"{'':<14}{line}" for line in rest)]
    return "\n".join([*lines, *([f"{'':<14}→ {finding.hint}"] if finding.hint else [])])


def verdict(findings: list[Finding], *, strict: bool) -> int:
    """Return the exit code."""
    if any(finding.unreachable for finding in findings):
        return UNAVAILABLE
    bad = {Level.FAILED, Level.WARNING} if strict else {Level.FAILED}
    return FAILED if any(finding.level in bad for finding in findings) else 0
