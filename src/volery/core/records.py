"""Records of a run: submit, start, finish, worker and attempt of every task, and the answers to the submitter.

Components do not keep score. The same record types serve the lab and the live federation.
"""

from __future__ import annotations

import hashlib
from array import array
from typing import Final

import msgspec

from volery.core.capabilities import Billing
from volery.core.events import Allotted, Counted, Fact, Measured, Preemption, Switched, Transaction
from volery.core.model import NEVER, TaskId, Time
from volery.core.trace import Trace, little_endian, longs
from volery.core.why import DecisionLog

MOMENTS_MAX: Final = 1 << 16
"""Bins of a histogram; when there are more, neighbours are merged two by two."""
PATH_SHIFT = 32
"""A path packs two sums into one integer: communication in the low 32 bits, processing above them, in microseconds."""
PROCESSING_MAX: Final[Time] = (1 << 31) - 1
"""Of a path, 2,147 s: a record holds 64 bits. What is longer, a decision for example, counts as queueing from there."""


def with_processing(path: int, more_us: Time) -> int:
    """The path, with so much more processing."""
    longer = min((path >> PATH_SHIFT) + more_us, PROCESSING_MAX)
    return longer << PATH_SHIFT | path & ((1 << PATH_SHIFT) - 1)


class LostAttempt(msgspec.Struct, frozen=True):
    """An attempt that did not finish, kept when the next attempt of its task starts.

    Args:
        kept_us: part of its run that the next attempt does not repeat.
    """

    task: TaskId
    attempt: int
    worker: int
    start_us: Time
    finish_us: Time
    kept_us: Time = 0


ATTEMPT_MAX: Final = 255
"""The last attempt of a task that a record can hold; a task with so many is not preempted."""
INCARNATION_ATTEMPTS: Final = 16
"""Attempts of a task that one incarnation of a scheduler may number, where schedulers may begin anew: incarnation k
begins at k times so many."""


class FactSummary(msgspec.Struct):
    """The count, sum and largest value of one measured fact."""

    count: int = 0
    total: int = 0
    largest: int = 0


class TimeHistogram:
    """Amounts of a counted fact by time, in bounded memory.

    Attributes:
        width_us: of a bin: 1 (exact), or a power of two where there are many moments.
        amounts: moment // width_us -> amount; the sum is exact at any width.
    """

    def __init__(self) -> None:
        self.width_us = 1
        self.amounts: dict[int, int] = {}

    def note(self, now: Time, amount: int) -> None:
        """Add an amount at a time."""
        at = now // self.width_us
        self.amounts[at] = self.amounts.get(at, 0) + amount
        while len(self.amounts) > MOMENTS_MAX:
            self._widen()

    def _widen(self) -> None:
        self.width_us *= 2
        wider: dict[int, int] = {}
        for at, amount in self.amounts.items():
            wider[at // 2] = wider.get(at // 2, 0) + amount
        self.amounts = wider


class Facts:
    """Facts that components have reported.

    Attributes:
        counters: the sum of each counted fact.
        tallies: count, sum and maximum of each measured fact.
        preemptions: in the order in which they were reported.
        transactions, allotments, switches: likewise.
    """

    def __init__(self) -> None:
        self.counters: dict[str, int] = {}
        self.tallies: dict[str, FactSummary] = {}
        self.preemptions: list[Preemption] = []
        self.transactions: list[Transaction] = []
        self.switches: list[Switched] = []
        self.allotments: list[Allotted] = []

    def observe(self, fact: Fact) -> None:
        """Add a fact to its counter or tally; decisions are kept by the drivers that ask for them."""
        if isinstance(fact, Counted):
            self.counters[fact.name] = self.counters.get(fact.name, 0) + fact.amount
        elif isinstance(fact, Measured):
            tally = self.tallies.setdefault(fact.name, FactSummary())
            tally.count += 1
            tally.total += fact.value
            tally.largest = max(tally.largest, fact.value)
        elif isinstance(fact, Preemption):
            self.preemptions.append(fact)
        elif isinstance(fact, Transaction):
            self.transactions.append(fact)
        elif isinstance(fact, Switched):
            self.switches.append(fact)
        elif isinstance(fact, Allotted):
            self.allotments.append(fact)


class Records(Facts):
    """The table of a run, and the facts of it.

    Args:
        trace: the input; its arrival times are the submit times.

    Attributes:
        start_us, finish_us: per task, `NEVER` when it did not happen.
        worker: per task, the number of the machine that it ran on, or -1.
        attempt: per task, the attempt that finished (0 is the first).
        path: per task, time on the wire and in service along the causal chain of messages that led to its start.
        waited_us: task -> time in its worker's own queue, where there was any.
        ready_us: per task, when the last of its parents had finished, or it was submitted, whichever was later; empty
            where no task of the trace waits for another or is submitted later than its job.
        answered_us: per job, when the submitter received that it is done.
        unsatisfiable: per job, tasks that fit no machine, by the answer to the submitter.
        rejections: how often a submission was refused.
        lost: attempts that were killed and followed by another.
        killed: (task, attempt) -> when it was killed.
        decisions: of schedulers that explain themselves.
        billing: of machines that come and go; None: all are always on.
        moments: times of the counted facts in `REFUSALS`, by name.
        compute_us: processor time that each problem took that was handed to `Port.compute`; never the same twice.
    """

    def __init__(self, trace: Trace) -> None:
        super().__init__()
        self.compute_us = longs()
        tasks, jobs = trace.task_count, trace.job_count
        self.trace = trace
        self.start_us = longs(tasks, NEVER)
        self.finish_us = longs(tasks, NEVER)
        self.worker = array("i", [-1]) * tasks
        self.attempt = array("B", [0]) * tasks
        self.path = longs(tasks)
        self.waited_us: dict[int, int] = {}
        self.ready_us = longs(tasks if trace.parents or trace.submit_us else 0, NEVER)
        self.answered_us = longs(jobs, NEVER)
        self.unsatisfiable = longs(jobs)
        self.rejections = 0
        self.lost: list[LostAttempt] = []
        self.killed: dict[tuple[TaskId, int], Time] = {}
        self.decisions = DecisionLog()
        self.billing: Billing | None = None
        self.moments: dict[str, TimeHistogram] = {}

    def number_widely(self) -> None:
        """Make room for attempts of jobs that are moved between entries; before anything is recorded."""
        self.attempt = array("q", self.attempt)

    def digest(self) -> str:
        """SHA-256 of the table (submit, start, finish, worker, attempt of every task, answer of every job)."""
        sha = hashlib.sha256()
        for column in (
            self.trace.arrival_us, self.trace.first, self.start_us, self.finish_us, self.worker, self.attempt,
            self.answered_us, self.unsatisfiable,
        ):  # fmt: skip
            sha.update(little_endian(column))
        return sha.hexdigest()
