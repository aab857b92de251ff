"""Policies of the stages of the reference architecture, by name (Andreadis et al., SC18).

A policy is a small immutable value that reads a `View` and returns a decision. Those of other packages are found by
entry point, see `registry`.
"""

from volery.architectures.pipeline.policies.policy import METHODS, Choice, Eviction, Manager, Move, Policy, Turn
from volery.architectures.pipeline.policies.records import FAR, JobRecord, Kind, Offer, Running, Supply, Waiting
from volery.architectures.pipeline.policies.registry import forget, names, parameters, parse, policies, summary
from volery.architectures.pipeline.policies.state import ManagerSuitability, State, vector_of
from volery.architectures.pipeline.policies.view import Candidates, Machine, View

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
    "forget",
    "names",
    "parameters",
    "parse",
    "policies",
    "summary",
    "vector_of",
]
