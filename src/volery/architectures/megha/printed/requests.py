"""Requests of a Global Master that waits for the answer to each (arXiv 2103.08413, section V-D).

Launch, repartition and preemption are calls over HTTP there. One is outstanding per Global Master, whatever the number
of Local Masters: algorithm 2 takes the status of a launch before it tries a repartition, and that of a repartition
before it looks for victims, and a Global Master takes task requests from its queues one after another (section IV-C).
A task is matched when its turn has come, on a view that contains the answers to the tasks before it.

What arrives meanwhile waits: task requests in line, and room that is reported for tasks which fitted nowhere. Updates
are asynchronous in section V-D, so they are adopted at once; and Global Masters that wait for each other's votes on a
preemption still vote. Where components may crash a link repeats an answer until it has come, and the report of the next
leader of the cluster ends the wait for an answer that will not come. Without a leader there the Global Master waits.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from volery.architectures.megha.amounts.view import CapacityView
from volery.architectures.megha.hosts import MatchingHost
from volery.architectures.megha.shares.users import UserLines
from volery.core.model import Task
from volery.core.resources import Packing
from volery.policies.match import positions

if TYPE_CHECKING:
    from volery.architectures.megha.shares.fairness import WeightedFairness


def _only_user(_task: Task) -> int:
    """Without shares all tasks are those of one user."""
    return 0


class SynchronousRequests:
    """Line of task requests of a Global Master that sends one request at a time.

    Args:
        host: The Global Master.
        fairness: Account of its users; None: they have no shares.

    Attributes:
        line: Task requests that have not been looked at.
        view: View of the Global Master; set once it exists, because it reports room to this.
    """

    view: CapacityView

    def __init__(
        self,
        host: MatchingHost,
        packing: Packing,
        fairness: WeightedFairness | None,
    ) -> None:
        self._host = host
        self._fairness = fairness
        self.line = UserLines(packing, _only_user, None) if fairness is None else fairness.new_lines()
        self._room: dict[int, int] = {}

    def is_waiting(self) -> bool:
        """Find out whether an answer to a request has still to come."""
        return self.view.has_requests_under_way() or (self._fairness is not None and self._fairness.has_claims())

    def may_preempt(self) -> bool:
        """Find out whether nothing is under way, and no room is left that waiting tasks could have."""
        return not self._room and not self.is_waiting()

    def admit(self, tasks: Iterable[Task], *, is_first: bool) -> list[Task]:
        """Put tasks into line, before all others or after them; return those that fit no machine."""
        unsatisfiable: list[Task] = []
        admitted: list[Task] = []
        for task in tasks:
            (admitted if self.view.satisfiable(task) else unsatisfiable).append(task)
        push = self.line.push_front if is_first else self.line.push
        for task in reversed(admitted) if is_first else admitted:
            push(task)
        return unsatisfiable

    def note_room(self, partition: int, places: Iterable[int]) -> None:
        """Note machines of a partition that may have room for tasks which fitted nowhere."""
        noted = self._room.get(partition, 0)
        for position in places:
            noted |= 1 << position
        if noted:
            self._room[partition] = noted

    def proceed(self) -> None:
        """Send the next request unless an answer has still to come; see algorithm 2 for the order."""
        while not self.is_waiting():
            if self._offer_room():
                continue
            if self._fairness is not None:
                self._fairness.enforce()
            if self.is_waiting() or not self._match_next():
                return

    def _offer_room(self) -> bool:
        """Request room for the first waiting task that fits; find out whether there was one."""
        while self._room and self.view.queue.length:
            partition, noted = next(iter(self._room.items()))
            for position in positions(noted):
                # A machine that one task has got may have room for a further one: it stays noted.
                if self.view.offer_one(partition, position):
                    self._room[partition] = noted
                    return True
                noted ^= 1 << position
            del self._room[partition]
        self._room.clear()
        return False

    def _match_next(self) -> bool:
        """Match the next task in line; find out whether there was one. Without a match it waits for room."""
        if not self.line.length:
            return False
        for task in self._host.match([self.line.pop()]):
            self.view.queue.push(task)
            if self._fairness is not None:
                self._fairness.scheduled([task])
            self._host.ask_all()
        return True
