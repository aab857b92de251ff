"""Users of a Megha cluster: what each is due, which Global Master has its jobs, and queues by user (IV-C)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from fractions import Fraction
from typing import NamedTuple

from volery.core.capabilities import Share
from volery.core.errors import InputError
from volery.core.events import ShareChange
from volery.core.model import Amounts, Cluster, Task, TaskId
from volery.core.resources import Packing
from volery.policies.fairness.ledger import ShareLedger
from volery.policies.fairness.shares import Sharer, nodes, parse_shares_text, reweighed
from volery.policies.queues import Kind, VectorQueue

UNNAMED = ""
"""Name in the ledger of all users whom the tree does not name: they are due nothing."""
PLACE = "megha:shares"


class Users:
    """Users by number, in the order of the tree; those that it does not name have the number after the last.

    A user is due its part of the whole cluster by weight, whether the others want theirs or not: that is the share that
    section IV-C means. What some do not use others may take, and lose again when they come.

    Args:
        shares: text of a tree, see `parse_shares_text`.
        queues: the GM of each user of the tree, as 0+1+1+2; empty: in turn.
        gm_count: Number of GMs.

    Attributes:
        names: Names of users, by number.
        others: Number of the users whom the tree does not name.
        gm_of: GM of each user, by number; `others` has none.

    Raises:
        InputError: the tree is malformed, or there are more or fewer GMs named than users.
    """

    def __init__(self, shares: str, queues: str, cluster: Cluster, gm_count: int) -> None:
        self._tree = parse_shares_text(shares, PLACE)
        self.names = [leaf.name for leaf in self.tree({}).leaves()]
        self.others = len(self.names) - 1
        self._numbers = {name: number for number, name in enumerate(self.names)}
        capacities = cluster.capacities or tuple([(count,) for count in cluster.slots])
        self._capacity = tuple([sum(column) for column in zip(*capacities, strict=True)])
        self.gm_of = _gms(queues, self.others, gm_count)

    def number_of(self, user: str) -> int:
        """The number of a user."""
        return self._numbers.get(user, self.others)

    def tree(self, weights: Mapping[str, int]) -> Sharer:
        """The tree, with other weights for some, see `reweighed`, and with those whom it does not name."""
        return Sharer("", 1, (*reweighed(self._tree, weights).members, Sharer(UNNAMED)))

    def ledger(self, weights: Mapping[str, int] = {}) -> ShareLedger:
        """A ledger in which nobody holds anything."""
        ledger = ShareLedger(self._capacity, self.tree(weights))
        for name in self.names[: self.others]:
            ledger.wants(name, self._capacity)
        return ledger

    def shares(self, weights: Mapping[str, int]) -> tuple[Share, ...]:
        """Shares of users and organisations when some have other weights.

        Raises:
            InputError: as `reweighed`.
        """
        ledger = self.ledger(weights)
        shares = []
        for node, within in nodes(reweighed(self._tree, weights)):
            due = sum((ledger.due(leaf.name) for leaf in node.leaves()), Fraction(0))
            shares.append(Share(node.name, within, node.weight, due, len(node.members)))
        return tuple(shares)

    def due(self) -> dict[str, Fraction]:
        """Per user of the tree, its share."""
        ledger = self.ledger()
        return {name: ledger.due(name) for name in self.names[: self.others]}


def _gms(queues: str, user_count: int, gm_count: int) -> Sequence[int]:
    if not queues:
        return [user % gm_count for user in range(user_count)]
    parts = queues.split("+")
    if len(parts) != user_count or not all(part.isascii() and part.isdigit() for part in parts):
        raise InputError("megha:queues", f"{queues!r} is not a GM for each of {user_count} users; as 0+1+1+2")
    gms = [int(part) for part in parts]
    if max(gms) >= gm_count:
        raise InputError("megha:queues", f"{queues!r} names GM {max(gms)}; there are GMs 0 to {gm_count - 1}")
    return gms


def sum_of(amounts: Sequence[Amounts]) -> Amounts:
    return tuple([sum(column) for column in zip(*amounts, strict=True)])


class HeldTask(NamedTuple):
    """A task that runs or was asked to run, in the view of a GM."""

    user: int
    partition: int
    position: int
    request: Amounts


class UserAccount:
    """Account of what all users have, in the view of one Global Master.

    Attributes:
        held: tasks that count.
        running: the same per user, the youngest last.
    """

    def __init__(self, users: Users, packing: Packing) -> None:
        self._users = users
        self._packing = packing
        self._ledger = users.ledger()
        self.held: dict[TaskId, HeldTask] = {}
        self.running: list[dict[TaskId, HeldTask]] = [{} for _ in users.names]
        self._doubtful: list[Amounts] = [(0,) * len(packing.amounts(0)) for _ in users.names]

    def hold(self, task: TaskId, holding: HeldTask) -> None:
        self.held[task] = self.running[holding.user][task] = holding
        self._ledger.launched(self._users.names[holding.user], self._packing.asked(holding.request))

    def let_go(self, task: TaskId) -> HeldTask | None:
        """Count a task no longer; return it if it counted."""
        holding = self.held.pop(task, None)
        if holding is not None:
            del self.running[holding.user][task]
            self._ledger.ended(self._users.names[holding.user], self._packing.asked(holding.request))
        return holding

    def doubt(self, user: int, request: Amounts, sign: int) -> None:
        """Count amounts that may be refused; a sign of -1: no longer."""
        pairs = zip(self._doubtful[user], self._packing.asked(request), strict=True)
        self._doubtful[user] = tuple([amount + sign * change for amount, change in pairs])

    def is_doubtful(self, user: int) -> bool:
        """Find out whether anything of a user's may be refused."""
        return any(self._doubtful[user])

    def is_short(self, user: int) -> bool:
        """Find out whether a user has less than its share."""
        return self._ledger.violation(self._users.names[user]) < 0

    def can_lose(self, user: int, tasks: Iterable[HeldTask]) -> bool:
        """Find out whether a user keeps its share without these tasks, whatever else may still be refused."""
        return self.keeps_share(
            user, sum_of([self._doubtful[user], *(self._packing.asked(holding.request) for holding in tasks)])
        )

    def keeps_share(self, user: int, losing: Amounts) -> bool:
        """Find out whether a user has what it is due without such amounts."""
        return user == self._users.others or self._ledger.can_lose(self._users.names[user], losing)

    def may_claim(self, user: int, request: Amounts) -> bool:
        """Find out whether a user has no more than its share with such a request."""
        return self._ledger.may_claim(self._users.names[user], request)

    def violators(self) -> list[int]:
        """Users that have more than their share, the largest violation first."""
        return [self._users.number_of(name) for name in self._ledger.violators()]

    def has(self, user: int) -> tuple[int, int]:
        """Due and holdings of a user."""
        return self._ledger.has(self._users.names[user])

    def change(self, user: int, before: tuple[int, int]) -> ShareChange:
        """Change of a user's holdings since it was due and had this."""
        return ShareChange(self._users.names[user], *before, self.has(user)[1])

    def reweigh(self, weights: Mapping[str, int]) -> None:
        """Change what users are due."""
        self._ledger.reweigh(self._users.tree(weights))


def _is_nobody_short(_user: int) -> bool:
    """Users take turns alone. A function of the module, since a snapshot of the component is a pickle."""
    return False


class UserLines:
    """Queues of the users of a Global Master, served in turn; the others' queue is first come, first served.

    A queue can be asked for only while others wait too, which is contention: then users with less than their share come
    before the others, in turn among themselves.

    Args:
        user_of: Function that returns the user of a task.
        is_short: Function that tells whether a user has less than its share; None: users take turns alone.

    Attributes:
        length: Number of tasks that wait.
    """

    __slots__ = ("_is_short", "_lines", "_packing", "_user_of", "length")

    def __init__(
        self, packing: Packing, user_of: Callable[[Task], int], is_short: Callable[[int], bool] | None
    ) -> None:
        self._packing = packing
        self._user_of = user_of
        self._is_short = is_short or _is_nobody_short
        self._lines: dict[int, VectorQueue] = {}
        self.length = 0

    def users(self) -> list[int]:
        """Those who have tasks waiting, whose turn is next first."""
        return list(self._lines)

    def __contains__(self, kind: object) -> bool:
        """Find out whether a task of this kind waits."""
        return any(kind in line for line in self._lines.values())

    def kinds(self) -> list[Kind]:
        """The distinct constraint sets and requests that wait."""
        return list(dict.fromkeys(kind for line in self._lines.values() for kind in line.kinds()))

    def kinds_of(self, user: int) -> list[Kind]:
        """Those of one user."""
        return self._lines[user].kinds() if user in self._lines else []

    def push(self, task: Task) -> None:
        """Join the user's line at its tail."""
        self._line_of(task).push(task)
        self.length += 1

    def push_front(self, task: Task) -> None:
        """Join the user's line at its head."""
        self._line_of(task).push_front(task)
        self.length += 1

    def pop_fitting(self, offered: int, free: int) -> Task | None:
        """Take the first task that a machine can take from the line of the user that is next; see `VectorQueue`."""
        for user in self._in_turn():
            task = self._lines[user].pop_fitting(offered, free)
            if task is not None:
                self._taken(user)
                return task
        return None

    def pop(self) -> Task:
        """Take the first task of the user that is next; there has to be one."""
        user = self._in_turn()[0]
        task = self._lines[user].first()
        return self.pop_kind(user, (task.constraints, task.request))

    def _in_turn(self) -> list[int]:
        users = list(self._lines)

        # Several users wait: that is contention, and those below their share come first.
        if len(users) > 1:
            short = {user for user in users if self._is_short(user)}
            users = [user for user in users if user in short] + [user for user in users if user not in short]
        return users

    def pop_kind(self, user: int, kind: Kind) -> Task:
        """Take the first task of a kind from the user's line, where there has to be one."""
        task = self._lines[user].pop_kind(kind)
        self._taken(user)
        return task

    def overtaken(self, task: Task, offered: int, free: int) -> list[Task]:
        """Tasks that could have had what a machine gave this one, whose user is below its share; one per other user."""
        if len(self._lines) <= 1 or not self._is_short(self._user_of(task)):
            return []
        waiting = [line.first_fitting(offered, free) for user, line in self._lines.items() if not self._is_short(user)]
        return [one for one in waiting if one is not None]

    def remove(self, unwanted: Callable[[Task], bool]) -> list[Task]:
        """Take every task of this sort out; the others keep their places."""
        removed: list[Task] = []
        for user in self.users():
            removed += self._lines[user].remove(unwanted)
            if not self._lines[user].length:
                del self._lines[user]
        self.length -= len(removed)
        return removed

    def _line_of(self, task: Task) -> VectorQueue:
        # One queue per user: first come, first served is among its own tasks alone.
        user = self._user_of(task)
        if user not in self._lines:
            self._lines[user] = VectorQueue(self._packing)
        return self._lines[user]

    def _taken(self, user: int) -> None:
        """Count a task less; the user's turn comes again after all others'."""
        self.length -= 1
        line = self._lines.pop(user)
        if line.length:
            self._lines[user] = line
