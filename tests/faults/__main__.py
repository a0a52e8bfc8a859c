"""`make faults`: hundreds of money transfers under each guard and each fault, with a database as the truth."""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import subprocess
import sys
import time
from datetime import UTC, datetime
from importlib.metadata import version

from tests import databases, servers
from tests.faults import report
from tests.faults.faults import FAULTS
from tests.faults.guards import GUARDS
from tests.faults.lanes import play_all
from tests.faults.report import KEPT, ROOT, Result

DIRECTORY = ROOT / ".cache" / "faults"  # with all that a run's processes said, until the next run


def main() -> int:
    """Play, print, keep; exit 1 when a promise was not kept."""
    options = _options()
    shutil.rmtree(DIRECTORY, ignore_errors=True)
    DIRECTORY.mkdir(parents=True)
    orders = [(GUARDS[guard], FAULTS[fault]) for guard in options.guards for fault in options.faults]
    began, started = time.monotonic(), datetime.now(UTC).isoformat(timespec="seconds")
    try:
        played = play_all(orders, options.transfers, options.redis, DIRECTORY, at_once=options.at_once)
    except KeyboardInterrupt:
        return 130
    result = Result(started, _versions(options.redis), *played)
    if result.cells:
        print(f"\n{report.markdown(result)}\n")
    print(f"took {(time.monotonic() - began) / 60:.1f} min")
    if broken := result.broken():
        print("NOT AS PROMISED:", *broken, sep="\n  ")
        return 1
    if options.keep:
        result.keep()
        report.write(result)
        print(f"written to {KEPT.relative_to(ROOT)} and {report.PAGE.relative_to(ROOT)}")
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("--guards", default=",".join(GUARDS), metavar="A,B", help="some of %(default)s")
    parser.add_argument("--faults", default=",".join(FAULTS), metavar="A,B", help="some of %(default)s")
    parser.add_argument("--transfers", type=int, default=200, help="in each cell (%(default)s)")
    parser.add_argument("--at-once", type=int, default=2, help="cells played at the same time (%(default)s)")
    parser.add_argument("--redis", default=servers.PREFERRED, choices=servers.FLAVOURS, help="(%(default)s)")
    parser.add_argument(
        "--keep",
        action="store_true",
        help="if all is as promised, write the table to docs/explanation/guarantees.md",
    )
    options = parser.parse_args()
    for name, known in (("guards", GUARDS), ("faults", FAULTS)):
        asked = getattr(options, name).split(",")
        if unknown := set(asked) - set(known):
            parser.error(f"--{name}: no {', '.join(sorted(unknown))}; there are {', '.join(known)}")
        setattr(options, name, asked)
    if os.geteuid() != 0 and (apart := [name for name in options.faults if FAULTS[name].place == "apart"]):
        parser.error(
            f"{', '.join(apart)}: networks of their own take root; without it, choose others with --faults"
        )
    if options.keep and (options.guards, options.faults) != ([*GUARDS], [*FAULTS]):
        parser.error("--keep: only a whole table is worth keeping")
    return options


def _versions(flavour: str) -> dict[str, str]:
    return {
        "delayq": version("delayq"),
        "Redis": _said(str(servers.binary(flavour)), "--version").partition("v=")[2].split()[0],
        "PostgreSQL": _said(databases.binary("postgres", "postgres"), "--version").split()[2],
        "Python": platform.python_version(),
        "Linux": platform.release().partition("-")[0],
    }


def _said(*argv: str) -> str:
    return subprocess.run(argv, capture_output=True, text=True, check=True).stdout


if __name__ == "__main__":
    sys.exit(main())
