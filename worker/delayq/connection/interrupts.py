"""Tells exceptions that a signal handler of the program raised inside redis-py from those of the network."""

from __future__ import annotations

from redis.exceptions import RedisError


def interruption(error: BaseException) -> BaseException | None:
    """Return the exception of the program that redis-py has passed on or translated; None if it is the network's."""
    if isinstance(error, RedisError):
        inner = error.__context__
        return inner if inner is not None and _caught_by_redis(inner) and _is_programs(inner) else None
    if isinstance(error, OSError):
        return error if _is_programs(error) else None
    return None if isinstance(error, UnicodeError) else error  # an invalid host name


def _is_programs(error: BaseException) -> bool:
    """Whether an OSError has neither an errno nor the text of a socket's timeout.

    Programs limit time with a TimeoutError from a signal handler, and redis-py takes that for one of its socket.
    """
    is_of_socket = type(error) is OSError or "timed out" in str(error)
    return isinstance(error, OSError) and error.errno is None and not is_of_socket


def _caught_by_redis(error: BaseException) -> bool:
    """Whether it was raised during this call of redis-py, and not handled by the program while it made the call."""
    trace = error.__traceback__
    return trace is not None and trace.tb_frame.f_globals.get("__name__", "").startswith("redis.")
