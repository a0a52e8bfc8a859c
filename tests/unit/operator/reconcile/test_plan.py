"""What the operator does about children that differ from the desired ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from delayq_operator.base import names
from delayq_operator.cache.children import Children
from delayq_operator.cache.queues import Queues
from delayq_operator.desired.companions import scanner_binding
from delayq_operator.reconcile.drift import stamped
from delayq_operator.reconcile.plan import plan

from tests.unit.operator.queues import SETTING, UID, facts, queue

if TYPE_CHECKING:
    from delayq.kube.objects import Object


def test_a_binding_whose_role_is_another_is_deleted_before_it_is_made_anew() -> None:
    """As after a change of the release's name: the API server refuses another role for a binding that exists."""
    of = queue(schedules={})
    body: Any = scanner_binding(of, SETTING, facts(of))
    wanted: Object = stamped(body)
    metadata = {**wanted["metadata"], "uid": "u", "resourceVersion": "1"}
    for name, doomed in (("delayq-scanner", []), ("other-scanner", ["orders-scanner"])):
        children = Children(Queues(lambda _: None))
        children.seen(
            names.ROLE_BINDING,
            {**wanted, "metadata": metadata, "roleRef": {**wanted["roleRef"], "name": name}},
        )
        todo = plan([wanted], children.of(names.Key("shop", "orders")), UID)
        assert ([child.name for child in todo.prune], todo.changes) == (doomed, ())
    assert [change.name for change in plan([wanted], {}, UID).changes] == ["orders-scanner"]
