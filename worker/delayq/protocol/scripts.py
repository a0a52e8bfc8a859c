"""The Lua scripts, one file per verb, and the binding of named arguments to KEYS and ARGV.

A script's header is executable: its `-- KEYS name` and `-- ARGV name` lines, in order, are what a caller may pass.
A last ARGV line that ends in `...` repeats; so does a last KEYS line, a key for each task. No I/O.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from delayq.protocol.keys import Keys

Argument = str | bytes | int
PRELUDE = ("basics", "entries", "transitions", "schedules", "history", "cancelling")  # files, in their order
_LUA = files("delayq") / "protocol" / "lua"
_KEY = re.compile(r"^-- KEYS (\w+)\s+(?!\.\.\.)", re.MULTILINE)
_EACH_KEY = re.compile(r"^-- KEYS (\w+) \.\.\.\s", re.MULTILINE)
_BLOCK = re.compile(r"\n\n(?=--|local )")  # between two blocks of the prelude
_LOCAL = re.compile(r"^local (?:function )?(\w+)", re.MULTILINE)  # what a block defines
_ARGUMENT = re.compile(r"^-- ARGV (.+?)\s{2,}\S", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Script:
    """One verb's script."""

    name: str
    source: str
    sha: str
    keys: tuple[str, ...]
    arguments: tuple[str, ...]
    repeating: tuple[str, ...]
    each_key: tuple[str, ...] = ()

    def bind(
        self, keys: Keys, rest: Iterable[Argument] = (), each: Iterable[Keys] = (), /, **named: Argument
    ) -> list[Argument]:
        """Return what follows EVALSHA's sha: the key count, the keys and the arguments in the header's order.

        A named argument may select a key: with `index="delayed"` the script's KEY `index` is `delayed`. `each` are
        the keys of tasks, for scripts that take one key per task.
        """
        names = self.keys
        if len(named) > len(self.arguments):
            names = tuple([str(named.pop(name, name)) for name in names])
        found = [*keys.of_names(names)]
        if self.each_key:
            found += [getattr(task, name) for task in each for name in self.each_key]
        if len(named) != len(self.arguments):
            raise TypeError(f"{self.name}.lua takes {self.arguments}, got {tuple(named)}")
        return [len(found), *found, *[named[name] for name in self.arguments], *rest]


@cache
def load(name: str) -> Script:
    """Return the script of a verb; KeyError when there is none."""
    return script(name, _files()[name])


@cache
def _files() -> dict[str, str]:
    """Return the text of each file by its name: `claim` of a verb, `prelude/basics` of the prelude.

    All are read at once: a process that lacks descriptors must still settle what it has claimed.
    """
    folders = {"": _LUA, "prelude/": _LUA / "prelude"}
    found = [(folder, file) for folder, path in folders.items() for file in path.iterdir() if file.is_file()]
    return {
        folder + file.name.removesuffix(".lua"): file.read_text(encoding="utf-8") for folder, file in found
    }


def script(name: str, body: str) -> Script:
    """Return a script with what it needs of the prelude; its header says what it takes."""
    source = with_prelude(body)
    arguments, repeating = _arguments(body)
    sha = hashlib.sha1(source.encode(), usedforsecurity=False).hexdigest()
    keys, each_key = tuple(_KEY.findall(body)), tuple(_EACH_KEY.findall(body))
    return Script(name, source, sha, keys, arguments, repeating, each_key)


@cache
def prelude() -> str:
    """Return what scripts share. A block ends at an empty line, and may use the blocks before it."""
    return "\n".join(_files()[f"prelude/{part}"] for part in PRELUDE)


def with_prelude(body: str) -> str:
    """Put in front of a script what it needs of the prelude: Redis creates each function there anew with every call.

    What only a branch needs that is rarely taken goes to its begin, where the script has a line `-- PRELUDE`.
    """
    before, mark, after = body.partition("-- PRELUDE\n")
    indent = len(before) - len(before.rstrip(" "))
    end = re.search(rf"^ {{0,{indent - 1}}}\S", after, re.MULTILINE) if mark else None
    branch, rest = (after[: end.start()], after[end.start() :]) if end else (after, "")
    always = rarely = ""
    for block in reversed(_BLOCK.split(prelude())):
        if _uses(always + before + rest, block):
            always = f"{block}\n\n{always}"
        elif _uses(rarely + branch, block):
            rarely = f"{block}\n\n{rarely}"
    return always + before + mark + rarely + branch + rest


def _uses(source: str, block: str) -> bool:
    return any(re.search(rf"\b{name}\b", source) for name in _LOCAL.findall(block))


def names() -> tuple[str, ...]:
    """Return the name of every verb that has a script."""
    return tuple(sorted(name for name in _files() if "/" not in name))


def _arguments(body: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    lines = _ARGUMENT.findall(body)
    repeating = tuple(lines.pop().split()[:-1]) if lines and lines[-1].endswith("...") else ()
    return tuple(lines), repeating
