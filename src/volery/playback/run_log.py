"""The log that a tracer writes of a run or of a federation: plain data."""

from __future__ import annotations

from array import array

import msgspec

from volery.core.events import Preemption
from volery.core.model import NEVER, Address, Amounts, JobId, TaskId, Time
from volery.core.why import LoggedDecision


class Flight(msgspec.Struct, frozen=True, array_like=True):
    """A message on its way; microseconds since the recording begins, and indices into the lists of `RunLog`."""

    sent_us: Time
    received_us: Time
    sender: int
    receiver: int
    kind: int


class RoleCounts(msgspec.Struct, frozen=True):
    """Counts of a role over time, a number per interval.

    Args:
        count: of its components.
        waiting: tasks that wait there, the most in the interval; a task waits at the component that last received it.
        busiest: the same of the component at which most wait.
        received: messages.
    """

    name: str
    count: int
    waiting: list[int]
    busiest: list[int]
    received: list[int]


class ViewErrors(msgspec.Struct, frozen=True):
    """Errors of a scheduler's view, at the end of each interval.

    Args:
        by: the scheduler.
        of: components that it receives messages from.
        age_us: per each of these, the time since its last message; -1: none yet.
        free: slots that are free in the view and run a task.
        taken: slots that are taken in the view and run none (tasks on their way count).
        wrong: per interval, the groups of machines (`volery.playback.tracer.Tracer.cells`) with errors, as the first
            machine, the errors of kind `free`, and those of kind `taken`.
    """

    by: Address
    of: list[Address]
    age_us: list[list[Time]]
    free: list[int]
    taken: list[int]
    wrong: list[list[tuple[int, int, int]]]


FINISHED, KILLED, FAILED, RUNNING = range(4)
"""Outcomes of attempts: the task of a killed attempt waits again; RUNNING: the attempt runs at the end."""


class JobEntry(msgspec.Struct):
    """A submitted job, and its end.

    Args:
        submitted_us: when a scheduler first received it.
        tasks: their count, as far as they were submitted.
        first: the smallest number among its tasks.
        kinds: of its tasks, in runs of equal ones: the first of the run, its constraints and amounts.
        done_us, cancelled_us: when it was reported done, and when it was cancelled; or NEVER.
    """

    id: JobId
    user: str
    submitted_us: Time
    tasks: int
    first: TaskId
    kinds: list[tuple[TaskId, int, Amounts]]
    done_us: Time = NEVER
    cancelled_us: Time = NEVER


class DecisionHistory(msgspec.Struct, frozen=True):
    """Decisions of schedulers that explain them.

    Args:
        of_task: the first decision about a task and the last ones.
        dropped: per task, how many between them are not kept.
        pairs: the scheduler that decided, and the component that it asked.
        time_us, pair, age_us: of all decisions that asked a component, in the order of time: the time, the index of the
            pair, and the age of the view; -1: the answer was no.
    """

    of_task: dict[TaskId, list[LoggedDecision]] = {}
    dropped: dict[TaskId, int] = {}
    pairs: list[tuple[Address, Address]] = []
    time_us: array[int] = array("q")
    pair: array[int] = array("q")
    age_us: array[int] = array("q")


class RunLog(msgspec.Struct, frozen=True):
    """All that a tracer has recorded; intervals are of equal length.

    Args:
        begin_us, step_us: of the intervals.
        addresses, kinds: that flights name.
        meanings: per kind of message, the first line of its documentation.
        sent: per kind of message, how many were sent in each interval.
        flights: a sample.
        facts: per name, how many in each interval, of those that a design counts as inconsistencies or conflicts.
        moments: times and captions.
        attempts: columns, see `volery.playback.worklog.ATTEMPT_COLUMNS`, of those that have ended or run at the end.
        jobs: all that were submitted.
        decided: by schedulers that explain themselves.
        preemptions: time, reporting component, and fact.
        drained: time, node, and True where it is drained from then on.
        crashed: time, component, and True where it is gone from then on.
        end_us: of the recording.
    """

    begin_us: Time
    step_us: Time
    addresses: list[Address]
    kinds: list[str]
    meanings: list[str]
    sent: list[list[int]]
    flights: list[Flight]
    roles: list[RoleCounts]
    views: list[ViewErrors]
    facts: dict[str, list[int]]
    moments: list[tuple[Time, str]]
    attempts: dict[str, array[int]]
    jobs: list[JobEntry] = []
    decided: DecisionHistory = DecisionHistory()
    preemptions: list[tuple[Time, Address, Preemption]] = []
    drained: list[tuple[Time, Address, bool]] = []
    crashed: list[tuple[Time, Address, bool]] = []
    end_us: Time = 0
