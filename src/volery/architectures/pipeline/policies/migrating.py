"""Stage T12: which running tasks go on on another machine, decided now and then."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import msgspec

from volery.architectures.pipeline.policies.policy import Move, Policy
from volery.architectures.pipeline.policies.records import Running
from volery.architectures.pipeline.policies.view import View
from volery.core.bounds import Period, PositiveCount, Seconds
from volery.core.model import SECOND, Time


class NoMigration(Policy, frozen=True):
    """Tasks stay where they are."""

    def every_us(self) -> Time:
        """Never."""
        return 0

    def moves(self, view: View) -> Sequence[Move]:
        """None."""
        return ()

    def cost_us(self, view: View, task: Running) -> Time:
        """Nothing."""
        return 0


class Periodic(Policy, frozen=True):
    """What all migration has in common."""

    period_s: Annotated[Period, msgspec.Meta(description="between two decisions")] = 60.0
    cost_s: Annotated[Seconds, msgspec.Meta(description="during which a task that moves runs nowhere")] = 1.0
    left_s: Annotated[Seconds, msgspec.Meta(description="tasks expected to end sooner stay")] = 10.0
    most: Annotated[PositiveCount, msgspec.Meta(description="tasks that move at once")] = 10

    def every_us(self) -> Time:
        """The period."""
        return round(self.period_s * SECOND)

    def cost_us(self, view: View, task: Running) -> Time:
        """The same for all."""
        return round(self.cost_s * SECOND)

    def movable(self, view: View, machine: int) -> list[Running]:
        """What may move away from a machine, placed last first."""
        soon = view.now + round(self.left_s * SECOND)
        return [run for run in view.losable(machine) if run.expected_end_us >= soon]


class Consolidate(Periodic, frozen=True):
    """Empties the least used machines, where all that runs there fits onto others in use, the fullest first.

    It looks at as many machines as tasks may move.

    After the consolidation of virtual machines by host underload (Beloglazov and Buyya, CCPE 24(13), 2012, section 3),
    with best fit and without a power model.
    """

    def moves(self, view: View) -> Sequence[Move]:
        """Machine after machine, from the least used up, while not too many tasks move."""
        used = [machine for machine in range(view.machine_count) if view.running_on(machine)]
        rooms = {machine: view.room(machine) for machine in used}
        used.sort(key=lambda machine: (view.used_of(machine, rooms[machine]), machine))
        targets, found = list(used), list[Move]()
        for machine in used[: self.most]:
            if len(found) >= self.most:
                break
            runs = view.running_on(machine)
            if machine not in targets or len(self.movable(view, machine)) < len(runs):
                continue
            targets.remove(machine)
            moves = self._spread(view, runs, targets, rooms)
            if not moves or len(found) + len(moves) > self.most:
                targets.append(machine)
                continue
            found += moves
            for move in moves:
                if move.machine in targets:
                    targets.remove(move.machine)
                    targets.insert(0, move.machine)
        return found

    def _spread(self, view: View, runs: Sequence[Running], targets: Sequence[int], rooms: dict[int, int]) -> list[Move]:
        left, moves = dict(rooms), list[Move]()
        for run in runs:
            able = [one for one in targets if view.fits(run.waiting, left[one]) and view.suits(run.waiting, one)]
            if not able:
                return []
            target = max(able, key=lambda one: (view.used_of(one, left[one]), -one))
            left[target] = view.with_task(run.waiting, left[target])
            moves.append(Move(run.task.id, target))
        rooms.update(left)
        return moves


class Rebalance(Periodic, frozen=True):
    """Moves tasks from the most to the least used machine while that evens them out.

    As LowNodeUtilization of Kubernetes' descheduler does with thresholds on both sides; here one on the gap.
    """

    gap: Annotated[float, msgspec.Meta(gt=0, le=1, description="between fractions used from which on tasks move")] = 0.5

    def moves(self, view: View) -> Sequence[Move]:
        """One task after another, the youngest that narrows the gap."""
        online = [machine for machine in range(view.machine_count) if view.machine(machine).online]
        rooms = {machine: view.room(machine) for machine in online}
        movable = {machine: self.movable(view, machine) for machine in online}
        found: list[Move] = []
        while len(found) < self.most and len(online) > 1:
            order = sorted(online, key=lambda one: (view.used_of(one, rooms[one]), one))
            low, high = order[0], order[-1]
            gap = view.used_of(high, rooms[high]) - view.used_of(low, rooms[low])
            helpful = [run for run in movable[high] if self._helps(view, run, low, rooms, gap)]
            if gap < self.gap or not helpful:
                break
            run = helpful[0]
            movable[high].remove(run)
            rooms[high], rooms[low] = view.without(run, rooms[high]), view.with_task(run.waiting, rooms[low])
            found.append(Move(run.task.id, low))
        return found

    def _helps(self, view: View, run: Running, low: int, rooms: dict[int, int], gap: float) -> bool:
        high = run.machine
        if not view.fits(run.waiting, rooms[low]) or not view.suits(run.waiting, low):
            return False
        after = view.used_of(high, view.without(run, rooms[high]))
        return abs(after - view.used_of(low, view.with_task(run.waiting, rooms[low]))) < gap
