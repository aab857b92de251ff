"""The master copy of the cell state, which validates transactions."""

from __future__ import annotations

from typing import Literal

from volery.architectures.omega.claims import CellClaim, ChangeLog, Claims, PrecedenceClaims
from volery.architectures.omega.messages import Changes, Commit, Ended, Preempted, Refresh, Verdict, Withdraw
from volery.architectures.omega.placement import Layout
from volery.core.component import Component, sent_to
from volery.core.model import Address, TaskId, Time
from volery.policies.tags import TagIndex
from volery.roles.node import Completed, Kill, Launch

Conflicts = Literal["fine", "coarse"]


class CellState(Component):
    """Validates transactions: the only logic that is central.

    Args:
        tags: Tags of the tasks that hold a claim; None: tags are not heeded.
    """

    def __init__(
        self,
        layout: Layout,
        claims: Claims | PrecedenceClaims,
        log: ChangeLog,
        conflicts: Conflicts,
        *,
        restore: bool,
        tags: TagIndex | None = None,
    ) -> None:
        self._layout = layout
        self._claims = claims
        self._log = log
        self._coarse = conflicts == "coarse"
        self._restore = restore
        self._tags = tags
        self._sequences = [0] * len(layout.whole)
        self._refreshed: dict[Address, int] = {}
        self._committed: dict[Address, int] = {}

    def start(self, now: Time) -> None:
        self._claims.open(self._port, self._freed)

    def on_refresh(self, message: Refresh, source: Address, now: Time) -> None:
        """Send what has changed since this scheduler's last transaction, or everything where that is long ago."""
        if message.number <= self._refreshed.get(source, 0):
            return
        self._refreshed[source] = message.number

        free = self._claims.free
        sequences = self._sequences
        changed_machines = self._log.unseen(source)
        self._port.send(
            source,
            Changes(
                message.number,
                tuple(changed_machines),
                self._layout.encode([free[machine] for machine in changed_machines]),
                tuple([sequences[machine] for machine in changed_machines]),
                self._claims.bands(changed_machines),
                tuple([self._tags.on(machine) for machine in changed_machines]) if self._tags is not None else (),
            ),
        )

    def on_commit(self, message: Commit, source: Address, now: Time) -> None:
        """Take the claims that are not in conflict; of a gang, all or none."""
        if message.number <= self._committed.get(source, 0):
            return
        self._committed[source] = message.number

        claims = self._claims
        sequences = self._sequences
        tags = self._tags
        is_coarse = self._coarse

        accepted_claims: list[CellClaim] = []
        refused_tasks: list[TaskId] = []

        for task, machine, sequence in zip(message.tasks, message.machines, message.sequences, strict=True):
            # With coarse conflicts any change of the machine refuses the claim, even if it left enough (section 5.2).
            is_stale = is_coarse and sequence != sequences[machine]
            if tags is not None and task.tags is not None:
                is_stale |= not tags.allows(machine, task.tags)
            claim = None if is_stale else claims.claim(source, task, machine, message.priority)
            if claim is None:
                refused_tasks.append(task.id)
                continue

            sequences[machine] += 1
            accepted_claims.append(claim)
            if tags is not None:
                self._count(tags, claim, 1)

        if refused_tasks and message.gang:
            self._undo(accepted_claims)
            # Incremental transactions run the accepted rest; a gang has no use for a part (section 3.4).
            accepted_claims = []
            refused_tasks = [task.id for task in message.tasks]

        self._log.note(*[claim.machine for claim in accepted_claims])
        for claim in accepted_claims:
            claims.begin(claim)

        self._port.send(source, Verdict(message.number, tuple(refused_tasks)))

    @staticmethod
    def _count(tags: TagIndex, claim: CellClaim, sign: int) -> None:
        if claim.task.tags is not None:
            tags.add(claim.machine, claim.task.tags, sign)

    def _undo(self, claims: list[CellClaim]) -> None:
        for claim in reversed(claims):
            self._claims.undo(claim)

            if self._tags is not None:
                self._count(self._tags, claim, -1)
            if self._restore:
                self._sequences[claim.machine] -= 1
            else:
                # The public simulator's undone claims count as changes of the machine: others meet conflicts there.
                self._log.note(claim.machine)

    def on_completed(self, message: Completed, source: Address, now: Time) -> None:
        """Free what the attempt had."""
        self._claims.ended(message, now)

    def _freed(self, claim: CellClaim, now: Time) -> None:
        """Log the change, and report the end to the owner."""
        if self._tags is not None:
            self._count(self._tags, claim, -1)

        self._log.note(claim.machine)
        self._port.send(claim.owner, Ended(claim.task.job, claim.task.id))

    def on_withdraw(self, message: Withdraw, source: Address, now: Time) -> None:
        """End tasks that run; tasks that have not begun never do."""
        self._claims.withdraw(message.tasks, now)

    def check(self) -> None:
        self._claims.check()
        if self._tags is not None and isinstance(self._claims, Claims):
            # With precedence, tags cannot be set: `build` refuses the two together.
            running = self._claims.running.values()
            self._tags.check([(claim.machine, claim.task.tags) for claim in running if claim.task.tags is not None])

    def check_rest(self) -> None:
        self._claims.check_rest()

    receives = {  # noqa: RUF012 - the base class reads the table once and replaces it
        Refresh: on_refresh,
        Commit: on_commit,
        Completed: on_completed,
        Withdraw: on_withdraw,
    }
    sends = sent_to("scheduler", Changes, Verdict, Ended, Preempted) | sent_to("node", Launch, Kill)
