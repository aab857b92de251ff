"""The tasks that a distributor has sent to masters that may crash, and sends again when they are lost (section 6.1).

A gang is sent again when all its members are back that have not finished: the driver ends the attempts of those that
have begun with a lost one, and the distributor recalls those that wait for it on their workers or at a master.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import ClassVar, Final, Protocol

import msgspec

from volery.architectures.pigeon.messages import (
    Deal,
    GangTasks,
    Granted,
    Lost,
    Report,
    Resume,
    VoteRequest,
    Withdraw,
)
from volery.architectures.pigeon.succession import Promises
from volery.core.component import Sends, role_of, sent_to
from volery.core.events import Counted
from volery.core.model import Address, Gang, JobId, Task, TaskId
from volery.core.port import Port
from volery.roles.recovery.leases import Forget, Result, StaleEpoch

NO_JOB: Final = -1
"""Job of a task that has a result."""


class SentGang(msgspec.Struct, eq=False):
    """A gang that a distributor has sent.

    Attributes:
        kind: The type of its job.
        tasks: Members that have not finished.
        returned_tasks: Those that are lost, or that a master has dropped, since this attempt was sent.
        sent_tasks: Members that were sent with this attempt.
    """

    group: int
    kind: int
    shape: Gang
    tasks: dict[TaskId, Task]
    attempt: int = 0
    returned_tasks: set[TaskId] = set()
    sent_tasks: tuple[TaskId, ...] = ()

    def has_returned(self) -> bool:
        """True if all members are back that have not finished."""
        return len(self.returned_tasks) == len(self.tasks)


class Dealer(Protocol):
    """A distributor, as its recovery calls it."""

    masters: list[Address]

    def count(self, task: TaskId) -> None: ...
    def is_cancelled(self, job: JobId) -> bool: ...


class DistributorRecovery:
    """The tasks that a distributor has sent and has no result of; it sends those again that no worker has."""

    sends: ClassVar[Sends] = sent_to("master", Deal, GangTasks, StaleEpoch, Resume, Granted) | sent_to("node", Forget)
    _distributor: Dealer
    _port: Port

    def __init__(self, seats: Sequence[Sequence[Address]]) -> None:
        groups = len(seats)
        self._group_at = {address: group for group in range(groups) for address in seats[group]}
        self._epochs = [0] * groups
        self._promises = Promises([of_group[0] for of_group in seats])
        self._sent: dict[TaskId, tuple[Task, int, int, int]] = {}
        self._gangs: dict[JobId, SentGang] = {}
        self._ended_gangs: list[list[SentGang]] = [[] for _ in range(groups)]
        self._unconfirmed_tasks: list[dict[TaskId, None]] = [{} for _ in range(groups)]

    def bind(self, distributor: Dealer, port: Port) -> None:
        """Serve a distributor, by its port."""
        self._distributor = distributor
        self._port = port

    def deal(self, group: int, kind: int, share: tuple[Task, ...], attempt: int = 0) -> None:
        """Send tasks of a type to the master that leads a group."""
        for task in share:
            self._sent[task.id] = (task, group, kind, attempt)

        deal = Deal(self._epochs[group], not kind, share, (attempt,) * len(share), max(0, kind - 1))
        self._port.send(self._distributor.masters[group], deal)

    def forget(self, task: TaskId) -> None:
        """Drop a task that has a result."""
        entry = self._sent.pop(task, None)
        gang = self._gangs.get(entry[0].job) if entry is not None and self._gangs else None
        if entry is None or gang is None:
            return
        del gang.tasks[task]
        gang.returned_tasks.discard(task)
        if not gang.tasks:
            self._end(self._gangs.pop(entry[0].job))
        elif gang.has_returned():
            self._send_gang_again(gang)

    def _end(self, gang: SentGang) -> None:
        """Have what is left of a gang dropped: results of an earlier attempt may have ended it, and it never begins."""
        if gang.attempt:
            self._ended_gangs[gang.group].append(gang)
            self._port.send(self._distributor.masters[gang.group], Withdraw(gang.sent_tasks, is_recall=True))

    def send_gang(self, gang: SentGang) -> None:
        """Send the members of a gang that have not finished to the master that leads its group."""
        tasks = tuple(gang.tasks.values())
        gang.sent_tasks = tuple(gang.tasks)
        self._gangs[tasks[0].job] = gang
        for task in tasks:
            self._sent[task.id] = (task, gang.group, gang.kind, gang.attempt)

        # Where others have finished, the rest may be too few for all machines of the shape.
        shape = msgspec.structs.replace(gang.shape, nodes=min(gang.shape.nodes, len(tasks)))
        message = GangTasks(self._epochs[gang.group], gang.kind, shape, tasks, gang.attempt)
        self._port.send(self._distributor.masters[gang.group], message)

    def _send_gang_again(self, gang: SentGang) -> None:
        gang.attempt += 1
        gang.returned_tasks.clear()
        self._port.observe(Counted("tasks_sent_again", len(gang.tasks)))
        self.send_gang(gang)

    def _take_back(self, gang: SentGang, tasks: Iterable[TaskId]) -> None:
        """Members are lost, or were recalled; the gang is sent again when all are back that have not finished."""
        is_first = not gang.returned_tasks
        # All of one message at once: the gang is sent anew in between otherwise, and the rest counts as lost again.
        gang.returned_tasks.update(tasks)
        if gang.has_returned():
            self._send_gang_again(gang)
        elif is_first:
            self._recall(gang)

    def _recall(self, gang: SentGang) -> None:
        """Have the other members dropped or ended; a master that has lost one may not know that they wait for it."""
        other_members = tuple([task for task in gang.tasks if task not in gang.returned_tasks])
        self._port.send(self._distributor.masters[gang.group], Withdraw(other_members, is_recall=True))

    def take_back(self, tasks: Iterable[TaskId], master: Address) -> Sequence[TaskId]:
        """Take back members that were dropped where they waited; returns the others, which will never run."""
        dropped: list[TaskId] = []
        by_gang: dict[JobId, list[TaskId]] = {}
        for task in tasks:
            job = self._sent[task][0].job if task in self._sent else NO_JOB
            is_member = job in self._gangs and not self._distributor.is_cancelled(job)
            (by_gang.setdefault(job, []) if is_member else dropped).append(task)

        for job, members in by_gang.items():
            # What an earlier leader has dropped is lost to the present one.
            if self._distributor.masters[self._gangs[job].group] == master:
                self._take_back(self._gangs[job], members)
        return dropped

    def returned_tasks(self, job: JobId) -> Sequence[TaskId]:
        """The members of a gang that are at no master."""
        return sorted(self._gangs[job].returned_tasks) if job in self._gangs else ()

    def result(self, message: Result, source: Address) -> None:
        """Count the result, of any attempt; its worker need not keep it."""
        task = message.active.task
        if role_of(source) == "node":
            self._port.send(source, Forget((task,)))
        self._distributor.count(task)

    def report(self, message: Report, source: Address) -> None:
        """A master leads; once it has settled, the tasks that it does not know of are lost."""
        group = self._group_at[source]
        # Only a whole report may begin an epoch: tasks that an increment leaves out would pass as lost.
        if message.epoch < self._epochs[group] or (message.epoch > self._epochs[group] and not message.whole):
            return

        if message.epoch > self._epochs[group]:
            self._epochs[group] = message.epoch
            self._distributor.masters[group] = source
            self._unconfirmed_tasks[group] = {task: None for task, entry in self._sent.items() if entry[1] == group}

        # An earlier attempt was given up before another was sent: the other is still unconfirmed.
        for active in message.running:
            if active.task in self._sent and active.attempt >= self._sent[active.task][3]:
                self._unconfirmed_tasks[group].pop(active.task, None)

        if message.settled:
            unconfirmed = self._unconfirmed_tasks[group]
            self._unconfirmed_tasks[group] = {}

            attempt_of_copy = dict(message.kept)

            # The master's copy may be older than the last attempt; only equal ones are the same task in the same queue.
            resumed = [
                task
                for task in unconfirmed
                if task in self._sent
                and self._sent[task][3] == attempt_of_copy.get(task)
                and self._sent[task][0].job not in self._gangs
            ]
            self._resume(group, [task for task in resumed if not self._give_up(task)])
            self._send_again(task for task in unconfirmed if task not in resumed)

            # The recall of a gang may have come to the former leader, or before its members were known to this one.
            for gang in self._gangs.values():
                if gang.group == group and gang.returned_tasks:
                    self._recall(gang)
            for gang in self._ended_gangs[group]:
                self._port.send(source, Withdraw(gang.sent_tasks, is_recall=True))

    def lost(self, message: Lost, source: Address) -> None:
        """Send the tasks of lost attempts again."""
        # A master that no longer leads has lost nothing that counts: its tasks are its successor's.
        if self._distributor.masters[self._group_at[source]] == source:
            outstanding = self._sent
            self._send_again(
                a.task for a in message.attempts if a.task in outstanding and outstanding[a.task][3] == a.attempt
            )

    def _give_up(self, task: TaskId) -> bool:
        """Count a task of a job that was cancelled as a result; returns whether it is one."""
        if self._distributor.is_cancelled(self._sent[task][0].job):
            self._distributor.count(task)
            return True
        return False

    def _resume(self, group: int, tasks: Sequence[TaskId]) -> None:
        """Name the tasks of which the master has a copy; they need not be sent again."""
        attempts = []
        for number in tasks:
            task, _, kind, attempt = self._sent[number]
            attempts.append(attempt + 1)
            self._sent[number] = (task, group, kind, attempt + 1)

        if tasks:
            self._port.observe(Counted("tasks_resumed", len(tasks)))
            self._port.send(
                self._distributor.masters[group], Resume(self._epochs[group], tuple(tasks), tuple(attempts))
            )

    def _send_again(self, tasks: Iterable[TaskId]) -> None:
        by_gang: dict[JobId, list[TaskId]] = {}
        for number in tasks:
            if number in self._sent and not self._give_up(number):
                task, group, kind, attempt = self._sent[number]
                if task.job in self._gangs:
                    by_gang.setdefault(task.job, []).append(number)
                    continue

                self._port.observe(Counted("tasks_sent_again", 1))
                self.deal(group, kind, (task,), attempt + 1)
        for job, members in by_gang.items():
            self._take_back(self._gangs[job], members)

    def answer_epoch(self, master: Address) -> None:
        """Answer a restarted master with the epoch that is known."""
        group = self._group_at[master]
        self._port.send(master, StaleEpoch(max(self._epochs[group], self._promises.epoch(group))))

    def claim(self, message: VoteRequest, source: Address) -> None:
        """Promise an epoch to a candidate, or refuse."""
        self._port.send(source, self._promises.answer(self._group_at[source], message, source))
