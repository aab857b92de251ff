"""Preemption of Slurm: which running jobs a job may end, and which of them it does (PreemptType, PreemptMode).

The order of the candidates is that of preempt/partition_prio and preempt/qos in Slurm 22.05, the choice that of
`_run_now` in select/cons_tres: jobs are removed one by one until the new one fits, and those whose nodes it would use
are then tried first.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from volery.architectures.slurm.jobs import QueuedJob, StartedJob
from volery.architectures.slurm.nodes import Nodes

OFF: Final = "OFF"
CANCEL: Final = "CANCEL"
REORDERS: Final = 2
"""Times that the candidates are put into another order: preempt_reorder_count=1, and the first."""


class PreemptionRules(msgspec.Struct, frozen=True):
    """The rules by which jobs are preempted.

    Args:
        mode: Fate of a preempted job whose partition names none: OFF, REQUEUE or CANCEL.
        is_by_qos: True if the quality of service of users decides; False: the tiers of partitions.
        preempted_qos: For each quality of service, those whose jobs it may preempt.
        qos_of_user: Quality of service of each user that has one.
        qos_priority: Priority of each quality of service.
        is_youngest_first: True if the job that has started last is tried first (preempt_youngest_first).
    """

    mode: str
    is_by_qos: bool = False
    preempted_qos: Mapping[str, frozenset[str]] = {}
    qos_of_user: Mapping[str, str] = {}
    qos_priority: Mapping[str, int] = {}
    is_youngest_first: bool = False

    def mode_of(self, running: StartedJob) -> str:
        """The fate of a running job, if it is preempted."""
        return running.pending.partition.preempt_mode or self.mode

    def may_preempt(self, job: QueuedJob, running: StartedJob) -> bool:
        """True if a job may end a running one."""
        if self.mode_of(running) == OFF or running.preemptor is not None or not running.nodes & job.partition.nodes:
            return False
        if not self.is_by_qos:
            return running.pending.partition.tier < job.partition.tier
        other_qos = self.qos_of_user.get(running.pending.user, "")
        return other_qos in self.preempted_qos.get(self.qos_of_user.get(job.user, ""), ())

    def candidates(self, job: QueuedJob, running_jobs: Iterable[StartedJob]) -> list[StartedJob]:
        """The jobs that a job may end, in the order in which they are tried."""
        candidates = [running for running in running_jobs if self.may_preempt(job, running)]
        if self.is_youngest_first:
            return sorted(candidates, key=lambda running: (-running.start_s, running.listed))
        return sorted(candidates, key=lambda running: (self._rank(running), running.listed))

    def _rank(self, running: StartedJob) -> tuple[int, int]:
        """The importance of a running job: least important first, small before large."""
        node_count = running.nodes.bit_count()
        if self.is_by_qos:
            return self.qos_priority.get(self.qos_of_user.get(running.pending.user, ""), 0), node_count
        return running.pending.partition.tier, node_count


def victims(job: QueuedJob, candidates: Sequence[StartedJob], nodes: Nodes, allowed_nodes: int) -> list[StartedJob]:
    """The jobs to end so that a job fits; none where it does not fit even without all of them.

    Args:
        job: Job that waits.
        candidates: Jobs that it may end, in the order in which they are tried.
        nodes: Nodes as they are.
        allowed_nodes: Vector of the nodes that it may have.
    """
    order = list(candidates)
    for reorder in range(REORDERS + 1):
        removed, chosen_nodes = _removed(job, order, nodes, allowed_nodes)
        if not chosen_nodes:
            return []
        if reorder == REORDERS or len(order) <= reorder + 1:
            break

        # The last that was removed was needed; before the others, those whose nodes the job would use.
        last = removed[-1]
        other_jobs = sorted(removed[:-1], key=lambda running: -(running.nodes & chosen_nodes).bit_count())
        order = [last, *other_jobs, *order[len(removed) :]]
    return [running for running in removed if running.nodes & chosen_nodes]


def _removed(
    job: QueuedJob, order: Sequence[StartedJob], nodes: Nodes, allowed_nodes: int
) -> tuple[list[StartedJob], int]:
    """The first candidates until the job fits, and the vector of its nodes then; 0: it does not fit."""
    future = nodes.copy()
    for place, running in enumerate(order):
        future.give_back(running.parts)
        shares = future.choose(job.need, allowed_nodes)
        if shares is not None:
            return list(order[: place + 1]), sum([1 << share.node for share in shares])
    return [], 0
