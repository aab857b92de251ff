"""Policies of running tasks: reports (T6), copies (T9), preemption (T10), recovery (T11) and migration (T12).

Andreadis et al., SC18, section III-D; a policy of T6 "could decide to preempt a task or to start recovery actions". No
policy of T10 makes a circle. By priority a place only ever goes from a lower to a strictly higher priority. By fairness
it goes from a user who keeps its share without it to one who has no more than its share with it.
"""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Iterator, Mapping, Sequence
from fractions import Fraction
from functools import lru_cache
from typing import ClassVar, Final

from volery.architectures.pipeline.policies.policy import Eviction, Move, Policy
from volery.architectures.pipeline.policies.state import JobRecord, Running, Waiting
from volery.architectures.pipeline.policies.view import View
from volery.core.bounds import Period, PositiveCount, PositiveRatio, Seconds, param
from volery.core.errors import InputError
from volery.core.events import PreemptionReason
from volery.core.model import NEVER, SECOND, Time
from volery.policies.fairness.shares import Resources, dominant_share, minus, parse_shares_text, plus

LATEST: Final = 256
"""Number of tasks of a user that are looked at, the youngest first."""


class NoPreemption(Policy, frozen=True):
    """No running task is preempted."""

    reason: ClassVar[PreemptionReason] = "share"

    def claim(self, job: JobRecord) -> Hashable:
        return None

    def evict(self, view: View, task: Waiting, machines: Sequence[int]) -> Eviction | None:
        return None


class ByPriority(Policy, frozen=True):
    """Higher priorities preempt lower ones, but not inside the production band (Verma et al., EuroSys 2015, 2.5).

    On a machine tasks are ended from the lowest priority up, the youngest first, until there is room (section 3.2).
    Of several machines it is the one on which the highest priority that loses is lowest, then the one with the fewest
    losers, as in Kubernetes' public code, which also weighs what we leave out. Band: Reiss et al., SoCC 2012.
    """

    reason: ClassVar[PreemptionReason] = "priority"
    production_from: int = param(9, "lowest priority of the production band")
    production_to: int = param(11, "highest one: 9 to 11 in Google 2011, 120 to 359 in 2019")

    def claim(self, job: JobRecord) -> Hashable:
        return job.priority

    def _loses(self, loser: int, winner: int) -> bool:
        production = self.production_from <= loser and winner <= self.production_to
        return loser < winner and not production

    def evict(self, view: View, task: Waiting, machines: Sequence[int]) -> Eviction | None:
        """Evict from the lowest priority up. Cost: the tasks on these machines, where one has a lower priority."""
        own_priority = task.job.priority
        lowest_priority = view.lowest_priority()

        if lowest_priority is None or lowest_priority >= own_priority:
            return None

        best_losers: tuple[tuple[int, int, int], list[Running]] | None = None
        for machine in machines:
            runs = [run for run in view.losable(machine) if self._loses(run.job.priority, own_priority)]

            if not runs or not view.makes_room(task, machine, runs):
                continue

            losers = fewest(view, task, machine, sorted(runs, key=lambda run: run.job.priority))
            rank = max([run.job.priority for run in losers]), len(losers), machine
            if best_losers is None or rank < best_losers[0]:
                best_losers = rank, losers

            # No machine can rank better than by a single loser of the lowest priority.
            if rank[:2] == (lowest_priority, 1):
                break

        return best_losers and Eviction(best_losers[0][2], tuple([run.task.id for run in best_losers[1]]))


class ByFairness(Policy, frozen=True):
    """Users above their share lose their youngest tasks to users below it; needs T2=drf with the same shares.

    A user is due its part of everything by weight, whether the others want theirs or not; without `shares` nobody is
    named, and those that hold or wait for something are due the same. Nobody loses what it is due.
    """

    reason: ClassVar[PreemptionReason] = "share"
    shares: str = param("", "weights of users, as ann:2+bob:1; others are due nothing")
    settle_s: Seconds = param(0.01, "tasks placed this short ago may not run yet: they do not count")

    def __post_init__(self) -> None:
        """Refuse what are no weights.

        Raises:
            ValueError: saying why.
        """
        try:
            members = parse_shares_text(self.shares).members if self.shares else ()
        except InputError as error:
            raise ValueError(error.problem) from None
        if any(member.members for member in members):
            raise ValueError("preemption is between users; a tree has no place here")

    def due(self) -> Mapping[str, Fraction]:
        """The part of everything that is due to each user that is named."""
        return _due(self.shares)

    def claim(self, job: JobRecord) -> Hashable:
        return job.user

    def evict(self, view: View, task: Waiting, machines: Sequence[int]) -> Eviction | None:
        """Evict from the user furthest above its share down: the youngest task with room, or several of one machine."""
        users = view.holders()
        shares = self.due()

        if not shares:
            wanting_users = {*users, *[job.user for job in view.jobs.values()]}
            shares = dict.fromkeys(wanting_users, Fraction(1, max(1, len(wanting_users))))

        total = view.total
        own_user = task.job.user
        request = task.task.request or (1,)

        # A user that would have more than its share with the task has no claim to another's.
        if dominant_share(plus(view.used(own_user), request), total) > shares.get(own_user, 0):
            return None

        users_above = [
            (-excess, user)
            for user in users
            if user != own_user and (excess := dominant_share(view.used(user), total) - shares.get(user, 0)) > 0
        ]

        allowed_machines = set(machines) if users_above else set()

        for _, user in sorted(users_above):
            eviction = self._among(view, task, user, shares.get(user, Fraction(0)), allowed_machines)
            if eviction is not None:
                return eviction
        return None

    def _among(
        self, view: View, task: Waiting, user: str, due: Fraction, allowed_machines: set[int]
    ) -> Eviction | None:
        settled = view.now - round(self.settle_s * SECOND)
        amounts: Resources = view.used(user)

        for run in view.latest_of(user):
            if run.start_us <= settled:
                break
            amounts = minus(amounts, run.task.request or (1,))

        runs = [run for run in _youngest(view, user) if run.start_us <= settled and run.machine in allowed_machines]
        spare_runs = [run for run in runs if _stays_above(amounts, run, view.total, due)]

        for run in spare_runs:
            if view.makes_room(task, run.machine, [run]):
                return Eviction(run.machine, (run.task.id,))

        # No single task makes room: several of one machine may, as far as the user keeps its share.
        on_machine: dict[int, list[Running]] = {}
        amounts_left: dict[int, Resources] = {}

        for run in spare_runs:
            machine = run.machine
            if _stays_above(amounts_left.get(machine, amounts), run, view.total, due):
                amounts_left[machine] = minus(amounts_left.get(machine, amounts), run.task.request or (1,))
                losers = on_machine.setdefault(machine, [])
                losers.append(run)
                if view.makes_room(task, machine, losers):
                    return Eviction(machine, tuple([loser.task.id for loser in fewest(view, task, machine, losers)]))

        return None


@lru_cache
def _due(shares: str) -> Mapping[str, Fraction]:
    members = parse_shares_text(shares).members if shares else ()
    total = sum(member.weight for member in members)
    return {member.name: Fraction(member.weight, total) for member in members}


def fewest(view: View, task: Waiting, machine: int, runs: Sequence[Running]) -> list[Running]:
    """The first of these that make room together, without those that need not end; nothing where all do not suffice."""
    losers: list[Running] = []

    for run in runs:
        losers.append(run)
        if view.makes_room(task, machine, losers):
            break
    else:
        return []

    # The last one may make the ends of those before it unnecessary.
    for run in losers[-2::-1]:
        remaining_losers = [loser for loser in losers if loser is not run]
        if view.makes_room(task, machine, remaining_losers):
            losers = remaining_losers

    return losers


def _youngest(view: View, user: str) -> Iterator[Running]:
    return itertools.islice((run for run in view.latest_of(user) if run.losable), LATEST)


def _stays_above(amounts: Resources, run: Running, total: Resources, due: Fraction) -> bool:
    """True if a user that holds these amounts has its due without this task."""
    return dominant_share(minus(amounts, run.task.request or (1,)), total) >= due


class NoCopies(Policy, frozen=True):
    """A task has one attempt at a time."""

    def copies(self, view: View, task: Running) -> int:
        return 1

    def ask_us(self, view: View, task: Running) -> Time:
        return NEVER


class FixedCopies(Policy, frozen=True):
    """Every task has `n` attempts, each on another machine, as far as there is room when it is placed."""

    n: int = param(2, "attempts of a task at once", ge=2, le=16)

    def copies(self, view: View, task: Running) -> int:
        return self.n

    def ask_us(self, view: View, task: Running) -> Time:
        return NEVER


class Speculative(Policy, frozen=True):
    """A second attempt of a task that runs much longer than estimated, for few at once.

    Speculative execution (Dean and Ghemawat, OSDI 2004, 3.6), with the cap of LATE (Zaharia et al., OSDI 2008, 4). LATE
    ranks by the progress that tasks report; ours report none, so that the estimate has to do.
    """

    times: PositiveRatio = param(1.5, "of its estimate")
    cap: float = param(0.1, "of the running tasks that may run twice", gt=0, le=1)

    def copies(self, view: View, task: Running) -> int:
        """Two, when it is late and not too many others run twice."""
        is_late = view.now >= self.ask_us(view, task)

        has_room = view.copied_count < max(1.0, self.cap * view.running_count)
        return 2 if is_late and has_room else 1

    def ask_us(self, view: View, task: Running) -> Time:
        return task.start_us + max(1, round(self.times * (task.expected_end_us - task.start_us)))


class NoRecovery(Policy, frozen=True):
    """No machine fails, and nothing is recovered."""

    def period_us(self) -> Time | None:
        return None


class Restart(Policy, frozen=True):
    """A lost task is placed again and starts from zero."""

    def period_us(self) -> Time | None:
        return 0


class Checkpoint(Policy, frozen=True):
    """A lost task is placed again and resumes from its last checkpoint; taking one costs nothing."""

    period_s: Period = param(60.0, "counted from the start of an attempt")

    def period_us(self) -> Time | None:
        return round(self.period_s * SECOND)


class NoMigration(Policy, frozen=True):
    """Tasks stay where they are."""

    def every_us(self) -> Time:
        return 0

    def moves(self, view: View) -> Sequence[Move]:
        return ()

    def cost_us(self, view: View, task: Running) -> Time:
        return 0


class Periodic(Policy, frozen=True):
    """Base of the policies that move tasks from time to time."""

    period_s: Period = param(60.0, "between two decisions")
    cost_s: Seconds = param(1.0, "during which a task that moves runs nowhere")
    left_s: Seconds = param(10.0, "tasks expected to end sooner stay")
    most: PositiveCount = param(10, "tasks that move at once")

    def every_us(self) -> Time:
        return round(self.period_s * SECOND)

    def cost_us(self, view: View, task: Running) -> Time:
        """The same for all."""
        return round(self.cost_s * SECOND)

    def movable(self, view: View, machine: int) -> list[Running]:
        """The tasks that may leave a machine, placed last first."""
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
        used_machines = [machine for machine in range(view.machine_count) if view.running_on(machine)]

        rooms = {machine: view.room(machine) for machine in used_machines}
        used_machines.sort(key=lambda machine: (view.used_of(machine, rooms[machine]), machine))

        targets = list(used_machines)
        chosen_moves: list[Move] = []

        for machine in used_machines[: self.most]:
            if len(chosen_moves) >= self.most:
                break

            runs = view.running_on(machine)
            if machine not in targets or len(self.movable(view, machine)) < len(runs):
                continue

            targets.remove(machine)
            moves = self._spread(view, runs, targets, rooms)

            # A machine of which a part stays is not empty: nothing is gained.
            if not moves or len(chosen_moves) + len(moves) > self.most:
                targets.append(machine)
                continue

            chosen_moves += moves
            for move in moves:
                if move.machine in targets:
                    targets.remove(move.machine)
                    targets.insert(0, move.machine)

        return chosen_moves

    def _spread(self, view: View, runs: Sequence[Running], targets: Sequence[int], rooms: dict[int, int]) -> list[Move]:
        rooms_left = dict(rooms)
        moves: list[Move] = []

        for run in runs:
            able_machines = [
                machine
                for machine in targets
                if view.fits(run.waiting, rooms_left[machine]) and view.suits(run.waiting, machine)
            ]
            if not able_machines:
                return []

            target = max(able_machines, key=lambda machine: (view.used_of(machine, rooms_left[machine]), -machine))
            rooms_left[target] = view.with_task(run.waiting, rooms_left[target])
            moves.append(Move(run.task.id, target))

        # Only where all tasks of the machine have found room is any of it taken.
        rooms.update(rooms_left)
        return moves


class Rebalance(Periodic, frozen=True):
    """Moves tasks from the most to the least used machine while that evens them out.

    As LowNodeUtilization of Kubernetes' descheduler does with thresholds on both sides; here one on the gap.
    """

    gap: float = param(0.5, "between fractions used from which on tasks move", gt=0, le=1)

    def moves(self, view: View) -> Sequence[Move]:
        """Move one task after another, the youngest that narrows the gap."""
        online = [machine for machine in range(view.machine_count) if view.machine(machine).online]
        rooms = {machine: view.room(machine) for machine in online}
        movable = {machine: self.movable(view, machine) for machine in online}
        chosen_moves: list[Move] = []

        while len(chosen_moves) < self.most and len(online) > 1:
            order = sorted(online, key=lambda machine: (view.used_of(machine, rooms[machine]), machine))
            low = order[0]
            high = order[-1]

            gap = view.used_of(high, rooms[high]) - view.used_of(low, rooms[low])
            helpful = [run for run in movable[high] if self._helps(view, run, low, rooms, gap)]
            if gap < self.gap or not helpful:
                break

            run = helpful[0]
            movable[high].remove(run)
            rooms[high] = view.without(run, rooms[high])
            rooms[low] = view.with_task(run.waiting, rooms[low])
            chosen_moves.append(Move(run.task.id, low))

        return chosen_moves

    def _helps(self, view: View, run: Running, low: int, rooms: dict[int, int], gap: float) -> bool:
        high = run.machine
        if not view.fits(run.waiting, rooms[low]) or not view.suits(run.waiting, low):
            return False

        use_after = view.used_of(high, view.without(run, rooms[high]))
        return abs(use_after - view.used_of(low, view.with_task(run.waiting, rooms[low]))) < gap


ALL: Final = 1000


class NoMonitor(Policy, frozen=True):
    """Nodes report ends alone."""

    def every_us(self) -> Time:
        return 0

    def ends(self, view: View, task: Running) -> bool:
        return False

    def reserved(self, view: View, task: Running) -> int:
        return ALL

    def tolerant(self, job: JobRecord) -> bool:
        return False


class EndOverrun(Policy, frozen=True):
    """A task that has run several times as long as expected is ended once, and returns to the queue."""

    period_s: Period = param(10.0, "of reports")
    factor: PositiveRatio = param(3.0, "of the expected time on its machine")

    def every_us(self) -> Time:
        return round(self.period_s * SECOND)

    def ends(self, view: View, task: Running) -> bool:
        """True if an attempt that is the first has overrun."""
        expected_us = max(1, task.expected_end_us - task.start_us)
        return not task.attempt and task.run_us > self.factor * expected_us

    def reserved(self, view: View, task: Running) -> int:
        return ALL

    def tolerant(self, job: JobRecord) -> bool:
        return False


class Reclaim(Policy, frozen=True):
    """Borg's reclamation: below the production band tasks run on what others reserve and leave (EuroSys 2015, 5.5).

    The reservation of a task is its request at first, decays after a while towards its use and a margin, and rises at
    once where the use exceeds that. The source gives the 300 s alone; margin, decay and period are ours.
    """

    period_s: Period = param(10.0, "of reports")
    settle_s: Seconds = param(300.0, "run time from which on the reservation decays")
    margin: float = param(0.1, "of the request, beyond the use", ge=0, le=1)
    decay: float = param(0.2, "of the distance, by which the reservation falls at a report", gt=0, le=1)
    production_from: int = param(9, "lowest priority that does not run on what is reclaimed")

    def every_us(self) -> Time:
        return round(self.period_s * SECOND)

    def ends(self, view: View, task: Running) -> bool:
        return False

    def reserved(self, view: View, task: Running) -> int:
        """Slowly down, at once up."""
        target = min(ALL, task.use + round(self.margin * ALL))
        if task.run_us < self.settle_s * SECOND or target >= task.reserved:
            return max(task.reserved, target)
        return task.reserved - max(1, round((task.reserved - target) * self.decay))

    def tolerant(self, job: JobRecord) -> bool:
        return job.priority < self.production_from
