"""Compiles what has no bytecode yet, of Python itself and of what is installed; prints the files that it made.

A read-only container compiles what it lacks at every start, and slim images of Python lack all of it. Not the ordinary
kind of bytecode: that is void once a file's time is not what it was, and setting times is how images are made the same
at every build.
"""

from __future__ import annotations

import re
import sys
import sysconfig
from importlib.util import cache_from_source
from pathlib import Path
from py_compile import PycInvalidationMode, compile  # noqa: A004 -- its name
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

FOLDERS = {Path(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
# Nobody imports these in a container; and of the Kubernetes client's 1,500 modules the operator needs some dozens.
UNUSED = re.compile(
    r"/(__pycache__|dist-packages|ensurepip|idlelib|lib2to3|pip|pydoc_data|tests?|tkinter|turtledemo|turtle\.py)(/|$)"
    r"|/kubernetes/(aio/)?client/(api|models)/(?!__init__)"
)


def sources(folder: Path) -> Iterator[Path]:
    """Find modules; those of site-packages only if it was asked for, not below another folder."""
    for path in sorted(folder.rglob("*.py")):
        inside = path.relative_to(folder)
        if inside.parts[0] != "site-packages" and not UNUSED.search(f"/{inside}"):
            yield path


def main() -> None:
    """Compile."""
    for folder in sorted(FOLDERS):
        for path in sources(folder):
            made = Path(cache_from_source(str(path)))
            if not made.exists() and compile(str(path), invalidation_mode=PycInvalidationMode.UNCHECKED_HASH, quiet=2):
                print(made)


if __name__ == "__main__":
    sys.exit(main())
