"""A policy of a stage: an immutable value whose fields are its parameters, and a method that decides.

A policy has no state, reads a `View` and returns a decision; what is drawn at random comes from the stream that it is
handed. The protocols below say, per stage, which method that is.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from random import Random
from typing import ClassVar, Final, NamedTuple, Protocol

from volery.architectures.pipeline.policies.state import JobRecord, Offer, Running, Supply, Waiting
from volery.architectures.pipeline.policies.view import Candidates, View
from volery.core.bounds import Parameters
from volery.core.events import PreemptionReason
from volery.core.model import Amounts, TaskId, Time
from volery.core.stages import Stage


class Policy(Parameters, frozen=True):
    """Base of all policies; the first line of a subclass's docstring is its description for users."""


class Choice(NamedTuple):
    """A machine, and where the next search for one should begin (`View.resume`)."""

    machine: int
    resume: int


class Turn(NamedTuple):
    """A line of tasks that wait, as an order that gives turns sees it.

    Args:
        line: The line, as the order's `line` has named it.
        waiting: Number of tasks in it.
        served: Number of its last turn, which grows from turn to turn; 0: it has never had one.
        given: Number of turns that it has had in this cycle.
        least: Per resource, the least that any of its tasks asks for; empty unless the order `weighs_blocked` lines.
        is_blocked: Whether none of its tasks fits any machine; such lines are there for an order that `weighs_blocked`
            ones.
    """

    line: Hashable
    waiting: int
    served: int
    given: int
    least: Amounts = ()
    is_blocked: bool = False


class Manager(NamedTuple):
    """A local resource manager (LRM), as the scheduler above it sees it.

    Args:
        capacity: Capacity of all its machines.
        free: Free amounts of all its machines, less what was passed to it and has not ended; below 0 where tasks wait
            there.
        managed: Number of tasks that were passed to it and have not ended.
        machine_count: Number of its machines.
    """

    number: int
    capacity: Amounts
    free: Amounts
    managed: int
    machine_count: int


class Eligible(Protocol):
    """Stage J2: jobs wait in lines, and none behind one that is not eligible is."""

    def line(self, job: JobRecord) -> Hashable:
        """The line in which a job waits to become eligible."""

    def eligible(self, view: View, job: JobRecord) -> bool:
        """True if the tasks of a job may be queued now; asked of the first of each line, until it is."""


class Keyed(Protocol):
    """Stages J3 and T2: smallest key first. It is asked for when the task is queued, and holds until it leaves."""

    def key(self, view: View, task: Waiting) -> float | tuple[float, ...]:
        """The task's rank (T2), or that of its job (J3)."""


class TakingTurns(Protocol):
    """Stages J3 and T2: tasks stand in lines, and lines take turns."""

    def line(self, task: Waiting) -> Hashable:
        """The line in which a task waits."""

    def turns(self, view: View, lines: Sequence[Turn]) -> Iterable[Hashable]:
        """The lines in the order in which they are next; asked before every turn.

        Args:
            lines: Lines with a task that may fit, in the order in which they came to be; all lines with tasks where the
                order has an attribute `weighs_blocked` that is true.
        """


class Setup(Protocol):
    """Stages J5 and T5: the time to stage files in."""

    def stage_us(self, view: View, subject: JobRecord | Waiting) -> Time:
        """The time to stage files in for a job (J5), or for a task that has been given a machine (T5)."""


class Cleanup(Protocol):
    """Stages J7 and T8: the time to delete files."""

    def clean_us(self, view: View, subject: JobRecord | Waiting) -> Time:
        """The time to delete the files of a job that is done (J7), or of a task, on its machine (T8)."""


class Monitoring(Protocol):
    """Stage T6: reports on running tasks, and what follows from them."""

    def every_us(self) -> Time:
        """The period of reports; 0: there are none."""

    def ends(self, view: View, task: Running) -> bool:
        """True if a task is to be ended, and to return to the queue."""

    def reserved(self, view: View, task: Running) -> int:
        """The thousandths of its request to keep for a task from now on; 1000: all."""

    def tolerant(self, job: JobRecord) -> bool:
        """True if the tasks of a job may run on what others have reserved and do not use."""


class Authorisation(Protocol):
    """Stage R2: the machines of a user."""

    def machines(self, view: View, user: str) -> Iterable[int] | None:
        """The machines that a user may have, by their numbers in the whole cluster; None: all. Asked once per user."""


class Nearness(Protocol):
    """Stage R3, beyond constraints."""

    def waits_us(self) -> tuple[Time, Time] | None:
        """The waits of a job for machines that hold its input, then for racks that do; None: it does not wait."""


class Selection(Protocol):
    """Stage R5: the machine of a task."""

    def select(self, view: View, task: Waiting, machines: Candidates, draw: Random) -> int | Choice | None:
        """The machine that the task takes; None: it has to wait for the next cycle."""


class Management(Protocol):
    """Stage M1: the scheduler, or the broker, manages a task."""

    def brokered(self, view: View, task: Waiting) -> bool:
        """True if the task goes to the broker."""


class Usable(Protocol):
    """Stage M4: a filter of local resource managers."""

    def usable(self, view: View, task: Waiting, manager: Manager) -> bool:
        """True if a task may be passed to this local resource manager now."""


class ManagerSelection(Protocol):
    """Stage M5: the local resource manager of a task."""

    def select(self, view: View, task: Waiting, managers: Sequence[Manager], draw: Random) -> int:
        """The number of one of the managers, of which there is at least one."""


class Eviction(NamedTuple):
    """The tasks that lose their places, and the machine.

    Args:
        machine: Machine on which the other task gets its place.
        tasks: Tasks that run there; each frees something that is needed.
    """

    machine: int
    tasks: tuple[TaskId, ...]


class Preempting(Protocol):
    """Stage T10; `reason`: the rule, in the words of `Preemption`."""

    reason: ClassVar[PreemptionReason]

    def claim(self, job: JobRecord) -> Hashable:
        """The claim of a job: tasks of jobs with equal claims may preempt the same tasks."""

    def evict(self, view: View, task: Waiting, machines: Sequence[int]) -> Eviction | None:
        """The tasks that lose their places to one that fits nowhere; None: none does.

        Args:
            task: The task that waits.
            machines: The machines that suit it.
        """


class Replicating(Protocol):
    """Stage T9: the attempts of a task."""

    def copies(self, view: View, task: Running) -> int:
        """The number of attempts of a task that should run at once."""

    def ask_us(self, view: View, task: Running) -> Time:
        """The time to ask again; NEVER, or a time that has passed: do not, unless room was lacking then."""


class Move(NamedTuple):
    """A task that runs shall go on on another machine, which has room for it."""

    task: TaskId
    machine: int


class Migrating(Protocol):
    """Stage T12: the tasks that move to other machines."""

    def every_us(self) -> Time:
        """The time between two decisions; 0: there are none."""

    def moves(self, view: View) -> Sequence[Move]:
        """The moves to make now, one after the other: an earlier one takes room from a later one."""

    def cost_us(self, view: View, task: Running) -> Time:
        """For how long a task that moves runs nowhere."""


class Recovering(Protocol):
    """Stage T11: what a lost attempt costs."""

    def period_us(self) -> Time | None:
        """The period of checkpoints: a lost attempt loses its work since the last one.

        0: all of it; None: nothing is recovered, and no machine may die.
        """


class Provisioning(Protocol):
    """Stage R6: the machines to boot and to switch off."""

    def provision(self, view: View, supply: Supply, offers: Sequence[Offer], units: int) -> Iterable[int]:
        """The machines to boot, by their numbers.

        Args:
            supply: The machines that there are.
            offers: Machines that are off, at least one.
            units: Number of units that they should have together, at least 1.
        """

    def release(self, view: View, supply: Supply, offers: Sequence[Offer], units: int) -> Iterable[int]:
        """The machines to switch off now.

        Args:
            supply: The machines that there are.
            offers: Machines that are on and run nothing, at least one.
            units: Number of units that they may have together at most, at least 1.
        """


class Scaling(Protocol):
    """Stage R7: the units that shall be on."""

    def units(self, view: View, supply: Supply) -> int:
        """The processors, or slots, of the machines that shall be on, as far as there are as many."""


METHODS: Final[dict[Stage, tuple[tuple[str, ...], ...]]] = {
    Stage.J2: (("line", "eligible"),),
    Stage.J3: (("key",), ("line", "turns")),
    Stage.J5: (("stage_us",),),
    Stage.T2: (("key",), ("line", "turns")),
    Stage.T5: (("stage_us",),),
    Stage.J7: (("clean_us",),),
    Stage.T6: (("every_us", "ends", "reserved", "tolerant"),),
    Stage.T8: (("clean_us",),),
    Stage.T9: (("copies", "ask_us"),),
    Stage.T10: (("claim", "evict"),),
    Stage.T11: (("period_us",),),
    Stage.T12: (("every_us", "moves", "cost_us"),),
    Stage.M1: (("brokered",),),
    Stage.M4: (("usable",),),
    Stage.M5: (("select",),),
    Stage.R2: (("machines",),),
    Stage.R3: (("waits_us",),),
    Stage.R5: (("select",),),
    Stage.R6: (("provision", "release"),),
    Stage.R7: (("units",),),
}
"""Per stage that has policies, the methods that one must have: any of these sets."""
