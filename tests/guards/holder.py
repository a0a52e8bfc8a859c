"""A process that runs one task under redis-lock and says each time its lock was renewed, by which clock."""

from __future__ import annotations

import asyncio
import sys
import time

from delayq.errors import GuardLost
from delayq.guards import RedisLock

from tests.guards.locks import until
from tests.guards.sql_bank import task


async def main(url: str) -> None:
    guard = RedisLock(url, queue="q", ttl_seconds=6)
    try:
        async with guard(task()) as hold:
            while True:
                await until(lambda last=hold.until: hold.until > last)  # type: ignore[misc]  # a float
                print(f"renewed at {int(time.time())}")
    except GuardLost as lost:
        print(f"lost: {lost}")
    finally:
        await guard.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
