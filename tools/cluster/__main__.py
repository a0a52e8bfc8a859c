"""`make cluster` and `make cluster-down`: a real Kubernetes of one node, in the background, with delayq on it."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tests.cluster.harness.binaries import ROOT
from tests.cluster.harness.cluster import CommandFailed
from tests.node.harness import requirements
from tests.node.harness.cgroups import CgroupError
from tests.node.harness.network import NetworkError
from tests.node.harness.sandbox import SandboxError
from tests.processes import Gone
from tools.cluster import demo, keeper
from tools.cluster.state import State

REFUSALS = (keeper.KeeperError, requirements.UnfitError, SandboxError, NetworkError, CgroupError)
EXPECTED = (*REFUSALS, Gone, CommandFailed, AssertionError)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.cluster", description=__doc__)
    parser.add_argument("command", choices=["up", "down", "load", "keep"])
    parser.add_argument("archives", nargs="*", type=Path, help="images to load")
    parser.add_argument(
        "--state", type=Path, default=ROOT / ".cache" / "cluster", help="where it keeps its state"
    )
    parser.add_argument("--bare", action="store_true", help="nothing but Kubernetes")
    options = parser.parse_args()
    state = State(options.state.absolute())
    try:
        return run(options.command, state, options.archives, bare=options.bare)
    except EXPECTED as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


def run(command: str, state: State, archives: list[Path], *, bare: bool) -> int:
    if command == "keep":
        keeper.keep(state, bare=bare)
    elif command == "load":
        print(*keeper.load(state, archives), sep="\n")
    elif command == "down":
        print("The cluster is gone." if keeper.down(state) else "There was no cluster.")
    else:
        requirements.check()
        if not keeper.up(state, bare=bare):
            print("\nThe cluster is up already.")
        print(f"export KUBECONFIG={state.kubeconfig}" if bare else demo.hints(state.kubeconfig))
    return 0


if __name__ == "__main__":
    sys.exit(main())
