"""Every child has a name that the API server takes, and no two DelayQueues share one."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from delayq_operator.base import names
from hypothesis import given
from hypothesis import strategies as st

if TYPE_CHECKING:
    from collections.abc import Callable

label = st.text("a9-", min_size=1, max_size=63).map(lambda name: name.strip("-") or "a")
queue_name = st.lists(label, min_size=1, max_size=8).map(".".join).map(lambda name: name[:253].strip("-."))

DNS_LABEL = r"[a-z]([a-z0-9-]{0,61}[a-z0-9])?|[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"
SUBDOMAIN = r"[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*"

CHILDREN: dict[Callable[[str], str], int] = {
    names.scanner: 63,
    names.worker: 63,
    names.erase: 63,
    names.metrics_service: 63,
    names.reaper: 52,  # a Job adds eleven characters
    names.config: 253,
    names.pods: 253,
}


@given(queue_name)
def test_every_child_has_a_name_that_is_short_enough_and_well_formed(queue: str) -> None:
    for child, longest in CHILDREN.items():
        assert len(child(queue)) <= longest
        assert re.fullmatch(SUBDOMAIN, child(queue))
    assert re.fullmatch(DNS_LABEL, names.metrics_service(queue))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("a.b", "a-b"),
        ("o" * 60, "o" * 61),
        ("o" * 252 + "1", "o" * 252 + "2"),
        ("a." * 40 + "b", "a-" * 40 + "b"),
    ],
)
def test_two_delayqueues_whose_names_differ_in_little_share_no_child(one: str, other: str) -> None:
    assert [child.__name__ for child in CHILDREN if child(one) == child(other)] == []
    assert names.label_value(one) != names.label_value(other)
