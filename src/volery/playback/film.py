"""What a camera has seen of a run, or of a federation: plain data, which pages of either kind show."""

from __future__ import annotations

from array import array

import msgspec

from volery.core.events import Preemption
from volery.core.model import NEVER, Address, Amounts, JobId, TaskId, Time
from volery.core.why import Noted


class Flight(msgspec.Struct, frozen=True, array_like=True):
    """A message on its way; microseconds since the film begins, and numbers into the film's lists."""

    sent_us: Time
    heard_us: Time
    sender: int
    receiver: int
    kind: int


class Role(msgspec.Struct, frozen=True):
    """A role over time, a number per interval.

    Args:
        count: of its components.
        waiting: tasks that wait there, the most in the interval; a task waits at who was last told of it.
        busiest: the same of the component at which most wait.
        received: messages.
    """

    name: str
    count: int
    waiting: list[int]
    busiest: list[int]
    received: list[int]


class Belief(msgspec.Struct, frozen=True):
    """What a scheduler believes against what is, at the end of each interval.

    Args:
        of: whom it hears of machines from.
        age_us: per each of these, the time since it was heard; -1: never.
        free: slots believed free on which something runs.
        taken: slots believed taken on which nothing runs (yet: what is on its way counts).
        wrong: per interval, the groups of machines (`volery.playback.camera.Camera.cells`) about which it is wrong,
            as the first machine, slots believed free, slots believed taken.
    """

    by: Address
    of: list[Address]
    age_us: list[list[Time]]
    free: list[int]
    taken: list[int]
    wrong: list[list[tuple[int, int, int]]]


FINISHED, KILLED, FAILED, RUNNING = range(4)
"""How an attempt ended: a task whose attempt was killed, or died with its machine, waits again; one runs at the end."""


class FilmedJob(msgspec.Struct):
    """A job as it came, and what has become of it.

    Args:
        submitted_us: when a scheduler was first told of it.
        tasks: how many it has, as far as has been said.
        first: the smallest number among its tasks.
        kinds: what its tasks ask for: the first of equal ones that follow each other, their constraints and amounts.
        done_us, cancelled_us: when it was told done, and when it was given up; NEVER.
    """

    id: JobId
    user: str
    submitted_us: Time
    tasks: int
    first: TaskId
    kinds: list[tuple[TaskId, int, Amounts]]
    done_us: Time = NEVER
    cancelled_us: Time = NEVER


class Decided(msgspec.Struct, frozen=True):
    """What schedulers that explain themselves have decided.

    Args:
        of_task: the first decision about a task and the last ones.
        dropped: per task, how many between them are not kept.
        pairs: who has decided, and who was asked.
        time_us, pair, age_us: all decisions that asked somebody, in the order of time; the place of the pair, and how
            old the view was, -1: the answer was no.
    """

    of_task: dict[TaskId, list[Noted]] = {}
    dropped: dict[TaskId, int] = {}
    pairs: list[tuple[Address, Address]] = []
    time_us: array[int] = array("q")
    pair: array[int] = array("q")
    age_us: array[int] = array("q")


class Filmed(msgspec.Struct, frozen=True):
    """All that a camera has seen; intervals are of equal length.

    Args:
        begin_us, step_us: of the intervals.
        addresses, kinds: that flights name.
        told: per kind of message, what it says, from its documentation.
        sent: per kind of message, how many were sent in each interval.
        flights: a sample.
        facts: per name, how many in each interval, of those that a design counts as inconsistencies or conflicts.
        moments: time, and what happened, in words.
        attempts: columns, see `volery.playback.worklog.ATTEMPT_COLUMNS`, of those that have ended or run at the end.
        jobs: all that were submitted.
        decided: by schedulers that explain themselves.
        preemptions: when, who has told it, and what.
        drained: when, which node, and whether nothing more is placed there from then on.
        crashed: when, which node, and whether it is gone from then on.
        end_us: of the film.
    """

    begin_us: Time
    step_us: Time
    addresses: list[Address]
    kinds: list[str]
    told: list[str]
    sent: list[list[int]]
    flights: list[Flight]
    roles: list[Role]
    beliefs: list[Belief]
    facts: dict[str, list[int]]
    moments: list[tuple[Time, str]]
    attempts: dict[str, array[int]]
    jobs: list[FilmedJob] = []
    decided: Decided = Decided()
    preemptions: list[tuple[Time, Address, Preemption]] = []
    drained: list[tuple[Time, Address, bool]] = []
    crashed: list[tuple[Time, Address, bool]] = []
    end_us: Time = 0
