"""Rows of a trace that are not replayed, or otherwise than the source states: a reason for each, and counts by reason.

A row is replayed when it held a machine, at a time and for a time that the source has, however it ended. With
`only="finished"` it must have finished, too. A row that began before the trace is replayed from 0 with what was left;
one whose submission is not known comes when it started.
A request that the source does not state is no request: the row is replayed without, and counted. A reader gives a
reason of its own in the columns `left_out` and `changed`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from collections.abc import Set as AbstractSet
from typing import Any, Final, Literal, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from volery.core.model import AMOUNT_MAX, SECOND
from volery.core.omissions import CHANGED, LEFT_OUT, REQUESTS, WAITS, Effect, Omission, Omissions, machine_unit

Only = Literal["ran", "finished"]
"""Work that is replayed: all that ran, or only what finished."""
REPLAYED: Final = "replayed"
BY_READER: Final = "left out by the reader"
"""It stands for the reason that the row itself states."""
NO_JOB: Final = "no id of a job"
NEVER_STARTED: Final = "never started, so held no machine"
STILL_RUNNING: Final = "still running when the trace ends, so its end is not known"
NO_SUBMISSION: Final = "no time of submission, nor of a start"
UNSUBMITTED: Final = "no time of submission, so that they come when they started"
NO_RUNTIME: Final = "no runtime"
NEGATIVE_RUNTIME: Final = "a runtime below 0"
NOT_FINISHED: Final = "ran but did not finish (--only finished)"
NO_INSTANCES: Final = "no number of instances, or 0"
IMPOSSIBLE_REQUEST: Final = "a request below 0 or above what a machine can have"
BEFORE_TRACE: Final = "ended before the trace begins"
REASONS: Final = (
    REPLAYED,
    BY_READER,
    NO_JOB,
    NEVER_STARTED,
    STILL_RUNNING,
    NO_SUBMISSION,
    NO_RUNTIME,
    NEGATIVE_RUNTIME,
    NOT_FINISHED,
    NO_INSTANCES,
    IMPOSSIBLE_REQUEST,
    BEFORE_TRACE,
)
"""The reasons in order: the first that is true of a row counts; REPLAYED where none is."""
BEGAN_BEFORE: Final = "began before the trace, and begin with it here, with what was left of them"
NO_USER: Final = "no user is known where others have one"
CONSTRAINED: Final = "constraints on the machine are not heeded"
UNRESOLVED: Final = "for tasks that their job does not have"
TWINS: Final = "of an id that their job has more than once: one job here, in which a wait for one is a wait for all"
ONE_BY_ONE: Final = "tasks that run only together, of a job whose rows wait for each other: each row is one task"
ATTEMPTS: Final = "attempts whose tasks run only together: each is a job, which came when the attempt before it ended"
ENDED_BADLY: Final = pa.array(["failed", "killed", "evicted", "lost"])

Mask = NDArray[np.bool_]
Numbers = NDArray[np.int64]


class Judged(NamedTuple):
    """Rows of a batch, judged.

    Attributes:
        codes: per row, the place of its reason among `REASONS`.
        submit_us, runtime_us: per row, on a clock that begins with the trace: cut where the row began before it.
        cut: rows that are cut so.
        machine_us: per row, microseconds times what it holds of the first resource; NaN where that is not known.
    """

    codes: NDArray[np.int8]
    submit_us: Numbers
    runtime_us: Numbers
    cut: Mask
    machine_us: NDArray[np.float64]


def judge(batch: pa.RecordBatch, amounts: dict[str, Any], only: Only, weighed: str = "") -> Judged:
    """Decide which rows are replayed.

    Args:
        amounts: resource -> column of requests, of the resources that the trace asks for.
        weighed: the resource of machine time; empty: the first.
    """
    came = _came(batch)
    submit_us, runtime_us = _numbers(came), _numbers(batch.column("runtime_us"))
    no_runtime = _null(batch.column("runtime_us"))
    began_us = _numbers(pc.coalesce(batch.column("start_us"), came))

    # What ran before the trace begins is cut off: only the time from 0 on is replayed.
    time_before = np.where(submit_us < 0, np.minimum(began_us, 0), 0)
    left_us = np.where(runtime_us < 0, runtime_us, np.maximum(runtime_us + time_before, 0))

    status = batch.column("status")
    badly = true_mask(pc.is_in(status, value_set=ENDED_BADLY))
    waiting, running = (true_mask(pc.equal(status, name)) for name in ("waiting", "running"))

    starts = batch.column("start_us")
    unstarted = _null(starts) & no_runtime if starts.null_count < batch.num_rows else np.zeros(len(badly), np.bool_)

    masks = {
        BY_READER: ~_null(batch.column("left_out")),
        NO_JOB: _null(batch.column("job")),
        NEVER_STARTED: waiting | (badly & (unstarted | (~no_runtime & (runtime_us == 0)))),
        STILL_RUNNING: running & no_runtime,
        NO_SUBMISSION: _null(came),
        NO_RUNTIME: no_runtime,
        NEGATIVE_RUNTIME: runtime_us < 0,
        NOT_FINISHED: (badly | running) if only == "finished" else np.zeros(len(badly), np.bool_),
        NO_INSTANCES: ~true_mask(pc.greater_equal(batch.column("instances"), 1)),
        IMPOSSIBLE_REQUEST: _any([_impossible(column) for column in amounts.values()], len(badly)),
        BEFORE_TRACE: (time_before < 0) & (runtime_us + time_before <= 0),
    }

    codes = np.zeros(batch.num_rows, np.int8)
    # From the last reason to the first, so that the first one that is true remains.
    for place in range(len(REASONS) - 1, 0, -1):
        codes[masks[REASONS[place]]] = place

    is_unknown = no_runtime | masks[NEGATIVE_RUNTIME] | masks[NO_INSTANCES] | masks[IMPOSSIBLE_REQUEST]
    held_us = np.where(is_unknown, np.nan, left_us * weight_of(batch, amounts, weighed))
    # What never started held no machine, whatever its other fields state.
    held_us[(codes == REASONS.index(NEVER_STARTED)) | (~is_unknown & (left_us == 0))] = 0.0

    return Judged(codes, np.maximum(submit_us, 0), left_us, time_before < 0, held_us)


def _came(batch: pa.RecordBatch) -> Any:
    """Submissions of rows; a row without one comes when it started, if that is known."""
    ends_less = pc.subtract(batch.column("end_us"), batch.column("runtime_us"))
    return pc.coalesce(batch.column("submit_us"), batch.column("start_us"), ends_less)


def finished_rows(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The rows of a batch that finished, and those without a status."""
    status = batch.column("status")
    return batch.filter(pc.or_kleene(pc.is_null(status), pc.fill_null(pc.equal(status, "finished"), False)))


def weight_of(batch: pa.RecordBatch, amounts: dict[str, Any], weighed: str) -> NDArray[np.float64]:
    """Amount of a resource that a row holds, all its instances together; of the first resource where none is named."""
    instances = np.asarray(pc.fill_null(batch.column("instances"), 1).to_numpy(zero_copy_only=False), np.float64)
    if not amounts:
        return instances

    column = amounts[weighed] if weighed else next(iter(amounts.values()))
    amount = pc.cast(column[: batch.num_rows], pa.float64())
    return np.asarray(amount.to_numpy(zero_copy_only=False), np.float64) * instances


def _numbers(column: Any) -> Numbers:
    return np.asarray(pc.fill_null(column, 0).to_numpy(zero_copy_only=False), np.int64)


def _null(column: Any) -> Mask:
    return np.asarray(pc.is_null(column).to_numpy(zero_copy_only=False), np.bool_)


def true_mask(values: Any) -> Mask:
    """A mask of true values; unknown is false."""
    return np.asarray(pc.fill_null(values, False).to_numpy(zero_copy_only=False), np.bool_)


def _impossible(column: Any) -> Mask:
    possible = pc.and_(pc.greater_equal(column, 0), pc.less_equal(column, AMOUNT_MAX))  # NaN is not
    return true_mask(pc.invert(possible))


def _any(masks: list[Mask], rows: int) -> Mask:
    return np.logical_or.reduce(masks) if masks else np.zeros(rows, np.bool_)


class _Count:
    """Tasks with one reason, and what they held."""

    def __init__(self) -> None:
        self.jobs: set[str] = set()
        self.tasks = self.unmeasured = self.waits = 0
        self.machine_us = 0.0


class OmissionTally:
    """Counts rows by effect and reason as they go by.

    Args:
        resources: resources that the trace asks for.
        by_job: true counts the jobs of these rows, too, which takes memory for their ids.
        weighed: the resource of machine time; empty: the first.
        has_users: true where users count.

    Attributes:
        rows: number of rows that are left out.
        stated: resource -> rows that state a request of it.
    """

    def __init__(
        self, resources: tuple[str, ...], *, by_job: bool = True, weighed: str = "", has_users: bool = True
    ) -> None:
        self._weighed_resource = weighed or next(iter(resources), "")
        self._unit, self._scale = machine_unit((self._weighed_resource,) if self._weighed_resource else ())
        self._by_job = by_job
        self._counts: defaultdict[tuple[Effect, str], _Count] = defaultdict(_Count)
        self._tasks, self._machine_us = 0, 0.0
        self._waits = 0
        self._last_us = 0
        self._open = (0.0, 0.0)  # of rows that still run: the sum of what they hold, and that of it times their begin
        self.rows = 0
        self.stated = dict.fromkeys(resources, 0)
        self._has_users = has_users
        self._users = 0

    def add(self, batch: pa.RecordBatch, judged: Judged, amounts: dict[str, Any], counted: Mask | None = None) -> None:
        """Count the rows of a batch, or those of them that are marked."""
        rows = batch.num_rows
        mask = np.ones(rows, np.bool_) if counted is None else counted
        codes, machine_us = judged.codes[:rows], judged.machine_us[:rows]

        instances = np.asarray(pc.fill_null(batch.column("instances"), 1).to_numpy(zero_copy_only=False), np.int64)
        instances = np.maximum(instances, 1)
        self._tasks += int(instances[mask].sum())
        self._machine_us += float(np.nansum(machine_us[mask]))

        def count(effect: Effect, reason: str, members: Mask) -> None:
            if not members.any():
                return
            tally = self._counts[effect, reason]
            tally.tasks += int(instances[members].sum())
            tally.unmeasured += int(instances[members & np.isnan(machine_us)].sum())
            tally.machine_us += float(np.nansum(machine_us[members]))
            if self._by_job:
                tally.jobs |= set(batch.column("job").filter(pa.array(members)).to_pylist()) - {None}

        for code in np.unique(codes[mask & (codes > 0)]).tolist():
            members = mask & (codes == code)
            if REASONS[code] == BY_READER:
                self._count_texts(batch.column("left_out"), LEFT_OUT, members, count)
            else:
                count(LEFT_OUT, REASONS[code], members)

        replayed = mask & (codes == 0)
        count(CHANGED, BEGAN_BEFORE, replayed & judged.cut[:rows])
        count(CHANGED, UNSUBMITTED, replayed & _null(batch.column("submit_us")))
        self._count_texts(batch.column("changed"), CHANGED, replayed, count)
        constrained = batch.column("constraints")
        if constrained.null_count < rows:
            count(CHANGED, CONSTRAINED, replayed & true_mask(pc.greater(pc.list_value_length(constrained), 0)))
        if self._has_users:
            without_user = _null(batch.column("user"))
            self._users += int(np.count_nonzero(mask & ~without_user))
            count(CHANGED, NO_USER, replayed & without_user)
        for name, column in amounts.items():
            is_unknown = _null(column)[:rows]
            self.stated[name] += int(np.count_nonzero(mask & ~is_unknown))
            count(REQUESTS, unknown_request(name), replayed & is_unknown)

        self.rows += int(np.count_nonzero(mask & (codes > 0)))
        self._watch_open(batch, mask & (codes == REASONS.index(STILL_RUNNING)), amounts)

    def _count_texts(
        self, texts: Any, effect: Effect, members: Mask, count: Callable[[Effect, str, Mask], None]
    ) -> None:
        """Count rows by the reasons that they state themselves."""
        if texts.null_count == len(texts):
            return
        for reason in sorted(set(texts.filter(pa.array(members)).to_pylist()) - {None}):
            count(effect, reason, members & true_mask(pc.equal(texts, reason)))

    def _watch_open(self, batch: pa.RecordBatch, members: Mask, amounts: dict[str, Any]) -> None:
        """Rows that still run have held their machine from their begin to the last time of the trace, at least."""
        for name in ("submit_us", "start_us", "end_us"):
            last = pc.max(batch.column(name)).as_py()
            self._last_us = max(self._last_us, last or 0)
        starts = pc.coalesce(batch.column("start_us"), batch.column("submit_us"))
        members = members & ~_null(starts)

        if members.any():
            weight = weight_of(batch, amounts, self._weighed_resource)
            weight = np.where(weight >= 0, weight, 0.0)  # an unknown one is NaN
            began = _numbers(starts)
            self._open = (
                self._open[0] + float(weight[members].sum()),
                self._open[1] + float((weight * np.maximum(began, 0))[members].sum()),
            )

    def add_waits(self, job: str, waits: int, unresolved: int, tasks: int) -> None:
        """Count the waits of the tasks of a job.

        Args:
            waits: number of waits that the source states.
            unresolved: number of waits for tasks that the job does not have.
            tasks: number of tasks that have such a wait.
        """
        self._waits += waits

        if unresolved:
            tally = self._counts[WAITS, UNRESOLVED]
            tally.jobs |= {job} if self._by_job else set()
            tally.tasks += tasks
            tally.waits += unresolved

    def add_twins(self, job: str, tasks: int) -> None:
        """Count the tasks of a job with waits whose id another task of it has."""
        self.add_changed(TWINS, job, tasks)

    def add_changed(self, reason: str, job: str, tasks: int) -> None:
        """Count tasks of a job that are replayed otherwise than the source states."""
        if tasks:
            tally = self._counts[CHANGED, reason]
            tally.jobs |= {job} if self._by_job else set()
            tally.tasks += tasks
            tally.unmeasured += tasks

    def omissions(self, kept_jobs: AbstractSet[str] = frozenset()) -> Omissions:
        """All that was omitted; after the last row.

        Args:
            kept_jobs: ids of the jobs of which some row is replayed.
        """
        held_us = {key: tally.machine_us for key, tally in self._counts.items()}

        # The sum of weight * (last time - begin) over the rows that still run.
        open_us = max(0.0, self._last_us * self._open[0] - self._open[1])
        total_us = self._machine_us + open_us - held_us.get((LEFT_OUT, STILL_RUNNING), 0.0)
        held_us |= {(LEFT_OUT, STILL_RUNNING): open_us}
        scale = self._scale / SECOND

        unstated = {unknown_request(name) for name, rows in self.stated.items() if not rows}
        unstated |= set() if self._users else {NO_USER}

        reasons = [
            Omission(
                reason,
                len(tally.jobs),
                tally.tasks,
                held_us[effect, reason] * scale,
                held_us[effect, reason] / total_us if total_us else 0.0,
                tally.unmeasured,
                tally.waits,
                effect,
            )
            for (effect, reason), tally in self._counts.items()
            if reason not in unstated  # a resource or user that no row states is none of this trace
        ]

        reasons.sort(key=lambda omission: (-omission.machine_time, -omission.tasks, omission.reason))
        lost_jobs = (
            set().union(*(omission.jobs for (effect, _), omission in self._counts.items() if effect == LEFT_OUT))
            - kept_jobs
        )
        jobs = len(kept_jobs) + len(lost_jobs)
        return Omissions(jobs, self._tasks, total_us * scale, self._unit, len(lost_jobs), tuple(reasons), self._waits)


def unknown_request(resource: str) -> str:
    """The reason of tasks whose request of a resource the source does not state."""
    return f"no request of {resource} is known, so that none is made"
