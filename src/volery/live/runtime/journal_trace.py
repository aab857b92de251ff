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
        sender, receiver: roles.
        mean_us, p50_us, p99_us: of that time; waiting at the receiver's host included.
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
        events: how many they handled.
        mean_us: processor time per event.
    """

    role: str
    events: int
    mean_us: float


class Period(msgspec.Struct, frozen=True):
    """A recorded period of a federation, read from its journals.

    Args:
        trace: jobs with a finished task, and those tasks with the durations that were measured.
        slots: of all machines together.
        unfinished_tasks: tasks that are left out because they never finished.
        constrained_tasks: tasks of the trace that had placement constraints, which it does not hold.
        payload_tasks: tasks of the trace that carried real work.
        cancelled_jobs: jobs that somebody gave up; what of them has finished is in the trace.
        hops: between hosts, by link class.
        cut: hosts of which the first files are no longer kept: jobs of that time are not in the trace.
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
        self.heard: dict[Link, list[Time]] = {}
        self.spent_ns: dict[str, list[int]] = {}

    def play(self, reader: Chain, lookup: Callable[[str], Architecture]) -> Header:
        """Take one journal in.

        Raises:
            InputError: it is none, or it does not replay.
        """
        header, effects = reader.header, list[Effect]()
        plan = plan_of(header, lookup, str(reader.path))
        here = set(header.addresses)
        player = Player(*hosted(reader, plan, effects), effects)
        clock = time.perf_counter_ns
        for now, entries in reader.turns(plan.architecture.messages):
            at = header.origin_unix_us + now
            for address, source, event, expected in entries:
                if expected == RAISED:
                    return header
                began = clock()
                found = player.feed(address, source, event, now)
                took = clock() - began
                if found != expected:
                    raise InputError(str(reader.path), "does not replay; `volery replay` shows where")
                if type(event) is not Started:
                    self.spent_ns.setdefault(role_of(address), []).append(took)
                self._event(address, source, event, at, source in here)
                self._effects(address, player.effects, at, here)
                player.effects.clear()
        return header

    def _event(self, address: Address, source: Address, event: Any, at: Time, local: bool) -> None:
        if source == SUBMITTER:
            if isinstance(event, Submit):
                self.arrived.setdefault(event.job.id, at)
                self.jobs.setdefault(event.job.id, event.job)
                self._add(event.job.id, event.job.tasks)
            elif isinstance(event, MoreTasks):
                self._add(event.job, event.tasks)
            elif isinstance(event, Cancel):
                self.cancelled.add(event.job)
        elif isinstance(event, TaskFinished):
            started = self.launched.get((event.task.id, event.attempt))
            if started is not None and event.outcome == "finished":
                self.duration_us.setdefault(event.task.id, at - started)
        elif isinstance(event, Message) and not local:
            self.heard.setdefault((source, address), []).append(at)

    def _add(self, job: JobId, tasks: Iterable[Task]) -> None:
        known = self.tasks.setdefault(job, {})
        for task in tasks:
            known.setdefault(task.id, task)

    def _effects(self, address: Address, effects: Iterable[tuple[Any, ...]], at: Time, here: set[Address]) -> None:
        for effect in effects:
            if isinstance(effect[0], str):
                if effect[0] not in here and effect[0] != SUBMITTER:
                    self.sent.setdefault((address, effect[0]), []).append(at)
            elif effect[0] == LAUNCH:
                self.launched.setdefault((effect[1].id, effect[2]), at)

    def trace(self, name: str) -> tuple[Trace, list[Task]]:
        """The work, and the tasks that are in it."""
        ran = {
            job: [task for number, task in sorted(tasks.items()) if number in self.duration_us]
            for job, tasks in self.tasks.items()
            if job in self.jobs
        }
        order = sorted((job for job, tasks in ran.items() if tasks), key=lambda job: (self.arrived[job], job))
        if not order:
            raise InputError(name, NO_JOB)
        listed = [task for job in order for task in ran[job]]
        first, estimates = array("q", [0]), array("q")
        for job in order:
            durations = [self.duration_us[task.id] for task in ran[job]]
            first.append(first[-1] + len(durations))
            estimates.append(self.jobs[job].estimate_us or round(sum(durations) / len(durations)))
        origin = self.arrived[order[0]]
        arrivals = array("q", [self.arrived[job] - origin for job in order])
        return Trace(
            name, arrivals, first, array("q", [self.duration_us[task.id] for task in listed]), estimates
        ), listed

    def hops(self) -> tuple[HostDelay, ...]:
        """By link class; a link of which a message was lost, or a journal is missing, has none."""
        delays: dict[tuple[str, str], list[Time]] = {}
        for link, sent in self.sent.items():
            heard = self.heard.get(link, [])
            if len(sent) == len(heard):
                roles = (role_of(link[0]), role_of(link[1]))
                delays.setdefault(roles, []).extend(b - a for a, b in zip(sent, heard, strict=True))
        return tuple(
            HostDelay(*roles, len(found), sum(found) / len(found), _percentile(found, 50), _percentile(found, 99))
            for roles, found in sorted(delays.items())
        )

    def decisions(self) -> tuple[RecordedDecision, ...]:
        return tuple(
            RecordedDecision(role, len(spent), sum(spent) / len(spent) / 1000)
            for role, spent in sorted(self.spent_ns.items())
        )


def _percentile(values: Sequence[int], percent: int) -> int:
    return sorted(values)[(len(values) - 1) * percent // 100]


def read_period(paths: Iterable[Path], name: str, lookup: Callable[[str], Architecture]) -> Period:
    """The period that journals recorded together.

    Args:
        paths: the journals of one federation, of all of its hosts; of a host's incarnations the earlier first.
        lookup: name -> architecture.

    Raises:
        InputError: a file is no journal, does not replay, is of another federation than the first, or no job has run.
    """
    observed = _Observed()
    found, headers = chains(paths), []
    for one in found:
        if one.header.configuration != found[0].header.configuration:
            raise InputError(str(one.path), f"is of another federation than {found[0].path}; give those of one")
        headers.append(observed.play(one, lookup))
    trace, listed = observed.trace(name)
    cluster = headers[0].cluster
    return Period(
        trace, headers[0].architecture, headers[0].parameters, len(cluster.slots), cluster.slot_count,
        tuple(sorted({header.host for header in headers})),
        unfinished_tasks=sum(map(len, observed.tasks.values())) - len(listed),
        constrained_tasks=sum(1 for task in listed if task.constraints),
        payload_tasks=sum(1 for task in listed if task.payload),
        cancelled_jobs=len(observed.cancelled), hops=observed.hops(), decisions=observed.decisions(),
        cut=cut_hosts(found),
    )  # fmt: skip
