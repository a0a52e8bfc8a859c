"""One scanner's metrics over HTTP, or what is wrong with it in our own words.

The image is a tenant's, and so is every byte that comes: an answer costs a bounded share of memory and time, leads to
no other address, and nothing of it gets into what people read but a number.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

import aiohttp
from delayq.contract.queue import MOST_SHARDS

from delayq_operator import metrics, names
from delayq_operator.backlog import NEEDED

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

    from delayq_operator.objects import Sample
    from delayq_operator.pod import Pod

log = logging.getLogger(__name__)

TIMEOUT_SECONDS: Final = 2.0
LARGEST_BYTES: Final = 2 << 20  # 256 shards of a queue with the longest name are one MiB
MOST_LINES: Final = 64 * MOST_SHARDS  # a shard has 30
MOST_NEEDED: Final = 8 * MOST_SHARDS + 64  # lines
TOO_LONG: Final = 256  # for a line that is needed
AT_A_TIME: Final = 128  # lines that are parsed before others get their turn
MOST_WORDS: Final = 200

_STARTS: Final = tuple(f"{name}{{".encode() for name in NEEDED)
_NO_METRICS: Final = "answers something that is no metrics exposition"


class Odd(Exception):
    """A scanner answered what no scanner would; the message has no word of the answer."""


class Client:
    """Asks scanners. Must be entered before."""

    def __init__(self, port: int = names.METRICS_PORT) -> None:
        """Connections are closed after use: 1,000 kept ones are more files than many nodes let a process open."""
        self._port = port
        self._session = aiohttp.ClientSession(
            timeout=aiohttp.ClientTimeout(total=None),  # ask() has one, over parsing too
            connector=aiohttp.TCPConnector(limit=0, force_close=True),
            cookie_jar=aiohttp.DummyCookieJar(),
            headers={"Accept-Encoding": "identity"},
            auto_decompress=False,  # a KiB can become a GiB
        )

    async def __aenter__(self) -> Self:
        """Return the client."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close connections."""
        await self._session.close()

    async def ask(self, pod: Pod) -> list[Sample] | str:
        """Return what one scanner exports, or what is wrong."""
        host = f"[{pod.address}]" if ":" in pod.address else pod.address
        url = f"http://{host}:{self._port}/metrics"
        try:
            async with asyncio.timeout(TIMEOUT_SECONDS):
                found = await _samples(await self._lines(url))
        except Exception as error:  # noqa: BLE001 -- whatever an answer makes a client or a parser raise
            metrics.SCRAPE_ERRORS.inc()
            why = f"{pod.name} {_sentence(error)}"
            log.info("scrape_failed", extra={"fields": {"pod": pod.name, "url": url, "error": why}})
            log.debug("scrape_error", extra={"fields": {"pod": pod.name, "error": repr(error)[:MOST_WORDS]}})
            return why
        metrics.SCRAPES.inc()
        return found

    async def _lines(self, url: str) -> list[bytes]:
        """Fetch what counts. A redirect is not followed: it could lead to what only the operator can reach."""
        async with self._session.get(url, allow_redirects=False) as response:
            if response.status != 200:  # noqa: PLR2004 -- HTTP's number for fine
                raise Odd(f"answers with HTTP {response.status}")
            return await _needed(response.content)


async def _needed(body: aiohttp.StreamReader) -> list[bytes]:
    """Return the lines of the metrics that count, of a whole answer, however large the rest is within its bound."""
    found, size, ends, rest = list[bytes](), 0, 0, b""
    async for chunk in body.iter_any():
        size, ends = size + len(chunk), ends + chunk.count(b"\n")
        if size > LARGEST_BYTES or ends > MOST_LINES or len(found) > MOST_NEEDED:
            raise Odd("answers more than a scanner has to say")
        *lines, rest = (rest + chunk).split(b"\n")
        found += [line[:TOO_LONG] for line in lines if line.startswith(_STARTS)]
        rest = rest[:TOO_LONG]
    return found


async def _samples(lines: list[bytes]) -> list[Sample]:
    """Parse lines; others get their turn in between."""
    if not 0 < len(lines) <= MOST_NEEDED or max(map(len, lines)) >= TOO_LONG:
        raise Odd(_NO_METRICS)
    found: list[Sample] = []
    for start in range(0, len(lines), AT_A_TIME):
        found += metrics.samples(b"\n".join(lines[start : start + AT_A_TIME]).decode())
        await asyncio.sleep(0)
    return found


def _sentence(error: Exception) -> str:
    match error:
        case Odd():
            return str(error)
        case TimeoutError():
            return f"does not answer within {TIMEOUT_SECONDS:g} s"
        case aiohttp.ClientConnectorError(os_error=ConnectionRefusedError()):
            return "refused the connection"
        case aiohttp.ClientConnectorError():
            return "cannot be reached"
        case aiohttp.ClientPayloadError() | aiohttp.ServerDisconnectedError() | OSError():
            return "broke off its answer"
    return _NO_METRICS
