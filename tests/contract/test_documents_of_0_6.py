"""The page about documents of 0.6: validate names each field that is gone, and the document for 0.7 is valid."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from delayq.cli.validate import check
from delayq.contract import DelayQueue
from delayq.contract.record import Section, declared, shape_of
from delayq.contract.schedule import DelaySchedule

if TYPE_CHECKING:
    from collections.abc import Iterator

PAGE = Path(__file__).parents[2] / "docs/how-to/documents-of-0.6.md"


def records(record: Any) -> Iterator[Any]:  # noqa: ANN401 -- a dataclass
    """Each class of a document."""
    yield record
    for field in declared(record):
        if isinstance(field.kind, Section):
            yield from records(field.kind.record)


def gone() -> set[str]:
    """Names of the fields that 0.7 does not have."""
    found = (each for document in (DelayQueue, DelaySchedule) for each in records(document))
    return {old for record in found for old, _ in shape_of(record).renamed}


def blocks(tmp_path: Path) -> tuple[Path, Path]:
    """The documents before and after, as files."""
    before, after = re.findall(r"^```ya?ml\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    old, new = tmp_path / "old.yaml", tmp_path / "new.yaml"
    old.write_text(before)
    new.write_text(after)
    return old, new


def test_validate_names_each_field_of_0_6_that_is_gone_and_what_to_do(tmp_path: Path) -> None:
    old, _ = blocks(tmp_path)
    lines = [str(each) for each in check(str(old), apps=False).problems]
    advised = {
        match[1]: line for line in lines if (match := re.search(r"(\w+): gone since version 0\.7: \w", line))
    }
    assert advised.keys() == gone()
    assert {"failureThreshold", "stopPolicy", "connection", "deadLetterCount", "timeZone"} <= gone()
    others = [line for line in lines if line not in advised.values()]
    paths = (
        "resources.requests",
        "spec.guard: kinds needs appliesTo",
        "intervalSeconds",
        "spec.task.payload",
    )
    assert [next((path for path in paths if path in line), line) for line in others] == list(paths)


def test_the_document_for_0_7_is_valid(tmp_path: Path) -> None:
    _, new = blocks(tmp_path)
    assert check(str(new), apps=False).problems == []
