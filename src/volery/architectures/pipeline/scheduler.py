"""The scheduler that jobs are submitted to: stages J1 to J7, T1 and M1 around the cycle that places tasks."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Sequence
from typing import Any

from volery.architectures.pipeline.autoscaler import SWITCHES
from volery.architectures.pipeline.cycle import Cycle
from volery.architectures.pipeline.delay import DelayScheduling
from volery.architectures.pipeline.local_manager import BROKER, Broker
from volery.architectures.pipeline.node import Cleaned, Launch, Pass, Ready, Report, Restarted
from volery.architectures.pipeline.policies import JobRecord, Kind, Waiting
from volery.core.component import Component, Sends, sent_to
from volery.core.events import (
    GANG_TASKS_REFUSED,
    Cancel,
    Counted,
    Measured,
    MoreTasks,
    PeerBack,
    PeerLost,
    Submit,
    TimerFired,
)
from volery.core.model import NEVER, Address, Gang, Job, JobId, Task, TaskId, Time
from volery.roles.node import Completed, Kill
from volery.roles.submission import ANSWERS, JobLedger, Workflow

CLEANUP = "cleanup"
TO_BROKER = sent_to("broker", Pass, Kill)


class Scheduler(Component):
    """Takes jobs, places their tasks when they are ready, and answers when they are done.

    Its targets are machines, or the local resource managers of two levels.

    Args:
        cycle: The cycle that places tasks.
        eligibility: The policy of stage J2.
        setup: The policy of stage J5.
        cleanup: The policy of stage J7.
        broker: The broker that manages some tasks; None: there is none.
        delay: The search for machines near the input, the same as in the cycle; None: there is none.
    """

    def __init__(
        self,
        cycle: Cycle,
        eligibility: Any,
        setup: Any,
        cleanup: Any,
        broker: Broker | None = None,
        delay: DelayScheduling | None = None,
    ) -> None:
        self._cycle = cycle
        self._state = cycle.state
        self._eligibility = eligibility
        self._setup_job = setup.stage_us
        self._clean_up_job = cleanup.clean_us
        self._cleaning_users: dict[JobId, str] = {}
        self._broker = broker
        self._delay = delay
        self._lines_of_jobs: dict[Hashable, deque[JobRecord]] = {}
        self._unqueued_tasks: dict[JobId, list[tuple[Task, Kind]]] = {}
        self._arrivals: dict[JobId, dict[TaskId, Time]] = {}
        self._staging_jobs: set[JobId] = set()
        self._graphs = self._state.graphs
        self._gathering: dict[JobId, tuple[Gang, list[Task]]] = {}
        # Graphs of jobs with tasks to come, none of which has parents so far.
        self._graphs_without_edges: dict[JobId, Workflow] = {}

    def start(self, now: Time) -> None:
        """Open the ledger of jobs."""
        self._jobs = JobLedger(self._port.send)
        self._cycle.begin(self._port, self)

    def on_submit(self, message: Submit, source: Address, now: Time) -> None:
        """Stage J1: take a job in."""
        job = message.job
        waiting_count = len(self._state.waiting)
        self._port.observe(Measured("queued_tasks", waiting_count))

        # Locations of input are noted before tasks are queued; a repeated submission has them already.
        is_known = self._jobs.is_open(job.id) or self._jobs.is_done(job.id)
        if self._delay is not None and not is_known:
            self._delay.locate(job.id, job.tasks, job.replicas)

        tasks = self._jobs.admit(message, source, waiting_count)

        if is_known or not self._jobs.is_open(job.id):
            return

        record = self._state.jobs[job.id] = _job_record(job, now)
        line = self._eligibility.line(record)
        self._lines_of_jobs.setdefault(line, deque()).append(record)

        self._unqueued_tasks[job.id] = []
        if job.gang is not None and self._cycle.expect_gang(job.id, job.gang, job.task_count):
            self._gathering[job.id] = job.gang, []
        elif any(job.parents):
            self._graphs[job.id] = Workflow()
        elif job.task_count > len(job.tasks):
            self._graphs_without_edges[job.id] = Workflow()

        self._arrived(record, tasks, job.parents, now)

        # A job behind another changes nothing.
        if len(self._lines_of_jobs.get(line, ())) == 1:
            self._state.now = now
            self._admit_line(line, now)

        self._cycle.changed(now)

    def on_more_tasks(self, message: MoreTasks, source: Address, now: Time) -> None:
        """Take a further chunk in."""
        record = self._state.jobs.get(message.job)
        if self._delay is not None and record is not None:
            self._delay.locate(message.job, message.tasks, message.replicas)
        tasks = self._jobs.more(message)
        if not tasks or record is None:
            return

        if any(message.parents) and message.job not in self._graphs:
            graph = self._graphs[message.job] = self._graphs_without_edges.pop(message.job)
            # The tasks of earlier chunks came without parents.
            graph.add([task for task, _ in self._unqueued_tasks.get(message.job, ())], (), set())

        self._arrived(record, tasks, message.parents, now)

        if self._jobs.is_open(record.id) and self._jobs.received(record.id) == record.task_count:
            self._graphs_without_edges.pop(record.id, None)
        self._cycle.changed(now)

    def _arrived(
        self, record: JobRecord, tasks: Sequence[Task], parents: Sequence[Sequence[TaskId]], now: Time
    ) -> None:
        gang = None
        if record.id in self._gathering:
            gang, gathered_tasks = self._gathering[record.id]
            gathered_tasks += tasks
            if len(gathered_tasks) < record.task_count:
                return
            tasks = self._gathering.pop(record.id)[1]

        # Only tasks that came later than their job have an arrival of their own.
        if now > record.submit_us:
            self._arrivals.setdefault(record.id, {}).update(dict.fromkeys([task.id for task in tasks], now))

        kinds = {task.id: self._cycle.kind(task, record) for task in tasks}
        # Tasks that fit no machine, and in a workflow all that wait for them, never run.
        impossible_tasks = {
            task.id for task in tasks if not (kinds[task.id].possible or self._possible_at_broker(task))
        }

        if gang is not None and tasks and not self._cycle.may_hold([kinds[task.id] for task in tasks], gang):
            refused_count = len(tasks) - len(impossible_tasks)
            self._port.observe(Counted(GANG_TASKS_REFUSED, refused_count))
            impossible_tasks = set(kinds)

        graph = self._graphs.get(record.id)
        ready: Sequence[Task]
        if graph is not None:
            ready = graph.add(tasks, parents, impossible_tasks)
            impossible_tasks = {task.id for task in tasks if task.id in graph.never}
        else:
            ready = [task for task in tasks if task.id not in impossible_tasks] if impossible_tasks else tasks
            if record.id in self._graphs_without_edges:
                self._graphs_without_edges[record.id].never |= impossible_tasks

        for task in tasks:
            if task.id not in impossible_tasks:
                work = self._state.work_us(task)
                record.work_us += work
                record.left_us += work

        # Tasks of a job that is not eligible yet are queued when it is.
        if record.eligible and record.id not in self._staging_jobs:
            for task in ready:
                self._ready(record, task, kinds[task.id], now)
        else:
            self._unqueued_tasks[record.id] += [(task, kinds[task.id]) for task in ready]

        for _ in impossible_tasks:
            self._jobs.unsatisfiable(record.id)

        self._settle(record, now)

    def _possible_at_broker(self, task: Task) -> bool:
        return self._broker is not None and self._broker.possible(task)

    def _ready(self, record: JobRecord, task: Task, kind: Kind, now: Time) -> None:
        """Stage T1: nothing that the task or its job waits for is left, and it joins the queue."""
        graph = self._graphs.get(record.id)
        rank_us = graph.rank_us(task.id) if graph else task.estimate_us

        arrivals = self._arrivals.get(record.id) if self._arrivals else None
        came_us = arrivals.get(task.id, record.submit_us) if arrivals else record.submit_us
        waiting = self._cycle.record(task, record, kind, rank_us, came_us, now)

        if self._broker is not None and self._broker.takes(self._cycle.view, waiting):
            self._pass_to_broker(self._broker, waiting)
        else:
            self._cycle.enqueue(waiting)

    def _pass_to_broker(self, broker: Broker, waiting: Waiting) -> None:
        """Stage M1: the task is managed elsewhere."""
        self._port.send(BROKER, broker.passed(waiting))

    def admit(self, now: Time) -> None:
        """Stages J2 and J4: jobs that have become eligible, one after another."""
        for line in list(self._lines_of_jobs) if self._lines_of_jobs else ():
            self._admit_line(line, now)

    def _admit_line(self, line: Hashable, now: Time) -> None:
        records = self._lines_of_jobs[line]
        while records and (
            records[0].id not in self._state.jobs or self._eligibility.eligible(self._cycle.view, records[0])
        ):
            record = records.popleft()
            # A job at the head may have been given up while it waited.
            if record.id in self._state.jobs:
                self._set_up(record, now)

        if not records:
            del self._lines_of_jobs[line]

    def _set_up(self, record: JobRecord, now: Time) -> None:
        """Stage J5: the job is eligible; its files come in before its tasks are queued."""
        record.eligible = True
        self._state.eligible[record.user] = self._state.eligible.get(record.user, 0) + 1

        stage_us = self._setup_job(self._cycle.view, record)
        if stage_us > 0:
            self._staging_jobs.add(record.id)
            self._port.set_timer(("setup", record.id), now + stage_us)
        else:
            self._queue_up(record, now)

    def _queue_up(self, record: JobRecord, now: Time) -> None:
        tasks = self._unqueued_tasks.pop(record.id)
        for task, kind in tasks:
            self._ready(record, task, kind, now)

    def on_timer(self, event: TimerFired, source: Address, now: Time) -> None:
        """Queue the tasks of a job whose files have come in, forget one whose files are deleted, or run the cycle."""
        if isinstance(event.key, str):
            self._cycle.on_timer(event.key, now)
            return
        assert isinstance(event.key, tuple)
        if event.key[0] == CLEANUP:
            self._not_eligible(self._cleaning_users.pop(int(event.key[1])))
            self._cycle.changed(now)
            return

        record = self._state.jobs.get(int(event.key[1]))
        if record is not None:
            self._staging_jobs.discard(record.id)
            self._queue_up(record, now)
            self._cycle.changed(now)

    def on_completed(self, message: Completed, source: Address, now: Time) -> None:
        """Stage T7: use the machine again, and release what has waited for the task."""
        if self._broker is not None and source == BROKER:
            waiting = self._broker.tasks.pop(message.task, None)
        else:
            waiting = self._cycle.ended(message, now)

        if waiting is not None:
            self.finish(waiting, now)
            self._cycle.changed(now)

    def finish(self, waiting: Waiting, now: Time) -> None:
        """A task has ended: count it, and queue what it has held up."""
        record = waiting.job
        record.left_us -= waiting.work_us

        graph = self._graphs.get(record.id) or self._graphs_without_edges.get(record.id)

        # What waits for tasks of a cancelled job has been dropped.
        if graph is not None and record.id not in self._jobs.cancelled:
            for task in graph.finished(waiting.task.id):
                self._ready(record, task, self._cycle.kind(task, record), now)

        self._jobs.finished(record.id)
        self._settle(record, now)

    def _settle(self, record: JobRecord, now: Time) -> None:
        """Stage J6: forget a job that is done."""
        if self._jobs.is_open(record.id) or record.id not in self._state.jobs:
            return

        del self._state.jobs[record.id]
        self._cycle.job_done(record.id, now)
        self._unqueued_tasks.pop(record.id, None)
        self._graphs.pop(record.id, None)
        self._graphs_without_edges.pop(record.id, None)
        self._arrivals.pop(record.id, None)
        self._staging_jobs.discard(record.id)
        self._gathering.pop(record.id, None)
        if self._delay is not None:
            self._delay.forget(record.id)

        if record.eligible:
            self._clean_up(record, now)

    def _clean_up(self, record: JobRecord, now: Time) -> None:
        """Stage J7: delete the job's files; until then it counts among the eligible ones of its user (J2)."""
        clean_us = self._clean_up_job(self._cycle.view, record)
        if clean_us > 0:
            self._cleaning_users[record.id] = record.user
            self._port.set_timer((CLEANUP, record.id), now + clean_us)
        else:
            self._not_eligible(record.user)

    def _not_eligible(self, user: str) -> None:
        count = self._state.eligible[user] - 1
        if count:
            self._state.eligible[user] = count
        else:
            del self._state.eligible[user]

    def on_cancel(self, message: Cancel, source: Address, now: Time) -> None:
        """Drop the job's waiting tasks and kill the others."""
        record = self._state.jobs.get(message.job)
        if self._jobs.cancel(message, source):
            assert record is not None, "a job that is open has a record"

            dropped_count = self._cycle.give_up(record, now) + len(self._unqueued_tasks.pop(record.id, ()))
            dropped_count += len(self._gathering.pop(record.id, (None, ()))[1])
            graph = self._graphs.pop(record.id, None)
            # Tasks that wait for others of the workflow end with the job.
            dropped_count += graph.blocked if graph else 0

            if record.id in self._staging_jobs:
                self._port.cancel_timer(("setup", record.id))

            for waiting in self._broker.tasks.values() if self._broker else ():
                if waiting.job is record:
                    self._port.send(BROKER, Kill(waiting.task.id, waiting.attempt))

            if dropped_count:
                self._jobs.finished(record.id, dropped_count)

        if record is not None:
            self._settle(record, now)
            self._cycle.changed(now)

    def on_node(
        self, event: Cleaned | Report | PeerLost | PeerBack | Restarted | Ready, source: Address, now: Time
    ) -> None:
        """Pass the news of a node on to the cycle."""
        self._cycle.on_node(event, source, now)

    def check(self) -> None:
        """Check the cycle; the jobs of the ledger have records."""
        self._cycle.check()
        assert all(self._jobs.is_open(job) for job in self._state.jobs)
        assert len(self._jobs) == len(self._state.jobs)
        assert self._arrivals.keys() <= self._state.jobs.keys()

    def check_rest(self) -> None:
        assert not self._cleaning_users, "files are left"
        self._cycle.check_rest()

    def emits(self) -> Sends:
        return ANSWERS | TO_BROKER | self._cycle.sends

    receives = {  # noqa: RUF012 - the base class reads the table once and replaces it
        Submit: on_submit,
        MoreTasks: on_more_tasks,
        Cancel: on_cancel,
        Completed: on_completed,
        Cleaned: on_node,
        Report: on_node,
        TimerFired: on_timer,
        PeerLost: on_node,
        PeerBack: on_node,
        Restarted: on_node,
        Ready: on_node,
    }
    sends = ANSWERS | TO_BROKER | sent_to("node", Launch, Kill) | SWITCHES | sent_to("lrm", Pass, Kill)


def _job_record(job: Job, now: Time) -> JobRecord:
    facts = (job.id, job.user, job.priority, job.deadline_us, now, job.estimate_us, job.task_count)
    return JobRecord(*facts, master=job.tasks[0].id if job.tasks else NEVER)
