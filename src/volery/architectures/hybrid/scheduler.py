"""The distributed schedulers of the hybrid designs: they probe for short jobs and hand long ones to the central one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from random import Random

import msgspec

from volery.architectures.hybrid.layout import CENTRAL, HybridConfig, Layout
from volery.architectures.hybrid.messages import (
    Assign,
    CentralTasks,
    Demanded,
    Dropped,
    Probe,
    Rejected,
    Scarcity,
    Vector,
    VectorRequest,
    WithdrawJob,
)
from volery.architectures.hybrid.phoenix import BEAT, DemandReport, Negotiation
from volery.core.component import sent_to
from volery.core.events import Cancel, MoreTasks, Submit, TimerFired
from volery.core.model import SECOND, Address, JobId, Task, Time
from volery.policies.match import Sampler, positions
from volery.roles.reservations import (
    Completed,
    Kill,
    NoTask,
    Numbers,
    ReservingScheduler,
    TaskRequest,
    Withdraw,
    by_needs,
)
from volery.roles.submission import ANSWERS

TRIES = 64
"""Number of draws of a worker without long tasks before the short-only part is taken instead."""


class Batch(msgspec.Struct, eq=False):
    """Short tasks of a job that need the same, and their reservations.

    Attributes:
        tasks: Tasks that are not bound yet, the first one last.
        first: Number of the first reservation; the others follow in the scheduler's steps.
        nodes: Node of each reservation; None once a request used it up.
        requests: Last request of each sticky reservation.
    """

    id: int
    tasks: list[Task]
    needs: int
    estimate_us: Time
    first: int = 0
    nodes: list[Address | None] = []
    requests: list[int] = []
    rejections: list[int] = []
    rejected: list[int] = []


class Scheduler(ReservingScheduler):
    """Places short jobs by probes, hands long ones to the central scheduler, and keeps both until they are done."""

    FACTS = (*ReservingScheduler.FACTS, ("_rejected", "rejected_probes"), ("_negotiated", "negotiated_constraints"))

    def __init__(
        self,
        layout: Layout,
        sampler: Sampler,
        config: HybridConfig,
        stream: Random,
        numbers: Numbers,
        demand: DemandReport | None = None,
        negotiation: Negotiation | None = None,
    ) -> None:
        super().__init__(numbers)
        self._layout = layout
        self._sampler = sampler
        self._setting = config
        self._cutoff_us = round(config.cutoff_s * SECOND)
        self._stream = stream
        self._central_number = 0
        self._batches: dict[int, Batch] = {}
        self._estimates: dict[JobId, Time] = {}
        self._vector = b""
        self._machines_without_long: tuple[list[int], bytes] | None = None
        self._version = 0
        self._rejected = self._negotiated = 0
        self._demand = demand
        self._negotiation = negotiation

    def on_submit(self, message: Submit, source: Address, now: Time) -> None:
        """Classify a job by its estimate and place its tasks; those that fit no machine are reported."""
        self._report_facts()
        job = message.job
        setting = self._setting

        tasks = self._jobs.admit(message, source, 0)

        estimate_us = job.estimate_us
        if setting.estimate_low != 1.0 or setting.estimate_high != 1.0:
            estimate_us = int(estimate_us * self._stream.uniform(setting.estimate_low, setting.estimate_high))

        # Later chunks must be classified as the first one was, by the same drawn error.
        if self._jobs.is_open(job.id) and 0 <= self._jobs.received(job.id) < self._jobs.announced(job.id):
            self._estimates.setdefault(job.id, estimate_us)

        if tasks:
            self._schedule(job.id, tasks, estimate_us)
        self._report_demand(now)

    def on_more_tasks(self, message: MoreTasks, source: Address, now: Time) -> None:
        tasks = self._jobs.more(message)
        estimate_us = self._estimates.get(message.job)

        if not self._jobs.is_open(message.job) or self._jobs.received(message.job) == self._jobs.announced(message.job):
            self._estimates.pop(message.job, None)

        if tasks:
            assert estimate_us is not None, "a chunk of a job that was not admitted"
            self._schedule(message.job, tasks, estimate_us)
        self._report_demand(now)

    def _report_demand(self, now: Time) -> None:
        if self._demand is not None:
            self._demand.arm(self._port, now)

    def _schedule(self, job: JobId, tasks: Sequence[Task], estimate_us: Time) -> None:
        setting = self._setting
        supply = self._sampler.supply

        if self._negotiation is not None:
            tasks = [self._admitted(task) for task in tasks]

        groups = by_needs(tasks)
        for needs in [needs for needs in groups if needs and not supply(needs)]:
            for _ in groups.pop(needs):
                self._jobs.unsatisfiable(job)

        is_short = estimate_us <= self._cutoff_us
        # Central placement of short jobs is the comparison by least waiting time (LWL), not Hawk or Eagle.
        if groups and (not is_short or setting.short_placement == "least-wait"):
            central_tasks = tuple(task for task in tasks if task.constraints in groups)
            self._running.setdefault(job, {}).update(dict.fromkeys([task.id for task in central_tasks], CENTRAL))
            self._central_number += 1
            self._port.send(CENTRAL, CentralTasks(self._central_number, is_short, estimate_us, central_tasks))
            return

        count = sum(map(len, groups.values()))
        for needs in reversed(groups):
            group = groups[needs]
            # The minimum of a job's probes is shared between its groups by their sizes.
            probes_min = math.ceil(setting.probes_min * len(group) / count)
            self._probe(
                Batch(self._numbers.take(), group, needs, estimate_us),
                math.ceil(setting.probe_ratio * len(group)),
                probes_min,
            )

    def _admitted(self, task: Task) -> Task:
        """The task without the soft constraints that exclude every machine."""
        assert self._negotiation is not None
        admitted, dropped = self._negotiation.admitted(task, self._sampler.supply)
        self._negotiated += dropped
        return admitted

    def on_scarcity(self, message: Scarcity, source: Address, now: Time) -> None:
        if self._negotiation is not None:
            self._negotiation.thousandths = message.thousandths

    def _probe(self, batch: Batch, ratio_count: int, probes_min: int) -> None:
        if self._demand is not None:
            self._demand.waiting.add(batch.needs, len(batch.tasks))

        count = max(ratio_count, probes_min)
        self._batches[batch.id] = batch
        batch.first = self._numbers.take(count)
        batch.rejections = [0] * count
        if self._setting.sticky:
            batch.requests = [0] * count
        batch.nodes = [None] * count

        if self._setting.sharing == "ideal":
            self._port.send(CENTRAL, VectorRequest(batch.id))
        else:
            self._send_probes(batch, self._sampler.draw(batch.needs, count), self._setting.sharing == "none")

    def _send_probes(self, batch: Batch, workers: list[int], final: bool) -> None:
        nodes = self._layout.nodes
        send = self._port.send
        step = self._numbers.step
        number = batch.first
        batch_id = batch.id
        estimate_us = batch.estimate_us
        needs = batch.needs
        remaining_us = estimate_us * len(batch.tasks)

        self._probes += len(workers)

        sampled_nodes = [nodes[worker] for worker in workers]
        batch.nodes[:] = sampled_nodes
        for node in sampled_nodes:
            send(node, Probe(number, batch_id, estimate_us, remaining_us, needs, final))
            number += step

    def on_vector(self, message: Vector, source: Address, now: Time) -> None:
        """Probe workers that have no long task."""
        self._vector = message.vector
        self._machines_without_long = None

        batch = self._batches.get(message.batch)
        # A batch that has probes already was served by an earlier answer: the request was repeated.
        if batch is not None and batch.nodes[0] is None:
            workers = [self._without_long(batch.needs) for _ in batch.nodes]
            self._send_probes(batch, workers, True)

    def _without_long(self, needs: int) -> int:
        """A worker that has no long task as far as is known, short-only ones among them."""
        random = self._stream.random

        if self._machines_without_long is None:
            self._machines_without_long = self._layout.without_long(self._vector)
        candidates, is_candidate = self._machines_without_long

        if not needs:
            return candidates[int(random() * len(candidates))] if candidates else self._short_only(needs)

        # Tries are cheaper than a filtered list while few machines have long tasks; the list decides where many do.
        suitable_machines = self._sampler.suitable(needs)
        for _ in range(TRIES):
            worker = suitable_machines[int(random() * len(suitable_machines))]
            if is_candidate[worker]:
                return worker

        candidates = [worker for worker in suitable_machines if is_candidate[worker]]
        return candidates[int(random() * len(candidates))] if candidates else self._short_only(needs)

    def _short_only(self, needs: int) -> int:
        """A worker of the short-only part; where none fits, any that does."""
        machines, constraints = self._layout.short_machines, self._layout.constraints

        for _ in range(TRIES if machines else 0):
            worker = machines[int(self._stream.random() * len(machines))]
            if not needs & ~constraints[worker]:
                return worker

        candidates = [worker for worker in machines if not needs & ~constraints[worker]]
        if candidates:
            return candidates[int(self._stream.random() * len(candidates))]
        return self._sampler.draw(needs, 1)[0]

    def on_rejected(self, message: Rejected, source: Address, now: Time) -> None:
        """Note the machines of long tasks; try another worker after all messages of this instant."""
        if message.version > self._version:
            self._version = message.version
            self._vector = message.vector
            self._machines_without_long = None

        self._rejected += 1

        batch = self._batches.get(message.batch)
        if batch is None:
            return

        place = (message.number - batch.first) // self._numbers.step
        # A rejection of an earlier place of this reservation: it is elsewhere by now.
        if batch.nodes[place] != source:
            return
        batch.nodes[place] = None

        if batch.requests:
            batch.requests[place] = 0  # the next worker counts its requests from zero
        batch.rejections[place] += 1

        # One round for all rejections of the instant: the timer fires after the last message of it.
        if not batch.rejected:
            self._port.set_timer(batch.id, now)
        batch.rejected.append(place)

    def on_timer(self, event: TimerFired, source: Address, now: Time) -> None:
        """Send the next round of a batch's probes, the last one to the short-only part; or report the demand."""
        if event.key == BEAT and self._demand is not None:
            self._demand.send(self._port)
            return
        batch = self._batches.get(event.key) if isinstance(event.key, int) else None

        if batch is None:
            return

        nodes = self._layout.nodes
        rounds = self._setting.rounds
        estimate_us = batch.estimate_us
        remaining_us = estimate_us * len(batch.tasks)

        for place in batch.rejected:
            # After so many rejections the short-only part serves it, where no long task can be (Eagle).
            final = batch.rejections[place] >= rounds
            worker = self._short_only(batch.needs) if final else self._without_long(batch.needs)
            node = batch.nodes[place] = nodes[worker]
            number = batch.first + place * self._numbers.step
            self._port.send(node, Probe(number, batch.id, estimate_us, remaining_us, batch.needs, final))

        self._probes += len(batch.rejected)
        batch.rejected.clear()

    def on_task_request(self, message: TaskRequest, source: Address, now: Time) -> None:
        batch = self._batches.get(message.batch)
        place = -1 if batch is None else (message.number - batch.first) // self._numbers.step
        if batch is None or not self._holds(batch, place, source):
            self._refuse(message, source)
            return

        if not self._setting.sticky:
            batch.nodes[place] = None
        # A repeated request: the slot has its task.
        elif message.request <= batch.requests[place]:
            return
        else:
            batch.requests[place] = message.request

        tasks = batch.tasks
        task = self._bind(tasks, message, source)

        if self._demand is not None:
            self._demand.waiting.add(batch.needs, -1)
            self._demand.arm(self._port, now)

        self._blocked_us += message.blocked_us
        self._port.send(source, Assign(message.request, task, len(tasks)))

        if not tasks:
            self._forget(batch, source)

    def _holds(self, batch: Batch, place: int, source: Address) -> bool:
        """True if a reservation is valid: a sticky one where it was sent, another, which may be stolen, once."""
        node = batch.nodes[place]
        return node == source if self._setting.sticky else node is not None

    def _forget(self, batch: Batch, served: Address) -> None:
        del self._batches[batch.id]
        if self._setting.cancellation:
            self._withdraw(batch.first, batch.nodes, served)

    def on_dropped(self, message: Dropped, source: Address, now: Time) -> None:
        """Tasks that will never run count as results."""
        running = self._running.get(message.job)
        if running is not None:
            # Tasks that ended while the notice was under way were counted, and are not in the table.
            count = sum(running.pop(task, None) is not None for task in message.tasks)
            self._finished(message.job, running, count)

    def on_cancel(self, message: Cancel, source: Address, now: Time) -> None:
        """Give up the tasks that are not bound, and have the others killed; their workers report the end."""
        self._estimates.pop(message.job, None)
        if self._jobs.cancel(message, source):
            self._give_up(message.job)
        self._report_demand(now)

    def _give_up(self, job: JobId) -> None:
        for batch in [batch for batch in self._batches.values() if batch.tasks[0].job == job]:
            self._forget(batch, "")
            if self._demand is not None:
                self._demand.waiting.add(batch.needs, -len(batch.tasks))
            self._jobs.finished(job, len(batch.tasks))

        if CENTRAL in self._running.get(job, {}).values():
            self._port.send(CENTRAL, WithdrawJob(job))
        self._kill(job, CENTRAL)

    def check(self) -> None:
        for batch in self._batches.values():
            assert batch.tasks, "a batch without tasks"
            if not batch.requests and self._setting.sharing != "ideal":
                open_count = len(batch.nodes) - batch.nodes.count(None) + len(batch.rejected)
                assert len(batch.tasks) <= open_count, f"{len(batch.tasks)} tasks, {open_count} reservations"

        if self._demand is not None:
            task_counts = [0] * len(self._demand.waiting.counts)
            for batch in self._batches.values():
                for k in positions(batch.needs):
                    task_counts[k] += len(batch.tasks)

            assert task_counts == self._demand.waiting.counts, f"{task_counts} tasks wait, other counts are reported"

    receives = {  # noqa: RUF012 - the base class reads the table once and replaces it
        Submit: on_submit,
        MoreTasks: on_more_tasks,
        Cancel: on_cancel,
        TaskRequest: on_task_request,
        Rejected: on_rejected,
        TimerFired: on_timer,
        Vector: on_vector,
        Dropped: on_dropped,
        Completed: ReservingScheduler.on_completed,
        Scarcity: on_scarcity,
    }
    sends = (
        ANSWERS
        | sent_to("node", Probe, Assign, NoTask, Withdraw, Kill)
        | sent_to("central", CentralTasks, WithdrawJob, VectorRequest)
        | sent_to("monitor", Demanded)
    )
