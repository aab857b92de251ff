"""The scheduler, which builds a network of tasks and slots and acts on its cheapest flow."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Literal

from volery.architectures.quincy.costs import FlowCosts
from volery.architectures.quincy.flat import undecided
from volery.architectures.quincy.network import Bounds, FlowNetwork, NetworkTask, fair_floors
from volery.architectures.quincy.solver import FlowAnswer, FlowProblem, Graph, Solver, solve
from volery.architectures.quincy.tasks import Item, Machines, Place, WaitingItems
from volery.core.bounds import COUNT_MAX, Count, Microseconds, Milliseconds, Parameters, Seconds, param
from volery.core.component import Component, sent_to
from volery.core.events import Cancel, Computed, Counted, Measured, MoreTasks, Preemption, Submit, TimerFired
from volery.core.model import NEVER, SECOND, Address, Cluster, JobId, Task, Time
from volery.core.port import Problem
from volery.roles.node import Completed, Kill, Launch
from volery.roles.submission import ANSWERS, JobLedger

CYCLE = "cycle"
FLOW = "flow"
SMALL_SLOTS, SMALL_TASKS = 100, 1000
"""Slots and tasks up to which jobs with bounds have one network of all that waits and runs."""


class QuincyConfig(Parameters, frozen=True):
    """Parameters of Quincy and Firmament."""

    policy: Literal["quincy", "load-spreading", "network-aware"] = param(
        "quincy", "what costs: moving input and waiting, tasks per machine, or bandwidth in use"
    )
    fairness: bool = param(True, "each job has an equal share of the slots before anything else counts")
    preemption: bool = param(True, "running tasks may be stopped or moved where that is cheaper; they begin anew")
    job_max: Count = param(0, "tasks of one job that run at once at most; 0: any number")
    cycle_s: Seconds = param(1.0, "from one flow to the next, seconds; 0: whenever something changes")
    input_gb: float = param(1.0, "what a task with input reads, gigabytes", ge=0, le=1e6)
    rack_cost: float = param(1.0, "of a gigabyte within a rack", ge=0, le=1e6)
    core_cost: float = param(2.0, "of a gigabyte between racks; 20 where these are badly connected", ge=0, le=1e6)
    wait_cost: float = param(0.5, "of a second of waiting", ge=0, le=1e6)
    run_cost: float = param(1.0, "what a second of running is worth, that would be lost", ge=0, le=1e6)
    machine_mbps: int = param(10_000, "what a machine's network carries (network-aware), Mbit/s", ge=100, le=COUNT_MAX)
    solver: Solver = param("augmenting", "built in (augmenting), or of OR-tools (scaling); they find the same flow")
    warm: bool = param(True, "begin with the prices of the flow before; changes the work alone")
    decision_ms: Milliseconds = param(0.0, "modelled time of a decision, in the lab alone")
    arc_us: Microseconds = param(0.0, "... and more per arc of its network, microseconds")


class Scheduler(Component):
    """Draws a network after each change, has its cheapest flow computed, and launches and kills tasks by it."""

    def __init__(self, cluster: Cluster, model: FlowCosts, config: QuincyConfig) -> None:
        self._model = model
        self._setting = config
        self._cycle_us = round(config.cycle_s * SECOND)
        self._machines = Machines(cluster, model.request_mbps)
        self._slots = sum(cluster.slots)
        self._bounded = config.fairness or config.job_max > 0
        self._waiting = WaitingItems(shared=not self._bounded)
        self._prices: dict[object, int] = {}
        self._drawn: FlowNetwork | None = None
        self._graph: Graph | None = None
        self._solved_us: Time = NEVER
        self._changed = False
        self._launches = 0

    def start(self, now: Time) -> None:
        self._jobs = JobLedger(self._port.send)

    def on_submit(self, message: Submit, source: Address, now: Time) -> None:
        job = message.job
        self._port.observe(Measured("queued_tasks", len(self._waiting)))
        self._arrive(job.id, self._jobs.admit(message, source, len(self._waiting)), job.replicas, now)

    def on_more_tasks(self, message: MoreTasks, source: Address, now: Time) -> None:
        self._arrive(message.job, self._jobs.more(message), message.replicas, now)

    def _arrive(self, job: JobId, tasks: Sequence[Task], replicas: Sequence[tuple[int, ...]], now: Time) -> None:
        came = False
        for place, task in enumerate(tasks):
            if self._model.machines.matches[task.constraints]:
                holders = replicas[place] if replicas else ()
                self._waiting.add(Item(task, self._model.entries(task, holders), holders, now))
                came = True
            else:
                self._jobs.unsatisfiable(job)
        self._close_if_done(job)
        if came:
            self._change(now)

    def _close_if_done(self, job: JobId) -> None:
        if not self._jobs.is_open(job):
            self._waiting.forget(job)

    def _change(self, now: Time) -> None:
        self._changed = True
        if self._drawn is not None:
            return
        if self._cycle_us:
            self._look_at(now, now)  # also if that is now: what happens in one instant is solved together
        else:
            self._solve(now)

    def _look_at(self, at: Time, now: Time) -> None:
        earliest = now if self._solved_us == NEVER else max(now, self._solved_us + self._cycle_us)
        self._port.set_timer(CYCLE, max(at, earliest))

    def on_timer(self, event: TimerFired, source: Address, now: Time) -> None:
        """Begin the next cycle, or place tasks whose wait has grown dearer than a free slot."""
        if self._drawn is None:
            self._solve(now)

    def _solve(self, now: Time) -> None:
        """Have the cheapest flow computed, if there is a slot that a task could have."""
        setting, self._changed = self._setting, False
        if not self._waiting and not setting.preemption:
            return
        movable = self._machines.movable() if setting.preemption else []
        room = self._machines.room
        if not (room.open or movable) or (not self._waiting and not (movable and room.open)):
            return
        slots, kind = sum(room.free) + len(movable), self._one_kind()
        bounds = self._bounds(movable, slots)
        if kind is not None:
            members, bounds = self._undecided(kind, movable, bounds, slots, now)
            self._solved_us = now
            if not members:
                return  # all that runs runs on, and nothing else could
            room = room.with_slots_of([member.item for member in members if member.stay is not None])
            drawn = FlowNetwork(self._model, room)
        else:
            drawn = FlowNetwork(self._model, room.with_slots_of(movable) if movable else room)
            first = self._waiting.first(
                lambda place: drawn.place(place) is not None,
                min(slots, setting.job_max or slots),
                lambda since: self._model.unscheduled(now - since),
            )
            if not first and (not movable or not room.open):
                return
            members = self._members(first, movable, now)
            self._solved_us = now
        self._ask(drawn, drawn.draw_tasks(members, bounds))

    def _members(self, waiting: Sequence[Item], movable: Sequence[Item], now: Time) -> list[NetworkTask]:
        cost = self._model.unscheduled
        members = [NetworkTask(item, cost(now - item.since)) for item in waiting]
        return members + [
            NetworkTask(item, cost(item.waited_us), self._model.stay(item, now - item.began_us)) for item in movable
        ]

    def _ask(self, drawn: FlowNetwork, graph: Graph) -> None:
        setting = self._setting
        prices = tuple([self._prices.get(name, 0) for name in drawn.names]) if setting.warm and self._prices else ()
        self._drawn, self._graph = drawn, graph
        decision_us = round(setting.decision_ms * 1000) + round(setting.arc_us * len(graph.tails))
        self._port.compute(FLOW, Problem(solve, FlowProblem(graph, prices, setting.solver), decision_us))

    def _one_kind(self) -> tuple[Place, int] | None:
        """The only arc that tasks have, if that is the same for all and free, and leads to every slot.

        None also where decisions take modelled time, which goes by the whole network, and where jobs have bounds and
        the network is small: between equal flows it decides otherwise (docs/decisions/0060).
        """
        tasks = len(self._waiting) + len(self._machines.running)
        if self._bounded and self._slots <= SMALL_SLOTS and tasks <= SMALL_TASKS:
            return None
        kinds, setting = self._waiting.kinds.keys() | self._machines.kinds.keys(), self._setting
        if len(kinds) > 1 or not self._model.alike or setting.decision_ms or setting.arc_us:
            return None
        (kind,) = kinds
        (place, cost), matches = kind[0], self._model.machines.matches
        return None if len(kind) > 1 or cost or matches[int(place[1])] != matches.every else kind[0]

    def _undecided(
        self, kind: tuple[Place, int], movable: Sequence[Item], bounds: dict[JobId, Bounds], slots: int, now: Time
    ) -> tuple[list[NetworkTask], dict[JobId, Bounds]]:
        """The tasks of which a flow has something to say where all slots are alike, and the bounds of their jobs."""
        waiting = self._waiting
        if not self._bounded:
            first = waiting.first(lambda _: True, slots, lambda since: self._model.unscheduled(now - since))
            return undecided(self._members(first, movable, now), bounds, slots)
        running: dict[JobId, list[Item]] = {}
        for item in movable:
            running.setdefault(item.task.job, []).append(item)
        filled = sum(bound.least for bound in bounds.values()) >= slots
        first, open_jobs = list[Item](), set[JobId]()
        for job in sorted(bounds):
            bound, own = bounds[job], running.get(job, ())
            count = min(bound.least if filled else bound.most, slots)
            heads = waiting.first_of(job, kind, 1) if waiting.counts.get(job, 0) else []
            if filled and len(own) == count and not (heads and self._beats(heads[0], own, now)):
                slots -= count  # what runs is its share, and worth more than what waits
                continue
            open_jobs.add(job)
            if heads and count:
                first += waiting.first_of(job, kind, count)
        own_running = [item for item in movable if item.task.job in open_jobs]
        members = self._members(first, own_running, now)
        return undecided(members, {job: bounds[job] for job in open_jobs}, slots)

    def _beats(self, item: Item, running: Sequence[Item], now: Time) -> bool:
        """Find out whether a task that waits is worth more than one of those that run."""
        cost, stay = self._model.unscheduled, self._model.stay
        worth = cost(now - item.since)
        return any(worth > cost(other.waited_us) - stay(other, now - other.began_us) for other in running)

    def _bounds(self, movable: Sequence[Item], slots: int) -> dict[JobId, Bounds]:
        """The least and the most tasks in the network that are to run, of each job; some that have no least lack."""
        setting = self._setting
        if not self._bounded:
            return {}
        running, waiting = self._machines.counts, self._waiting.counts
        fixed = dict(running)  # those that are not in the network keep what they have
        for item in movable:
            fixed[item.task.job] -= 1
        total = slots + sum(fixed.values())
        most = setting.job_max or total + len(movable)
        # each job has a slot before one has two: jobs behind as many as there are slots have no share
        jobs = sorted(waiting) if setting.job_max else islice((job for job in sorted(waiting) if waiting[job]), total)
        wanted = {
            job: min(waiting.get(job, 0) + running.get(job, 0), max(most, running.get(job, 0)))
            for job in sorted({*jobs, *running})
        }
        floors = fair_floors(wanted, fixed, total) if setting.fairness else {}
        return {
            job: Bounds(max(0, floors.get(job, 0) - fixed.get(job, 0)), max(0, most - fixed.get(job, 0)))
            for job in wanted
        }

    def on_computed(self, event: Computed, source: Address, now: Time) -> None:
        """Stop, move and launch tasks by the flow, as far as it still holds."""
        answer: FlowAnswer = event.answer
        drawn, graph = self._drawn, self._graph
        assert drawn is not None, "an answer without a problem"
        assert graph is not None, "an answer about nothing"
        self._drawn = self._graph = None
        self._prices = {
            name: price for name, price in zip(drawn.names, answer.prices, strict=True) if isinstance(name, tuple)
        }
        self._observe(drawn.members, graph, answer)
        self._follow(drawn.members, drawn.machines(graph, answer.flows), now)
        if self._changed:
            self._change(now)
        elif self._machines.room.open:
            self._wait_for(drawn, now)

    def _follow(self, members: Sequence[NetworkTask], places: Sequence[int | None], now: Time) -> None:
        """Give tasks their places; a task that runs elsewhere is stopped first."""
        leaving: list[Item] = []
        coming: dict[int, list[Item]] = {}
        for member, machine in zip(members, places, strict=True):
            item = member.item
            if member.stay is None:
                if item.task.id in self._waiting.items and machine is not None:
                    self._waiting.take(item)
                    coming.setdefault(machine, []).append(item)
            elif item.task.id in self._machines.running and machine != item.machine:
                leaving.append(item)
                if machine is not None:
                    coming.setdefault(machine, []).append(item)
        heirs = {machine: list(items) for machine, items in coming.items()}
        for item in leaving:
            after = heirs.get(item.machine)
            self._machines.stop(item, (after.pop() if after else item).task.id)
            self._port.send(f"node/{item.machine}", Kill(item.task.id, item.attempt))
        for machine, items in coming.items():
            for item in items:
                self._machines.place(item, machine)
            self._launch(machine, now)

    def _launch(self, machine: int, now: Time) -> None:
        for item in self._machines.start(machine, now):
            self._launches += 1
            self._port.send(f"node/{machine}", Launch(self._launches, item.task, item.attempt))

    def _wait_for(self, drawn: FlowNetwork, now: Time) -> None:
        """Solve again when the wait of some task becomes dearer than a slot that is left."""
        dues = [
            member.item.since + patience_us
            for member in drawn.members
            if member.item.task.id in self._waiting.items
            for place, cost in member.item.entries
            if drawn.place(place) is not None and (patience_us := self._model.patience_us(cost)) is not None
        ]
        due = min((at for at in dues if at > now), default=NEVER)
        if due != NEVER:
            self._look_at(due, now)

    def _observe(self, members: Sequence[NetworkTask], graph: Graph, answer: FlowAnswer) -> None:
        """Observe the size of the problem: arcs are variables of a linear program, nodes rows."""
        observe, jobs, tasks = self._port.observe, len({member.item.task.job for member in members}), len(members)
        observe(Measured("plan_jobs", jobs))
        observe(Measured("plan_tasks", tasks))
        observe(Measured("plan_variables", len(graph.tails)))
        observe(Measured("plan_rows", len(graph.supplies)))
        observe(Measured("plan_gap_per_mille", 0))
        observe(Measured("flow_paths", answer.paths))
        observe(Measured("flow_scanned", answer.scanned))

    def on_ended(self, message: Completed, source: Address, now: Time) -> None:
        """Give the slot to the task with the promise, or to the next flow."""
        item = self._machines.running.get(message.task)
        if item is None or item.attempt != message.attempt:
            return
        beneficiary = self._machines.stopping.get(message.task)
        machine, job = self._machines.end(message.task), item.task.job
        if not message.killed or job in self._jobs.cancelled:
            self._machines.let_go(item)
            self._jobs.finished(job)
            self._close_if_done(job)
        else:
            assert beneficiary is not None, "a task was killed that was not to stop"
            self._port.observe(Preemption(now, message.task, message.attempt, beneficiary, "cost"))
            item.attempt += 1
            item.since = now - item.waited_us
            if item.machine >= 0:
                self._port.observe(Counted("moved"))
                self._launch(item.machine, now)
            else:
                self._waiting.add(item)
        self._launch(machine, now)
        if beneficiary is None or not message.killed or self._machines.free[machine]:
            self._change(now)  # otherwise all is as the last flow has it

    def on_cancel(self, message: Cancel, source: Address, now: Time) -> None:
        job = message.job
        if not self._jobs.cancel(message, source):
            self._close_if_done(job)
            return
        for item in self._machines.running.values():
            if item.task.job == job:
                self._port.send(f"node/{item.machine}", Kill(item.task.id, item.attempt))
        dropped = self._waiting.of_job(job)
        for item in dropped:
            self._waiting.take(item)
        promised = self._machines.promised_to(job)
        for item in promised:
            self._machines.let_go(item)
        if dropped or promised:
            self._jobs.finished(job, len(dropped) + len(promised))
        self._close_if_done(job)
        self._change(now)

    def check(self) -> None:
        self._machines.check()
        for item in self._waiting.items.values():
            assert self._jobs.is_open(item.task.job), f"job {item.task.job} waits and is not open"

    def check_rest(self) -> None:
        assert not self._waiting, f"{len(self._waiting)} tasks wait for ever"
        assert not self._machines.running, "tasks run for ever"
        assert self._drawn is None, "an answer never comes"

    receives = {  # noqa: RUF012 - the base class reads the table once and replaces it
        Submit: on_submit,
        MoreTasks: on_more_tasks,
        Cancel: on_cancel,
        Completed: on_ended,
        TimerFired: on_timer,
        Computed: on_computed,
    }
    sends = ANSWERS | sent_to("node", Launch, Kill)
