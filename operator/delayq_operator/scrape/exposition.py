"""Scrapes one pod's metrics over HTTP; on failure returns an error text of the operator's.

The image is a tenant's, and the response is not trusted: it costs bounded memory and time, causes no request to another
address, and only its numbers reach status and logs.

Lines are parsed ten times as fast as by prometheus_client: 1,000 queues are read every other second, and at 30 µs a
line that alone would take a core. What delayq's processes write is always in this form, without timestamps or
exemplars. Escapes in labels stay: no label that counts has any.
"""

from __future__ import annotations

import asyncio
import logging
import re
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Final

import aiohttp
from delayq.contract.metrics import KINDS_SAMPLED, MOST_KINDS, MOST_PARKED, horizon_label
from delayq.contract.queue import MOST_SHARDS
from yarl import URL

from delayq_operator.base import metrics, names
from delayq_operator.scrape.backlog import NEEDED

if TYPE_CHECKING:
    from collections.abc import Iterable

    from delayq_operator.base.objects import Sample
    from delayq_operator.cache.pod import Pod

log = logging.getLogger(__name__)

TIMEOUT_SECONDS: Final = 2.0
TOO_LONG: Final = 1024  # for a line that is needed: it may have three names of 253 characters
AT_A_TIME: Final = 128  # lines parsed before yielding to the event loop
MOST_CHARACTERS: Final = 200
PLAIN_LINES: Final = 24  # of a shard, in the metrics that count, but for horizons that were asked for
KIND_LINES: Final = 2 * max(MOST_PARKED, MOST_KINDS + 1)  # of a scanner, or of a worker
LONGEST_LINES: Final = 320  # bytes, on average; of a queue with the longest name

TOO_MUCH: Final = "answers more than it can have to say"
_NO_METRICS: Final = "answers something that is no metrics exposition"

_VALUE = r'"((?:[^"\\]|\\.)*)"'
_LABEL = re.compile(f"([a-z_]+)={_VALUE}")
_LINE = re.compile(
    rf"([a-z_]+)\{{((?:[a-z_]+={_VALUE}(?:,(?!\}})|(?=\}})))*)\}} "
    r"(NaN|[+-]Inf|-?[0-9]+(?:\.[0-9]+)?(?:e[+-]?[0-9]+)?)"
)


@dataclass(frozen=True, slots=True)
class Question:
    """What to request from a pod, and the limit of the response."""

    needed: frozenset[str] = NEEDED
    """Names of the metrics to keep; all others are dropped while reading."""
    horizons: tuple[float, ...] = ()
    """Horizons that a scanner shall count; empty: the default metrics."""
    kinds_seconds: float = 0.0
    """With horizons: a scanner shall estimate the kinds of the tasks due within so long; 0: it shall not."""
    shards: int = MOST_SHARDS

    @property
    def path(self) -> str:
        asked = [_horizons(self.horizons)] if self.horizons else []
        asked += [f"kinds_within={horizon_label(self.kinds_seconds)}"] if self.kinds_seconds else []
        return f"/metrics?{'&'.join(asked)}" if asked else "/metrics"

    @property
    def most_needed(self) -> int:
        """Most lines to keep."""
        sampled = KINDS_SAMPLED if self.kinds_seconds else 0
        return (PLAIN_LINES + len(self.horizons) + sampled) * self.shards + KIND_LINES + 64

    @property
    def most_lines(self) -> int:
        """Most lines in all: other metrics, histograms and comments included."""
        return 2 * self.most_needed + 512


# Polls repeat the same horizons, and formatting them takes longer than the rest of a question.
@lru_cache(1024)
def _horizons(seconds: tuple[float, ...]) -> str:
    return "&".join(f"horizon={horizon_label(each)}" for each in seconds)


class InvalidAnswer(Exception):
    """A response that delayq's processes would not send; the message contains nothing of it."""


class Client:
    """HTTP client for scanners and workers; needs a running event loop and aclose()."""

    def __init__(self, port: int = names.METRICS_PORT, horizons_port: int = names.HORIZONS_PORT) -> None:
        """Connections are closed after use: 1,000 open ones exceed the file limit of many nodes."""
        self._port, self._horizons_port = port, horizons_port
        self._session = aiohttp.ClientSession(
            timeout=aiohttp.ClientTimeout(total=None),  # ask() has one, over parsing too
            connector=aiohttp.TCPConnector(limit=0, force_close=True),
            cookie_jar=aiohttp.DummyCookieJar(),
            headers={"Accept-Encoding": "identity"},
            auto_decompress=False,  # a KiB can become a GiB
        )

    async def aclose(self) -> None:
        await self._session.close()

    async def ask(self, pod: Pod, question: Question | None = None) -> list[Sample] | str:
        """Return the samples of one pod, or an error text."""
        asked = question or Question()
        try:
            async with asyncio.timeout(TIMEOUT_SECONDS):
                found = await _samples(await self._answer(pod, asked), asked)
        except Exception as error:  # noqa: BLE001 -- an untrusted response can raise anything
            metrics.SCRAPE_ERRORS.labels(pod.component).inc()
            why = f"{pod.name} {_sentence(error)}"
            _log(pod, why, error)
            return why
        metrics.SCRAPES.labels(pod.component).inc()
        return found

    async def _answer(self, pod: Pod, asked: Question) -> list[bytes]:
        """Fetch the needed lines. Redirects are not followed: they could reach addresses only the operator can."""
        host = f"[{pod.address}]" if ":" in pod.address else pod.address
        horizons = asked.horizons and pod.component == "scanner"
        url = f"http://{host}:{self._horizons_port if horizons else self._port}{asked.path}"
        async with self._session.get(URL(url, encoded=True), allow_redirects=False) as response:
            if response.status != 200:  # noqa: PLR2004 -- HTTP's number for fine
                raise InvalidAnswer(f"answers with HTTP {response.status}")
            return await _needed(response.content, asked)


def _log(pod: Pod, why: str, error: Exception) -> None:
    fields = {"fields": {"pod": pod.name, "address": pod.address, "error": why}}
    if pod.component == "worker":
        log.debug("scrape_failed", extra=fields)  # normal while a worker starts
    else:
        log.info("scrape_failed", extra=fields)
    log.debug("scrape_error", extra={"fields": {"pod": pod.name, "error": repr(error)[:MOST_CHARACTERS]}})


async def _needed(body: aiohttp.StreamReader, asked: Question) -> list[bytes]:
    """Return the lines of the needed metrics of a complete response within its limits."""
    starts = tuple(f"{name}{{".encode() for name in asked.needed)
    most_lines, most_needed = asked.most_lines, asked.most_needed
    found, size, ends, rest = list[bytes](), 0, 0, b""
    async for chunk in body.iter_any():
        size, ends = size + len(chunk), ends + chunk.count(b"\n")
        if size > most_lines * LONGEST_LINES or ends > most_lines or len(found) > most_needed:
            raise InvalidAnswer(TOO_MUCH)
        *lines, rest = (rest + chunk).split(b"\n")
        found += [line[:TOO_LONG] for line in lines if line.startswith(starts)]
        rest = rest[:TOO_LONG]
    return found


async def _samples(lines: list[bytes], asked: Question) -> list[Sample]:
    if len(lines) > asked.most_needed:
        raise InvalidAnswer(TOO_MUCH)
    if not lines or max(map(len, lines)) >= TOO_LONG:
        raise InvalidAnswer(_NO_METRICS)
    found: list[Sample] = []
    for start in range(0, len(lines), AT_A_TIME):
        found += parsed(b"\n".join(lines[start : start + AT_A_TIME]).decode().split("\n"))
        if len(lines) > AT_A_TIME:
            await asyncio.sleep(0)
    return found


def parsed(lines: Iterable[str]) -> list[Sample]:
    """Return the sample of each line; ValueError for a line that is none."""
    found: list[Sample] = []
    for line in lines:
        match = _LINE.fullmatch(line)
        if match is None:
            raise ValueError("no sample")
        found.append((match[1], dict(_LABEL.findall(match[2])), float(match[4])))
    return found


def _sentence(error: Exception) -> str:
    match error:
        case InvalidAnswer():
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
