"""docs/features.toml lists what delayq can do. README.md shows the list, and no page denies what is in it."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    {
        *ROOT.glob("*.md"),
        *ROOT.glob("docs/**/*.md"),
        *ROOT.glob("examples/**/*.md"),
        *ROOT.glob("charts/**/*.md"),
        *ROOT.glob("charts/**/NOTES.txt"),
    }
    - {ROOT / "CHANGELOG.md", *ROOT.glob("docs/contributing/decisions/*.md")}  # say what was
)
DENIAL = re.compile(
    r"\b(?:is|are) (?:not|no) (?:yet )?(?:a |an |part of |any )?"
    r"(?:feature|resource|support|possible|available|implement|planned)"
    r"|\b(?:not|no|never)\b.*\byet\b|\bthere (?:is|are) no\b|\b(?:not|no) (?:features?|support)\b"
    r"|\bdelayq (?:has|knows|offers|supports) (?:no|neither)\b"
    r"|\bdelayq (?:cannot|does not (?:have|know|offer|support))\b|\bno counterpart\b|\bunsupported\b",
    re.IGNORECASE,
)
"""How a sentence says that something does not exist. "A task has no deadline" is about a task, and allowed."""


@dataclass(frozen=True)
class Feature:
    name: str
    text: str
    page: str
    words: list[str]

    @property
    def file(self) -> Path:
        return ROOT / self.page.partition("#")[0]

    def named_in(self, sentence: str) -> bool:
        return any(re.search(rf"\b(?:{word})\b", sentence, re.IGNORECASE) for word in self.words)

    def linked_from(self, page: Path, text: str) -> bool:
        targets = re.findall(r"\]\(([^)#\s]+)", text)
        return any((page.parent / target).resolve() == self.file for target in targets)


FEATURES = [Feature(**each) for each in tomllib.loads((ROOT / "docs/features.toml").read_text())["feature"]]


def sentences(text: str) -> list[str]:
    """The sentences of a page. Code and the targets of links are left out; a cell of a table is a sentence."""
    text = re.sub(r"^( *)```.*?^\1```$", "", text, flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r"\]\([^)]*\)", "]", text)
    cells = re.split(r"\n\s*\n|\n *(?:[-*]|\d+\.) |\|", text)
    return [
        each for cell in cells for each in re.split(r"(?<=[.:!?])\s+(?=[A-Z*`\[])", " ".join(cell.split()))
    ]


def denied(text: str) -> list[tuple[str, str]]:
    """The features that a text denies, each with the sentence."""
    those = [each for each in sentences(text) if DENIAL.search(each)]
    return [(feature.name, each) for each in those for feature in FEATURES if feature.named_in(each)]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_no_page_denies_a_feature(page: Path) -> None:
    assert denied(page.read_text()) == []


@pytest.mark.parametrize(
    ("feature", "sentence"),
    [
        ("Recurring schedules", "Recurring schedules are not a feature of delayq yet. Let cron do it."),
        ("Recurring schedules", "delayq's schedules are new, and not yet resources of Kubernetes."),
        ("Recurring schedules", "A DelaySchedule\nis not\nsupported."),
        ("Recurring schedules", "| celery beat, no counterpart | - |"),
        ("Deadlines", "They run, oldest first. There is no expiry: a handler compares the time."),
        ("Batches", "delayq does not support batches."),
        ("Limits", "There is no rate limit."),
    ],
)
def test_a_denial_is_found(feature: str, sentence: str) -> None:
    assert feature in {name for name, _ in denied(sentence)}


@pytest.mark.parametrize(
    "sentence",
    [
        "A task without a deadline does not expire.",
        "There is no web console. Schedules are listed by a command.",
        "Two schedules must not have the same name.",
    ],
)
def test_what_denies_no_feature_is_allowed(sentence: str) -> None:
    assert denied(sentence) == []


def test_the_readme_lists_the_features() -> None:
    wanted = [f"- [{each.name}]({each.page}): {each.text}" for each in FEATURES]
    section = (ROOT / "README.md").read_text().partition("## Features\n")[2].partition("\n## ")[0]
    assert re.findall(r"^- .*$", section, re.MULTILINE) == wanted


def test_the_readme_has_at_most_700_words() -> None:
    assert len((ROOT / "README.md").read_text().split()) <= 700


@pytest.mark.parametrize("feature", FEATURES, ids=lambda each: each.name)
def test_every_feature_is_introduced_by_its_page(feature: Feature) -> None:
    """The page exists, the index of the documentation leads to it, and it uses one of the feature's words."""
    text, index = feature.file.read_text(), ROOT / "docs" / "README.md"
    assert feature.named_in(text), (feature.page, feature.words)
    assert feature.linked_from(index, index.read_text()) or feature.linked_from(
        ROOT / "docs/reference/cli.md", (ROOT / "docs/reference/cli.md").read_text()
    )


FAQ = ROOT / "docs/explanation/faq.md"
QUESTIONS = re.findall(r"^\*\*(.+?)\*\* (.+?)(?=\n\n|\Z)", FAQ.read_text(), re.MULTILINE | re.DOTALL)
CELERY = ROOT / "docs/how-to/from-celery.md"
ROWS = re.findall(r"^\| (.+?) \| (.+) \|$", CELERY.read_text(), re.MULTILINE)


def test_a_question_or_a_row_about_a_feature_leads_to_its_page() -> None:
    """`celery beat` and "How do I run a task every night?" are answered by the page of the schedules."""
    asked = [(FAQ, *each) for each in QUESTIONS] + [(CELERY, *each) for each in ROWS]
    assert len(QUESTIONS) > 20
    assert len(ROWS) > 20
    wrong = [
        (question, feature.name)
        for page, question, answer in asked
        for feature in FEATURES
        if feature.named_in(question) and not feature.linked_from(page, answer)
    ]
    assert wrong == []
