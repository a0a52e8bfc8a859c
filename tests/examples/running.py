"""Examples and the programs of pages, run as a reader would: in a copy, on the embedded Redis of `delayq run`."""

from __future__ import annotations

import re
import shutil
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from delayq import SyncClient

from tests.processes import DELAYQ, Process, running

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

ROOT: Final = Path(__file__).parents[2]
HOW_TO: Final = ROOT / "docs" / "how-to"
LEFT_OUT: Final = shutil.ignore_patterns(".delayq", "__pycache__", "outbox.txt", "shop.db*")


def copied(name: str, to: Path) -> Path:
    """A copy of an example, so that a run of yours beside it is not disturbed."""
    return shutil.copytree(ROOT / "examples" / name, to / name, ignore=LEFT_OUT)


def blocks(page: str, language: str = "python") -> list[str]:
    found: list[str] = re.findall(rf"^```{language}\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    return found


def write(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)


@contextmanager
def served(folder: Path, **env: str) -> Iterator[Process]:
    """`delayq run queue.yaml`, for the length of a `with` block."""
    with running(DELAYQ, "run", "queue.yaml", cwd=folder, env=env) as run:
        run.wait_line("due 0")
        yield run


def url(folder: Path) -> str:
    return (folder / ".delayq" / "redis.url").read_text().strip()


def client(folder: Path) -> SyncClient:
    return SyncClient.from_document(folder / "queue.yaml", url=url(folder))


def done(*argv: str, cwd: Path, env: Mapping[str, str] | None = None) -> str:
    """What a command prints that ends well; `python` is ours."""
    process = Process.quick(
        *(sys.executable if word == "python" else word for word in argv), cwd=cwd, env=env
    )
    assert process.wait() == 0, process.output
    return process.output
