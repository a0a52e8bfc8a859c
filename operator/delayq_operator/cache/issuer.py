"""What the operator knows of the issuer of ServiceAccount tokens, and which queues need it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from delayq_operator.base.names import Key


@dataclass(slots=True)
class Issuer:
    """The issuer, as polling/issuer.py last read it."""

    keys: str = ""
    """The file that the API's pods read; empty until it is known."""
    error: str = ""
    """Why it cannot be read now."""
    asking: set[Key] = field(default_factory=set)
    """The queues that need it; also some that are gone."""
