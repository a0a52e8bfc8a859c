"""Merges a user's pod template over the operator's: like kubectl's strategic merge, in four rules.

Mappings merge field by field. Lists whose items have a name (KEYS) merge item by item; other lists are replaced.
Anything else is the user's when the user gives it. null deletes, and so does a mapping with `$patch: delete`, because
`kubectl apply` drops nulls. Not here: protected fields (protected.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from delayq.contract.kubernetes import DELETE, KEYS
from delayq.contract.problems import type_name

if TYPE_CHECKING:
    from collections.abc import Sequence

    from delayq.contract.problems import Place

_WHOLE: Final = frozenset({"volumes", "env"})
# An item of these lists is a union: a merge of two members would be invalid.

_ACTIONS: Final = frozenset({"exec", "grpc", "httpGet", "sleep", "tcpSocket"})
# A probe or a hook has one of these handlers: the user's replaces the operator's.


def deletes(value: object) -> bool:
    """Whether a value requests the deletion of its field."""
    return value is None or (isinstance(value, Mapping) and value.get(DELETE) == "delete")


def merged(base: object, over: object, place: Place, name: str = "") -> object:
    """Merge `over` over `base`, the value of field `name`; report what cannot be merged, and mutate neither."""
    if isinstance(base, list) or (isinstance(over, list) and not isinstance(base, Mapping)):
        return _list(base, over, place, name)
    if isinstance(base, Mapping) or isinstance(over, Mapping):
        return _mapping(base, over, place)
    return over


def _mapping(base: object, over: object, place: Place) -> object:
    if not isinstance(over, Mapping):
        return place.refuse(f"expected a mapping, got {type_name(over)}")
    ours = base if isinstance(base, Mapping) else {}
    if DELETE in over:
        return place.field(DELETE).refuse("expected delete, in a mapping that may be deleted")
    dropped = {key for key, item in over.items() if deletes(item)}
    given = over.keys() - dropped
    if given & _ACTIONS:
        dropped |= _ACTIONS - given
    kept = {key: item for key, item in ours.items() if key not in dropped}
    theirs = {key: merged(kept.get(key), over[key], place.field(key), key) for key in over if key in given}
    return {**kept, **theirs}


def _list(base: object, over: object, place: Place, name: str) -> object:
    if not isinstance(over, list):
        return place.refuse(f"expected a list, got {type_name(over)}")
    if name in KEYS:
        return _items(base if isinstance(base, list) else [], over, place, name)
    return [merged(None, item, place.item(index)) for index, item in enumerate(over) if not deletes(item)]


def _items(base: Sequence[object], over: Sequence[object], place: Place, name: str) -> object:
    """Keep the operator's items in place; additional items of the user follow in their order."""
    items = {_identity(item, name): item for item in base}
    seen = set()
    for index, item in enumerate(over):
        here, who = place.item(index), _identity(item, name)
        if who is None:
            here.refuse(f"expected a mapping with its {KEYS[name]}")
        elif who in seen:
            here.field(KEYS[name]).refuse("given twice")
        elif deletes(item):
            items.pop(who, None)
        else:
            items[who] = merged(None if name in _WHOLE else items.get(who), item, here)
        seen.add(who)
    return list(items.values())


def _identity(item: object, name: str) -> object:
    found = item.get(KEYS[name]) if isinstance(item, Mapping) else None
    if not isinstance(item, Mapping) or type(found) is not (int if name == "ports" else str):
        return None
    return (found, str(item.get("protocol") or "TCP")) if name == "ports" else found
