"""Policies of the stages of the reference architecture, by name (Andreadis et al., SC18).

A policy is a small immutable value that reads a `View` and returns a decision. Those of other packages are found by
entry point, see `registry`.
"""

from volery.policies.stages.policy import METHODS, Choice, Eviction, Manager, Move, Policy, Turn
from volery.policies.stages.records import FAR, JobRecord, Kind, Running, Waiting
from volery.policies.stages.registry import forget, names, parameters, parse, policies, summary
from volery.policies.stages.state import State, vector_of
from volery.policies.stages.supply import Offer, Supply
from volery.policies.stages.view import Candidates, Machine, View

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
    "Move",
    "Offer",
    "Policy",
    "Running",
    "State",
    "Supply",
    "Turn",
    "View",
    "Waiting",
    "forget",
    "names",
    "parameters",
    "parse",
    "policies",
    "summary",
    "vector_of",
]
