"""View of a federation for pages: as it is now, or of a recording, as it was at some moment.

The queries of the job service answer about now; `volery.playback` answers about then.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from fractions import Fraction
from typing import Protocol

from volery.core.model import Address, JobId, Time
from volery.live.jobs import JobDescription
from volery.live.service.counters import UserLoad
from volery.live.service.history import Sample
from volery.live.service.ledgers import ArchivedJob
from volery.live.service.listings import JobOrder, JobQuery
from volery.live.status import (
    HostStatus,
    JobStatus,
    NodeStatus,
    PairStatus,
    PreemptionStatus,
    ShareStatus,
    TaskStatus,
    UserStatus,
    WeightChange,
    Why,
)


class SharesView(Protocol):
    """Shares and preemptions; see `volery.live.service.user_shares.UserShares`."""

    def due(self) -> Mapping[str, Fraction]:
        """The share of each user who has one."""

    def listed(self, user: str | None = None) -> list[ShareStatus]: ...

    def changes(self, name: str | None, limit: int) -> list[WeightChange]:
        """Changes of weights, the last one first."""

    def preemptions(
        self, user: str | None, job: JobId | None, before: int | None, limit: int, sees: str | None = None
    ) -> list[PreemptionStatus]:  # fmt: skip
        ...


class FederationView(Protocol):
    """Answers the queries of pages, all of one moment; see `volery.live.service.queries.JobQueries`."""

    @property
    def sharing(self) -> SharesView: ...

    @property
    def now_us(self) -> Time:
        """The moment: microseconds since 1970, or since a run has begun."""

    @property
    def takes_orders(self) -> bool:
        """True if anything can be changed: jobs cancelled, nodes drained."""

    @property
    def drains(self) -> bool:
        """True if nodes can be drained here."""

    @property
    def told(self) -> Mapping[str, int]:
        """Reports of attempts, counted by state."""

    def lost(self) -> Collection[Address]:
        """Nodes that are known to have crashed and not to be back."""

    def mistaken(self, by: Address) -> Mapping[Address, tuple[int, int]]:
        """The wrong parts of a scheduler's view, where known: node -> slots believed free, believed taken."""

    def all_hosts(self) -> list[HostStatus]:
        """All hosts; none where they are not known."""

    def absent(self) -> Sequence[str]:
        """A sentence about each host that does not answer."""

    def samples(self) -> Sequence[Sample]:
        """The last hours, the oldest first."""

    def description(self, number: JobId) -> JobDescription | None:
        """A job as it was submitted; None where that is not known."""

    def nodes(self) -> list[NodeStatus]:
        """All nodes, in order of their machines."""

    def partitions(self) -> Mapping[Address, Sequence[Address]]:
        """The components in charge of each node, where the scheduler names them."""

    def runs_on(self, node: Address, limit: int) -> list[TaskStatus]:
        """Tasks that run on a node, at most so many."""

    def job(self, number: JobId) -> JobStatus | None: ...

    def archived(self, number: JobId) -> ArchivedJob | None:
        """The user of an archived job, and the number of its file."""

    async def search(self, query: JobQuery, limit: int, order: JobOrder) -> list[JobStatus]:
        """Jobs, in the order that is asked for."""

    def tasks(self, number: JobId, first: int, limit: int) -> list[TaskStatus]:
        """Tasks of a job, in order."""

    async def explain(self, number: JobId, place: int | None) -> Why | None:
        """The reasons why a task is where it is; without a place: of the first that waits, or of the first."""

    def loads(self, user: str | None = None) -> list[UserLoad]:
        """The loads of all users, or of one."""

    def users(self, user: str | None) -> list[UserStatus]:
        """Users with something under way or a share, or only one."""

    def allocations_us(self, limit: int) -> list[Time]:
        """Allocation times of tasks of the jobs that were submitted last, in microseconds."""

    def views(self) -> list[PairStatus]:
        """Decisions of schedulers on their views of each other's parts."""
