"""Who shares a Megha cluster: users, what each is due, and which GM each one's jobs go to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction

from volery.core.errors import InputError
from volery.core.model import Amounts, Cluster
from volery.core.shares import Share
from volery.policies.fairness import ShareLedger, Sharer, nodes, parse_shares_text, reweighed

UNNAMED = ""
"""In the ledger, all users whom the tree does not name: they are due nothing."""
PLACE = "megha:shares"


class Sharing:
    """Users by number, in the order of the tree; those that it does not name have the number after the last.

    A user is due its part of the whole cluster by weight, whether the others want theirs or not: that is the share that
    section IV-C speaks of. What some do not use anybody may take, and lose again when they come.

    Args:
        shares: text of a tree, see `parse_shares_text`.
        queues: the GM of each user of the tree, as 0+1+1+2; empty: in turn.
        cluster: that is shared.
        gm_count: how many GMs there are.

    Attributes:
        names: by number.
        others: the number of those whom the tree does not name.
        gm_of: by number; nobody's for `others`.

    Raises:
        InputError: the tree is malformed, there are more or fewer GMs named than users, or a resource is not there.
    """

    def __init__(self, shares: str, queues: str, cluster: Cluster, gm_count: int) -> None:
        self._tree = parse_shares_text(shares, PLACE)
        self.names = [leaf.name for leaf in self.tree({}).leaves()]
        self.others = len(self.names) - 1
        self._numbers = {name: number for number, name in enumerate(self.names)}
        capacities = cluster.capacities or tuple([(count,) for count in cluster.slots])
        self._capacity = tuple([sum(column) for column in zip(*capacities, strict=True)])
        if min(self._capacity) < 1:
            raise InputError(PLACE, f"no machine has any {cluster.resources[self._capacity.index(0)]}; leave it out")
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
        """What users and organisations are due when some have other weights.

        Raises:
            InputError: as `reweighed`.
        """
        ledger = self.ledger(weights)
        found = []
        for node, within in nodes(reweighed(self._tree, weights)):
            due = sum((ledger.due(leaf.name) for leaf in node.leaves()), Fraction(0))
            found.append(Share(node.name, within, node.weight, due, len(node.members)))
        return tuple(found)

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
    """Resource by resource."""
    return tuple([sum(column) for column in zip(*amounts, strict=True)])
