"""The 33 stages of the reference architecture for datacenter scheduling, as data (Andreadis et al., SC18, section III).

The mode is the paper's where its text assigns one (`MODE_IN_TEXT`) and our reading elsewhere. Which stages keep
state is our choice throughout: the paper leaves it open.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final, Literal

import msgspec

Mode = Literal["processing", "input", "iteration", "decision", "transfer"]
Group = Literal["J", "T", "M", "R"]
Extent = Literal["full", "partial"]
GROUPS: Final[dict[Group, str]] = {
    "J": "Job processing",
    "T": "Task processing",
    "M": "Scheduler management",
    "R": "Resource management",
}
"""The four responsibilities of the paper's section III-C."""


class Stage(StrEnum):
    """The id of a stage."""

    J1 = "J1"
    J2 = "J2"
    J3 = "J3"
    J4 = "J4"
    J5 = "J5"
    J6 = "J6"
    J7 = "J7"
    T1 = "T1"
    T2 = "T2"
    T3 = "T3"
    T4 = "T4"
    T5 = "T5"
    T6 = "T6"
    T7 = "T7"
    T8 = "T8"
    T9 = "T9"
    T10 = "T10"
    T11 = "T11"
    T12 = "T12"
    M1 = "M1"
    M2 = "M2"
    M3 = "M3"
    M4 = "M4"
    M5 = "M5"
    M6 = "M6"
    B = "B"
    R1 = "R1"
    R2 = "R2"
    R3 = "R3"
    R4 = "R4"
    R5 = "R5"
    R6 = "R6"
    R7 = "R7"

    @property
    def group(self) -> Group:
        """The responsibility that it belongs to; the paper counts the broker with scheduler management (table VI)."""
        return GROUP_OF[self.value[0]]


GROUP_OF: Final[dict[str, Group]] = {"J": "J", "T": "T", "B": "M", "M": "M", "R": "R"}
BY_GROUP: Final[dict[Group, tuple[Stage, ...]]] = {
    "J": tuple(stage for stage in Stage if stage.value[0] == "J"),
    "T": tuple(stage for stage in Stage if stage.value[0] == "T"),
    "M": (Stage.B, Stage.M1, Stage.M2, Stage.M3, Stage.M4, Stage.M5, Stage.M6),
    "R": tuple(stage for stage in Stage if stage.value[0] == "R"),
}
"""The stages of each group in the order of the columns of the paper's tables IV to VII."""
MODE_IN_TEXT: Final = frozenset({Stage.J1, Stage.J4, Stage.T3, Stage.M2, Stage.M6, Stage.R1})
"""Stages whose mode the paper's text assigns."""


class StageDescription(msgspec.Struct, frozen=True):
    """The description of a stage in the reference architecture.

    Args:
        name: Name in the paper, shortened.
        mode: Kind of step.
        takes: Input of the stage.
        gives: Output of the stage, or its side effect.
        stateful: True if it remembers earlier rounds.
    """

    name: str
    mode: Mode
    takes: str
    gives: str
    stateful: bool


class Realisation(msgspec.Struct, frozen=True):
    """A design's method that does the work of a stage.

    Args:
        method: "Role.method" in the architecture's module.
        extent: "full": it does what the stage is for, and a policy decides how; "partial": one of the two lacks.
        how: Name that the design gives to it.
        when: "parameter=value" where the design does this under that setting alone, and not by default.
    """

    method: str
    extent: Extent = "full"
    how: str = ""
    when: str = ""


STAGES: Final[dict[Stage, StageDescription]] = {
    Stage.J1: StageDescription("Incoming jobs", "input", "submissions", "job list", True),
    Stage.J2: StageDescription("Eligible jobs", "processing", "jobs", "eligible jobs (rejected stay in J1)", False),
    Stage.J3: StageDescription("Sort jobs", "processing", "jobs", "sorted jobs", False),
    Stage.J4: StageDescription("Per job", "iteration", "sorted jobs", "one job at a time (may fan out)", False),
    Stage.J5: StageDescription("Job setup", "processing", "job", "side effect (stage-in)", False),
    Stage.J6: StageDescription("Job completion", "processing", "job finished", "notify, stage-out", False),
    Stage.J7: StageDescription("Job cleanup", "processing", "completed job", "delete files", False),
    Stage.T1: StageDescription("Eligible tasks", "processing", "tasks", "ready tasks", False),
    Stage.T2: StageDescription("Sort tasks", "processing", "tasks", "sorted tasks", False),
    Stage.T3: StageDescription("Per task", "iteration", "tasks", "one task", False),
    Stage.T4: StageDescription("Submit task", "transfer", "task, resource", "final reservation", True),
    Stage.T5: StageDescription("Task setup", "processing", "task", "executable and data staged, launched", False),
    Stage.T6: StageDescription("Monitor task", "processing", "monitoring data", "events (preempt, fail)", True),
    Stage.T7: StageDescription("Task completion", "processing", "task done", "internal record", True),
    Stage.T8: StageDescription("Task cleanup", "processing", "completed task", "delete files", False),
    Stage.T9: StageDescription("Replication", "decision", "task", "copies to R5", False),
    Stage.T10: StageDescription("Preemption", "decision", "order", "abort, back to queue", False),
    Stage.T11: StageDescription("Recovery", "decision", "failed task", "recovery, back to queue", False),
    Stage.T12: StageDescription("Migration", "decision", "task", "other resource", False),
    Stage.M1: StageDescription("Task management", "decision", "task", "broker or on", False),
    Stage.M2: StageDescription("Scheduler hierarchy", "decision", "task", "M3 (distributed) or R1 (monolithic)", False),
    Stage.M3: StageDescription("Point of selecting the LRM", "input", "nothing", "all scheduler nodes", False),
    Stage.M4: StageDescription("Filter scheduler nodes", "processing", "nodes", "usable nodes", False),
    Stage.M5: StageDescription("Select scheduler node", "decision", "nodes, task", "node", False),
    Stage.M6: StageDescription("Pass to LRM", "transfer", "task", "node resumes (no-op if monolithic)", False),
    Stage.B: StageDescription("Broker", "transfer", "task", "external management", True),
    Stage.R1: StageDescription("Machines", "input", "topology", "all machines incl. offline", True),
    Stage.R2: StageDescription("Filter: authorisation", "processing", "machines, user", "allowed", False),
    Stage.R3: StageDescription("Filter: static info", "processing", "machines, task", "those with the OS, ..", False),
    Stage.R4: StageDescription("Filter: dynamic info", "processing", "machines, task", "enough capacity", False),
    Stage.R5: StageDescription("Select and allocate", "decision", "machines, task", "machine(s)", False),
    Stage.R6: StageDescription("Provisioning", "processing", "demand", "new machines/VMs/containers", True),
    Stage.R7: StageDescription("Elastic decision", "decision", "load", "scale up/down", True),
}

POLICIES: Final[dict[Stage, tuple[str, ...]]] = {
    Stage.J2: ("pass all", "limit per user", "flow control"),
    Stage.J3: ("by user", "estimated completion", "composite score"),
    Stage.J4: ("one after another", "in parallel"),
    Stage.J5: ("data transfer",),
    Stage.J6: ("notify the user", "data transfer back"),
    Stage.J7: ("delete files",),
    Stage.T1: ("dependencies finished",),
    Stage.T2: ("SRTF", "FIFO", "RANDOM"),
    Stage.T3: ("one after another", "in parallel"),
    Stage.T6: ("preempt", "recover"),
    Stage.T8: ("delete files",),
    Stage.T10: ("manual", "automatic"),
    Stage.T11: ("send partial results back",),
    Stage.T12: ("manual", "automatic"),
    Stage.M1: ("broker present",),
    Stage.M2: ("distributed", "monolithic"),
    Stage.M4: ("tasks managed", "fraction of free cores"),
    Stage.R2: ("customers without access",),
    Stage.R3: ("host OS", "hardware architecture"),
    Stage.R4: ("fixed or dynamic needs", "predicted or monitored use"),
    Stage.R5: ("First-Fit", "Worst-Fit", "Best-Fit"),
}
"""Policies that the paper's section III-D names or describes; it names none for the other stages."""
