"""Global Masters that say of every task what they decided and why; they decide as those do that are silent.

What is passed over is counted on the view that each task met: the tasks of a batch are told one by one, in the order in
which they were matched.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import Any, ClassVar

from volery.architectures.megha.fair_gm import KINDS_MAX, FairGlobalMaster
from volery.architectures.megha.global_master import GlobalMaster
from volery.architectures.megha.messages import (
    Denied,
    Ended,
    Inconsistency,
    Lost,
    Ousted,
    Refusal,
    Report,
    StateUpdate,
    Update,
    Yield,
)
from volery.architectures.megha.sharing import sum_of
from volery.architectures.megha.surviving_fair_gm import SurvivingFairMaster
from volery.architectures.megha.surviving_gm import Surviving, SurvivingGlobalMaster
from volery.architectures.megha.surviving_vector_gm import SurvivingVectorMaster
from volery.architectures.megha.user_lines import UserLines
from volery.architectures.megha.vector_gm import VectorGlobalMaster
from volery.core.events import Event
from volery.core.model import Address, Amounts, JobId, Task, TaskId, Time
from volery.core.resources import Packing
from volery.core.why import Chosen, Decision, Reason, Rejected, Scope
from volery.policies.capacity import CapacityIndex

Passed = dict[tuple[Scope, Reason], int]


class Explaining(GlobalMaster):
    """Reports a `Decision` per task that it places, cannot place, or is refused; arguments as for the silent role."""

    NEWS: ClassVar[tuple[type, ...]]
    """Messages by which a Local Master tells of its cluster."""
    _heard_at: list[Time]
    """Per Local Master, or pair of them."""
    _numbers: dict[Address, int]
    _matching: bool
    _now: Time

    def start(self, now: Time) -> None:
        """Open the ledger of jobs; the view is that of an empty cluster, which is true now."""
        super().start(now)
        self._now = now
        self._heard_at = [now] * len(self._lms)
        self._numbers = {address: lm for lm, address in enumerate(self._lms)}
        self._matching = False

    def handle(self, event: Event, source: Address, now: Time) -> None:
        """Keep the time, and when each Local Master was last heard of."""
        self._now = now
        if isinstance(event, self.NEWS):
            self._hear(event, source)
        super().handle(event, source, now)

    def _hear(self, news: Event, source: Address) -> None:
        self._heard_at[self._numbers[source]] = self._now

    def _view(self) -> list[Any]:
        """A copy of the view, per partition."""
        raise NotImplementedError

    def _pass(self, counts: Passed, task: Task, view: Sequence[Any], partition: int) -> None:
        """Count the units of a partition by why the task does not run there."""
        raise NotImplementedError

    def _use(self, view: list[Any], partition: int, place: int, task: Task) -> int:
        """Take in a copy of the view what a task has taken there; returns the position of the unit."""
        raise NotImplementedError

    def _place(self, tasks: Iterable[Task]) -> list[Task]:
        """Match and request, then tell what each task met."""
        chosen = list(tasks)
        view, start = self._view(), self._next
        self._matching = True
        unplaced = super()._place(chosen)
        self._matching = False
        waiting = {task.id for task in unplaced}
        for task in chosen:
            order = self._orders[start]
            if task.id in waiting:
                fits = self._satisfiable(task)
                self._tell(task, "queued" if fits else "unsatisfiable", self._waits_for(task, view, order))
                continue
            _, partition, place = self._placed[task.id]
            passed = self._passed(task, view, order[: order.index(partition)])
            self._tell(task, "placed", passed, partition, self._use(view, partition, place, task))
            start = self._after[partition]
        return unplaced

    def _request(self, partition: int, tasks: Sequence[Task], places: Sequence[int]) -> None:
        """Ask the Local Master; a task that waited for these units has passed over nothing."""
        super()._request(partition, tasks, places)
        if not self._matching:
            for task, position in zip(tasks, places, strict=True):
                self._tell(task, "placed", (), partition, position)

    def _position_of(self, place: int) -> int:
        """The position of what a task has been placed at."""
        return place

    def _tell_refused(self, message: Inconsistency | Refusal, source: Address) -> None:
        if message.update.number > self._heard[source]:
            for number in message.tasks:
                if number in self._placed:
                    task, partition, place = self._placed[number]
                    refused = (Rejected(self._scope(partition), Reason.INCONSISTENCY, 1),)
                    self._tell(task, "refused", refused, partition, self._position_of(place))

    def _waits_for(self, task: Task, view: Sequence[Any], order: Sequence[int]) -> tuple[Rejected, ...]:
        """What a task met that found nothing."""
        return self._passed(task, view, order)

    def _passed(self, task: Task, view: Sequence[Any], partitions: Iterable[int]) -> tuple[Rejected, ...]:
        counts: Passed = {}
        for partition in partitions:
            self._pass(counts, task, view, partition)
        return tuple([Rejected(*key, count) for key, count in counts.items() if count])

    def _tally(self, counts: Passed, partition: int, **by_reason: int) -> None:
        scope = self._scope(partition)
        for reason, count in by_reason.items():
            key = scope, Reason(reason)
            counts[key] = counts.get(key, 0) + count

    def _scope(self, partition: int) -> Scope:
        return "external" if self._outside[partition] else "internal"

    def _tell(
        self, task: Task, chosen: Chosen, rejected: tuple[Rejected, ...], partition: int = -1, position: int = -1
    ) -> None:
        if partition < 0:
            asked, machine, age_us = "", -1, self._now - min(self._heard_at)
        else:
            lm = self._layout.lm_of[partition]
            asked, machine = self._lms[lm], self._layout.machines[partition][position]
            age_us = self._now - self._heard_at[lm]
        self._port.observe(Decision(task.id, task.job, chosen, partition, machine, asked, age_us, rejected))


class ExplainingMaster(Explaining):
    """Explains placements on slots."""

    NEWS: ClassVar[tuple[type, ...]] = (Update, Ended, Inconsistency)

    def _view(self) -> list[Any]:
        return list(self._free)

    def _use(self, view: list[Any], partition: int, place: int, task: Task) -> int:
        view[partition] ^= place
        return self._position_of(place)

    def _position_of(self, place: int) -> int:
        return place.bit_length() - 1

    def _pass(self, counts: Passed, task: Task, view: Sequence[Any], partition: int) -> None:
        suits = self._layout.matches[partition][task.constraints]
        lacking = self._layout.size[partition] - suits.bit_count()
        self._tally(counts, partition, constraint=lacking, busy=(suits & ~view[partition]).bit_count())

    def on_inconsistency(self, message: Inconsistency, source: Address, now: Time) -> None:
        """Tell what was refused, then learn and try again."""
        self._tell_refused(message, source)
        super().on_inconsistency(message, source, now)


class ExplainingVectorMaster(Explaining, VectorGlobalMaster):
    """Explains placements of amounts; its units are machines."""

    NEWS: ClassVar[tuple[type, ...]] = (StateUpdate, Ended, Refusal)

    def _view(self) -> list[Any]:
        return [index.copy() for index in self._index]

    def _use(self, view: list[Any], partition: int, place: int, task: Task) -> int:
        index: CapacityIndex = view[partition]
        claim, _, _ = self._placed[task.id]
        index.put(place, self._packing.settled(index.free[place] - self._packing[claim.request]))
        return place

    def _pass(self, counts: Passed, task: Task, view: Sequence[Any], partition: int) -> None:
        need, suits = self._ladders[task.request], self._layout.matches[partition][task.constraints]
        large = self._vectors.whole_index[partition].fitting(need, suits)
        taken = large & ~view[partition].fitting(need, suits)
        called = self._called_for(partition, taken).bit_count()
        fitting = suits.bit_count()
        lacking, small = self._layout.size[partition] - fitting, fitting - large.bit_count()
        busy = taken.bit_count() - called
        self._tally(counts, partition, constraint=lacking, resource=small, busy=busy, share=called)

    def _called_for(self, partition: int, taken: int) -> int:
        """Those of the machines that are taken on which others have first call, once something comes free there."""
        return 0

    def on_refusal(self, message: Refusal, source: Address, now: Time) -> None:
        """Tell what was refused, then learn and try again."""
        self._tell_refused(message, source)
        super().on_refusal(message, source, now)

    receives = VectorGlobalMaster.receives


class TellingLines(UserLines):
    """Knows whose tasks had to let users below their share go first.

    Attributes:
        passed: the tasks that could have had what was taken last, one per user.
    """

    __slots__ = ("passed",)

    def __init__(self, packing: Packing, user_of: Callable[[Task], int], is_short: Callable[[int], bool]) -> None:
        super().__init__(packing, user_of, is_short)
        self.passed: list[Task] = []

    def pop_fitting(self, offered: int, free: int) -> Task | None:
        """As ever, and see who had to wait for it."""
        self.passed = []
        task = super().pop_fitting(offered, free)
        if task is not None and len(self._lines) > 1 and self._is_short(self._user_of(task)):
            waiting = [
                self._lines[user].first_fitting(offered, free) for user in self._lines if not self._is_short(user)
            ]
            self.passed = [one for one in waiting if one is not None]
        return task


class ExplainingFairMaster(ExplainingVectorMaster, FairGlobalMaster):
    """Explains preemptions, too: the GM of the user that loses tells of them. And what waits for its user's share.

    A taken machine that holds back a task which finds nothing does so by reason of `share`, not `busy`, where what runs
    there would go to another user if it ended now: the task's user would have its share even without what it has there,
    and another user of this GM would not, and waits with a task that the empty machine can take. That is the rule by
    which a GM gives away what comes free (`UserLines.pop_fitting`). Users of other GMs are not seen waiting: what they
    take is told as "preempted". Per user at most `KINDS_MAX` kinds of waiting tasks are looked at, as for preemption.

    A task that has not been told so, because it has waited since before the others did, is told once: when it could
    have had what came free, and a user below its share got it.

    Cost: once per event that leaves tasks waiting, a look at each task that runs for a user who waits; per task that is
    taken from a queue, a look at the kinds that wait.
    """

    NEWS: ClassVar[tuple[type, ...]] = (StateUpdate, Ended, Refusal, Denied, Ousted, Yield)
    _calls: dict[int, list[int]]
    """Per user whose tasks are being explained, per partition, machines on which others have first call."""
    _first_call: Sequence[int] = ()

    def start(self, now: Time) -> None:
        """As for any GM; nothing waits yet."""
        self._telling = TellingLines(self._packing, self._user_of, self._is_short)
        self._user_lines = self._lines = self._telling
        self._told_of_shares: set[TaskId] = set()
        super().start(now)

    def _take(self, task: Task, partition: int, position: int) -> Task:
        """Tell who was passed over for a task that has waited."""
        claim = super()._take(task, partition, position)
        self._told_of_shares.discard(task.id)
        if not self._matching:
            for other in self._telling.passed:
                if other.id not in self._told_of_shares:
                    self._told_of_shares.add(other.id)
                    self._tell(other, "queued", (Rejected(self._scope(partition), Reason.SHARE, 1),))
        return claim

    def _place(self, tasks: Iterable[Task]) -> list[Task]:
        self._calls = {}
        return super()._place(tasks)

    def _drop(self, job: JobId) -> list[Task]:
        dropped = super()._drop(job)
        self._told_of_shares.difference_update([task.id for task in dropped])
        return dropped

    def _waits_for(self, task: Task, view: Sequence[Any], order: Sequence[int]) -> tuple[Rejected, ...]:
        user = self._user_of(task)
        if user not in self._calls:
            self._calls[user] = self._called_by_others(user)
        self._first_call = self._calls[user]
        rejected = self._passed(task, view, order)
        self._first_call = ()
        if any(one.reason is Reason.SHARE for one in rejected):
            self._told_of_shares.add(task.id)
        return rejected

    def _called_for(self, partition: int, taken: int) -> int:
        return taken & self._first_call[partition] if self._first_call else 0

    def _called_by_others(self, user: int) -> list[int]:
        matches, whole = self._layout.matches, self._vectors.whole_index
        called = [0] * len(matches)
        if self._is_short(user):
            return called
        for other in self._user_lines.users():
            if other == user:
                continue
            short = self._short_without(other)
            for mask, request in islice(self._user_lines.kinds_of(other), KINDS_MAX) if any(short) else ():
                need = self._ladders[request]
                for partition, machines in enumerate(short):
                    called[partition] |= whole[partition].fitting(need, machines & matches[partition][mask])
        return [machines & ~own for machines, own in zip(called, self._short_without(user), strict=True)]

    def _short_without(self, user: int) -> list[int]:
        """Per partition, the machines without which the user would have less than its share."""
        matches, name = self._layout.matches, self._names[user]
        if self._is_short(user):
            return [of_partition.every for of_partition in matches]
        there: dict[tuple[int, int], list[Amounts]] = {}
        for held in self._running[user].values():
            there.setdefault((held.partition, held.position), []).append(held.request)
        machines, enough = [0] * len(matches), dict[Amounts, bool]()
        for (partition, position), requests in there.items():
            losing = sum_of([self._packing.asked(request) for request in requests])
            if losing not in enough:
                enough[losing] = user == self._sharing.others or self._ledger.can_lose(name, losing)
            if not enough[losing]:
                machines[partition] |= 1 << position
        return machines

    def _preempt(self, task: Task, loser: int, victims: Sequence[TaskId]) -> None:
        """Tell where the task is to run; what was passed over was told when it began to wait."""
        super()._preempt(task, loser, victims)
        self._told_of_shares.discard(task.id)
        _, partition, position = self._placed[task.id]
        self._tell(task, "placed", (), partition, position)

    def on_ousted(self, message: Ousted, source: Address, now: Time) -> None:
        """Tell whose share it was for, then take the task back."""
        if message.task in self._placed and self._attempt_of(message.task) == message.attempt:
            task, partition, position = self._placed[message.task]
            share = (Rejected(self._scope(partition), Reason.SHARE, 1),)
            self._tell(task, "preempted", share, partition, position)
        super().on_ousted(message, source, now)

    receives = FairGlobalMaster.receives


class ExplainingRebuilt(Explaining, Surviving):
    """Explains where components may crash, and which attempts were lost.

    Its views are those of the leaders: a message of another Local Master changes neither them nor their age. After a
    new incarnation has begun nothing is decided, and nothing told, before every cluster has reported what runs there.
    """

    def _hear(self, news: Event, source: Address) -> None:
        lm = self._lm_at[source]
        new_leader = isinstance(news, Report) and news.whole and news.epoch > self._epochs[lm]
        if new_leader or self._believes(source):
            self._heard_at[lm] = self._now

    def _place_again(self, dead: Iterable[TaskId]) -> None:
        """Tell where each of the tasks was lost, then place it again."""
        lost = list(dead)
        for number in lost:
            task, partition, place = self._placed[number]
            self._tell(task, "lost", (), partition, self._position_of(place))
        super()._place_again(lost)


class ExplainingSurvivor(ExplainingRebuilt, ExplainingMaster, SurvivingGlobalMaster):
    """Of slots."""

    NEWS = (*ExplainingMaster.NEWS, Report, Lost)
    receives = SurvivingGlobalMaster.receives


class ExplainingVectorSurvivor(ExplainingRebuilt, ExplainingVectorMaster, SurvivingVectorMaster):
    """Of amounts."""

    NEWS = (*ExplainingVectorMaster.NEWS, Report, Lost)
    receives = SurvivingVectorMaster.receives


class ExplainingFairSurvivor(ExplainingRebuilt, ExplainingFairMaster, SurvivingFairMaster):
    """Of users with shares."""

    NEWS = (*ExplainingFairMaster.NEWS, Report, Lost)
    receives = SurvivingFairMaster.receives
