"""From journals to a trace: what a federation has done, as work that the lab can run again.

Journals hold events, not effects, so their components are played again: what they send and launch is known from that.
Times of different hosts are brought together by the wall clock at which each journal began.
"""

from __future__ import annotations

import time
from array import array
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from volery.core.component import Architecture, role_of
from volery.core.errors import InputError
from volery.core.events import Cancel, MoreTasks, Submit, TaskFinished
from volery.core.model import SUBMITTER, Address, Job, JobId, Message, Task, TaskId, Time
from volery.core.trace import Trace
from volery.live.runtime.journal import RAISED, Header, Started
from volery.live.runtime.port import LAUNCH, Effect
from volery.live.runtime.replay import Chain, Player, chains, cut_hosts, hosted, plan_of

Link = tuple[Address, Address]
NO_JOB: Final = "holds no job with a finished task; give the journals of all hosts of a federation that has run some"


class HostDelay(msgspec.Struct, frozen=True):
    """Delays of messages between two hosts, from the turn that sent them to the turn that handled them.

    Args:
        sender, receiver: Roles of sender and receiver.
        mean_us, p50_us, p99_us: Mean and percentiles of that time; waiting at the receiver's host included.
    """

    sender: str
    receiver: str
    count: int
    mean_us: float
    p50_us: Time
    p99_us: Time


class RecordedDecision(msgspec.Struct, frozen=True):
    """Processor time of a role's handlers, measured while the journals are replayed.

    Args:
        events: Count of the events that they handled.
        mean_us: Processor time per event.
    """

    role: str
    events: int
    mean_us: float


class Period(msgspec.Struct, frozen=True):
    """A recorded period of a federation, read from its journals.

    Args:
        trace: Jobs with a finished task, and those tasks with the durations that were measured.
        slots: Count of the slots of all machines together.
        unfinished_tasks: Count of tasks that are left out because they never finished.
        constrained_tasks: Count of tasks of the trace that had placement constraints, which it does not hold.
        payload_tasks: Count of tasks of the trace that carried real work.
        cancelled_jobs: Count of jobs that somebody gave up; what of them has finished is in the trace.
        hops: Delays between hosts, by link class.
        cut: Hosts of which the first files are no longer kept: jobs of that time are not in the trace.
    """

    trace: Trace
    architecture: str
    parameters: dict[str, Any]
    workers: int
    slots: int
    hosts: tuple[str, ...]
    unfinished_tasks: int
    constrained_tasks: int
    payload_tasks: int
    cancelled_jobs: int
    hops: tuple[HostDelay, ...]
    decisions: tuple[RecordedDecision, ...]
    cut: tuple[str, ...] = ()


class _Observed:
    """Gathers what all journals hold; times are microseconds since 1970."""

    def __init__(self) -> None:
        self.arrived: dict[JobId, Time] = {}
        self.jobs: dict[JobId, Job] = {}
        self.tasks: dict[JobId, dict[TaskId, Task]] = {}
        self.launched: dict[tuple[TaskId, int], Time] = {}
        self.duration_us: dict[TaskId, Time] = {}
        self.cancelled: set[JobId] = set()
        self.sent: dict[Link, list[Time]] = {}
        self.received: dict[Link, list[Time]] = {}
        self.spent_ns: dict[str, list[int]] = {}

    def play(self, reader: Chain, lookup: Callable[[str], Architecture]) -> Header:
        """Take one journal in.

        Raises:
            InputError: it is none, or it does not replay.
        """
        header = reader.header
        effects = list[Effect]()
        plan = plan_of(header, lookup, str(reader.path))
        local_addresses = set(header.addresses)
        player = Player(*hosted(reader, plan, effects), effects)
        clock = time.perf_counter_ns

        for now, entries in reader.turns(plan.architecture.messages):
            unix_us = header.origin_unix_us + now

            for address, source, event, expected in entries:
                if expected == RAISED:
                    return header
                started_ns = clock()
                effects_checksum = player.feed(address, source, event, now)
                took_ns = clock() - started_ns

                if effects_checksum != expected:
                    raise InputError(str(reader.path), "does not replay; `volery replay` shows where")

                if type(event) is not Started:
                    self.spent_ns.setdefault(role_of(address), []).append(took_ns)
                self._event(address, source, event, unix_us, source in local_addresses)
                self._effects(address, player.effects, unix_us, local_addresses)
                player.effects.clear()
        return header

    def _event(self, address: Address, source: Address, event: Any, unix_us: Time, is_local: bool) -> None:
        if source == SUBMITTER:
            if isinstance(event, Submit):
                self.arrived.setdefault(event.job.id, unix_us)
                self.jobs.setdefault(event.job.id, event.job)
                self._add(event.job.id, event.job.tasks)
            elif isinstance(event, MoreTasks):
                self._add(event.job, event.tasks)
            elif isinstance(event, Cancel):
                self.cancelled.add(event.job)
        elif isinstance(event, TaskFinished):
            started = self.launched.get((event.task.id, event.attempt))
            if started is not None and event.outcome == "finished":
                self.duration_us.setdefault(event.task.id, unix_us - started)
        elif isinstance(event, Message) and not is_local:
            self.received.setdefault((source, address), []).append(unix_us)

    def _add(self, job: JobId, tasks: Iterable[Task]) -> None:
        known_tasks = self.tasks.setdefault(job, {})
        for task in tasks:
            known_tasks.setdefault(task.id, task)

    def _effects(
        self, address: Address, effects: Iterable[tuple[Any, ...]], unix_us: Time, local_addresses: set[Address]
    ) -> None:
        for effect in effects:
            if isinstance(effect[0], str):
                if effect[0] not in local_addresses and effect[0] != SUBMITTER:
                    self.sent.setdefault((address, effect[0]), []).append(unix_us)
            elif effect[0] == LAUNCH:
                self.launched.setdefault((effect[1].id, effect[2]), unix_us)

    def trace(self, name: str) -> tuple[Trace, list[Task]]:
        """The work, and the tasks that are in it."""
        finished_tasks = {
            job: [task for number, task in sorted(tasks.items()) if number in self.duration_us]
            for job, tasks in self.tasks.items()
            if job in self.jobs
        }
        order = sorted(
            (job for job, tasks in finished_tasks.items() if tasks), key=lambda job: (self.arrived[job], job)
        )

        if not order:
            raise InputError(name, NO_JOB)
        tasks_in_order = [task for job in order for task in finished_tasks[job]]
        first, estimates = array("q", [0]), array("q")
        for job in order:
            durations = [self.duration_us[task.id] for task in finished_tasks[job]]
            first.append(first[-1] + len(durations))
            estimates.append(self.jobs[job].estimate_us or round(sum(durations) / len(durations)))

        origin = self.arrived[order[0]]
        arrivals = array("q", [self.arrived[job] - origin for job in order])
        return Trace(
            name, arrivals, first, array("q", [self.duration_us[task.id] for task in tasks_in_order]), estimates
        ), tasks_in_order

    def hops(self) -> tuple[HostDelay, ...]:
        """Delays by link class; a link of which a message was lost, or a journal is missing, has none."""
        delays: dict[tuple[str, str], list[Time]] = {}
        for link, sent_us in self.sent.items():
            received_us = self.received.get(link, [])
            # Links keep their order, so that the k-th message sent is the k-th received, unless one was lost.
            if len(sent_us) == len(received_us):
                roles = (role_of(link[0]), role_of(link[1]))
                delays.setdefault(roles, []).extend(
                    received_at - sent_at for sent_at, received_at in zip(sent_us, received_us, strict=True)
                )

        return tuple(
            HostDelay(
                *roles,
                len(link_delays),
                sum(link_delays) / len(link_delays),
                _percentile(link_delays, 50),
                _percentile(link_delays, 99),
            )
            for roles, link_delays in sorted(delays.items())
        )

    def decisions(self) -> tuple[RecordedDecision, ...]:
        return tuple(
            RecordedDecision(role, len(role_ns), sum(role_ns) / len(role_ns) / 1000)
            for role, role_ns in sorted(self.spent_ns.items())
        )


def _percentile(values: Sequence[int], percent: int) -> int:
    return sorted(values)[(len(values) - 1) * percent // 100]


def read_period(paths: Iterable[Path], name: str, lookup: Callable[[str], Architecture]) -> Period:
    """The period that journals recorded together.

    Args:
        paths: Journals of one federation, of all of its hosts; of a host's incarnations the earlier first.
        lookup: Name -> architecture.

    Raises:
        InputError: a file is no journal, does not replay, is of another federation than the first, or no job has run.
    """
    observed = _Observed()
    host_chains = chains(paths)
    headers = []

    for chain in host_chains:
        if chain.header.configuration != host_chains[0].header.configuration:
            raise InputError(str(chain.path), f"is of another federation than {host_chains[0].path}; give those of one")
        headers.append(observed.play(chain, lookup))

    trace, tasks = observed.trace(name)
    cluster = headers[0].cluster
    return Period(
        trace,
        headers[0].architecture,
        headers[0].parameters,
        len(cluster.slots),
        cluster.slot_count,
        tuple(sorted({header.host for header in headers})),
        unfinished_tasks=sum(map(len, observed.tasks.values())) - len(tasks),
        constrained_tasks=sum(1 for task in tasks if task.constraints),
        payload_tasks=sum(1 for task in tasks if task.payload),
        cancelled_jobs=len(observed.cancelled),
        hops=observed.hops(),
        decisions=observed.decisions(),
        cut=cut_hosts(host_chains),
    )
