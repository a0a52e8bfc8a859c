"""What is read from a DelayQueue, whether or not its spec fits the model."""

from __future__ import annotations

from tests.unit.operator.views import resource


def test_only_the_word_true_pauses() -> None:
    assert resource(annotations={"delayq.dev/paused": "true"}).paused
    for other in ("false", "", "True", "yes"):
        found = resource(annotations={"delayq.dev/paused": other})
        assert (found.paused, found.pausing) == (False, other)
    assert resource().pausing == "false"
