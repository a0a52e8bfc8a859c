"""The time by Redis' clock, also while Redis does not answer: by its last answer and this machine's monotonic clock."""

from __future__ import annotations

import time
from contextlib import suppress

from redis import Redis
from redis.asyncio import Redis as AsyncRedis
from redis.exceptions import RedisError


class RedisTime:
    """Asks each time, for some faults move Redis' clock; with those, Redis always answers and `patience_s` is long."""

    def __init__(self, url: str, patience_s: float) -> None:
        self._redis = AsyncRedis.from_url(
            url, socket_timeout=patience_s, socket_connect_timeout=patience_s, retry=None
        )
        with Redis.from_url(url, socket_timeout=20) as redis:
            asked_at = _monotonic_ms()
            self._ahead_ms = _ms(*redis.time()) - asked_at

    async def now_ms(self) -> int:
        """By the clock itself; without an answer, later than that by at most the last answer's round trip."""
        asked_at = _monotonic_ms()
        with suppress(RedisError, OSError):
            now_ms = _ms(*await self._redis.time())
            self._ahead_ms = now_ms - asked_at
            return now_ms
        return _monotonic_ms() + self._ahead_ms


def _ms(seconds: int, micros: int) -> int:
    return seconds * 1000 + micros // 1000


def _monotonic_ms() -> int:
    return time.monotonic_ns() // 1_000_000
