"""`make bench-images`: how large the images are and what is in them; how long they take from start to first claim.

No kubelet: pulling, scheduling and setting up a sandbox come on top, and depend on the cluster. Containers run as
tests/images runs them: a read-only root, no privilege, process 1 of their namespace.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.images import sizes, starts
from benchmarks.machine import here
from benchmarks.report import Report, add_options, say
from tests.images.archive import BUILT, Image
from tests.servers import RedisServer

IMAGES = ("operator", "worker", "hello", "shop")


def main() -> int:
    """Measure, print, write; exit 1 when a target is missed and --strict was given."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.images", description=__doc__)
    parser.add_argument("--runs", type=int, default=9, help="starts of each kind (%(default)s)")
    add_options(parser, "images")
    options = parser.parse_args()
    report = Report(
        facts=here("delayq", "redis", "aiohttp", "uvloop") | {"against": "a base of Debian 12's Python"},
        modes=IMAGES,
        started=datetime.now(UTC).isoformat(timespec="seconds"),
        name="images",
    )
    images = {name: Image.read(BUILT / f"{name}.tar") for name in IMAGES}
    print(report.heading())
    for name, image in images.items():
        report.add(name, sizes.figures(image))
    print(report.lines("A"), flush=True)
    with tempfile.TemporaryDirectory(prefix="delayq-images-") as folder:
        _starts(report, images, Path(folder), options.runs)
    return report.finish(keep=options.keep, strict=options.strict)


def _starts(report: Report, images: dict[str, Image], folder: Path, runs: int) -> None:
    server = RedisServer.start("7.0", dir=folder / "redis")
    try:
        for name, image in images.items():
            say(f"starting {name} {runs} times")
            root = folder / name
            image.unpack(root)
            report.add(name, starts.figures(name, image, root, server=server, runs=runs))
    finally:
        server.stop()
    print(report.lines("B"))
    print(report.lines("C"), flush=True)


if __name__ == "__main__":
    sys.exit(main())
