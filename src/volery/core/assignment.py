"""Assignment of jobs to entries: the scheduler of a job, and the one that takes it over when that one fails.

Drivers own the clock and the messages, this module owns the decision, so that both drivers, lab and live, decide alike.
Each move of jobs has an epoch. Components refuse what an entry places under an epoch before its last move
(`volery.core.events.Moved`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import NamedTuple

from volery.core.events import Moved, Reassignment
from volery.core.model import Address, JobId, Time

GRACE: int = 2
"""An entry that was given up has so many detection times to come back before its jobs are moved."""


class Owner(NamedTuple):
    """The entry that has a job, and the epoch of the move that brought it there; 0: no other entry had it."""

    entry: Address
    epoch: int = 0


class Assignments:
    """The entries of all jobs.

    Args:
        entry_for: (Job, user) -> the entry that has the job while all entries answer.
        standins: Entries that take over each other's jobs, in order; see `CrashRecovery`.
        detection_us: Longest time until a failure is detected; see `CrashRecovery`.
        moves: Moves made before, in order of their epochs.

    Attributes:
        grace_us: Time from the loss of an entry to the move of its jobs.
    """

    def __init__(
        self,
        entry_for: Callable[[JobId, str], Address],
        standins: Sequence[Address] = (),
        detection_us: Time = 0,
        moves: Iterable[Reassignment] = (),
    ) -> None:
        self._entry_for = entry_for
        self._standins = tuple(standins)
        self._moves = list(moves)
        self._lost_entries: set[Address] = set()
        self._relieved_entries: set[Address] = set()
        self._other_owners: dict[JobId, Owner] = {}
        self.grace_us = GRACE * detection_us

    @property
    def is_moving(self) -> bool:
        """True where jobs of an entry that does not answer are moved at all."""
        return len(self._standins) > 1

    def owner(self, job: JobId, user: str) -> Owner:
        """The entry that has a job."""
        return self._other_owners.get(job) or Owner(self._entry_for(job, user))

    def assign(self, job: JobId, user: str) -> Owner:
        """Choose the entry of a new job."""
        entry = self.choice(job, user)
        if entry != self._entry_for(job, user):
            self._other_owners[job] = Owner(entry)  # if that one does not answer either, the job moves with its others
        return self.owner(job, user)

    def choice(self, job: JobId, user: str) -> Address:
        """The entry of a new job: another than usual while that one is relieved of its jobs."""
        # An entry that is lost and not yet relieved may come back in time: until then new jobs wait for it like the
        # others.
        usual = self._entry_for(job, user)
        heir = self._next_to(usual, self._relieved_entries) if usual in self._relieved_entries else None
        return usual if heir is None else heir

    def restore(self, job: JobId, owner: Owner) -> None:
        """Note the owner that a job had when the driver was last stopped."""
        self._other_owners[job] = owner

    def keep(self, jobs: Iterable[JobId]) -> None:
        """Forget the entries of all other jobs: they have ended."""
        self._other_owners = {job: self._other_owners[job] for job in jobs if job in self._other_owners}

    @property
    def remembered_count(self) -> int:
        """The number of jobs that are remembered at another entry than usual, ended ones included."""
        return len(self._other_owners)

    def lost(self, entry: Address) -> None:
        """Note that an entry does not answer."""
        self._lost_entries.add(entry)

    def back(self, entry: Address) -> None:
        """Note that an entry answers again; it has to be sent `greeting` before any job."""
        self._lost_entries.discard(entry)
        self._relieved_entries.discard(entry)

    def is_lost(self, entry: Address) -> bool:
        """True while an entry does not answer."""
        return entry in self._lost_entries

    def _next_to(self, entry: Address, excluded: Collection[Address]) -> Address | None:
        """The next entry in turn that is not excluded."""
        if entry not in self._standins:
            return None
        at = self._standins.index(entry)
        candidates = (*self._standins[at + 1 :], *self._standins[:at])
        return next((candidate for candidate in candidates if candidate not in excluded), None)

    def next_move(self, origin: Address) -> Reassignment | None:
        """The move that is due now; None while the entry answers, or no other one does."""
        heir = self._next_to(origin, self._lost_entries)
        if heir is None or origin not in self._lost_entries:
            return None
        return Reassignment(self._moves[-1].epoch + 1 if self._moves else 1, origin, heir)

    def make(self, move: Reassignment, jobs: Iterable[tuple[JobId, str]]) -> list[JobId]:
        """Carry out a move of jobs.

        Args:
            move: Move that `next_move` has returned.
            jobs: All open jobs, with their users.

        Returns:
            The jobs that the heir has now and did not have before.
        """
        moved_jobs = [job for job, user in jobs if self.owner(job, user).entry == move.origin]
        self._moves.append(move)
        if move.origin in self._lost_entries:
            self._relieved_entries.add(move.origin)
        for job in moved_jobs:
            self._other_owners[job] = Owner(move.heir, move.epoch)
        return moved_jobs

    def greeting(self, entry: Address) -> tuple[Moved, ...]:
        """The message that an entry receives before any job: none where no jobs were ever moved from or to it."""
        if any(entry in (move.origin, move.heir) for move in self._moves):
            return (Moved(tuple(self._moves)),)
        return ()
