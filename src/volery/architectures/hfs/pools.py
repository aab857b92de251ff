"""Pools of jobs, as in the Hadoop Fair Scheduler: minimum shares, weights, jobs first come first served or in turn.

Slots go to pools: those below their minimum share first, then by what they hold over their weight. Inside a pool the
same holds between its pools, and between its jobs, unless those are served first come first served (Zaharia et al.,
EuroSys 2010, section 2; Hadoop's design document of the Fair Scheduler).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Final

import msgspec

from volery.core.model import JobId
from volery.policies.fairness.drf import Ranking
from volery.policies.fairness.shares import Sharer

SCALE_BITS: Final = 40
"""Number of bits by which ratios are scaled: they are compared as whole numbers of 2^-40."""
WEALTHY: Final = 1 << (SCALE_BITS + 1)
"""Lower bound of the keys of pools that have their minimum share."""
EVERY: Final = "*"
"""The name that means all pools."""
URGENCY_MAX: Final = 20
"""Largest level of priority; a job's weight doubles with each."""


def _scaled(amount: int, divisor: int) -> int:
    return (amount << SCALE_BITS) // divisor


class Pool(msgspec.Struct, eq=False):
    """A pool with the running and waiting tasks of its jobs, and of those of the pools below.

    Args:
        least: Number of slots that it is due before others get more than theirs.
    """

    name: str
    weight: int
    least: int
    in_order: bool
    above: Pool | None = None
    number: int = 0
    members: list[Pool] = []
    ranking: Ranking = msgspec.field(default_factory=Ranking)
    running: int = 0
    waiting: int = 0

    @property
    def demand(self) -> int:
        return self.running + self.waiting

    def key(self) -> int:
        """The rank of the pool: the lowest is served first."""
        # A pool that does not want its minimum share is due no more of it than it wants.
        least = min(self.least, self.demand)
        if self.running < least:
            return _scaled(self.running, least)
        return WEALTHY + _scaled(self.running, self.weight)


class _PooledJob(msgspec.Struct, eq=False):
    """A job in its pool."""

    pool: Pool
    number: int
    urgency: int
    running: int = 0
    waiting: int = 0

    def key(self) -> int:
        # First come first served, but for priority.
        if self.pool.in_order:
            return ((URGENCY_MAX - self.urgency) << SCALE_BITS) + self.number
        return self.running << (SCALE_BITS - self.urgency)


class Pools:
    """Keeps the pools of a cluster with their jobs, in order of their turns; a turn costs O(log n) per level."""

    def __init__(
        self, tree: Sharer | None = None, least: Mapping[str, int] | None = None, in_order: frozenset[str] = frozenset()
    ) -> None:
        self._least = dict(least or {})
        self._in_order = in_order
        self._by_name: dict[str, Pool] = {}
        self._jobs: dict[JobId, _PooledJob] = {}
        self._number = 0
        self.root = Pool("", 1, 0, in_order=False)

        for sharer in tree.members if tree is not None else ():
            self._grow(self.root, sharer)

        for name in self._least:
            if name not in self._by_name:
                self._grow(self.root, Sharer(name))

    def _grow(self, parent: Pool, sharer: Sharer) -> Pool:
        in_order = sharer.name in self._in_order or EVERY in self._in_order

        pool = Pool(sharer.name, sharer.weight, 0, in_order, parent, len(parent.members))
        parent.members.append(pool)
        self._by_name[sharer.name] = pool

        for member in sharer.members:
            self._grow(pool, member)

        # A pool is due at least what its members are due together.
        pool.least = max(self._least.get(sharer.name, 0), sum(member.least for member in pool.members))

        return pool

    def leaves(self) -> Iterator[Pool]:
        """The pools that have jobs, in the order of the tree."""
        pending = self.root.members[::-1]
        while pending:
            pool = pending.pop()
            if pool.members:
                pending += pool.members[::-1]
            else:
                yield pool

    def join(self, job: JobId, user: str, priority: int = 0) -> Pool:
        pool = self._by_name.get(user)
        # Users without a pool get one of their own; jobs stand in leaves alone.
        if pool is None or pool.members:
            pool = self._grow(self.root, Sharer(user))

        self._number += 1
        self._jobs[job] = _PooledJob(pool, self._number, max(-URGENCY_MAX, min(URGENCY_MAX, priority)))

        return pool

    def leave(self, job: JobId) -> None:
        """Remove a job, of which no task runs or waits."""
        pooled = self._jobs.pop(job)
        assert pooled.running == pooled.waiting == 0, f"job {job} leaves with {pooled.running} + {pooled.waiting} tasks"

    def pool_of(self, job: JobId) -> Pool:
        return self._jobs[job].pool

    def change(self, job: JobId, waiting: int, running: int) -> None:
        """Change the counts of waiting and running tasks of a job; below 0: fewer."""
        pooled = self._jobs[job]
        pooled.waiting += waiting
        pooled.running += running

        pool = pooled.pool

        # Only jobs with waiting tasks have a turn.
        if pooled.waiting:
            pool.ranking.place(job, pooled.key())
        else:
            pool.ranking.remove(job)

        level: Pool | None = pool
        while level is not None:
            level.waiting += waiting
            level.running += running
            if level.above is not None:
                if level.waiting:
                    level.above.ranking.place(level.number, level.key())
                else:
                    level.above.ranking.remove(level.number)

            level = level.above

    def order(self) -> Iterator[JobId]:
        """Jobs with waiting tasks, the one whose turn it is first; valid until the next change."""
        return self._ordered(self.root)

    def _ordered(self, pool: Pool) -> Iterator[JobId]:
        if pool.members:
            for number in pool.ranking:
                yield from self._ordered(pool.members[number])
        else:
            yield from pool.ranking

    def fair_shares(self, slots: int) -> dict[Pool, Fraction]:
        """The fair share of each pool with jobs, of `slots` in all, by the present demand."""
        demand = {pool: pool.demand for pool in self._by_name.values()}
        return self._shared(Fraction(slots), demand)

    def standing_shares(self, slots: int) -> dict[Pool, Fraction]:
        """The fair share of each pool with jobs, of `slots` in all, when all pools want everything."""
        return self._shared(Fraction(slots), dict.fromkeys(self._by_name.values(), slots))

    def _shared(self, slots: Fraction, demand: Mapping[Pool, int]) -> dict[Pool, Fraction]:
        due: dict[Pool, Fraction] = {}
        pending = [(self.root, slots)]

        while pending:
            pool, share = pending.pop()
            members = pool.members

            parts = fair_parts(
                share,
                [demand[member] for member in members],
                [member.least for member in members],
                [member.weight for member in members],
            )

            for member, part in zip(members, parts, strict=True):
                if member.members:
                    pending.append((member, part))
                else:
                    due[member] = part

        return due

    def check(self) -> None:
        counts = {pool: [0, 0] for pool in self._by_name.values()}

        for job in self._jobs.values():
            pool: Pool | None = job.pool
            while pool is not None and pool is not self.root:
                counts[pool][0] += job.waiting
                counts[pool][1] += job.running
                pool = pool.above

        for pool, (waiting, running) in counts.items():
            assert (pool.waiting, pool.running) == (waiting, running), f"pool {pool.name!r} counts wrongly"


def fair_parts(total: Fraction, demand: Sequence[int], least: Sequence[int], weight: Sequence[int]) -> list[Fraction]:
    """Parts min(d, max(r w, m)) that add up to the total, or to all that is wanted where that is less.

    The r of Hadoop's design document, which finds it by 25 steps of bisection, exactly: parts grow piecewise linearly
    with r. Where minimum shares are more than there is, all are cut in proportion.
    """
    min_parts = [Fraction(min(d, m)) for d, m in zip(demand, least, strict=True)]

    # Minimum shares beyond the cluster are cut in proportion.
    if sum(min_parts) > total:
        return [share * total / sum(min_parts) for share in min_parts]

    if sum(demand) <= total:
        return [Fraction(d) for d in demand]

    def parts(r: Fraction) -> list[Fraction]:
        return [min(Fraction(d), max(r * w, m)) for d, m, w in zip(demand, min_parts, weight, strict=True)]

    # Between two bends the sum of the parts is a straight line in r.
    bends = sorted({Fraction(x, w) for d, m, w in zip(demand, least, weight, strict=True) for x in (d, min(d, m))})

    low = Fraction()
    for high in bends:
        if sum(parts(high)) >= total:
            break
        low = high

    at_low = sum(parts(low))
    at_high = sum(parts(high))
    # On that line the r at which the parts add up is exact.
    return parts(low + (high - low) * (total - at_low) / (at_high - at_low) if at_high > at_low else low)
