"""`make bench`, or `python -m benchmarks --only A,C --quick`."""

from __future__ import annotations

import argparse
import sys

import uvloop

from benchmarks.report import add_options
from benchmarks.runner import BENCHMARKS, MODES, Order, run
from tests.servers import FLAVOURS, PREFERRED


def main() -> int:
    """Measure, print, write; exit 1 when a target is missed and --strict was given."""
    options = _options()
    report = uvloop.run(run(_order(options)))
    return report.finish(keep=options.keep, strict=options.strict)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--only", default=",".join(BENCHMARKS), metavar="A,C", help="some of %(default)s")
    parser.add_argument("--quick", action="store_true", help="one short run of each: for a look, not a quote")
    parser.add_argument("--redis", default=PREFERRED, choices=FLAVOURS, help="which server (%(default)s)")
    parser.add_argument(
        "--persistence", choices=MODES, help="one mode only (default: off and everysec; off with --quick)"
    )
    add_options(parser, "queue")
    options = parser.parse_args()
    options.letters = tuple(options.only.upper().split(","))
    if unknown := set(options.letters) - set(BENCHMARKS):
        parser.error(f"--only: no benchmark {', '.join(sorted(unknown))}; there are {', '.join(BENCHMARKS)}")
    if options.keep and (options.quick or options.persistence or len(options.letters) < len(BENCHMARKS)):
        parser.error("--keep: only a whole run is worth keeping")
    return options


def _order(options: argparse.Namespace) -> Order:
    first, *_ = MODES
    modes = (options.persistence or first,) if options.persistence or options.quick else tuple(MODES)
    return Order(options.letters, options.redis, modes, options.quick, options.keep)


if __name__ == "__main__":
    sys.exit(main())
