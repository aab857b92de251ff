"""The state of a recording at a moment: it answers the queries of pages, as a job service does for the present."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from volery.core.model import Address, JobId, TaskId, Time
from volery.live.jobs import JobDescription
from volery.live.service.reports import Sample, candidates, counted
from volery.live.service.rows import NEWEST, JobOrder, JobQuery, UserLoad
from volery.live.status import (
    DecisionStep,
    FunnelStep,
    HostStatus,
    JobStatus,
    NodeStatus,
    PairStatus,
    RejectionCount,
    TaskState,
    TaskStatus,
    UserStatus,
    Why,
)
from volery.playback.recording import (
    BUSY,
    CANCELLED,
    FAULTY,
    LATER,
    PENDING,
    STATES,
    Counts,
    Longs,
    RecordedShares,
    Recording,
)
from volery.playback.run_log import FAILED, FINISHED, KILLED

MINUTE_US: Final = 60_000_000
RECENT_US: Final = 5 * MINUTE_US
"""The same as on a live page."""
LOOK_MAX: Final = 1_000


def at(recording: Recording, time_us: Time) -> Snapshot:
    """The state at a moment; every call for one moment returns the same object."""
    time_us = min(max(time_us, recording.begin_us), recording.end_us)
    snapshot: Snapshot = recording.kept((time_us, ""), lambda: Snapshot(recording, time_us))
    return snapshot


class Snapshot:
    """The state of a recording at a moment; see `volery.live.service.queries.FederationView`.

    Args:
        time_us: the moment, by the clock of the recording.
    """

    takes_orders = False
    drains = False

    def __init__(self, recording: Recording, time_us: Time) -> None:
        self.recording, self.time_us = recording, time_us
        self._source = recording.source
        self._count = Counts(recording, time_us)
        self.sharing = RecordedShares(recording, time_us)

    @property
    def now_us(self) -> Time:
        """The moment, microseconds since 1970."""
        return self._unix(self.time_us)

    def _unix(self, time_us: Time) -> Time:
        return self._source.origin_us + time_us

    @property
    def reports_by_state(self) -> Mapping[str, int]:
        """Counts of attempts that are over, by outcome."""
        outcomes = np.bincount(self.recording.attempts.outcome[self._count.over], minlength=3)
        return {"finished": int(outcomes[FINISHED]), "killed": int(outcomes[KILLED]), "failed": int(outcomes[FAILED])}

    def per_second(self, ended: int) -> float | None:
        """Tasks per second over the last minute, or since the recording began."""
        before_us = max(self.recording.begin_us, self.time_us - MINUTE_US)
        if self.time_us <= before_us:
            return None
        rows = self._count.over
        since = int(np.count_nonzero(self.recording.attempts.finish_us[rows] > before_us))
        return since / (self.time_us - before_us) * 1e6

    # Nodes.

    def _last(self, changes: Sequence[tuple[Time, Address, bool]]) -> set[Address]:
        addresses: set[Address] = set()
        for time_us, node, holds in changes:
            if time_us > self.time_us:
                break
            (addresses.add if holds else addresses.discard)(node)
        return addresses

    def lost(self) -> set[Address]:
        """Components that have crashed and are not back."""
        return self._last(self.recording.log.crashed)

    @functools.cached_property
    def _drained(self) -> set[Address]:
        return self._last(self.recording.log.drained)

    def all_hosts(self) -> list[HostStatus]:
        """None: a recording does not know hosts."""
        return []

    def absent(self) -> tuple[str, ...]:
        return ()

    def samples(self) -> tuple[Sample, ...]:
        """None: a recording shows every moment."""
        return ()

    async def description(self, number: JobId) -> JobDescription | None:
        """None: a recording does not have descriptions."""
        return None

    def nodes(self) -> list[NodeStatus]:
        """All nodes, in order of their machines."""
        cluster = self._source.cluster
        running = self._count.on_machine.tolist()
        capacities = cluster.capacities or [()] * len(cluster.slots)
        lost = self.lost()

        return [
            NodeStatus(
                address=address,
                slots=cluster.slots[machine],
                running=running[machine],
                drained=address in self._drained,
                lost=address in lost,
                arch="",
                os="",
                kernel="",
                cores=0,
                memory_mb=0,
                labels=_constraints(cluster.constraints[machine]),
                offers=dict(zip(cluster.resources, capacities[machine], strict=True)),
            )
            for address, machine in sorted(self._source.nodes.items(), key=lambda node: (node[1], node[0]))
        ]

    def partitions(self) -> Mapping[Address, Sequence[Address]]:
        """The owners of each node, where the scheduler declares them."""
        return self._source.owners

    def runs_on(self, node: Address, limit: int) -> list[TaskStatus]:
        """Tasks that run on a node, at most so many."""
        attempts = self.recording.attempts
        rows = self._count.runs[attempts.machine[self._count.runs] == self._source.nodes[node]][:limit]
        jobs = self.recording.jobs
        return [self.tasks(int(jobs.id[attempts.job[row]]), int(attempts.place[row]), 1)[0] for row in rows.tolist()]

    def elapsed_us(self, task: TaskStatus) -> Time:
        """The time for which a task that runs has run."""
        return max(0, self.now_us - (task.started_us or self.now_us))

    # Jobs.

    def job(self, number: JobId) -> JobStatus | None:
        """One job, once it was submitted."""
        row = self.recording.jobs.place(number)
        return None if row < 0 or self._count.states[row] < 0 else self._status(row)

    def _status(self, row: int) -> JobStatus:
        jobs, now = self.recording.jobs, self.time_us
        job = jobs.of[row]
        state = int(self._count.states[row])
        unsatisfiable, failed = int(jobs.unsatisfiable[row]), int(self._count.failed[row])

        killed = 0
        # Only cancellation kills for good; an attempt that was preempted runs again.
        if state == CANCELLED:
            killed = len({*self._killed_places(row)})

        started_us, done_us = int(jobs.started_us[row]), int(jobs.done_us[row])

        return JobStatus(
            id=job.id,
            name="",
            user=job.user,
            state=STATES[state],
            reason=self._reason(row, state),
            tasks=job.tasks,
            running=int(self._count.running[row]),
            finished=int(self._count.finished[row]),
            failed=failed,
            killed=killed,
            unsatisfiable=unsatisfiable,
            submitted_us=self._unix(job.submitted_us),
            started_us=self._unix(started_us) if started_us <= now else None,
            ended_us=self._unix(done_us) if done_us <= now else None,
            revision=0,
        )

    def _killed_places(self, row: int) -> list[int]:
        attempts = self.recording.attempts
        rows = attempts.of_tasks(row, 0, LATER)
        rows = rows[(attempts.finish_us[rows] <= self.time_us) & (attempts.outcome[rows] == KILLED)]
        places: list[int] = attempts.place[rows].tolist()
        return places

    def _reason(self, row: int, state: int) -> str:
        if state == CANCELLED or int(self.recording.jobs.cancelled_us[row]) <= self.time_us:
            return "cancelled on request"
        if state == FAULTY:
            return f"{int(self._count.failed[row])} of {self.recording.jobs.of[row].tasks} tasks failed"
        if self.recording.jobs.unsatisfiable[row]:
            return next(miss for _, _, miss in self.recording.groups(row) if miss)
        return ""

    def jobs(self, query: JobQuery, limit: int, order: JobOrder = NEWEST) -> list[JobStatus]:
        """Jobs in the order of the query; of equal ones the newest first."""
        jobs = self.recording.jobs
        is_listed = (self._count.states >= 0) & (not query.name)  # no job of a recording has a name
        if query.state is not None:
            is_listed &= self._count.states == STATES.index(query.state)
        if query.user is not None:
            place = jobs.users.index(query.user) if query.user in jobs.users else -1
            is_listed &= jobs.user == place
        if query.before is not None:
            is_listed &= jobs.id < query.before
        if query.since_us is not None:
            is_listed &= jobs.submitted_us >= query.since_us - self._source.origin_us

        rows: Longs = np.flatnonzero(is_listed)
        if query.reason is not None:
            words = query.reason
            rows = np.array(
                [r for r in rows.tolist() if words in self._reason(r, int(self._count.states[r]))], dtype=np.int64
            )

        keys = self._keys(order.by, rows)
        ranked = rows[np.lexsort((-jobs.id[rows], -keys if order.falling else keys))]
        return [self._status(row) for row in ranked[order.skip : order.skip + limit].tolist()]

    async def search(self, query: JobQuery, limit: int, order: JobOrder = NEWEST) -> list[JobStatus]:
        """The answer of `jobs`: a recording has one viewer."""
        return self.jobs(query, limit, order)

    def _keys(self, by: str, rows: Longs) -> Longs:
        """The sort keys of rows, as numbers."""
        jobs = self.recording.jobs

        if by == "state":
            return np.array([sorted(STATES).index(state) for state in STATES])[self._count.states[rows]]

        if by == "reason":
            reasons = [self._reason(row, int(self._count.states[row])) for row in rows.tolist()]
            words = {text: place for place, text in enumerate(sorted(set(reasons)))}
            return np.array([words[text] for text in reasons], dtype=np.int64)

        columns = {
            "id": jobs.id,
            "name": np.zeros_like(jobs.id),
            "user": jobs.user,
            "tasks": jobs.tasks,
            "submitted_us": jobs.submitted_us,
            "ended_us": np.where(jobs.done_us <= self.time_us, jobs.done_us, -1),
        }
        keys: Longs = columns[by][rows]
        return keys

    def tasks(self, number: JobId, first: int, limit: int) -> list[TaskStatus]:
        """Tasks of a job, each in the state of its last attempt."""
        row = self.recording.jobs.place(number)
        if row < 0:
            return []

        attempts, last = self.recording.attempts, dict[int, int]()
        for at_row in attempts.of_tasks(row, first, limit).tolist():
            if attempts.start_us[at_row] <= self.time_us:
                last[int(attempts.place[at_row])] = at_row

        count = self.recording.jobs.of[row].tasks
        misses = [
            (begin, begin + count_of_run, miss) for begin, count_of_run, miss in self.recording.groups(row) if miss
        ]

        return [
            self._task(row, place, last.get(place), next((m for a, b, m in misses if a <= place < b), ""))
            for place in range(first, min(first + limit, count))
        ]

    def _task(self, row: int, place: int, at_row: int | None, miss: str) -> TaskStatus:
        jobs, attempts = self.recording.jobs, self.recording.attempts
        number = jobs.of[row].id
        given_up = int(self._count.states[row]) == CANCELLED

        if at_row is None:
            state: TaskState = "unsatisfiable" if miss else "cancelled" if given_up else "pending"
            return TaskStatus(job=number, index=place, state=state, reason=miss)

        finish, outcome = int(attempts.finish_us[at_row]), int(attempts.outcome[at_row])
        is_over = finish <= self.time_us

        state = "running"
        if is_over:
            state = "finished" if outcome == FINISHED else "failed" if outcome == FAILED else "pending"
            if outcome == KILLED and given_up:
                state = "killed"

        reason = ""
        if state == "pending":
            reason = self.sharing.why_again(row, place, int(attempts.attempt[at_row])) or LOST

        return TaskStatus(
            job=number,
            index=place,
            state=state,
            reason=reason,
            attempt=int(attempts.attempt[at_row]),
            node=self.recording.node_on.get(int(attempts.machine[at_row]), ""),
            started_us=self._unix(int(attempts.start_us[at_row])),
            ended_us=self._unix(finish) if is_over else None,
        )

    def allocations_us(self, limit: int) -> list[Time]:
        """Times from submission to the first start of a task, of the tasks of the last jobs."""
        jobs, attempts, allocations = self.recording.jobs, self.recording.attempts, list[Time]()

        for row in np.flatnonzero(jobs.started_us <= self.time_us)[::-1][:limit].tolist():
            of_job = attempts.of_tasks(row, 0, LATER)
            firsts = of_job[np.diff(attempts.place[of_job], prepend=-1) != 0]
            began = attempts.start_us[firsts]
            allocations += np.maximum(began[began <= self.time_us] - jobs.submitted_us[row], 0)[
                : limit - len(allocations)
            ].tolist()
            if len(allocations) >= limit:
                break
        return allocations

    # Why.

    async def explain(self, number: JobId, place: int | None) -> Why | None:
        """The explanation of a task's state; without a place: of the first task that waits, or the first of all."""
        job, row = self.job(number), self.recording.jobs.place(number)
        if job is None or (place is not None and place >= job.tasks):
            return None

        is_whole_job = place is None
        if place is None:
            place = self._first_waiting(job)

        task = self.tasks(number, place, 1)[0]
        mask, request = self.recording.request_of(row, place)
        drained = {self._source.nodes[node] for node in self._drained if node in self._source.nodes}
        running_tasks = {machine: count for machine, count in enumerate(self._count.on_machine.tolist()) if count}

        steps = counted(candidates(self._source.cluster, mask, request, drained, running_tasks))
        started_tasks = job.running + job.finished + job.failed + job.killed
        started = started_tasks if is_whole_job else int(task.state not in ("pending", "unsatisfiable", "cancelled"))
        words = "were given to tasks of the job" if is_whole_job else "were given to it"

        decided = self.recording.log.decided
        return Why(
            job=number,
            index=place,
            state=task.state,
            reason=task.reason or job.reason,
            waiting=0 if job.ended else max(0, job.tasks - started_tasks - job.unsatisfiable),
            funnel=(*steps, FunnelStep(words, started)),
            decisions=self._decisions(self.recording.jobs.of[row].first + place),
            explained=bool(decided.of_task),
        )

    def _first_waiting(self, job: JobStatus) -> int:
        for first in (max(0, job.running + job.finished + job.failed - 1), 0):
            for task in self.tasks(job.id, first, LOOK_MAX):
                if task.state == "pending":
                    return task.index
        return 0

    def _decisions(self, task: TaskId) -> tuple[DecisionStep, ...]:
        decided = self.recording.log.decided
        dropped = decided.dropped.get(task, 0)
        return tuple(
            DecisionStep(
                at_us=self._unix(time_us),
                by=by,
                chosen=decision.chosen,
                node=self.recording.node_on.get(decision.machine, ""),
                asked=decision.asked,
                view_age_us=decision.view_age_us,
                omitted=dropped if place == 1 else 0,
                passed=tuple(
                    RejectionCount(rejection.scope, rejection.reason, rejection.count)
                    for rejection in decision.rejected
                ),
            )
            for place, (time_us, by, decision) in enumerate(decided.of_task.get(task, ()))
            if time_us <= self.time_us
        )

    def views(self) -> list[PairStatus]:
        """Counts of decisions so far that used views of other schedulers' machines."""
        names = self.recording.log.decided.pairs
        decisions, refusals, ages_us = self._decided(0)
        recent, recent_refused, recent_ages_us = self._decided(self.time_us - RECENT_US)

        return [
            PairStatus(
                by=by,
                asked=asked_component,
                decisions=decisions[place],
                refused=refusals[place],
                view_age_us=ages_us[place] // max(1, decisions[place]),
                recent=recent[place],
                recent_refused=recent_refused[place],
                recent_view_age_us=recent_ages_us[place] // recent[place] if recent[place] else None,
            )
            for (by, asked_component), place in sorted((pair, place) for place, pair in enumerate(names))
            if decisions[place] or refusals[place]
        ]

    def _decided(self, since_us: Time) -> tuple[list[int], list[int], list[int]]:
        """Per pair since then: placements that held, those that were refused, and the sum of ages in microseconds."""
        times, pairs, ages = self.recording.asked
        first = int(np.searchsorted(times, since_us)) if since_us > 0 else 0
        until, pair_count = (
            int(np.searchsorted(times, self.time_us, side="right")),
            len(self.recording.log.decided.pairs),
        )

        of = pairs[first:until]
        age_us = ages[first:until]
        was_placed, zeros = age_us >= 0, np.zeros(pair_count, dtype=np.int64)

        if not of.size:
            return zeros.tolist(), zeros.tolist(), zeros.tolist()

        sums = np.bincount(of[was_placed], weights=age_us[was_placed], minlength=pair_count).astype(np.int64)
        counts, refused = (
            np.bincount(of[is_counted], minlength=pair_count) for is_counted in (was_placed, ~was_placed)
        )
        return counts.tolist(), refused.tolist(), sums.tolist()

    # Users.

    def loads(self, user: str | None = None) -> list[UserLoad]:
        """The load of every user, or of one."""
        jobs, user_count = self.recording.jobs, len(self.recording.jobs.users)

        def summed(weights: Longs) -> list[int]:
            counts: list[int] = np.bincount(jobs.user, weights=weights, minlength=user_count).astype(np.int64).tolist()
            return counts

        count = self._count
        running = np.where(count.states >= 0, count.running, 0)
        columns = [summed(column) for column in (count.states == PENDING, count.states == BUSY, count.pending, running)]
        user_loads = [
            UserLoad(name, *counts) for name, counts in zip(jobs.users, zip(*columns, strict=True), strict=True)
        ]
        return [load for load in user_loads if any(load[1:]) and user in (None, load.user)]

    def users(self, user: str | None) -> list[UserStatus]:
        """Users with a load or a share, or only one."""
        loads = {load.user: load for load in self.loads(user)}
        due, weights = (
            self.sharing.due(),
            {share.name: share.weight for share in self._source.shares if not share.members},
        )

        names = sorted({*loads, *due} if user is None else {user})

        statuses = []
        for name in names:
            counts = loads[name]._asdict() if name in loads else {"user": name}
            share = due.get(name)
            statuses.append(
                UserStatus(**counts, share=None if share is None else float(share), weight=weights.get(name))
            )
        return statuses

    # Queries that only recordings answer.

    @property
    def interval(self) -> int:
        """The index of the interval that contains the moment."""
        log = self.recording.log
        interval_count = len(log.sent[0]) if log.sent else 1
        return min(interval_count - 1, max(0, (self.time_us - log.begin_us) // log.step_us))

    def archived(self, number: JobId) -> None:
        """None: no job of a recording is in the archive."""

    def mistaken(self, by: Address) -> dict[Address, tuple[int, int]]:
        """Errors of a scheduler's view: first node of a group -> slots wrongly free, slots wrongly taken."""
        errors = next((view for view in self.recording.log.views if view.by == by), None)

        if errors is None:
            return {}
        node_on, wrong = self.recording.node_on, errors.wrong[self.interval]
        return {
            node_on[machine]: (wrongly_free, wrongly_taken)
            for machine, wrongly_free, wrongly_taken in wrong
            if machine in node_on
        }


LOST: Final = "its last attempt was lost, or given up; the task runs again when there is room"


def _constraints(mask: int) -> dict[str, str | int]:
    """The constraints that a machine satisfies, as a label."""
    met = [str(bit) for bit in range(mask.bit_length()) if mask >> bit & 1]
    return {"constraints": " ".join(met)} if met else {}
