"""Events of a component: messages of the submitter's protocol, and events of the driver.

Every architecture uses the submitter's protocol with the driver:
Submit (then MoreTasks for a job too large for one message) > JobAccepted | JobRejected; JobAccepted > JobDone.
Of a workflow, Submit carries the tasks that may start, and MoreTasks those that have become ready since, unless the
design takes workflows whole (docs/decisions/0012).
A job is recognised by its id: submitting it again is answered again and starts nothing twice. Cancel, too, is answered
by JobDone, as soon as nothing of the job runs any more.
"""

from __future__ import annotations

from typing import Any, Final, Literal

import msgspec

from volery.core.model import NO_TASK, Address, Amounts, Job, JobId, Key, Message, Task, TaskId, Time
from volery.core.reasons import Decision

Outcome = Literal["finished", "failed", "killed", "unstarted", "limit"]
"""The end of an attempt. A failed task is over like a finished one; a killed attempt is followed by another.

An attempt has reached the outcome "limit" if the driver ended it at its job's limit (`Job.limit_us`); its task is over.

An attempt is unstarted whose node lacked something to begin it; then its task is to be placed again. Drivers end none
like that unless `CrashRecovery.takes_back`.
"""


class Submit(Message, frozen=True):
    """A job arrives, with the first chunk of its tasks.

    Args:
        job: Job with the first chunk of its tasks.
        epoch: Epoch of the `Reassignment` that brought the job here from another entry; 0: no other entry ever had the
            job.
    """

    job: Job
    epoch: int = 0


class MoreTasks(Message, frozen=True):
    """A further chunk of a job: it was too large for one message, or its tasks have become ready since.

    A submitter that restarts may submit a job again to a scheduler that has received a part of it. By then tasks have
    ended, which are not sent again, so that a count of tasks does not show which tasks the scheduler lacks. Such a
    submitter sends the tasks of a job in the order of their numbers, and places each chunk by `after` and `left`.

    Args:
        job: Number of the job.
        first: Count of tasks that were sent before.
        tasks: Tasks of the chunk.
        parents: Parents, as `Job.parents`.
        replicas: Replicas, as `Job.replicas`.
        after: Number of the task that was sent before this chunk; NO_TASK: none was. It counts only with `left`.
        left: Count of the job's tasks in this chunk and in all later ones; 0: the chunk is placed by `first` alone.
    """

    job: JobId
    first: int
    tasks: tuple[Task, ...]
    parents: tuple[tuple[TaskId, ...], ...] = ()
    replicas: tuple[tuple[int, ...], ...] = ()
    after: TaskId = NO_TASK
    left: int = 0


class Cancel(Message, frozen=True):
    """The job is given up: tasks that wait never run, tasks that run are killed, and JobDone follows.

    A job that is done already, or not known, is answered at once and never runs.
    """

    job: JobId


class Reassignment(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """All open jobs of one entry were assigned to another, because the first did not answer.

    Args:
        epoch: Number of the assignment; each move has the next number, from 1.
        origin: Entry that had the jobs; what it places under an earlier epoch is void.
        heir: Entry that has them now.
    """

    epoch: int
    origin: Address
    heir: Address


class Moved(Message, frozen=True):
    """Jobs were assigned to other entries; these are all moves so far, in order of their epochs.

    The driver sends it to the origin and the heir of a move, and to each restarted entry before any job. An origin
    forgets every job that it was given before its move. An heir passes the moves on to the components that validate.
    """

    moves: tuple[Reassignment, ...]


class Drain(Message, frozen=True):
    """Place nothing on a node from now on, or again; what runs there goes on to its end.

    The driver sends it to the owners of the node, as the deployment names them, and again to each of them after a
    restart.
    """

    node: Address
    drained: bool


class Reweigh(Message, frozen=True):
    """Users and organisations have these weights from now on, and all others those that they began with.

    The driver sends it to the `weight_subscribers` of `DueShares`, and again to each of them after a restart.

    Args:
        number: Number of the message, from 1; one that is not larger than the last is stale.
        weights: All weights that differ, by name.
    """

    number: int
    weights: tuple[tuple[str, int], ...]


class Look(Message, frozen=True):
    """A query for the number of machines with room for a task in the scheduler's view, answered by `Seen`.

    Only live drivers send it, when an operator looks at a waiting task, to entries that answer queries.
    """

    number: int
    constraints: int
    request: Amounts = ()


class Seen(Message, frozen=True):
    """The answer to `Look`; the view may be wrong."""

    number: int
    machines: int


class JobAccepted(Message, frozen=True):
    """The job is known and will be answered by JobDone."""

    coalescable = True
    job: JobId


class JobRejected(Message, frozen=True):
    """The job was not taken; it may be submitted again after `retry_after_us`."""

    job: JobId
    reason: str
    retry_after_us: Time


class JobDone(Message, frozen=True):
    """Every task that some machine can run has finished; `unsatisfiable` tasks fit no machine and never ran.

    Tasks that a scheduler has given up after too many attempts, where it is configured to, count among these.

    Of a cancelled job nothing runs any more.
    """

    job: JobId
    unsatisfiable: int = 0


class TimerFired(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=True):
    """A timer that the component set has come due."""

    key: Key


class TaskFinished(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=True):
    """An attempt that the component launched has ended."""

    task: Task
    attempt: int
    outcome: Outcome = "finished"


class Computed(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The answer to a problem that the component handed to `Port.compute`."""

    key: Key
    answer: Any


class Adopted(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=True):
    """An attempt of an earlier incarnation still runs here, or has ended without a report; TaskFinished follows.

    It comes before `start`, and only to components that launch with a note (`Port.launch`).
    """

    task: Task
    attempt: int
    note: bytes


class PeerLost(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=True):
    """The driver has detected that a peer no longer answers."""

    peer: Address


class PeerBack(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=True):
    """A lost peer answers again, as a new incarnation."""

    peer: Address


Event = Message | TimerFired | TaskFinished | Computed | Adopted | PeerLost | PeerBack

DRIVER_EVENTS: frozenset[type] = frozenset({TimerFired, TaskFinished, Computed, Adopted, PeerLost, PeerBack})
"""Events of the driver; encoded like messages, because journals hold them too."""

SUBMITTER_MESSAGES: frozenset[type[Message]] = frozenset(
    {Submit, MoreTasks, Cancel, Moved, Drain, Reweigh, Look, Seen, JobAccepted, JobRejected, JobDone}
)


class Counted(msgspec.Struct, frozen=True, gc=False):
    """A fact to be added up over a run, for example inconsistencies found."""

    name: str
    amount: int = 1


GANG_TASKS_REFUSED: Final = "gang_tasks_refused"
"""Counted fact: tasks of gangs that the empty cluster cannot hold at once; the submitter gets them as unsatisfiable."""
TAG_TASKS_GIVEN_UP: Final = "tag_tasks_given_up"
"""Counter of the lab: tasks of jobs that it gave up, because too few were left of those near which they had to run."""
REFUSALS: Final = frozenset({"inconsistencies", "containers_void"})
"""Names of counted facts about refused placements; the lab's driver keeps their times, too."""


class Measured(msgspec.Struct, frozen=True, gc=False):
    """A fact whose mean and maximum are of interest, for example the length of a queue when a job arrives."""

    name: str
    value: int


PreemptionReason = Literal["share", "priority", "cost"]


MILLIONTHS: Final = 1_000_000
"""The whole cluster, in parts of `ShareChange`."""


class ShareChange(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A user's share before and after a task was preempted, as the decider knew it then.

    Args:
        user: Name of the user; "": all users together to whom nothing is due.
        due: Share that is due, millionths.
        before, after: Share before and after, millionths.
    """

    user: str
    due: int
    before: int
    after: int


class Preemption(msgspec.Struct, frozen=True, gc=False):
    """A fact: an attempt was ended so that another task can have what it held.

    Args:
        at_us: Time of the preemption.
        task, attempt: Task and attempt that was ended, and will be followed by another attempt.
        beneficiary: Task for which the attempt was ended.
        reason: "priority": the beneficiary is more urgent; "share": its user, or pool, had less than its share; "cost":
            the placement as a whole costs less.
        loser, winner: Shares of their users before and after, where the scheduler has them.
    """

    at_us: Time
    task: TaskId
    attempt: int
    beneficiary: TaskId
    reason: PreemptionReason = "share"
    loser: ShareChange | None = None
    winner: ShareChange | None = None


class Transaction(msgspec.Struct, frozen=True, gc=False):
    """A fact: a scheduler has ended an attempt to place a job.

    Args:
        scheduler: Scheduler that made the attempt.
        workload: Kind of job to that scheduler, for example "batch" or "service".
        job: Number of the job.
        began_us: Time at which the attempt began.
        decision_us: Time for which the scheduler was deciding.
        placed: Count of tasks that were placed.
        refused: Count of claims that were in conflict with what others had claimed in the meantime.
        left: Count of the job's tasks that have not been placed yet; 0: it is fully scheduled.
        abandoned: Count of tasks among these that the scheduler has given up for good.
        ended_us: Time at which its outcome was known.
    """

    scheduler: Address
    workload: str
    job: JobId
    began_us: Time
    decision_us: Time
    placed: int
    refused: int
    left: int
    abandoned: int
    ended_us: Time


Power = Literal["booting", "on", "off"]


class Switched(msgspec.Struct, frozen=True, gc=False):
    """A fact: a machine was switched; where it is one that comes and goes, the driver holds the design to it.

    Args:
        at_us: Time of the switch.
        machine: Number of the machine.
        power: "booting": it is paid for and runs nothing yet; "on": it runs tasks; "off": it does neither.
    """

    at_us: Time
    machine: int
    power: Power


class Allotted(msgspec.Struct, frozen=True, gc=False):
    """A fact: so many slots are guaranteed to a job from now on.

    Args:
        at_us: Time of the allotment.
        job: Number of the job.
        slots: Slots that it may have whenever it can use them; 0: none any more.
    """

    at_us: Time
    job: JobId
    slots: int


Fact = Counted | Measured | Decision | Preemption | Transaction | Allotted | Switched
