"""Classify drivers' errors, and translate them into GuardBusy and GuardUnavailable with a delay."""

from __future__ import annotations

import random
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, Literal

from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from delayq.errors import GuardBusy, GuardUnavailable, InvalidDocument
from delayq.guards.sql.table import NAME
from delayq.guards.sql.urls import where
from delayq.service.resources import causes, is_lack, lack_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sqlalchemy import URL


Meaning = Literal["busy", "unavailable", "unusable"]
MAX_TEXT = 200

# SQLSTATEs of PostgreSQL (text), and error numbers of MariaDB (integers).
_BUSY = frozenset({"40001", "40P01", "55P03", "57014", 1020, 1205, 1213, 1317, 1969, 3024, 3058, 3572})
_UNUSABLE = frozenset({"42P01", "42501", 1142, 1143, 1146})  # no such table; no rights
# SQLSTATE classes: connection; resources; operator intervention; system; login; no such database; internal error.
_GONE_CLASSES = ("08", "53", "57P", "58", "28", "3D", "XX")
_GONE = frozenset(  # SQLSTATEs: read-only; idle for too long; configuration file
    {"25006", "25P03", "F0000"}
    | {0, 1021, 1028, 1037, 1040, 1041, 1043, 1044, 1045, 1047, 1049, 1053, 1114, 1129, 1130, 1152, 1153}
    | {*range(1154, 1162), 1184, 1203, 1226, 1290, 1792, 1836, 1927, 3159, 4031, *range(2000, 2070)}
)
_UNTYPED = frozenset({"42P08", "42P18"})
# A value of an unsuitable type: class 22; no operator or function for it; a type mismatch; no cast.
_UNFIT_CLASSES = ("22", "42883", "42804", "42846")
_UNFIT = frozenset({1264, 1292, 1366, 1406, 3140})
_UNDONE = frozenset({"40001", "40P01", 1020, 1213})
_SQLITE_BUSY = frozenset({5, 6})
_SQLITE_GONE = frozenset({3, 8, 10, 11, 13, 14, 23, 26})


def meaning(error: BaseException) -> Meaning | None:
    """Return what an error means to a guard; None for other errors.

    "unusable": a table is missing, or the user has no rights to it. For the ledger, the guard is unavailable; for
    users' statements, the attempt fails.
    """
    if isinstance(error, PoolTimeout):
        return "busy"
    if isinstance(error, DBAPIError):
        if error.connection_invalidated:
            return "unavailable"
        return _of_driver(error.orig)
    # asyncpg raises its own errors while it connects; network errors are OSError with each driver.
    return "unavailable" if isinstance(error, OSError) or is_lack(error) else _of_driver(error)


def _of_driver(error: BaseException | None) -> Meaning | None:
    if (found := _code(error)) is not None:
        return _of_code(found)
    code = getattr(error, "sqlite_errorcode", None)
    if isinstance(code, int):
        return _of_sqlite(code & 0xFF, str(error))
    # A failed connect has neither: psycopg raises OperationalError or its subclass ConnectionTimeout.
    kinds = {kind.__name__ for kind in type(error).__mro__}
    return "unavailable" if kinds & {"OperationalError", "InterfaceError"} else None


def _code(error: BaseException | None) -> int | str | None:
    """Return the error number of MariaDB's drivers, else the SQLSTATE, which MariaDB shares between many errors."""
    number = error.args[0] if error is not None and error.args else None
    if isinstance(number, int) and not isinstance(error, OSError):
        return number
    state = getattr(error, "sqlstate", None) or getattr(error, "pgcode", None)
    return state if isinstance(state, str) else None


def _of_code(code: int | str) -> Meaning | None:
    if code in _BUSY:
        return "busy"
    if code in _UNUSABLE:
        return "unusable"
    return "unavailable" if code in _GONE or _in(code, _GONE_CLASSES) else None


def _in(code: int | str | None, classes: tuple[str, ...]) -> bool:
    return isinstance(code, str) and code.startswith(classes)


def _of_sqlite(code: int, words: str) -> Meaning | None:
    if code in _SQLITE_BUSY:
        return "busy"
    if words.startswith("no such table"):
        return "unusable"
    return "unavailable" if code in _SQLITE_GONE else None


def driver_message(error: BaseException, url: URL | None) -> str:
    """Return the driver's message on one line, shortened, and without the password."""
    text = " ".join(str(getattr(error, "orig", None) or error).split()) or type(error).__name__
    password = None if url is None else url.password
    if password:
        text = text.replace(password, "***")
    return text if len(text) <= MAX_TEXT else text[: MAX_TEXT - 1] + "…"


def untyped(error: BaseException) -> bool:
    """Whether PostgreSQL only cannot infer the type of a NULL."""
    return isinstance(error, DBAPIError) and _code(error.orig) in _UNTYPED


def unfit(error: BaseException) -> bool:
    """Whether a value has a type or size that the statement cannot use; a retry would not help."""
    if not isinstance(error, DBAPIError):
        return isinstance(error, OverflowError)  # SQLite's driver
    if isinstance(error.orig, OverflowError):
        return True
    code = _code(error.orig)
    return code in _UNFIT or _in(code, _UNFIT_CLASSES)


def lost_under(error: BaseException) -> bool:
    """Whether a broken connection caused an exception of a handler."""
    return any(isinstance(each, DBAPIError) and each.connection_invalidated for each in causes(error))


def undone_under(error: BaseException) -> bool:
    """Whether a deadlock or a serialization failure caused an exception of a handler."""
    return any(isinstance(each, DBAPIError) and _code(each.orig) in _UNDONE for each in causes(error))


BUSY_MS: Final = 1000
AWAY_MS: Final = 2000


def spread_ms(delay_ms: int, rand: float) -> int:
    """Return the delay, up to a fifth more or less; `rand` is in [0, 1). 1000, 0.75 → 1100."""
    return round(delay_ms * (0.8 + 0.4 * rand))


def busy(reason: str) -> GuardBusy:
    """Return the error for a row or lock that another transaction holds."""
    return GuardBusy(reason, delay_ms=spread_ms(BUSY_MS, random.random()))  # noqa: S311 -- jitter


def away(where: str, why: str) -> GuardUnavailable:
    """Return the error for an unavailable database."""
    return GuardUnavailable(where, why, delay_ms=spread_ms(AWAY_MS, random.random()))  # noqa: S311 -- as above


@contextmanager
def translated(url: Callable[[], URL], *, begins: bool = False) -> Iterator[None]:
    """Translate drivers' errors into GuardBusy and GuardUnavailable; pass on all others.

    An unavailable store charges no attempt. An error of the user's statement does: otherwise it would repeat forever.
    If the step `begins` a run, it is NotStarted for want of a resource of this process.
    """
    try:
        yield
    except InvalidDocument as error:
        raise away(where(url()), str(error)) from None
    except PoolTimeout:
        raise busy(
            f"every connection to {where(url())} is in use; raise maxConnections or lower worker.concurrency"
        ) from None
    except Exception as error:
        found = of(error, url())
        lack = lack_of(error, unreachable=isinstance(found, GuardUnavailable))
        if begins and lack:
            raise lack from error
        if found is None:
            raise
        raise found from (lack or error)


def of(error: BaseException, url: URL) -> GuardBusy | GuardUnavailable | None:
    """Return the guard's error for a driver's error; None for an error of another kind."""
    text = driver_message(error, url)
    match meaning(error):
        case "busy":
            return busy(f"guard at {where(url)} is busy: {text}")
        case "unusable" if NAME in text:
            hint = "delayq guard init creates the table, and workers need to read and write it"
            return away(where(url), f"{text}: {hint}")
        case "unavailable":
            return away(where(url), text)
        case _:
            return None
