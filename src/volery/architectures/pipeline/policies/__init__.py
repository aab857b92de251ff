"""Policies of the stages of the reference architecture, by name (Andreadis et al., SC18).

The letter of a stage is its file: J `jobs`, T `tasks`, M `managers`, R `machines`. Three stand in `jobs`: T2, orders as
those of J3, and T5 and T8, which have the policies of J5 and J7.

A policy is a small immutable value that reads a `View` and returns a decision. A package adds one by an entry point in
the group of its stage:

    [project.entry-points."volery.policies.R5"]
    coldest = "coldest:Coldest"
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Mapping
from contextvars import ContextVar
from importlib.metadata import EntryPoint, entry_points
from types import MappingProxyType
from typing import Annotated, Any, Final, get_args, get_origin, get_type_hints

import msgspec

from volery.architectures.pipeline.policies import jobs, machines, managers, tasks
from volery.architectures.pipeline.policies.policy import METHODS, Choice, Eviction, Manager, Move, Policy, Turn
from volery.architectures.pipeline.policies.state import (
    FAR,
    JobRecord,
    Kind,
    ManagerSuitability,
    Offer,
    Running,
    State,
    Supply,
    Waiting,
    vector_of,
)
from volery.architectures.pipeline.policies.view import Candidates, Machine, View
from volery.core.bounds import check_finite
from volery.core.errors import InputError, suggestion
from volery.core.stages import Stage

__all__ = [
    "FAR",
    "METHODS",
    "Candidates",
    "Choice",
    "Eviction",
    "JobRecord",
    "Kind",
    "Machine",
    "Manager",
    "ManagerSuitability",
    "Move",
    "Offer",
    "Policy",
    "Running",
    "State",
    "Supply",
    "Turn",
    "View",
    "Waiting",
    "checked_policy",
    "forget",
    "names",
    "parameters",
    "parse",
    "policies",
    "summary",
    "vector_of",
]

GROUP: Final = "volery.policies."

OURS: Final[dict[Stage, dict[str, type[Policy]]]] = {
    Stage.J2: {
        "all": jobs.PassAll,
        "per-user": jobs.PerUser,
        "flow-control": jobs.FlowControl,
        "managed": jobs.Managed,
    },
    Stage.J3: {
        "fifo": jobs.FifoJobs,
        "sjf": jobs.ShortestJob,
        "srtf": jobs.LeastLeft,
        "ljf": jobs.LongestJob,
        "edf": jobs.EarliestDeadline,
        "priority": jobs.MostUrgent,
        "bands": jobs.Bands,
        "drf": jobs.PoorestUser,
        "hdrf": jobs.PoorestBranch,
    },
    Stage.J5: {"none": jobs.NoSetup, "stage-in": jobs.StageIn},
    Stage.T2: {
        "by-job": jobs.ByJob,
        "fifo": jobs.Fifo,
        "fifo-submitted": jobs.FifoSubmitted,
        "sjf": jobs.ShortestTask,
        "srtf": jobs.LeastWork,
        "ljf": jobs.LongestTask,
        "edf": jobs.EarliestDeadline,
        "heft": jobs.UpwardRank,
        "random": jobs.AtRandom,
        "priority": jobs.MostUrgent,
        "bands": jobs.Bands,
        "drf": jobs.PoorestUser,
        "hdrf": jobs.PoorestBranch,
        "usage": jobs.ByUsage,
    },
    Stage.T5: {"none": jobs.NoSetup, "stage-in": jobs.StageIn},
    Stage.J7: {"none": jobs.NoCleanup, "delete": jobs.Delete},
    Stage.T6: {"none": tasks.NoMonitor, "overrun": tasks.EndOverrun, "reclaim": tasks.Reclaim},
    Stage.T8: {"none": jobs.NoCleanup, "delete": jobs.Delete},
    Stage.T9: {"none": tasks.NoCopies, "fixed": tasks.FixedCopies, "straggler": tasks.Speculative},
    Stage.T10: {"none": tasks.NoPreemption, "priority": tasks.ByPriority, "fairness": tasks.ByFairness},
    Stage.T11: {"none": tasks.NoRecovery, "restart": tasks.Restart, "checkpoint": tasks.Checkpoint},
    Stage.T12: {"none": tasks.NoMigration, "consolidate": tasks.Consolidate, "rebalance": tasks.Rebalance},
    Stage.M1: {"none": managers.NoBroker, "long": managers.LongToBroker, "overflow": managers.OverflowToBroker},
    Stage.M4: {
        "all": managers.AllManagers,
        "managed": managers.TasksPerMachine,
        "free-fraction": managers.FreeFraction,
    },
    Stage.M5: {
        "first-fit": managers.FirstManager,
        "best-fit": managers.FullestManager,
        "worst-fit": managers.EmptiestManager,
        "random-fit": managers.AnyManager,
    },
    Stage.R2: {"all": machines.Everybody, "acl": machines.AccessList},
    Stage.R3: {"none": machines.AnyDistance, "delay": machines.Delay},
    Stage.R5: {
        "first-fit": machines.FirstFit,
        "best-fit": machines.BestFit,
        "worst-fit": machines.WorstFit,
        "random-fit": machines.RandomFit,
        "min-constraints": machines.MinimumConstraints,
        "fastest": machines.Fastest,
        "kubernetes": machines.Kubernetes,
        "borg": machines.Borg,
        "ranked": machines.RankedMatch,
    },
    Stage.R6: {"first": machines.InOrder, "cheapest": machines.Cheapest, "biggest": machines.Biggest},
    Stage.R7: {
        "none": machines.AllOn,
        "static": machines.Static,
        "react": machines.React,
        "thrift": machines.Thrift,
        "threshold": machines.Threshold,
        "hist": machines.Hist,
        "plan": machines.PlanScaler,
        "token": machines.Token,
    },
}
"""Per stage, in the order in which users are shown them; the first is the simplest."""
SESSION: ContextVar[Mapping[Stage, Mapping[str, type[Policy]]]] = ContextVar(
    "policies of a session", default=MappingProxyType({})
)
"""Policies by stage and name that a program has defined itself and handed to the call that runs now."""


class PolicyParameter(msgspec.Struct, frozen=True):
    """A parameter of a policy."""

    name: str
    default: Any
    description: str


@functools.cache
def _points(stage: Stage) -> dict[str, EntryPoint]:
    """The policies that other packages add, by name; ours cannot be replaced."""
    return {point.name: point for point in entry_points(group=GROUP + stage) if point.name not in OURS.get(stage, {})}


def names(stage: Stage) -> list[str]:
    """The names of a stage's policies; nothing is loaded."""
    return list({**OURS.get(stage, {}), **SESSION.get().get(stage, {}), **_points(stage)})


def policies(stage: Stage) -> Mapping[str, type[Policy]]:
    """The policies of a stage by name.

    Raises:
        InputError: an entry point that is no policy of the stage.
    """
    return {name: _policy(stage, name) for name in names(stage)}


def _policy(stage: Stage, name: str) -> type[Policy]:
    own_policy = OURS.get(stage, {}).get(name) or SESSION.get().get(stage, {}).get(name)
    if own_policy is not None:
        return own_policy
    point = _points(stage)[name]
    return checked_policy(stage, point.load(), f"entry point {point.name} = {point.value} of {GROUP}{stage}")


def checked_policy(stage: Stage, policy: Any, place: str) -> type[Policy]:
    """A class that another package or a program gives as a policy of a stage.

    Raises:
        InputError: at the place, when it is no policy, or lacks a method of the stage.
    """
    if not (isinstance(policy, type) and issubclass(policy, Policy)):
        raise InputError(place, "does not name a subclass of volery.architectures.pipeline.policies.Policy")

    sets = METHODS.get(stage, ())
    if not any(all(callable(getattr(policy, method, None)) for method in methods) for methods in sets):
        expected = ", or ".join(" and ".join(methods) for methods in sets)
        raise InputError(place, f"a policy of {stage} has {expected}")
    return policy


def forget() -> None:
    """Forget the entry points, so that they are looked for again."""
    _points.cache_clear()


def parse(stage: Stage, text: str, place: str) -> Policy:
    """The policy that a text such as `kubernetes/balanced:2/percentage:10` names, with its parameters.

    Raises:
        InputError: at the place, when there is no such policy or parameter, or a value does not fit.
    """
    name, *settings = text.split("/")
    known_names = names(stage)
    if name not in known_names:
        raise InputError(place, f"there is no policy {name!r} for stage {stage}" + suggestion(name, known_names))

    policy = _policy(stage, name)
    fields = policy.__struct_fields__
    values: dict[str, str] = {}

    for part in settings:
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

    configured_policy: Policy = msgspec.convert(values, policy, strict=False)
    for field in values:
        check_finite(f"{place}/{field}", getattr(configured_policy, field))

    return configured_policy


def summary(policy: type[Policy]) -> str:
    """The first line of its docstring."""
    return (inspect.getdoc(policy) or "").partition("\n")[0].rstrip(".")


def parameters(policy: type[Policy]) -> list[PolicyParameter]:
    """The parameters of a policy with their defaults and descriptions."""
    hints = get_type_hints(policy, include_extras=True)
    policy_parameters = []

    defaults = policy()
    for field in policy.__struct_fields__:
        extras = get_args(hints[field])[1:] if get_origin(hints[field]) is Annotated else ()
        description = next(
            (extra.description for extra in extras if isinstance(extra, msgspec.Meta) and extra.description), ""
        )
        policy_parameters.append(PolicyParameter(field, getattr(defaults, field), description))

    return policy_parameters
