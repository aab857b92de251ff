"""Users' shares of a cluster, as components exchange them; whole numbers are millionths of it."""

from __future__ import annotations

from fractions import Fraction
from typing import Final

import msgspec

MILLIONTHS: Final = 1_000_000
"""The whole cluster."""


class Share(msgspec.Struct, frozen=True):
    """The share of a cluster that is due to a user or an organisation.

    Args:
        name: of a user, or of an organisation that shares its part among its members.
        within: the organisations that it is part of, the outermost first.
        weight: against its siblings.
        due: part of the whole cluster.
        members: how many it has; 0: it is a user.
    """

    name: str
    within: tuple[str, ...]
    weight: int
    due: Fraction
    members: int = 0


class ShareChange(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A user's share before and after a task was preempted, as the decider knew it then.

    Args:
        user: its name; "": all users together to whom nothing is due.
        due: its share, millionths.
        before, after: what it had, millionths.
    """

    user: str
    due: int
    before: int
    after: int
