"""The scheduler, which builds a network of tasks and slots and acts on its cheapest flow."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Literal

from volery.architectures.quincy.costs import FlowCosts
from volery.architectures.quincy.network import Bounds, FlowNetwork, NetworkTask, fair_floors, undecided
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
"""Number of slots and tasks up to which jobs with bounds have one network of all that waits and runs."""


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
        self._open_network: FlowNetwork | None = None
        self._graph: Graph | None = None
        self._solved_us: Time = NEVER
        self._has_changed = False
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
        has_arrivals = False
        for place, task in enumerate(tasks):
            if self._model.machines.matches[task.constraints]:
                holders = replicas[place] if replicas else ()
                self._waiting.add(Item(task, self._model.entries(task, holders), holders, now))
                has_arrivals = True
            else:
                self._jobs.unsatisfiable(job)

        self._close_if_done(job)
        if has_arrivals:
            self._change(now)

    def _close_if_done(self, job: JobId) -> None:
        if not self._jobs.is_open(job):
            self._waiting.forget(job)

    def _change(self, now: Time) -> None:
        self._has_changed = True
        # A flow is being computed: the change is looked at when its answer has come.
        if self._open_network is not None:
            return

        if self._cycle_us:
            # A timer also if that is now: what happens in one instant is solved together.
            self._look_at(now, now)
        else:
            self._solve(now)

    def _look_at(self, due_us: Time, now: Time) -> None:
        earliest_us = now if self._solved_us == NEVER else max(now, self._solved_us + self._cycle_us)
        self._port.set_timer(CYCLE, max(due_us, earliest_us))

    def on_timer(self, event: TimerFired, source: Address, now: Time) -> None:
        """Begin the next cycle, or place tasks whose wait has grown dearer than a free slot."""
        if self._open_network is None:
            self._solve(now)

    def _solve(self, now: Time) -> None:
        """Have the cheapest flow computed, if there is a slot that a task could have."""
        setting = self._setting
        self._has_changed = False

        # Without preemption a flow only starts tasks.
        if not self._waiting and not setting.preemption:
            return

        movable = self._machines.movable() if setting.preemption else []
        room = self._machines.room

        # Tasks that run could only change places, which costs and gains nothing.
        if not (room.open or movable) or (not self._waiting and not (movable and room.open)):
            return

        slots = sum(room.free) + len(movable)
        kind = self._one_kind()

        bounds = self._bounds(movable, slots)
        if kind is not None:
            members, bounds = self._undecided(kind, movable, bounds, slots, now)

            self._solved_us = now
            if not members:
                # All that runs runs on, and nothing else could.
                return

            room = room.with_slots_of([member.item for member in members if member.stay is not None])
            network = FlowNetwork(self._model, room)
        else:
            network = FlowNetwork(self._model, room.with_slots_of(movable) if movable else room)

            first_items = self._waiting.first(
                lambda place: network.place(place) is not None,
                min(slots, setting.job_max or slots),
                lambda since: self._model.unscheduled(now - since),
            )

            # Nothing that waits has an arc to a place with room.
            if not first_items and (not movable or not room.open):
                return

            members = self._members(first_items, movable, now)
            self._solved_us = now

        self._ask(network, network.draw_tasks(members, bounds))

    def _members(self, waiting: Sequence[Item], movable: Sequence[Item], now: Time) -> list[NetworkTask]:
        cost = self._model.unscheduled
        members = [NetworkTask(item, cost(now - item.since)) for item in waiting]

        return members + [
            NetworkTask(item, cost(item.waited_us), self._model.stay(item, now - item.began_us)) for item in movable
        ]

    def _ask(self, network: FlowNetwork, graph: Graph) -> None:
        setting = self._setting

        prices = tuple([self._prices.get(name, 0) for name in network.names]) if setting.warm and self._prices else ()
        self._open_network = network
        self._graph = graph

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
        kinds = self._waiting.kinds.keys() | self._machines.kinds.keys()
        setting = self._setting

        if len(kinds) > 1 or not self._model.alike or setting.decision_ms or setting.arc_us:
            return None

        (kind,) = kinds
        place, cost = kind[0]
        matches = self._model.machines.matches

        return None if len(kind) > 1 or cost or matches[int(place[1])] != matches.every else kind[0]

    def _undecided(
        self, kind: tuple[Place, int], movable: Sequence[Item], bounds: dict[JobId, Bounds], slots: int, now: Time
    ) -> tuple[list[NetworkTask], dict[JobId, Bounds]]:
        """The tasks of which a flow has something to say where all slots are alike, and the bounds of their jobs."""
        waiting = self._waiting

        if not self._bounded:
            first_items = waiting.first(lambda _: True, slots, lambda since: self._model.unscheduled(now - since))
            return undecided(self._members(first_items, movable, now), bounds, slots)

        running: dict[JobId, list[Item]] = {}
        for item in movable:
            running.setdefault(item.task.job, []).append(item)

        is_full = sum(bound.least for bound in bounds.values()) >= slots
        first_items = []
        open_jobs: set[JobId] = set()

        for job in sorted(bounds):
            bound = bounds[job]
            own_items = running.get(job, ())

            count = min(bound.least if is_full else bound.most, slots)
            first_waiting = waiting.first_of(job, kind, 1) if waiting.counts.get(job, 0) else []
            if (
                is_full
                and len(own_items) == count
                and not (first_waiting and self._beats(first_waiting[0], own_items, now))
            ):
                # What runs is its share, and worth more than what waits.
                slots -= count
                continue

            open_jobs.add(job)

            if first_waiting and count:
                first_items += waiting.first_of(job, kind, count)

        open_items = [item for item in movable if item.task.job in open_jobs]
        members = self._members(first_items, open_items, now)
        return undecided(members, {job: bounds[job] for job in open_jobs}, slots)

    def _beats(self, item: Item, running: Sequence[Item], now: Time) -> bool:
        """Find out whether a task that waits is worth more than one of those that run."""
        cost = self._model.unscheduled
        stay = self._model.stay
        worth = cost(now - item.since)

        return any(
            worth > cost(running_item.waited_us) - stay(running_item, now - running_item.began_us)
            for running_item in running
        )

    def _bounds(self, movable: Sequence[Item], slots: int) -> dict[JobId, Bounds]:
        """The least and the most tasks in the network that are to run, of each job; some that have no least lack."""
        setting = self._setting

        if not self._bounded:
            return {}
        running = self._machines.counts
        waiting = self._waiting.counts
        # Those that are not in the network keep what they have.
        fixed_counts = dict(running)

        for item in movable:
            fixed_counts[item.task.job] -= 1

        total = slots + sum(fixed_counts.values())
        tasks_max = setting.job_max or total + len(movable)
        # Each job has a slot before one has two: jobs behind as many as there are slots have no share.
        jobs = sorted(waiting) if setting.job_max else islice((job for job in sorted(waiting) if waiting[job]), total)

        task_counts = {
            job: min(waiting.get(job, 0) + running.get(job, 0), max(tasks_max, running.get(job, 0)))
            for job in sorted({*jobs, *running})
        }

        floors = fair_floors(task_counts, fixed_counts, total) if setting.fairness else {}

        return {
            job: Bounds(
                max(0, floors.get(job, 0) - fixed_counts.get(job, 0)), max(0, tasks_max - fixed_counts.get(job, 0))
            )
            for job in task_counts
        }

    def on_computed(self, event: Computed, source: Address, now: Time) -> None:
        """Stop, move and launch tasks by the flow, as far as it still holds."""
        answer: FlowAnswer = event.answer
        network = self._open_network
        graph = self._graph

        assert network is not None, "an answer without a problem"
        assert graph is not None, "an answer about nothing"

        self._open_network = self._graph = None
        # Names of tasks are numbers: their prices are worked out again from their arcs (`priced`).
        self._prices = {
            name: price for name, price in zip(network.names, answer.prices, strict=True) if isinstance(name, tuple)
        }

        self._observe(network.members, graph, answer)
        self._follow(network.members, network.machines(graph, answer.flows), now)

        if self._has_changed:
            self._change(now)
        elif self._machines.room.open:
            self._wait_for(network, now)

    def _follow(self, members: Sequence[NetworkTask], places: Sequence[int | None], now: Time) -> None:
        """Give tasks their places; a task that runs elsewhere is stopped first."""
        leaving_items: list[Item] = []
        items_for: dict[int, list[Item]] = {}
        for member, machine in zip(members, places, strict=True):
            item = member.item
            if member.stay is None:
                # Tasks may have been cancelled, or have ended, while the flow was computed.
                if item.task.id in self._waiting.items and machine is not None:
                    self._waiting.take(item)
                    items_for.setdefault(machine, []).append(item)
            elif item.task.id in self._machines.running and machine != item.machine:
                leaving_items.append(item)
                if machine is not None:
                    items_for.setdefault(machine, []).append(item)

        successors = {machine: list(items) for machine, items in items_for.items()}
        for item in leaving_items:
            # The beneficiary is a task that gets the slot, or else the task itself, which moves.
            machine_successors = successors.get(item.machine)
            self._machines.stop(item, (machine_successors.pop() if machine_successors else item).task.id)
            self._port.send(f"node/{item.machine}", Kill(item.task.id, item.attempt))

        for machine, items in items_for.items():
            for item in items:
                self._machines.place(item, machine)
            self._launch(machine, now)

    def _launch(self, machine: int, now: Time) -> None:
        for item in self._machines.start(machine, now):
            self._launches += 1
            self._port.send(f"node/{machine}", Launch(self._launches, item.task, item.attempt))

    def _wait_for(self, network: FlowNetwork, now: Time) -> None:
        """Solve again when the wait of some task becomes dearer than a slot that is left."""
        due_times = [
            member.item.since + patience_us
            for member in network.members
            if member.item.task.id in self._waiting.items
            for place, cost in member.item.entries
            if network.place(place) is not None and (patience_us := self._model.patience_us(cost)) is not None
        ]

        next_due_us = min((due_us for due_us in due_times if due_us > now), default=NEVER)
        if next_due_us != NEVER:
            self._look_at(next_due_us, now)

    def _observe(self, members: Sequence[NetworkTask], graph: Graph, answer: FlowAnswer) -> None:
        """Observe the size of the problem: arcs are variables of a linear program, nodes rows."""
        observe = self._port.observe
        jobs = len({member.item.task.job for member in members})
        tasks = len(members)

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
        machine = self._machines.end(message.task)
        job = item.task.job

        # It ended by itself before the kill came, or nobody wants it any more.
        if not message.killed or job in self._jobs.cancelled:
            self._machines.release(item)
            self._jobs.finished(job)
            self._close_if_done(job)
        else:
            assert beneficiary is not None, "a task was killed that was not to stop"
            self._port.observe(Preemption(now, message.task, message.attempt, beneficiary, "cost"))
            item.attempt += 1
            # The time that it ran was no wait.
            item.since = now - item.waited_us
            # A moved task had its new place before it left the old one.
            if item.machine >= 0:
                self._port.observe(Counted("moved"))
                self._launch(item.machine, now)
            else:
                self._waiting.add(item)

        self._launch(machine, now)

        if beneficiary is None or not message.killed or self._machines.free[machine]:
            # Otherwise all is as the last flow has it.
            self._change(now)

    def on_cancel(self, message: Cancel, source: Address, now: Time) -> None:
        job = message.job
        if not self._jobs.cancel(message, source):
            self._close_if_done(job)
            return

        for item in self._machines.running.values():
            if item.task.job == job:
                self._port.send(f"node/{item.machine}", Kill(item.task.id, item.attempt))

        waiting_items = self._waiting.of_job(job)
        for item in waiting_items:
            self._waiting.take(item)

        promised_items = self._machines.promised_to(job)
        for item in promised_items:
            self._machines.release(item)

        if waiting_items or promised_items:
            self._jobs.finished(job, len(waiting_items) + len(promised_items))

        self._close_if_done(job)
        self._change(now)

    def check(self) -> None:
        self._machines.check()
        for item in self._waiting.items.values():
            assert self._jobs.is_open(item.task.job), f"job {item.task.job} waits and is not open"

    def check_rest(self) -> None:
        assert not self._waiting, f"{len(self._waiting)} tasks wait for ever"
        assert not self._machines.running, "tasks run for ever"
        assert self._open_network is None, "an answer never comes"

    receives = {  # noqa: RUF012 - the base class reads the table once and replaces it
        Submit: on_submit,
        MoreTasks: on_more_tasks,
        Cancel: on_cancel,
        Completed: on_ended,
        TimerFired: on_timer,
        Computed: on_computed,
    }
    sends = ANSWERS | sent_to("node", Launch, Kill)
