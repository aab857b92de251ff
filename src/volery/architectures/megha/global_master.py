"""Megha's Global Master: matches tasks to units of the whole cluster on an eventually consistent view."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from random import Random
from typing import Literal

from volery.architectures.megha.layout import Layout
from volery.architectures.megha.messages import Ask, Ended, Inconsistency, Request, Update, Withdraw
from volery.core.component import Component, sent_to
from volery.core.events import Cancel, Counted, Look, Measured, MoreTasks, Seen, Submit
from volery.core.model import Address, Amounts, JobId, Task, TaskId, Time
from volery.policies.match import bytes_vector, positions
from volery.policies.queues import ConstraintQueue
from volery.roles.submission import ANSWERS, REFUSALS, SIGHTS, JobLedger

MeghaMatch = Literal["random", "min-constraints", "best-fit"]
"""Best fit looks at amounts; among slots, which are all alike, it is the minimum-constraints policy."""


class GlobalMaster(Component):
    """Searches internal partitions before external ones, and asks the Local Master before it believes itself.

    Args:
        gm: its number.
        layout: of the cluster.
        match: which suitable unit of a partition is taken.
        batch_max: placements per request.
        eager_retry: place a task whose placement was invalid at once; otherwise it waits at the head of the queue for
            the next unit that becomes free (the published code).
        queue_max: see `JobLedger`.
        ask: whether Local Masters are asked for news while tasks wait, or they wait for the heartbeat, as in the paper.
        stream: of random choices.
    """

    __slots__ = (
        "_after", "_ask", "_asked", "_batch_max", "_by_fewest", "_eager_retry", "_free", "_heard", "_jobs", "_layout",
        "_lms", "_members", "_next", "_orders", "_outside", "_placed", "_queue", "_queue_max", "_requests", "_stream",
    )  # fmt: skip

    def __init__(
        self,
        gm: int,
        layout: Layout,
        *,
        match: MeghaMatch,
        batch_max: int,
        eager_retry: bool,
        queue_max: int,
        stream: Random,
        ask: bool = False,
    ) -> None:
        self._by_fewest = match != "random"
        self._layout = layout
        self._lms = [f"lm/{lm}" for lm in range(layout.lm_count)]
        self._orders = layout.search_orders(gm)
        internal = list(self._orders)
        following = dict(zip(internal, internal[1:] + internal[:1], strict=True))
        self._after = [following[lm * layout.gm_count + gm] for lm in layout.lm_of]
        self._outside = [p not in following for p in range(len(layout.size))]
        self._next = internal[gm % layout.lm_count]
        self._members: list[dict[int, array[int]]] = [
            {} if self._by_fewest else matches.members for matches in layout.matches
        ]
        self._batch_max = batch_max
        self._eager_retry = eager_retry
        self._queue_max = queue_max
        self._stream = stream
        self._free = [layout.whole(p) for p in range(len(layout.size))]
        self._queue = ConstraintQueue()
        self._placed: dict[TaskId, tuple[Task, int, int]] = {}
        self._requests = [0] * layout.lm_count
        self._heard = dict.fromkeys(self._lms, 0)
        self._ask = ask
        self._asked: set[int] = set()

    def start(self, now: Time) -> None:
        """Open the ledger of jobs."""
        self._jobs = JobLedger(self._port.send, self._queue_max)

    def on_submit(self, message: Submit, source: Address, now: Time) -> None:
        """Schedule a job's tasks; those that fit nowhere now wait, those that fit no machine are reported."""
        queued = self._queued()
        self._port.observe(Measured("queued_tasks", queued))
        self._schedule(self._jobs.admit(message, source, queued))

    def _queued(self) -> int:
        return self._queue.length

    def on_more_tasks(self, message: MoreTasks, source: Address, now: Time) -> None:
        """Schedule a further chunk."""
        self._schedule(self._jobs.more(message))

    def on_look(self, message: Look, source: Address, now: Time) -> None:
        """Count the machines that have room in the view."""
        machines: set[int] = set()
        for partition, here in enumerate(self._layout.machines):
            places = positions(self._room(partition, message.constraints, message.request))
            machines.update([here[place] for place in places])
        self._port.send(source, Seen(message.number, len(machines)))

    def _room(self, partition: int, constraints: int, request: Amounts) -> int:
        return self._free[partition] & self._layout.matches[partition][constraints]

    def on_cancel(self, message: Cancel, source: Address, now: Time) -> None:
        """Drop the job's tasks that wait, and have the Local Masters kill those that are placed."""
        if not self._jobs.cancel(message, source):
            return
        placed: dict[int, list[TaskId]] = {}
        for task, partition, _ in self._placed.values():
            if task.job == message.job:
                placed.setdefault(self._layout.lm_of[partition], []).append(task.id)
        for lm, tasks in placed.items():
            self._port.send(self._lms[lm], Withdraw(tuple(tasks)))
        dropped = self._drop(message.job)
        if dropped:
            self._jobs.finished(message.job, len(dropped))

    def _drop(self, job: JobId) -> list[Task]:
        return self._queue.remove(lambda task: task.job == job)

    def _schedule(self, tasks: Sequence[Task]) -> None:
        for task in self._place(tasks):
            if self._satisfiable(task):
                self._enqueue(task)
            else:
                self._jobs.unsatisfiable(task.job)
        if self._ask:
            self._ask_all()

    def _ask_all(self) -> None:
        """While tasks wait, each Local Master has been asked for news once."""
        if self._queued():
            for lm, address in enumerate(self._lms):
                if lm not in self._asked:
                    self._asked.add(lm)
                    self._port.send(address, Ask())

    def _answered(self, lm: int) -> None:
        """News has come, or the one that was asked is gone."""
        if self._ask:
            self._asked.discard(lm)
            self._ask_all()

    def _enqueue(self, task: Task) -> None:
        self._queue.push(task)

    def _satisfiable(self, task: Task) -> bool:
        return any(matches[task.constraints] for matches in self._layout.matches)

    def _place(self, tasks: Iterable[Task]) -> list[Task]:
        """Match and request; return what fits nowhere in the view.

        One loop without calls per task where a frequent constraint set meets a free unit at the first draw: this is
        the hottest code of the design.
        """
        free, layout, partition, placed = self._free, self._layout, self._next, self._placed
        bits, random, after, members_of = layout.bits, self._stream.random, self._after, self._members
        batches: dict[int, tuple[list[Task], list[int]]] = {}
        unplaced: list[Task] = []
        nowhere: set[int] = set()  # constraint sets that fit nothing: units only become fewer here
        for task in tasks:
            members = members_of[partition].get(task.constraints)
            if members and free[partition] & (bit := bits[position := members[int(random() * len(members))]]):
                chosen = partition
            elif task.constraints in nowhere:
                unplaced.append(task)
                continue
            else:
                chosen, position = self._search(partition, task.constraints)
                if chosen < 0:
                    nowhere.add(task.constraints)
                    unplaced.append(task)
                    continue
                bit = bits[position]
            free[chosen] ^= bit
            placed[task.id] = (task, chosen, bit)
            partition = after[chosen]
            batch = batches.get(chosen)
            if batch is None:
                batch = batches[chosen] = ([], [])
            batch[0].append(task)
            batch[1].append(position)
        self._next = partition
        for chosen, (batch_tasks, batch_positions) in batches.items():
            self._request(chosen, batch_tasks, batch_positions)
        external = sum(len(batch[0]) for chosen, batch in batches.items() if self._outside[chosen])
        if external:
            self._port.observe(Counted("external_placements", external))
        return unplaced

    def _search(self, start: int, mask: int) -> tuple[int, int]:
        """A partition and a free suitable position: internal partitions first, round robin over LMs; (-1, -1): none."""
        free, matches = self._free, self._layout.matches
        for partition in self._orders[start]:
            candidates = free[partition]
            if candidates:
                candidates &= matches[partition][mask]
                if candidates:
                    if self._by_fewest:
                        return partition, (candidates & -candidates).bit_length() - 1
                    return partition, matches[partition].pick(mask, candidates, self._stream.random)
        return -1, -1

    def _request(self, partition: int, tasks: Sequence[Task], places: Sequence[int]) -> None:
        lm = self._layout.lm_of[partition]
        if len(tasks) <= self._batch_max:
            number = self._requests[lm] = self._requests[lm] + 1
            self._port.send(self._lms[lm], Request(number, partition, tuple(tasks), tuple(places)))
            return
        for at in range(0, len(tasks), self._batch_max):
            number = self._requests[lm] = self._requests[lm] + 1
            chunk = slice(at, at + self._batch_max)
            request = Request(number, partition, tuple(tasks[chunk]), tuple(places[chunk]))
            self._port.send(self._lms[lm], request)

    def on_ended(self, message: Ended, source: Address, now: Time) -> None:
        """Tasks of ours have ended: offer their units to the queue, and count their jobs down."""
        placed, free, queue = self._placed, self._free, self._queue
        freed: dict[int, list[int]] = {}
        job, count = -1, 0
        for number in message.tasks:
            place = placed.pop(number, None)
            if place is None:
                continue
            task, partition, bit = place
            free[partition] |= bit
            if queue.length:
                freed.setdefault(partition, []).append(bit.bit_length() - 1)
            if task.job != job:
                if count:
                    self._jobs.finished(job, count)
                job, count = task.job, 0
            count += 1
        for partition, places in freed.items():
            self._offer(partition, places)
        if count:
            self._jobs.finished(job, count)

    def _offer(self, partition: int, places: Iterable[int]) -> None:
        """Give units of a partition, as far as they are free in the view, to the first queued tasks that fit."""
        bits, constraints = self._layout.bits, self._layout.constraints[partition]
        tasks, taken = [], []
        for position in places:
            bit = bits[position]
            if self._free[partition] & bit:
                task = self._queue.pop_fitting(constraints[position])
                if task is not None:
                    self._free[partition] ^= bit
                    self._placed[task.id] = (task, partition, bit)
                    tasks.append(task)
                    taken.append(position)
        if tasks:
            self._request(partition, tasks, taken)

    def on_update(self, message: Update, source: Address, now: Time) -> None:
        """Take over what a Local Master says about its cluster, and use what has become free."""
        self._offer_all(self._learn(message, source))
        self._answered(self._number_of(source))

    def _number_of(self, source: Address) -> int:
        return self._lms.index(source)

    def _offer_all(self, freed: Sequence[tuple[int, int]]) -> None:
        for partition, vector in freed:
            if self._queued():
                self._offer(partition, positions(vector))

    def _learn(self, update: Update, source: Address) -> list[tuple[int, int]]:
        """Change the view and return per partition what became free; an update older than the last heard is stale."""
        if update.number <= self._heard[source]:
            return []
        self._heard[source] = update.number
        self._port.observe(Counted("updates"))
        freed_units = []
        for change in update.changes:
            freed, partition = bytes_vector(change.freed), change.partition
            before = self._free[partition]
            kept = 0 if update.snapshot else before & ~bytes_vector(change.taken)
            self._free[partition] = kept | freed
            freed_units.append((partition, freed & ~before))
        return freed_units

    def on_inconsistency(self, message: Inconsistency, source: Address, now: Time) -> None:
        """Learn what is true there, then try the refused tasks again, before all others; a repeat is stale."""
        if message.update.number <= self._heard[source]:
            return
        refused = [self._taken_back(task) for task in message.tasks if task in self._placed]
        self._port.observe(Counted("inconsistencies", len(refused)))
        freed = self._learn(message.update, source)
        if self._jobs.cancelled:
            refused = self._still_wanted(refused)
        waiting = self._place(refused) if self._eager_retry else refused
        for task in reversed(waiting):
            self._queue.push_front(task)
        self._offer_all(freed)
        if self._ask:
            self._ask_all()

    def _still_wanted(self, refused: Sequence[Task]) -> list[Task]:
        """Refused tasks without those of cancelled jobs, which end here."""
        cancelled, wanted = self._jobs.cancelled, []
        for task in refused:
            if task.job in cancelled:
                self._jobs.finished(task.job)
            else:
                wanted.append(task)
        return wanted

    def believed_free(self) -> dict[int, int] | None:
        """The view, by machine."""
        found: dict[int, int] = {}
        for machines, free in zip(self._layout.machines, self._free, strict=True):
            for position in positions(free):
                found[machines[position]] = found.get(machines[position], 0) + 1
        return found

    def _taken_back(self, task: TaskId) -> Task:
        """A task that was placed and has to be placed again, as it was submitted."""
        return self._placed.pop(task)[0]

    def check(self) -> None:
        """While tasks wait, no unit that they could use is free in the view (unless refused tasks wait by design)."""
        for mask in () if not self._eager_retry else self._queue.masks():
            for partition, matches in enumerate(self._layout.matches):
                assert not self._free[partition] & matches[mask], f"a free unit of {partition} fits a queued task"
        assert len(self._jobs) or not (self._placed or self._queue.length), "tasks without an open job"

    def check_rest(self) -> None:
        """No task is left, and every unit is free in the view."""
        left = len(self._placed) + self._queue.length + len(self._jobs)
        assert not left, "tasks are left"
        for partition, free in enumerate(self._free):
            assert free == self._layout.whole(partition), f"units of partition {partition} are taken in the view"

    receives = {  # noqa: RUF012 - the base class reads the table once and replaces it
        Submit: on_submit,
        MoreTasks: on_more_tasks,
        Cancel: on_cancel,
        Look: on_look,
        Ended: on_ended,
        Update: on_update,
        Inconsistency: on_inconsistency,
    }
    sends = ANSWERS | REFUSALS | SIGHTS | sent_to("lm", Request, Withdraw, Ask)
