"""Check the document's guard as a worker does before it claims, and the guard's store."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from delayq import guards
from delayq.cli.doctor.findings import Finding, failed, ok, skipped, unreachable, warning
from delayq.cli.exits import CommandError
from delayq.cli.guarded import VARIABLE, need_sqlalchemy, place
from delayq.connection.address import secrets_dir
from delayq.contract.files import CONFIG_FILE
from delayq.errors import DelayQError, GuardUnavailable, InvalidDocument, Retry

if TYPE_CHECKING:
    from collections.abc import Iterator

    from delayq.cli.target import Target
    from delayq.contract.guard import Guard

NAME: Final = "guard"
SECONDS: Final = 5.0  # timeout of a database
SECRET: Final = "is the Secret the right one, and current?"  # noqa: S105 -- text, not a secret
REACH: Final = "does it run there, and does a firewall or NetworkPolicy allow the connection?"


def guard(target: Target, *, reached: bool) -> Iterator[Finding]:
    """Check the document's guard. `reached`: whether the queue's Redis is reachable."""
    document = target.document
    spec = None if document is None else document.spec.guard
    if document is None or spec is None or (spec.redis_lock and not reached):
        return
    absent = _elsewhere(target, spec)
    if absent is not None:
        yield absent
        return
    try:
        if spec.sql is not None:
            need_sqlalchemy()
        made = guards.build(document, target.address, secrets_dir=secrets_dir(), apart=True)
    except CommandError as error:
        yield failed(NAME, error.message, error.hint)
        return
    except InvalidDocument as error:
        yield failed(NAME, str(error), "" if "not installed" in str(error) else _unusable(spec))
        return
    yield asyncio.run(_asked(made, spec, f"delayq guard init {target.path}"))


def _elsewhere(target: Target, spec: Guard) -> Finding | None:
    """Return a finding if the guard's Secret is not here: scanner pods and forwarded ports do not have it."""
    secret = spec.redlock.urls_secret_ref if spec.redlock else spec.sql and spec.sql.database_secret_ref
    by_variable = spec.sql is not None and os.environ.get(VARIABLE)
    if not secret or by_variable or secret.reference.file(secrets_dir()).exists():
        return None
    shown = "the condition GuardAvailable shows whether workers can use it"
    said = f"not checked, its Secret {secret.name} is not here: {shown}"
    if target.path == Path(CONFIG_FILE):
        return skipped(NAME, said)
    return warning(NAME, said, _unusable(spec)) if target.source == "--redis" else None


def _unusable(spec: Guard) -> str:
    mount = "mount the Secret below $DELAYQ_SECRETS_DIR"
    return f"{mount}, or set ${VARIABLE}" if spec.sql is not None else mount


async def _asked(made: Any, spec: Guard, init: str) -> Finding:  # noqa: ANN401 -- a guard of any kind
    try:
        await made.check()
        return await _serves(made, spec)
    except GuardUnavailable as error:
        return await _away(made, error, init)
    except (Retry, DelayQError) as error:
        return failed(NAME, f"{made.name}: {error}", REACH)
    finally:
        await made.close()


async def _serves(made: Any, spec: Guard) -> Finding:  # noqa: ANN401 -- as above
    if spec.redlock is not None:
        return _majority(made.away, made.where.split(", "))
    if spec.sql is None:
        return ok(NAME, f"{made.name} serves")
    where = f"{place(made)}{f', by ${VARIABLE}' if os.environ.get(VARIABLE) else ''}"
    rows_of_the_user = (spec.sql_pessimistic and spec.sql_pessimistic.select) or (
        spec.sql_optimistic and spec.sql_optimistic.update
    )
    wrong = [] if rows_of_the_user else await made.problems()
    if wrong:
        table = f"the table delayq_processed in {where}: {'; '.join(wrong)}"
        return failed(NAME, table, "delayq guard ddl prints the expected table")
    return ok(NAME, f"{made.name} serves, at {where}")


def _majority(away: list[str], servers: list[str]) -> Finding:
    if away:
        said = f"redlock serves, without {len(away)} of {len(servers)} servers: {', '.join(away)}"
        return warning(NAME, said, "repair them: no task starts without a majority")
    if len(servers) % 2 == 0:
        said = f"redlock serves, on {len(servers)} servers"
        return warning(
            NAME, said, f"they tolerate no more outages than {len(servers) - 1}: add or remove one"
        )
    return ok(NAME, f"redlock serves, on {len(servers)} of {len(servers)} servers")


async def _away(made: Any, error: GuardUnavailable, init: str) -> Finding:  # noqa: ANN401 -- as above
    """Return whether the store is unreachable or misconfigured."""
    said = f"{error.where}: {error.why}"
    if not hasattr(made, "problems"):  # no table
        return unreachable(NAME, said, REACH)
    if not await _reached(made):
        login = any(word in error.why.lower() for word in ("password", "authentication", "access denied"))
        return unreachable(NAME, said, SECRET if login else REACH)
    if "delayq guard init" in error.why:
        return failed(NAME, said, init)
    return failed(NAME, said, "correct the statements of spec.guard, or the user's privileges")


async def _reached(made: Any) -> bool:  # noqa: ANN401 -- as above
    """Whether the database answers."""
    try:
        async with asyncio.timeout(SECONDS):
            await made.problems()
    except (GuardUnavailable, TimeoutError):
        return False
    except Exception:  # noqa: BLE001 -- any other error is an answer of the database
        return True
    return True
