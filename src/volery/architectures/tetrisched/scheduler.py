"""The scheduler of TetriSched and alsched: it plans all waiting jobs, and launches the tasks that start now."""

from __future__ import annotations

import itertools

import msgspec

from volery.architectures.tetrisched.expressions import alternatives
from volery.architectures.tetrisched.machines import ClusterMachines, TimeGrid
from volery.architectures.tetrisched.milp import Limits
from volery.architectures.tetrisched.plan import NO_BRANCH, CyclePlan, JobPlacement, PlanProblem, Solver, answer, packed
from volery.architectures.tetrisched.requests import JobRequest, Requests, RequestSetting, WaitingJob
from volery.core.component import Component, sent_to
from volery.core.events import GANG_TASKS_REFUSED, Cancel, Computed, Counted, Measured, MoreTasks, Submit, TimerFired
from volery.core.model import NEVER, Address, Cluster, JobId, Task, Time
from volery.core.port import Problem
from volery.policies.match import positions
from volery.roles.node import Completed, Kill, Launch
from volery.roles.submission import ANSWERS, JobLedger, comes_in_parts

CYCLE = "cycle"
PLAN = "plan"


class CycleSetting(msgspec.Struct, frozen=True):
    """The parameters of the scheduler."""

    cycle_us: Time
    quantum_us: Time
    ahead: int
    solver: Solver
    limits: Limits
    jobs_max: int
    decision_us: Time
    leaf_us: float
    asking: RequestSetting

    def grid(self, now: Time) -> TimeGrid:
        """Time from now on; best effort loses its value over two plan-aheads."""
        return TimeGrid(now, self.quantum_us, self.ahead, max(1, 2 * self.ahead) * self.quantum_us)


class Scheduler(Component):
    """Plans the waiting jobs in cycles."""

    def __init__(self, cluster: Cluster, setting: CycleSetting) -> None:
        self._setting = setting
        self._machines = ClusterMachines(cluster)
        self._requests = Requests(self._machines, setting.asking)
        self._open_jobs: dict[JobId, WaitingJob] = {}
        self._waiting_jobs: dict[JobId, WaitingJob] = {}
        # Those of the waiting jobs with a deadline that can be met, in the same order.
        self._urgent_jobs: dict[JobId, WaitingJob] = {}
        self._queued = 0
        self._cycle_requests: tuple[JobRequest, ...] = ()
        self._planned_us = NEVER
        self._planning = False
        self._has_changed = False
        self._launches = 0

    def start(self, now: Time) -> None:
        self._jobs = JobLedger(self._port.send)

    def on_submit(self, message: Submit, source: Address, now: Time) -> None:
        tasks = self._jobs.admit(message, source, self._queued)
        if tasks:
            self._open_jobs[message.job.id] = WaitingJob(msgspec.structs.replace(message.job, tasks=()), now, {})
            self._wait(message.job.id, tasks, now)

    def on_more_tasks(self, message: MoreTasks, source: Address, now: Time) -> None:
        """Queue a further chunk; it is a gang of its own if the rest has started."""
        tasks = self._jobs.more(message)
        if tasks:
            self._open_jobs[message.job].in_parts |= comes_in_parts(message)
            self._wait(message.job, tasks, now)

    def _wait(self, job: JobId, tasks: tuple[Task, ...], now: Time) -> None:
        waiting = self._open_jobs[job]

        for task in tasks:
            if self._machines.fitting(task.constraints):
                waiting.groups.setdefault(task.constraints, []).append(task)
                self._queued += 1
            else:
                waiting.lacking += 1
                self._jobs.unsatisfiable(job)

        if self._is_impossible(waiting):
            self._refuse(waiting)
        elif waiting.groups and not self._is_to_come(waiting):
            self._waiting_jobs[job] = waiting
            if self._setting.asking.timeless is None and not waiting.missed and waiting.job.deadline_us != NEVER:
                self._urgent_jobs[job] = waiting

        self._close_if_done(job)
        self._change(now)

    def _is_impossible(self, waiting: WaitingJob) -> bool:
        """Tell if all tasks of the job came together, wait, and never fit on the empty cluster."""
        if (
            not (self._setting.asking.gangs or waiting.is_rigid)
            or waiting.in_parts
            or waiting.tasks + waiting.lacking < waiting.job.task_count
        ):
            return False

        return waiting.lacking > 0 or not self._requests.is_possible(waiting)

    def _is_to_come(self, waiting: WaitingJob) -> bool:
        """True if chunks of a job that was submitted as a gang are to come: it starts whole."""
        return waiting.is_rigid and waiting.tasks + waiting.lacking < waiting.job.task_count

    def _refuse(self, waiting: WaitingJob) -> None:
        """Report the tasks of a gang that the empty cluster cannot hold as tasks that fit no machine."""
        job = waiting.job.id
        count = waiting.tasks

        self._leave(job)
        self._queued -= count
        waiting.groups.clear()

        if count:
            self._port.observe(Counted(GANG_TASKS_REFUSED, count))

        for _ in range(count):
            self._jobs.unsatisfiable(job)

    def _leave(self, job: JobId) -> WaitingJob | None:
        self._urgent_jobs.pop(job, None)
        return self._waiting_jobs.pop(job, None)

    def _close_if_done(self, job: JobId) -> None:
        if not self._jobs.is_open(job):
            self._open_jobs.pop(job, None)

    def _change(self, now: Time) -> None:
        """Plan again as soon as the cycle allows: something has changed."""
        self._has_changed = True

        if not self._waiting_jobs or self._planning:
            return

        if not self._setting.cycle_us:
            self._plan(now)
            return

        due_us = now if self._planned_us == NEVER else max(now, self._planned_us + self._setting.cycle_us)
        # A timer also if that is now: jobs of one instant are planned together.
        self._port.set_timer(CYCLE, due_us)

    def on_timer(self, event: TimerFired, source: Address, now: Time) -> None:
        if self._waiting_jobs and not self._planning:
            self._plan(now)

    def _plan(self, now: Time) -> None:
        setting = self._setting
        grid = setting.grid(now)

        self._machines.forget()
        jobs = self._first_jobs(setting.jobs_max)
        self._cycle_requests = requests = tuple([self._requests.make(waiting, grid) for waiting in jobs])
        for waiting, request in zip(jobs, requests, strict=True):
            if request.missed and not waiting.missed:
                waiting.missed = True
                self._urgent_jobs.pop(waiting.job.id, None)
                # The wizard found no start that ends in time.
                self._port.observe(Counted("deadlines_given_up"))

        expressions = tuple([request.expression for request in requests])
        tables = [alternatives(expression) for expression in expressions]
        set_names = [name for table in tables for set_name in table.wheres for name in set_name]

        planning = PlanProblem(
            expressions,
            {name: self._machines.sets[name] for name in dict.fromkeys(set_names)},
            self._machines.supply(grid),
            tuple([_earlier_branch(waiting, request, grid) for waiting, request in zip(jobs, requests, strict=True)]),
            setting.solver,
            setting.limits,
        )

        self._planning = True
        self._planned_us = now
        self._has_changed = False
        decision_us = setting.decision_us + round(setting.leaf_us * sum([table.names for table in tables]))

        self._port.compute(PLAN, Problem(answer, packed(planning), decision_us))

    def _first_jobs(self, count: int) -> list[WaitingJob]:
        """The first waiting jobs: those with a deadline that can be met, then the others, in order of arrival."""
        if not self._urgent_jobs:
            return list(itertools.islice(self._waiting_jobs.values(), count))

        jobs = list(itertools.islice(self._urgent_jobs.values(), count))
        other_jobs = (waiting for job, waiting in self._waiting_jobs.items() if job not in self._urgent_jobs)
        return jobs + list(itertools.islice(other_jobs, count - len(jobs)))

    def on_computed(self, event: Computed, source: Address, now: Time) -> None:
        """Launch what starts now; the rest of the plan is only where the next one begins."""
        plan: CyclePlan = event.answer
        self._planning = False

        for request in self._cycle_requests:
            if request.job in self._waiting_jobs:
                self._waiting_jobs[request.job].planned = None

        for placement in plan.now:
            self._launch(self._cycle_requests[placement.request], placement, now)

        for number, branch in plan.later:
            request = self._cycle_requests[number]
            if request.job in self._waiting_jobs:
                # Only where the next plan begins its search: nothing is reserved.
                set_name, start = request.branches[branch]
                start_us = self._planned_us + start * self._setting.quantum_us
                self._waiting_jobs[request.job].planned = (set_name, start_us)

        self._report_cost(plan)
        self._cycle_requests = ()

        # With a cycle of 0 a plan follows a change at once, else when the cycle is over.
        if self._waiting_jobs and self._setting.cycle_us:
            self._port.set_timer(CYCLE, max(now, self._planned_us + self._setting.cycle_us))
        elif self._waiting_jobs and self._has_changed:
            self._plan(now)

    def _launch(self, request: JobRequest, placement: JobPlacement, now: Time) -> None:
        """The tasks of a gang that a leaf is for, on the machines that it was given."""
        waiting = self._waiting_jobs.get(request.job)
        if waiting is None:
            # The job was cancelled while the plan was made.
            return

        leaf = alternatives(request.expression).leaves[placement.leaf]
        needs = request.needs[placement.leaf % len(request.needs)]
        units = positions(placement.machines)
        group = waiting.groups[needs]
        end_us = now + leaf.duration * self._setting.quantum_us

        for task, unit in zip(group[: len(units)], units, strict=True):
            self._machines.start(task, unit, end_us)
            self._launches += 1
            self._port.send(f"node/{self._machines.machine_of[unit]}", Launch(self._launches, task))

        del group[: len(units)]
        self._queued -= len(units)

        if not group:
            del waiting.groups[needs]

        if not waiting.groups:
            self._leave(request.job)

    def _report_cost(self, plan: CyclePlan) -> None:
        cost = plan.cost
        observe = self._port.observe

        observe(Measured("plan_jobs", len(self._cycle_requests)))

        if cost.variables:
            observe(Measured("plan_variables", cost.variables))
            observe(Measured("plan_rows", cost.rows))
            observe(Measured("plan_gap_per_mille", cost.gap_per_mille))
            observe(Measured("plan_nodes", cost.nodes))
        elif cost.rounds is not None:
            observe(Measured("plan_gap_per_mille", cost.gap_per_mille))
            observe(Measured("plan_rounds", cost.rounds))

    def on_completed(self, message: Completed, source: Address, now: Time) -> None:
        """A machine is free again, sooner or later than was estimated."""
        task = self._machines.end(message.task)
        if task is not None:
            self._jobs.finished(task.job)
            self._close_if_done(task.job)
            self._change(now)

    def on_cancel(self, message: Cancel, source: Address, now: Time) -> None:
        if not self._jobs.cancel(message, source):
            self._open_jobs.pop(message.job, None)
            return

        for running in self._machines.running.values():
            if running.task.job == message.job:
                self._port.send(f"node/{self._machines.machine_of[running.unit]}", Kill(running.task.id))

        waiting = self._leave(message.job)
        if waiting is not None:
            self._queued -= waiting.tasks
            self._jobs.finished(message.job, waiting.tasks)

        self._close_if_done(message.job)
        self._change(now)

    def check(self) -> None:
        self._machines.check()
        assert self._queued == sum(waiting.tasks for waiting in self._waiting_jobs.values()), "tasks are miscounted"

        for job, waiting in self._waiting_jobs.items():
            assert self._jobs.is_open(job), f"job {job} waits and is not open"
            assert waiting.tasks, f"job {job} waits with nothing"

    def check_rest(self) -> None:
        assert not self._waiting_jobs, f"{len(self._waiting_jobs)} jobs wait for ever"
        assert not self._open_jobs, f"{len(self._open_jobs)} jobs are open for ever"
        assert not self._machines.running, "tasks run for ever"
        assert not self._planning, "a plan never comes"

    receives = {  # noqa: RUF012 - the base class reads the table once and replaces it
        Submit: on_submit,
        MoreTasks: on_more_tasks,
        Cancel: on_cancel,
        Completed: on_completed,
        TimerFired: on_timer,
        Computed: on_computed,
    }
    sends = ANSWERS | sent_to("node", Launch, Kill)


def _earlier_branch(waiting: WaitingJob, request: JobRequest, grid: TimeGrid) -> int:
    """The alternative that is nearest to what the last plan had for the job."""
    if waiting.planned is None:
        return NO_BRANCH

    set_name, start_us = waiting.planned
    same_branches = [number for number, (name, _) in enumerate(request.branches) if name == set_name]
    return min(
        same_branches, key=lambda number: abs(grid.start_us(request.branches[number][1]) - start_us), default=NO_BRANCH
    )
