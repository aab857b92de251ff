"""Inputs of forecasts: the state of a federation, read from its store by a process of its own."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterator, Mapping
from operator import le
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from volery.core.errors import InputError
from volery.core.forecast import ActiveJob, FederationState, ForecastResult, Lifetime, RunningTask, WaitingTasks
from volery.core.model import Address, Amounts, Cluster, JobId, Time
from volery.live.clock import unix_now_us
from volery.live.config.constraints import Fleet
from volery.live.config.machine import Machine
from volery.live.jobs import JobDescription, TaskDemand, demands, estimate_us, label
from volery.live.service.rows import reading, sound_content

WAITING_MAX: Final = 500_000
"""Tasks under way up to which a run ends in time."""
JOBS_READ: Final = 200
"""Number of last jobs, of a user and of the federation, that give the durations of tasks."""
TASKS_READ: Final = 50
"""Number of tasks that are read of each of these jobs."""
DESCRIPTION_BYTES_MAX: Final = 20_000
"""Longest description that is read; to read longer ones takes too long."""
HISTORY_MIN: Final = 3
"""Finished tasks of a name that are worth more than an estimate."""
RATIOS_MIN: Final = 5
_OPEN: Final = (
    "SELECT jobs.id, digest, content FROM jobs JOIN descriptions ON descriptions.id = description "
    "WHERE ended_us IS NULL AND NOT cancelling ORDER BY jobs.id"
)
_EARLIER: Final = (
    "SELECT jobs.id, digest, content FROM jobs JOIN descriptions ON descriptions.id = description "
    "WHERE finished > 0 AND ended_us IS NOT NULL AND length(content) < ? "
)
_TOOK: Final = (
    "SELECT ended_us - started_us FROM tasks WHERE job = ? AND state = 'finished' AND started_us IS NOT NULL LIMIT ?"
)
_HEARD: Final = "SELECT count(*) FROM tasks WHERE job = ? AND place >= ? AND place < ? AND state != 'pending'"
_WEIGHTS: Final = "SELECT name, weight, max(number) FROM reweighs GROUP BY name ORDER BY name"
_RUNNING: Final = "SELECT place, node, started_us FROM tasks WHERE job = ? AND state = 'running'"


class ForecastRequest(msgspec.Struct, frozen=True):
    """Request to the forecast process.

    Args:
        nodes: address of each node -> number of its machine.
        job: job in question, or the number of one that is under way.
        budget_s: processor time for the runs.
        lost: nodes that do not answer, on which nothing is placed.
    """

    store: str
    architecture: str
    parameters: dict[str, Any]
    machines: tuple[Machine, ...]
    slots: tuple[int, ...]
    resources: tuple[str, ...]
    capacities: tuple[Amounts, ...]
    nodes: dict[Address, int]
    job: JobDescription | JobId
    budget_s: float
    lost: tuple[Address, ...] = ()

    def fleet(self) -> Fleet:
        offered = [dict(zip(self.resources, amounts, strict=True)) for amounts in self.capacities]
        return Fleet(self.machines, self.slots, capacities=offered)


class ForecastReply(msgspec.Struct, frozen=True):
    """Reply of the forecast process; without an outlook `problem` is the reason."""

    at_us: Time
    next_job: JobId
    outlook: ForecastResult | None = None
    problem: str = ""


class UnplayableError(Exception):
    """More is under way than the lab plays in time, or not the job in question."""


def _took(sql: sqlite3.Connection, number: JobId) -> tuple[Time, ...]:
    return tuple(sorted(max(0, row[0]) for row in sql.execute(_TOOK, (number, TASKS_READ))))


class _Earlier:
    """Earlier jobs: durations of their tasks by label, and ratios to their estimates."""

    def __init__(self, sql: sqlite3.Connection, user: str | None) -> None:
        self.called: dict[str, list[tuple[Time, ...]]] = {}
        self.expected: dict[tuple[str, Time], list[tuple[Time, ...]]] = {}
        self.all: list[tuple[Time, ...]] = []
        self.ratios: list[int] = []
        owner_clause = "" if user is None else "AND user = ? "
        words = (DESCRIPTION_BYTES_MAX, *(() if user is None else (user,)), JOBS_READ)

        decode = msgspec.json.Decoder(JobDescription).decode

        for number, digest, content in sql.execute(
            _EARLIER + owner_clause + "ORDER BY jobs.id DESC LIMIT ?", words
        ).fetchall():
            durations_us = _took(sql, number)

            if not durations_us:
                continue

            description = decode(sound_content(digest, content))
            estimated_us = estimate_us(description)
            self.called.setdefault(label(description), []).append(durations_us)
            self.expected.setdefault((label(description), estimated_us), []).append(durations_us)
            self.all.append(durations_us)
            if estimated_us:
                self.ratios.append(sum(durations_us) * 1000 // (len(durations_us) * estimated_us))


class Lifetimes:
    """The kinds of tasks that are met, each once."""

    def __init__(self, sql: sqlite3.Connection) -> None:
        self._sql = sql
        self._of_user: dict[str | None, _Earlier] = {}
        self._places: dict[tuple[str, str, Time], int] = {}
        self.found: list[Lifetime] = []

    def place(self, user: str, name: str, estimated_us: Time) -> int:
        key = (user, name, estimated_us)
        if key not in self._places:
            self._places[key] = len(self.found)
            self.found.append(self._lifetime(*key))
        return self._places[key]

    def _earlier(self, user: str | None) -> _Earlier:
        if user not in self._of_user:
            self._of_user[user] = _Earlier(self._sql, user)
        return self._of_user[user]

    def _lifetime(self, user: str, name: str, estimated_us: Time) -> Lifetime:
        own_history = self._earlier(user)

        # Work that is expected to take another time than it did is other work.
        durations_us = (
            own_history.expected.get((name, estimated_us), []) if estimated_us else own_history.called.get(name, [])
        )
        if sum(map(len, durations_us)) >= HISTORY_MIN:
            return Lifetime("history", estimated_us, tuple(durations_us))
        if estimated_us:
            ratios = next((r for r in (own_history.ratios, self._earlier(None).ratios) if len(r) >= RATIOS_MIN), [])
            return Lifetime("estimate", estimated_us, (), tuple(sorted(ratios)))
        if own_history.all:
            return Lifetime("user", 0, tuple(own_history.all))

        everybody = self._earlier(None).all
        return Lifetime("federation", 0, tuple(everybody)) if everybody else Lifetime("nothing")


def standing(
    path: Path,
    fleet: Fleet,
    nodes: Mapping[Address, int],
    job_asked_for: JobDescription | JobId,
    lost: Collection[Address] = (),
) -> FederationState:
    """The present state of a federation.

    Args:
        nodes: address of each node -> number of its machine.
        job_asked_for: the planned job, which gets the next free number; or the number of one under way.
        lost: nodes that do not answer.

    Raises:
        InputError: constraints of the planned job that the fleet gives no meaning to.
        UnplayableError: too much is under way, or not the job in question.
        sqlite3.Error: the store cannot be read.
    """
    sql = reading(path)

    try:
        sql.execute("BEGIN")  # all of what follows is of one moment
        (next_number,) = sql.execute("SELECT ifnull(max(id) + 1, 0) FROM jobs").fetchone()
        at_us = unix_now_us()
        lifetimes = Lifetimes(sql)

        jobs, count, planned_job, number_in_question = [], 0, None, None

        if isinstance(job_asked_for, JobDescription):
            waiting = tuple(_waiting(None, next_number, job_asked_for, fleet, lifetimes))
            planned_job = ActiveJob(next_number, job_asked_for.user, estimate_us(job_asked_for), (), waiting)
            count = sum(group.count for group in planned_job.waiting)
        else:
            number_in_question = job_asked_for

        decode = msgspec.json.Decoder(JobDescription).decode
        for number, digest, content in sql.execute(_OPEN).fetchall():
            job = _open_job(sql, number, decode(sound_content(digest, content)), fleet, nodes, lifetimes, at_us)
            count += len(job.running) + sum(group.count for group in job.waiting)
            if count > WAITING_MAX:
                raise UnplayableError(f"more than {WAITING_MAX:,} tasks are under way")
            jobs.append(job)

        numbers = {job.number for job in jobs if job.running or job.waiting}
        if number_in_question is not None and number_in_question not in numbers:
            raise UnplayableError("the job has ended, or is being cancelled")

        unusable = {*lost, *(node for (node,) in sql.execute("SELECT node FROM drained"))}
        drained = {nodes[node] for node in unusable if node in nodes}
        weights = tuple((name, weight) for name, weight, _ in sql.execute(_WEIGHTS))

        return startable(
            FederationState(
                at_us,
                tuple(jobs),
                planned_job,
                tuple(lifetimes.found),
                tuple(sorted(drained)),
                weights,
                number_in_question,
            ),
            fleet.cluster,
        )
    finally:
        sql.close()


def startable(state: FederationState, cluster: Cluster) -> FederationState:
    """The same without tasks of other jobs that no usable machine can run: they wait until one is used again.

    Raises:
        UnplayableError: the job in question has such tasks.

    """
    usable = sorted(set(range(len(cluster.constraints))) - set(state.drained))
    amounts = cluster.capacities or ((),) * len(cluster.constraints)
    offers = dict.fromkeys((cluster.constraints[machine], amounts[machine]) for machine in usable)
    starts_by_kind: dict[tuple[int, Amounts], bool] = {}

    def can_start(group: WaitingTasks) -> bool:
        kind = group.mask, group.request
        if kind not in starts_by_kind:
            starts_by_kind[kind] = any(
                group.mask & mask == group.mask and all(map(le, group.request, offered)) for mask, offered in offers
            )
        return starts_by_kind[kind]

    job_in_question = state.questioned
    if stuck := sum(group.count for group in job_in_question.waiting if not can_start(group)):
        problem = f"{stuck:,} of its tasks fit no node that is in use: {len(state.drained):,} nodes are drained or lost"
        raise UnplayableError(f"{problem}, and these tasks wait until one of them is used again")

    jobs = [replace(job, waiting=tuple(filter(can_start, job.waiting))) for job in state.jobs]
    return replace(state, jobs=tuple(jobs))


def _open_job(
    sql: sqlite3.Connection,
    number: JobId,
    description: JobDescription,
    fleet: Fleet,
    nodes: Mapping[Address, int],
    lifetimes: Lifetimes,
    at_us: Time,
) -> ActiveJob:
    try:
        waiting = list(_waiting(sql, number, description, fleet, lifetimes))
        job_demands = list(demands(description, fleet))
    except InputError:  # the fleet has changed since; the job will fail
        return ActiveJob(number, description.user, 0)

    running = []
    for place, node, started_us in sql.execute(_RUNNING, (number,)).fetchall():
        if node in nodes and started_us is not None:
            task_demand = next(demand for demand in job_demands if place < demand.first + demand.tasks)
            kind = _kind(lifetimes, description, task_demand)
            running.append(RunningTask(nodes[node], max(0, at_us - started_us), kind, task_demand.request))

    took_us = _took(sql, number) if running else ()
    estimated_us = estimate_us(description)
    return ActiveJob(number, description.user, estimated_us, tuple(running), tuple(waiting), took_us)


def _waiting(
    sql: sqlite3.Connection | None, number: JobId, description: JobDescription, fleet: Fleet, lifetimes: Lifetimes
) -> Iterator[WaitingTasks]:
    for demand in demands(description, fleet):
        count = demand.tasks
        if sql is not None:
            count -= sql.execute(_HEARD, (number, demand.first, demand.first + demand.tasks)).fetchone()[0]
        if count > 0 and not demand.obstacle:
            yield WaitingTasks(count, demand.mask, _kind(lifetimes, description, demand), demand.request)


def _kind(lifetimes: Lifetimes, description: JobDescription, demand: TaskDemand) -> int:
    return lifetimes.place(description.user, label(description), demand.estimate_us)
