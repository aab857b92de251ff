"""Priorities of jobs: priority/basic, and the weighted factors of priority/multifactor with its Fair Tree.

A factor is a fraction, and a priority the sum of all factors times their weights, as a whole number from 1. Priorities
are computed at submission, and again for all jobs that wait in every PriorityCalcPeriod, as in Slurm 22.05
(`set_priority_factors`, `_decay_thread`, and `_calc_tree_fs` of fair_tree.c).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from volery.architectures.slurm.jobs import YEAR, QueuedJob, StartedJob
from volery.architectures.slurm.parameters import MINUTE, PLACE, SlurmConfig, seconds
from volery.core.errors import InputError
from volery.policies.fairness.shares import Sharer

LARGEST: Final = 0xFFFFFFFF
"""Priorities are 32 bits."""
ENFORCING: Final = frozenset({"limits", "safe", "all"})
"""Words of AccountingStorageEnforce with which limits of associations are enforced."""
HALVING: Final = 0.693
"""The natural logarithm of 2 as Slurm has it: usage decays by 1 - HALVING / half-life each second."""


class ClusterSize(msgspec.Struct, frozen=True):
    """The size of the cluster, of which a job's size is a fraction."""

    node_count: int
    core_count: float


class Association:
    """A user or an account in the tree of shares, with what was used.

    Args:
        sharer: Its name, weight and members.
        level_weight: Sum of the weights of it and its siblings.
    """

    def __init__(self, sharer: Sharer, level_weight: int) -> None:
        self.name = sharer.name
        self.share = sharer.weight / level_weight
        whole = sum([member.weight for member in sharer.members])
        self.members = [Association(member, whole) for member in sharer.members]
        self.is_user = not sharer.members
        self.usage = 0.0
        self.level_factor = math.inf


class FairTree:
    """The Fair Tree: users in the order of how little their accounts, and they, have used of their shares.

    Args:
        tree: Accounts and users with their shares.
    """

    def __init__(self, tree: Sharer) -> None:
        self._root = Association(tree, tree.weight)
        self._paths: dict[str, list[Association]] = {}
        self._add_paths(self._root, [])
        self._factors: dict[str, float] = {}
        self.rank()

    def _add_paths(self, association: Association, above: list[Association]) -> None:
        path = [*above, association]
        if association.is_user:
            self._paths[association.name] = path
        for member in association.members:
            self._add_paths(member, path)

    def factor(self, user: str) -> float:
        """The rank of a user as a fraction of the count of users; 0 for a user who has no share."""
        return self._factors.get(user, 0.0)

    def decay(self, factor: float) -> None:
        """Let all usage decay by a factor."""
        for path in self._paths.values():
            path[-1].usage *= factor
        self._add_up(self._root)

    def charge(self, user: str, core_seconds: float) -> None:
        """Add usage of a user."""
        for association in self._paths.get(user, ()):
            association.usage += core_seconds

    def _add_up(self, association: Association) -> float:
        if not association.is_user:
            association.usage = sum([self._add_up(member) for member in association.members])
        return association.usage

    def rank(self) -> None:
        """Rank all users by what was used."""
        self._rank = self._untied_rank = len(self._paths)
        self._rank_members([self._root], is_tied=False)

    def _rank_members(self, parents: Sequence[Association], *, is_tied: bool) -> None:
        """Rank the members of an account, or of several that are tied, which count as one."""
        members = []
        for parent in parents:
            for member in parent.members:
                used_part = member.usage / parent.usage if parent.usage else 0.0
                member.level_factor = member.share / used_part if used_part else math.inf
                members.append(member)
        members.sort(key=lambda member: (-member.level_factor, not member.is_user))

        previous_factor: float | None = None
        place = 0
        while place < len(members):
            member = members[place]
            is_tied = is_tied if previous_factor is None else member.level_factor == previous_factor
            previous_factor = member.level_factor
            place += 1

            if member.is_user:
                if not is_tied:
                    self._rank = self._untied_rank
                self._factors[member.name] = self._rank / len(self._paths)
                self._untied_rank -= 1
                continue

            # Accounts that are tied are merged: their members are ranked together.
            tied_accounts = [member]
            while place < len(members) and members[place].level_factor == member.level_factor:
                tied_accounts.append(members[place])
                place += 1
            self._rank_members(tied_accounts, is_tied=is_tied)


class Priorities:
    """Priorities of jobs by weighted factors.

    Args:
        config: Weights of the factors, and what bounds them.
        size: ClusterSize of the cluster.
        largest_job_factor: Largest PriorityJobFactor of any partition.
        tree: Tree of shares; None: nobody has a share.
        qos_factors: Priority of the quality of service (QOS) of each user, as a fraction of the largest.
    """

    def __init__(
        self,
        config: SlurmConfig,
        size: ClusterSize,
        largest_job_factor: int,
        tree: FairTree | None = None,
        qos_factors: dict[str, float] | None = None,
    ) -> None:
        self._config = config
        self._max_age_s = seconds(config.PriorityMaxAge, f"{PLACE}PriorityMaxAge")
        self.period_s = seconds(config.PriorityCalcPeriod, f"{PLACE}PriorityCalcPeriod")
        if not self.period_s:
            raise InputError(f"{PLACE}PriorityCalcPeriod", "there is no time between two computations; give minutes")
        half_life_s = seconds(config.PriorityDecayHalfLife, f"{PLACE}PriorityDecayHalfLife")
        self._decay_factor = 1 - HALVING / half_life_s if half_life_s else 1.0
        self._size = size
        self._largest_job_factor = largest_job_factor
        self._tree = tree
        self._qos_factors = qos_factors or {}
        self._charged_until_s = 0
        enforced = config.AccountingStorageEnforce.replace("+", ",").lower().split(",")
        self._counts_ends = not ENFORCING.isdisjoint(enforced)

    @property
    def counts_usage(self) -> bool:
        """True if priorities depend on what users have used."""
        return self._tree is not None

    def priority(self, job: QueuedJob, now_s: int) -> int:
        """The priority of a job that waits."""
        config = self._config
        age_s = max(0, now_s - job.eligible_s)
        value = config.PriorityWeightAge * min(1.0, age_s / self._max_age_s if self._max_age_s else 1.0)
        value += config.PriorityWeightJobSize * self._size_factor(job) if config.PriorityWeightJobSize else 0.0
        value += config.PriorityWeightPartition * job.partition.job_factor / (self._largest_job_factor or 1)
        value += config.PriorityWeightQOS * self._qos_factors.get(job.user, 0.0)
        value += config.PriorityWeightFairshare * self._tree.factor(job.user) if self._tree is not None else 0.0
        value += job.points
        return min(LARGEST, max(1, int(value)))

    def _size_factor(self, job: QueuedJob) -> float:
        size, need = self._size, job.need
        node_count = max(1, need.node_count)
        favors_small = self._config.PriorityFavorSmall

        if self._config.PriorityFlags == "SMALL_RELATIVE_TO_TIME":
            minutes = (job.limit_s or YEAR) // MINUTE
            factor = max(node_count * size.core_count / size.node_count, need.cores) / minutes / size.core_count
            return min(1.0, max(0.0, 1.0 - factor if favors_small else factor))

        part = (node_count / size.node_count + need.cores / size.core_count) / 2
        return min(1.0, max(0.0, 1.0 - part if favors_small else part))

    def compute(self, now_s: int, jobs: Iterable[QueuedJob], running_jobs: Iterable[StartedJob]) -> None:
        """Charge what runs, let usage decay, and set the priorities of all jobs that wait."""
        if self._tree is not None:
            self._tree.decay(self._decay_factor ** (now_s - self._charged_until_s))
            for running in running_jobs:
                self.charge(running, now_s)
            self._tree.rank()
            self._charged_until_s = now_s

        for job in jobs:
            job.priority = self.priority(job, now_s)

    def charge_end(self, running: StartedJob, now_s: int) -> None:
        """Charge a user at the end of a job, which Slurm does only where it enforces limits (`_adjust_limit_usage`)."""
        if self._counts_ends:
            self.charge(running, now_s)

    def charge(self, running: StartedJob, now_s: int) -> None:
        """Charge a user for the time since the last computation."""
        if self._tree is not None:
            run_s = max(0, now_s - max(running.start_s, self._charged_until_s))
            self._tree.charge(running.pending.user, running.cores * run_s * self._decay_factor**run_s)
