"""Kubernetes' quantities, such as 500m, 64Mi or 1e3: the API server rewrites them, so text does not compare them."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import TYPE_CHECKING, Final

from delayq.contract.kubernetes import QUANTITY

if TYPE_CHECKING:
    from collections.abc import Mapping

_QUANTITY: Final = re.compile(QUANTITY)
_FACTORS: Final[Mapping[str, Decimal]] = {
    "": Decimal(1),
    **{unit: Decimal(1000) ** power for power, unit in zip(range(-3, 0), "num", strict=True)},
    **{unit: Decimal(1000) ** power for power, unit in enumerate("kMGTPE", 1)},
    **{f"{unit}i": Decimal(1024) ** power for power, unit in enumerate("KMGTPE", 1)},
}


def same_quantity(one: str, other: str) -> bool:
    """Tell whether two quantities are the same amount; texts that are none are the same if they are equal."""
    return one == other or (_amount(one) is not None and _amount(one) == _amount(other))


def _amount(text: str) -> Decimal | None:
    found = _QUANTITY.fullmatch(text)
    if found is None:
        return None
    number, unit = found[1], found[2] or ""
    if unit not in _FACTORS:
        return Decimal(number + unit)
    return Decimal(number) * _FACTORS[unit]
