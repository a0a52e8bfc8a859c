"""A decision's inputs as JSON, to repeat the decision later. Pure."""

from __future__ import annotations

import json
from dataclasses import asdict
from operator import index
from typing import TYPE_CHECKING, Any

from delayq.contract import Limits
from delayq.contract.autoscaling import Behavior, Fallback, ScaleDown, ScaleUp, ScalingPolicy
from delayq.scaling.decide import decide
from delayq.scaling.memory import Change, Foresight, Memory, Recommendation
from delayq.scaling.policy import Policy
from delayq.scaling.sample import Sample

if TYPE_CHECKING:
    from delayq.scaling.decision import Decision


def recorded(decision: Decision) -> str:
    """Return a decision's inputs as JSON."""
    inputs = {
        "at": decision.at,
        "sample": None if decision.sample is None else asdict(decision.sample),
        "policy": asdict(decision.policy),
        "previous": asdict(decision.previous),
    }
    return json.dumps(inputs, separators=(",", ":"))


def replayed(record: str) -> Decision:
    """Repeat a decision from the output of recorded(); ValueError for anything else."""
    try:
        found = json.loads(record)
        sample = None if found["sample"] is None else _sample(found["sample"])
        decision = decide(sample, _policy(found["policy"]), _memory(found["previous"]), float(found["at"]))
        index(decision.replicas)  # a TypeError where the record has a fraction of a worker
    except (LookupError, TypeError, AttributeError, ArithmeticError, RecursionError) as error:
        raise ValueError(f"expected the record of a decision, got {record[:80]}") from error
    return decision


def _sample(found: dict[str, Any]) -> Sample:
    leads, likely = (
        tuple((int(starts), float(seconds)) for starts, seconds in found.get(name, ()))
        for name in ("leads", "likely")
    )
    kinds = tuple((float(share), float(seconds)) for share, seconds in found.get("kinds", ()))
    learnt = {"leads": leads, "likely": likely, "kinds": kinds}
    return Sample(**{**found, "due_within": _pairs(found["due_within"]), **learnt})


def _pairs(found: list[list[float]]) -> tuple[tuple[float, int], ...]:
    return tuple((float(horizon), int(tasks)) for horizon, tasks in found)


def _policy(found: dict[str, Any]) -> Policy:
    up, down = found["behavior"]["scale_up"], found["behavior"]["scale_down"]
    behavior = Behavior(
        scale_up=ScaleUp(**{**up, "policies": _rules(up)}),
        scale_down=ScaleDown(**{**down, "policies": _rules(down)}),
    )
    fallback = None if found["fallback"] is None else Fallback(**found["fallback"])
    limits = Limits(**found["limits"])
    return Policy(**{**found, "behavior": behavior, "fallback": fallback, "limits": limits})


def _rules(found: dict[str, Any]) -> tuple[ScalingPolicy, ...]:
    return tuple(ScalingPolicy(**each) for each in found["policies"])


def _memory(found: dict[str, Any]) -> Memory:
    return Memory(
        **{
            **found,
            "recommendations": tuple(Recommendation(*each) for each in found["recommendations"]),
            "changes": tuple(Change(*each) for each in found["changes"]),
            "foresights": tuple(
                Foresight(at, fallen_due, _pairs(coming)) for at, fallen_due, coming in found["foresights"]
            ),
        }
    )
