"""`make bench-loss`: measure what Redis takes away, and write it into docs/explanation/guarantees.md. Half a minute."""

from __future__ import annotations

import re
import tempfile
import time
from pathlib import Path

from benchmarks.loss_cases import CASES, CONFIRMING, HEAD, Loss, measure
from tests.servers import PREFERRED, RedisServer

PAGE = Path(__file__).parent.parent / "docs" / "explanation" / "guarantees.md"
FIRST, LAST = "<!-- loss: made by make bench-loss -->\n", "<!-- end of loss -->"
SECONDS = 2.5  # of load, each: longer than everysec's second


def main() -> None:
    """Measure every case, print it, write the table."""
    found: list[Loss] = []
    with tempfile.TemporaryDirectory() as directory:
        versions = " and ".join(_version(flavour, Path(directory)) for flavour in (PREFERRED, CONFIRMING))
        for number, case in enumerate(CASES.values()):
            found.append(measure(case, Path(directory) / str(number), PREFERRED, seconds=SECONDS))
            print(found[-1].row(), flush=True)
    PAGE.write_text(written(PAGE.read_text(), table(found, versions)))
    print(f"written to {PAGE}")


def table(found: list[Loss], versions: str) -> str:
    """Return what stands between the marks."""
    head = f"Measured {time.strftime('%Y-%m-%d', time.gmtime())} with {versions}, under {SECONDS} s of load each."
    return "\n".join([head, "", HEAD, *(each.row() for each in found)]) + "\n"


def written(page: str, text: str) -> str:
    """Return the page with this between its marks."""
    found = re.compile(re.escape(FIRST) + ".*?" + re.escape(LAST), re.DOTALL)
    if not found.search(page):
        raise ValueError(f"{PAGE}: expected {FIRST.strip()} … {LAST}, found neither or one")
    return found.sub(lambda _: f"{FIRST}{text}{LAST}", page)


def _version(flavour: str, directory: Path) -> str:
    server = RedisServer.start(flavour, dir=directory / flavour)
    try:
        with server.client() as redis:
            facts = redis.info("server")
        valkey = facts.get("valkey_version")
        return f"Valkey {valkey}" if valkey else f"Redis {facts['redis_version']}"
    finally:
        server.stop()


if __name__ == "__main__":
    main()
