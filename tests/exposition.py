"""Prometheus' text format, read by Prometheus' own parser."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client.parser import text_string_to_metric_families

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


def samples(text: str) -> Iterator[tuple[str, Mapping[str, str], float]]:
    """Name, labels and value of each line."""
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            yield sample.name, sample.labels, sample.value


def total(text: str, name: str, labels: Mapping[str, str]) -> float:
    """The sum of a metric over all label values but those given; 0 when it has no sample."""
    found = samples(text)
    return sum(value for sample, has, value in found if sample == name and labels.items() <= has.items())
