"""Decisions about tasks, live: machines that could have a task that waits, and decisions of its scheduler so far.

The funnel is counted here, from machines and reports of nodes; it needs no scheduler. Decisions are facts
that schedulers report where their parameter `why` is set; each host sends them to the submitter like reports of
attempts. They are not kept over a restart of the API.
"""

from __future__ import annotations

import time
from collections import OrderedDict, deque
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final

from volery.core.model import Address, Amounts, Cluster, TaskId
from volery.core.why import LoggedDecision
from volery.live.messages import DecisionReport
from volery.live.status import DecisionStep, FunnelStep, PairStatus, RejectionCount

TASKS_MAX: Final = 20_000
"""Tasks whose decisions are kept; those of the oldest tasks are dropped first."""
KEPT_PER_TASK: Final = 8
STEP_S: Final = 10.0
STEPS: Final = 30
"""What was decided of late is counted in so many steps, five minutes."""


class DecisionBook:
    """Decisions that schedulers report: of a task the first and the last ones, and counts per pair of components.

    Args:
        clock_s: seconds that never go back.

    Attributes:
        heard: whether there has been any.
    """

    def __init__(self, clock_s: Callable[[], float] = time.monotonic) -> None:
        self.heard = False
        self._clock_s = clock_s
        self._pairs: dict[tuple[Address, Address], list[int]] = {}
        self._recent: dict[tuple[Address, Address], deque[list[int]]] = {}
        # A plain dict looks for its first key among all that were deleted before it.
        self._of_task: OrderedDict[TaskId, list[LoggedDecision]] = OrderedDict()
        self._dropped: dict[TaskId, int] = {}

    def note(self, told: DecisionReport) -> None:
        """Keep a decision, and let go of the second oldest of the task where there are too many."""
        self.heard = True
        task, asked = told.decision.task, told.decision.asked
        if asked:
            counts = self._pairs.get((told.by, asked))
            if counts is None:
                counts = self._pairs[told.by, asked] = [0, 0, 0]
                self._recent[told.by, asked] = deque(maxlen=STEPS)
            recent, step = self._recent[told.by, asked], int(self._clock_s() // STEP_S)
            if not recent or recent[-1][3] != step:
                recent.append([0, 0, 0, step])
            for some in (counts, recent[-1]):
                if told.decision.chosen == "refused":
                    some[1] += 1
                elif told.decision.chosen == "placed":
                    some[0], some[2] = some[0] + 1, some[2] + told.decision.view_age_us
        kept, noted = self._of_task.get(task), LoggedDecision(told.at_unix_us, told.by, told.decision)
        if kept is not None:
            kept.append(noted)
            if len(kept) > KEPT_PER_TASK:
                del kept[1]
                self._dropped[task] = self._dropped.get(task, 0) + 1
            return
        self._of_task[task] = [noted]
        if len(self._of_task) > TASKS_MAX:
            oldest, _ = self._of_task.popitem(last=False)
            self._dropped.pop(oldest, None)

    def pairs(self) -> list[PairStatus]:
        """Counts of decisions per pair of components, in order of names."""
        since, found = int(self._clock_s() // STEP_S) - STEPS, []
        for (by, asked), (decisions, refused, age_us) in sorted(self._pairs.items()):
            recent = [some for some in self._recent[by, asked] if some[3] > since]
            count, late, ages_us = (sum(some[place] for some in recent) for place in range(3))
            found.append(
                PairStatus(
                    by=by, asked=asked, decisions=decisions, refused=refused, view_age_us=age_us // max(1, decisions),
                    recent=count, recent_refused=late, recent_view_age_us=ages_us // count if count else None,
                )
            )  # fmt: skip
        return found

    def steps(self, task: TaskId, nodes: Mapping[int, Address]) -> tuple[DecisionStep, ...]:
        """The decisions about a task, in order; `nodes` has the address on each machine."""
        kept, dropped = self._of_task.get(task, ()), self._dropped.get(task, 0)
        return tuple(
            DecisionStep(
                at_us=at_us, by=by, chosen=one.chosen, node=nodes.get(one.machine, ""), asked=one.asked,
                view_age_us=one.view_age_us, omitted=dropped if place == 1 else 0,
                passed=tuple(RejectionCount(passed.scope, passed.reason, passed.count) for passed in one.rejected),
            )
            for place, (at_us, by, one) in enumerate(kept)
        )  # fmt: skip


def candidates(
    cluster: Cluster, mask: int, request: Amounts, drained: Collection[int], taken: Mapping[int, int],
    lost: Collection[int] = (),
) -> list[tuple[str, list[int]]]:  # fmt: skip
    """The machines that are left of all, demand by demand.

    Args:
        request: the amounts that it asks for; empty where machines have slots.
        drained: machines on which nothing is placed.
        taken: machine -> tasks that run there.
        lost: machines that do not answer.
    """
    left = list(range(len(cluster.slots)))
    steps = [("machines", left)]
    left = [machine for machine in left if not mask & ~cluster.constraints[machine]]
    steps.append(("meet its constraints", left))
    if request:
        left = [
            machine for machine in left
            if all(has >= asked for has, asked in zip(cluster.capacities[machine], request, strict=True))
        ]  # fmt: skip
        steps.append(("are large enough when empty", left))
    left = [machine for machine in left if machine not in drained]
    steps.append(("are not drained", left))
    if lost:
        left = [machine for machine in left if machine not in lost]
        steps.append(("answer", left))
    if not request:
        left = [machine for machine in left if taken.get(machine, 0) < cluster.slots[machine]]
        steps.append(("have a free slot now", left))
    return steps


def counted(steps: Iterable[tuple[str, list[int]]]) -> tuple[FunnelStep, ...]:
    """Machines per demand as numbers."""
    return tuple(FunnelStep(demand, len(left)) for demand, left in steps)
