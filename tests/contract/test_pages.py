"""What pages tell readers to type and to apply: each command parses, and each document is valid.

Whether a command does what its page says is tested elsewhere, where Redis and Kubernetes run.
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import pytest
import yaml
from delayq.cli.root import delayq
from delayq.client.document import parse_text
from delayq.errors import InvalidDocument
from delayq_operator.kubectl.passed import Passed, call
from delayq_operator.kubectl.root import kubectl_dq

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
PAGES = sorted({ROOT / "README.md", *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/**/*.md")})
DECISIONS = ROOT / "docs" / "contributing" / "decisions"  # say what was, too
SHELL = re.compile(r"^( *)```(?:sh|console|ini|)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
YAML = re.compile(r"^( *)```yaml\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
HEREDOC = re.compile(r"<<'?(\w+)'?[^\n]*\n(.*?)^\s*\1$", re.MULTILINE | re.DOTALL)
INLINE = re.compile(r"`((?:delayq|kubectl dq) [^`…]+)`")
FILE = re.compile(r"[\w./-]+\.(?:yaml|json|jsonl)|FILE")
BASE = {
    "redis": {"standalone": {"host": "redis"}},
    "handler": {"exec": {"command": ["true"]}},
}
"""What an example leaves out because it shows something else."""
HEAD = {"apiVersion": "delayq.dev/v1alpha1", "kind": "DelayQueue", "metadata": {"name": "orders"}}
SPEC = {"autoscaling", "durability", "guard", "handler", "recovery", "redis", "shards", "worker"}


def joined(text: str) -> Iterator[str]:
    """Each line of a shell block, as long as its quotes and backslashes make it."""
    line = ""
    for each in HEREDOC.sub("\n", text).splitlines():
        line = f"{line}{each.removeprefix('$ ')}"
        if line.endswith("\\"):
            line = line[:-1]
        elif line.count("'") % 2:
            line += "\n"
        else:
            yield line
            line = ""


def split(line: str) -> Iterator[list[str]]:
    """The commands of a line: what stands between pipes, semicolons and brackets."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    words: list[str] = []
    for word in lexer:
        if set(word) <= set("();<>|&"):
            yield words
            words = []
        else:
            words.append(word)
    yield words


def command(words: list[str]) -> list[str]:
    """The words from `delayq` or `kubectl dq` on, or none."""
    while words and (words[0] in ("sudo", "exec") or re.fullmatch(r"\w+=.*", words[0])):
        words = words[1:]
    words = ["kubectl-dq", *words[2:]] if words[:2] == ["kubectl", "dq"] else words
    words = [Path(words[0]).name, *words[1:]] if words else []
    return words if words and words[0] in ("delayq", "kubectl-dq") else []


def typed(page: Path) -> list[list[str]]:
    """Every command of a page's shell blocks; of a console block, the lines with a prompt."""
    found = []
    for _, block in SHELL.findall(page.read_text()):
        prompted = re.findall(r"^\$ .*(?:\\\n.*)*$", block, re.MULTILINE)
        for line in joined("\n".join(prompted) if prompted else block):
            if re.search(r"\bdelayq |\bkubectl dq ", line) and not re.match(
                r"[\w·✓!✗ ]+delayq|delayq \d", line
            ):
                found += [command(words) for words in split(line)]
    return [words for words in found if words]


def problem(words: list[str]) -> str:
    """What the real parser of arguments says against a command."""
    root = delayq if words[0] == "delayq" else kubectl_dq
    for word in words[1:]:
        if FILE.fullmatch(word) and not word.startswith("/"):
            Path(word).parent.mkdir(parents=True, exist_ok=True)
            Path(word).touch()
    try:
        click.Group.main(root, words[1:], standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError:
        return ""  # a sentence names a group of commands
    except click.ClickException as error:
        return f"{shlex.join(words)}: {error.format_message()}"
    return ""


@pytest.fixture(autouse=True)
def carries_nothing_out(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Arguments are parsed, files are opened, and no command runs."""
    invoke = click.Command.invoke

    def parsed(self: click.Command, ctx: click.Context) -> Any:  # noqa: ANN401 -- click's signature
        return invoke(self, ctx) if isinstance(self, click.Group) else None

    def parsed_there(self: Passed, ctx: click.Context) -> None:
        """In the pod, `delayq` parses the options."""
        name, *rest = ctx.params["words"] or ["-"]
        if name.startswith("-"):
            raise click.UsageError("Missing NAME, which comes first")
        click.Group.main(delayq, list(call(self.path, rest).words), standalone_mode=False)

    monkeypatch.setattr(click.Command, "invoke", parsed)
    monkeypatch.setattr(Passed, "invoke", parsed_there)
    monkeypatch.chdir(tmp_path)


def pages(pattern: re.Pattern[str]) -> pytest.MarkDecorator:
    those = [page for page in PAGES if pattern.search(page.read_text()) and DECISIONS not in page.parents]
    return pytest.mark.parametrize("page", those, ids=lambda page: str(page.relative_to(ROOT)))


@pages(SHELL)
def test_every_command_of_a_page_parses(page: Path) -> None:
    assert [said for words in typed(page) if (said := problem(words))] == []


@pages(INLINE)
def test_every_command_that_a_sentence_names_parses(page: Path) -> None:
    """A sentence may leave arguments out; what it names has to exist."""
    prose = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    lines = [" ".join(each.split()) for each in INLINE.findall(prose)]
    found = [command(words) for line in lines for words in split(line)]
    said = [problem(words) for words in found if words]
    assert [each for each in said if each and not re.search("Missing |requires an argument", each)] == []


@pages(re.compile(r"```yaml|kind: DelayQueue"))
def test_every_document_of_a_page_is_valid(page: Path) -> None:
    text = page.read_text()
    blocks = [block for _, block in (*YAML.findall(text), *HEREDOC.findall(text))]
    for found in (each for block in blocks for each in yaml.safe_load_all(block)):
        spec = found.get("spec", found) if isinstance(found, dict) else {}
        if found.get("kind") == "DelayQueue" or ("kind" not in found and spec.keys() & SPEC):
            parse_text(yaml.safe_dump(HEAD | {"spec": BASE | spec}).encode(), page.name)


def test_the_messages_about_a_wrong_document_are_those_of_the_page() -> None:
    page = (ROOT / "docs/how-to/troubleshooting.md").read_text()
    [shown] = re.findall(r"^\$ delayq run bad\.yaml\n((?:bad\.yaml: .*\n)+)", page, re.MULTILINE)
    handler = {"python": {"calable": "shop.orders:cancel_unpaid"}}
    wrong = HEAD | {"spec": BASE | {"handler": handler}}
    with pytest.raises(InvalidDocument) as raised:
        parse_text(yaml.safe_dump(wrong).encode(), "bad.yaml")
    assert str(raised.value).splitlines() == shown.splitlines()
