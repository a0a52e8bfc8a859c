"""Types that everybody speaks of, in one place so that parts which only decide need not know those that do I/O."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

Object: TypeAlias = dict[str, Any]
"""An object of the API, as JSON."""

Name: TypeAlias = tuple[str, str]
"""Namespace and name of an object."""

Sample: TypeAlias = tuple[str, Mapping[str, str], float]
"""Name, labels and value of a metric, as another process exports it."""
