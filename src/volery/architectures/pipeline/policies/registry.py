"""The policies of each stage by name: ours, and those of other packages.

A package adds a policy by an entry point in the group of its stage:

    [project.entry-points."volery.policies.R5"]
    coldest = "coldest:Coldest"
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Mapping
from importlib.metadata import EntryPoint, entry_points
from typing import Annotated, Any, Final, get_args, get_origin, get_type_hints

import msgspec

from volery.architectures.pipeline.policies import (
    access,
    admission,
    filtering,
    foresight,
    managing,
    migrating,
    ordering,
    preempting,
    provisioning,
    recovering,
    replicating,
    scaling,
    selecting,
    staging,
)
from volery.architectures.pipeline.policies.policy import METHODS, Policy
from volery.core.bounds import check_finite
from volery.core.errors import InputError, suggestion
from volery.core.stages import Stage

GROUP: Final = "volery.policies."

OURS: Final[dict[Stage, dict[str, type[Policy]]]] = {
    Stage.J2: {"all": admission.PassAll, "per-user": admission.PerUser, "flow-control": admission.FlowControl},
    Stage.J3: {
        "fifo": ordering.FifoJobs,
        "sjf": ordering.ShortestJob,
        "srtf": ordering.LeastLeft,
        "ljf": ordering.LongestJob,
        "edf": ordering.EarliestDeadline,
        "priority": ordering.MostUrgent,
        "bands": ordering.Bands,
        "drf": ordering.PoorestUser,
        "hdrf": ordering.PoorestBranch,
    },
    Stage.J5: {"none": staging.NoSetup, "stage-in": staging.StageIn},
    Stage.T2: {
        "by-job": ordering.ByJob,
        "fifo": ordering.Fifo,
        "fifo-submitted": ordering.FifoSubmitted,
        "sjf": ordering.ShortestTask,
        "srtf": ordering.LeastWork,
        "ljf": ordering.LongestTask,
        "edf": ordering.EarliestDeadline,
        "heft": ordering.UpwardRank,
        "random": ordering.AtRandom,
        "priority": ordering.MostUrgent,
        "bands": ordering.Bands,
        "drf": ordering.PoorestUser,
        "hdrf": ordering.PoorestBranch,
        "usage": ordering.ByUsage,
    },
    Stage.T5: {"none": staging.NoSetup, "stage-in": staging.StageIn},
    Stage.T9: {
        "none": replicating.NoCopies,
        "fixed": replicating.FixedCopies,
        "straggler": replicating.Speculative,
    },
    Stage.T10: {
        "none": preempting.NoPreemption,
        "priority": preempting.ByPriority,
        "fairness": preempting.ByFairness,
    },
    Stage.T11: {
        "none": recovering.NoRecovery,
        "restart": recovering.Restart,
        "checkpoint": recovering.Checkpoint,
    },
    Stage.T12: {
        "none": migrating.NoMigration,
        "consolidate": migrating.Consolidate,
        "rebalance": migrating.Rebalance,
    },
    Stage.M1: {"none": managing.NoBroker, "long": managing.LongToBroker, "overflow": managing.OverflowToBroker},
    Stage.M4: {"all": managing.AllManagers, "managed": managing.Managed, "free-fraction": managing.FreeFraction},
    Stage.M5: {
        "first-fit": managing.FirstManager,
        "best-fit": managing.FullestManager,
        "worst-fit": managing.EmptiestManager,
        "random-fit": managing.AnyManager,
    },
    Stage.R2: {"all": access.Everybody, "acl": access.AccessList},
    Stage.R3: {"none": filtering.AnyDistance, "delay": filtering.Delay},
    Stage.R5: {
        "first-fit": selecting.FirstFit,
        "best-fit": selecting.BestFit,
        "worst-fit": selecting.WorstFit,
        "random-fit": selecting.RandomFit,
        "min-constraints": selecting.MinimumConstraints,
        "fastest": selecting.Fastest,
        "kubernetes": selecting.Kubernetes,
        "borg": selecting.Borg,
        "ranked": selecting.Ranked,
    },
    Stage.R6: {
        "first": provisioning.InOrder,
        "cheapest": provisioning.Cheapest,
        "biggest": provisioning.Biggest,
    },
    Stage.R7: {
        "none": scaling.AllOn,
        "static": scaling.Static,
        "react": scaling.React,
        "threshold": scaling.Threshold,
        "hist": scaling.Hist,
        "plan": foresight.Plan,
        "token": foresight.Token,
    },
}
"""Per stage, in the order in which users are shown them; the first is the simplest."""


class Parameter(msgspec.Struct, frozen=True):
    """A parameter of a policy."""

    name: str
    default: Any
    description: str


@functools.cache
def _points(stage: Stage) -> dict[str, EntryPoint]:
    """What other packages add, by name; ours cannot be replaced."""
    return {point.name: point for point in entry_points(group=GROUP + stage) if point.name not in OURS.get(stage, {})}


def names(stage: Stage) -> list[str]:
    """The names of a stage's policies; nothing is loaded."""
    return [*OURS.get(stage, {}), *_points(stage)]


def policies(stage: Stage) -> Mapping[str, type[Policy]]:
    """The policies of a stage by name.

    Raises:
        InputError: an entry point that is no policy of the stage.
    """
    return {name: _policy(stage, name) for name in names(stage)}


def _policy(stage: Stage, name: str) -> type[Policy]:
    ours = OURS.get(stage, {}).get(name)
    if ours is not None:
        return ours
    point = _points(stage)[name]
    policy = point.load()
    place = f"entry point {point.name} = {point.value} of {GROUP}{stage}"
    if not (isinstance(policy, type) and issubclass(policy, Policy)):
        raise InputError(place, "does not name a subclass of volery.architectures.pipeline.policies.Policy")
    sets = METHODS.get(stage, ())
    if not any(all(callable(getattr(policy, method, None)) for method in methods) for methods in sets):
        wanted = ", or ".join(" and ".join(methods) for methods in sets)
        raise InputError(place, f"a policy of {stage} has {wanted}")
    return policy


def forget() -> None:
    """Look for entry points anew."""
    _points.cache_clear()


def parse(stage: Stage, text: str, place: str) -> Policy:
    """The policy that a text such as `kubernetes/balanced:2/percentage:10` names, with its parameters.

    Raises:
        InputError: at the place, when there is no such policy or parameter, or a value does not fit.
    """
    name, *given = text.split("/")
    known = names(stage)
    if name not in known:
        raise InputError(place, f"there is no policy {name!r} for stage {stage}" + suggestion(name, known))
    policy = _policy(stage, name)
    fields = policy.__struct_fields__
    values: dict[str, str] = {}
    for part in given:
        field, colon, value = part.partition(":")
        if not (field and colon and value):
            raise InputError(place, f"{part!r} in {text!r} is not parameter:value; write {name}/parameter:value/...")
        if field not in fields:
            hint = suggestion(field, fields) if fields else "; it has none"
            raise InputError(place, f"{name!r} has no parameter {field!r}" + hint)
        if field in values:
            raise InputError(place, f"{text!r} gives {field!r} twice")
        values[field] = value
        try:
            msgspec.convert({field: value}, policy, strict=False)
        except msgspec.ValidationError as error:
            problem = str(error).split(" - at")[0]
            raise InputError(f"{place}/{field}", f"{value!r} does not fit: {problem}") from None
    made: Policy = msgspec.convert(values, policy, strict=False)
    for field in values:
        check_finite(f"{place}/{field}", getattr(made, field))
    return made


def summary(policy: type[Policy]) -> str:
    """The first line of its docstring."""
    return (inspect.getdoc(policy) or "").partition("\n")[0].rstrip(".")


def parameters(policy: type[Policy]) -> list[Parameter]:
    """Its parameters with their defaults and descriptions."""
    hints = get_type_hints(policy, include_extras=True)
    found = []
    defaults = policy()
    for field in policy.__struct_fields__:
        extras = get_args(hints[field])[1:] if get_origin(hints[field]) is Annotated else ()
        description = next((e.description for e in extras if isinstance(e, msgspec.Meta) and e.description), "")
        found.append(Parameter(field, getattr(defaults, field), description))
    return found
