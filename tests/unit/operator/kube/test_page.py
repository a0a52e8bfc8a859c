"""Pages of lists are read one object at a time, with fields in any order."""

from __future__ import annotations

import json

import pytest
from delayq.kube.errors import Unavailable
from delayq_operator.kube.page import Page

METADATA = {"resourceVersion": "7", "continue": "next"}
ITEMS = [{"metadata": {"name": name}, "spec": {"text": 'a "quoted", [nested] {text}: ä'}} for name in "abc"]


@pytest.mark.parametrize(
    "page",
    [
        {"kind": "JobList", "metadata": METADATA, "items": ITEMS},
        {"items": ITEMS, "kind": "DelayQueueList", "metadata": METADATA},  # of a CustomResourceDefinition
        {"items": [], "metadata": METADATA},
        {"items": None, "metadata": METADATA},
        {"metadata": METADATA},
    ],
)
@pytest.mark.parametrize("indent", [None, 1])
def test_a_page_is_what_json_says_it_is(page: dict[str, object], indent: int | None) -> None:
    found = Page(json.dumps(page, indent=indent, ensure_ascii=False).encode())
    assert list(found.objects()) == (page.get("items") or [])
    assert found.metadata == METADATA
    assert found.head == {field: value for field, value in page.items() if field != "items"} | (
        {} if page.get("items", "") is not None else {"items": None}
    )


def test_objects_are_parsed_when_they_are_asked_for() -> None:
    text = json.dumps({"items": ITEMS}).encode()
    objects = Page(text[:-40]).objects()
    assert next(objects) == ITEMS[0]
    with pytest.raises(Unavailable, match="cannot be read"):
        list(objects)


@pytest.mark.parametrize(
    "text", [b"", b"Bad Gateway", b"[1, 2]", b'{"items": [{}', b"{]", b"\xff", b'{"a" 1']
)
def test_what_is_no_list_is_as_good_as_no_answer(text: bytes) -> None:
    with pytest.raises(Unavailable, match="cannot be read"):
        list(Page(text).objects())
