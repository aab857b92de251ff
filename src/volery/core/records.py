"""Records of a run: submit, start, finish, worker and attempt of every task, and the answers to the submitter.

Components do not keep score. The same record types serve the lab and the live federation.
"""

from __future__ import annotations

import hashlib
from array import array
from typing import Final

import msgspec

from volery.core.events import Allotted, Counted, Fact, Measured, Preemption, Switched, Transaction
from volery.core.model import NEVER, SECOND, TaskId, Time
from volery.core.reasons import DecisionLog
from volery.core.trace import Trace, little_endian, longs

HOUR: Final[Time] = 3600 * SECOND
MOMENTS_MAX: Final = 1 << 16
"""Bins of a histogram; when there are more, neighbours are merged two by two."""
PATH_SHIFT = 32
"""A path packs two sums into one integer: communication in the low 32 bits, processing above them, in microseconds."""
PROCESSING_MAX: Final[Time] = (1 << 31) - 1
"""Longest processing in a path, 2,147 s: a record holds 64 bits. What is longer, as a decision, counts as queueing."""


def with_processing(path: int, added_us: Time) -> int:
    """The path, with so much more processing."""
    processing_us = min((path >> PATH_SHIFT) + added_us, PROCESSING_MAX)
    return processing_us << PATH_SHIFT | path & ((1 << PATH_SHIFT) - 1)


class Billing(msgspec.Struct, frozen=True):
    """Machines that are provisioned and released while a run lasts (stages R6 and R7), and their prices.

    Args:
        machines: Numbers of the machines; each is off until a component reports that it is on (`Switched`).
        interval_us: Interval of payment: a machine is paid for by whole intervals from the beginning of its boot; 0: to
            the microsecond.
        machine_price: Price of a machine for an hour, in any currency.
        unit_price: Price for an hour of each unit of the resource that counts processors, or of each slot.
        factors: Factors of both prices in successive hours of the run, then from the first again; nothing: constant
            prices.
    """

    machines: frozenset[int]
    interval_us: Time = 0
    machine_price: float = 0.0
    unit_price: float = 1.0
    factors: tuple[float, ...] = ()

    def paid_us(self, span_us: Time) -> Time:
        """The time that is paid for a machine that was provisioned for a span: every interval that has begun."""
        return -(-span_us // self.interval_us) * self.interval_us if self.interval_us else span_us

    def paid_until_us(self, since_us: Time, now: Time) -> Time:
        """The end of the paid interval of a machine that was provisioned since then."""
        if not self.interval_us:
            return now
        return since_us + ((now - since_us) // self.interval_us + 1) * self.interval_us

    def factor(self, now: Time) -> float:
        """The factor of the prices at a moment."""
        return self.factors[now // HOUR % len(self.factors)] if self.factors else 1.0

    def weighed_h(self, since_us: Time, span_us: Time) -> float:
        """The hours that are paid for a machine that was provisioned for a span, times the factors of their moments."""
        paid_us = self.paid_us(span_us)
        if not self.factors:
            return paid_us / HOUR
        at_us, until_us = since_us, since_us + paid_us
        hours = 0.0

        # A factor holds for one hour of the run: the span is cut at full hours.
        while at_us < until_us:
            next_us = min(until_us, (at_us // HOUR + 1) * HOUR)
            hours += (next_us - at_us) / HOUR * self.factor(at_us)
            at_us = next_us
        return hours

    def price(self, units: int) -> float:
        """The price of a machine with so many units for an hour."""
        return self.machine_price + self.unit_price * units


class LostAttempt(msgspec.Struct, frozen=True):
    """An attempt that did not finish, kept when the next attempt of its task starts.

    Args:
        kept_us: Part of its run that the next attempt does not repeat.
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
        width_us: Width of a bin: 1 (exact), or a power of two where there are many moments.
        amounts: Moment // width_us -> amount; the sum is exact at any width.
    """

    def __init__(self) -> None:
        self.width_us = 1
        self.amounts: dict[int, int] = {}

    def note(self, now: Time, amount: int) -> None:
        """Add an amount at a time."""
        bin_number = now // self.width_us
        self.amounts[bin_number] = self.amounts.get(bin_number, 0) + amount
        # Neighbours are merged only above the bound, so that short runs keep exact moments.
        while len(self.amounts) > MOMENTS_MAX:
            self._widen()

    def _widen(self) -> None:
        self.width_us *= 2
        amounts: dict[int, int] = {}
        for bin_number, amount in self.amounts.items():
            amounts[bin_number // 2] = amounts.get(bin_number // 2, 0) + amount
        self.amounts = amounts


class Facts:
    """Facts that components have reported.

    Attributes:
        counters: Sum of each counted fact.
        tallies: Count, sum and maximum of each measured fact.
        preemptions: Preemptions in the order in which they were reported.
        transactions, allotments, switches: Facts of these types in the order in which they were reported.
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
        trace: Input of the run; its arrival times are the submit times.

    Attributes:
        start_us, finish_us: Times of each task; `NEVER` when it did not happen.
        worker: Number of the machine that each task ran on, or -1.
        attempt: Attempt of each task that finished (0 is the first).
        path: Time on the wire and in service along the causal chain of messages that led to each task's start.
        waited_us: Task -> time in its worker's own queue, where there was any.
        held_us: Task of a gang -> time for which its attempts held a machine before the gang ran, where there was any.
        ready_us: Time at which the last of a task's parents had finished, or it was submitted, whichever was later;
            empty where no task of the trace waits for another or is submitted later than its job.
        answered_us: Time at which the submitter received that each job is done.
        unsatisfiable: Count of each job's tasks that fit no machine, by the answer to the submitter.
        rejections: Count of submissions that were refused.
        lost: Attempts that were killed and followed by another.
        killed: (Task, attempt) -> time of the kill.
        decisions: Decisions of schedulers that explain themselves.
        billing: Prices of machines that come and go; None: all are always on.
        moments: Times of the counted facts in `REFUSALS`, by name.
        compute_us: Processor time of each problem that was handed to `Port.compute`; never the same twice.
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
        self.held_us: dict[int, int] = {}
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
        columns = (
            self.trace.arrival_us,
            self.trace.first,
            self.start_us,
            self.finish_us,
            self.worker,
            self.attempt,
            self.answered_us,
            self.unsatisfiable,
        )
        for column in columns:
            sha.update(little_endian(column))
        return sha.hexdigest()
