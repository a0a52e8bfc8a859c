"""A file that nobody else can read, not even while it is written."""

from __future__ import annotations

import errno
import os
import stat
import tempfile
from contextlib import suppress
from pathlib import Path


def replace(target: Path, content: bytes) -> None:
    """Write a new file beside it and put it in its place; what is there keeps its content until then.

    Only a file is replaced: a symbolic link may lead where others read, and /dev/stdout is one.
    """
    with suppress(FileNotFoundError):
        if not stat.S_ISREG(target.lstat().st_mode):
            raise OSError(errno.EEXIST, "is there, and not a file")
    handle, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        Path(name).replace(target)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
