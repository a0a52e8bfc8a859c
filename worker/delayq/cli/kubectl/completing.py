"""What may follow the words so far, in the form that kubectl asks of its plugins: words, then a directive."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from click.shell_completion import ShellComplete

from delayq.cli.kubectl.root import kubectl_dq

if TYPE_CHECKING:
    from collections.abc import Sequence

NO_FILES: Final = ":4"
FILES: Final = ":0"


def answer(words: Sequence[str]) -> list[str]:
    """Return a line for each candidate; the last word is the one that is being typed."""
    *before, incomplete = words or [""]
    found = ShellComplete(kubectl_dq, {}, "kubectl dq", "").get_completions(list(before), incomplete)
    plain = [each for each in found if each.type == "plain"]
    lines = [f"{each.value}\t{each.help}" if each.help else str(each.value) for each in plain]
    return [*lines, NO_FILES if len(plain) == len(found) else FILES]
