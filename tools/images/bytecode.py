#!/usr/bin/env python3
"""Compiles what has no bytecode that counts; prints the files it makes. Arguments: sysconfig's names of folders.

A read-only container compiles what it lacks at every start, and slim images of Python lack all of it. Not the ordinary
kind of bytecode: that is void once a file's time is not what it was, and setting times is how images come out the same
at every build.
"""

from __future__ import annotations

import re
import sys
import sysconfig
from importlib.util import MAGIC_NUMBER, cache_from_source
from pathlib import Path
from py_compile import PycInvalidationMode
from py_compile import compile as compile_file
from struct import unpack
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

# What no container imports: of the Kubernetes client's 1,500 modules the operator needs some dozens, and of SQLAlchemy
# a guard needs no database that delayq brings no driver for.
UNUSED = re.compile(
    r"/(dist-packages|ensurepip|idlelib|lib2to3|pip|pydoc_data|site-packages|tests?|tkinter|turtledemo|turtle\.py)/"
    r"|/kubernetes/(aio/)?client/(api|models)/(?!__init__)"
    r"|/sqlalchemy/(dialects/(mssql|oracle)|testing)/"
)


def sources(folder: Path) -> Iterator[Path]:
    """Find a folder's modules, in an order that does not depend on the file system."""
    return (
        path for path in sorted(folder.rglob("*.py")) if not UNUSED.search(f"/{path.relative_to(folder)}/")
    )


def counts(bytecode: Path, source: Path) -> bool:
    """Whether Python would use it: the ordinary format has its source's time and size."""
    if not bytecode.exists():
        return False
    magic, by_hash, seconds, size = unpack("<4sIII", bytecode.read_bytes()[:16])
    facts = source.stat()
    ordinary = (seconds, size) == (int(facts.st_mtime) & 0xFFFFFFFF, facts.st_size & 0xFFFFFFFF)
    return magic == MAGIC_NUMBER and bool(by_hash or ordinary)


def main() -> None:
    """Compile."""
    for name in sys.argv[1:]:
        for source in sources(Path(sysconfig.get_path(name))):
            bytecode = Path(cache_from_source(str(source)))
            if not counts(bytecode, source):
                # What is written for another Python stays as it is: quiet.
                compile_file(str(source), invalidation_mode=PycInvalidationMode.UNCHECKED_HASH, quiet=2)
                sys.stdout.write(f"{bytecode}\n" * bytecode.exists())


main()
