"""Capabilities of a deployment: what a design offers its driver beyond components that schedule.

A deployment has at most one of each class (`Deployment.capability`). Machines that are provisioned and released are
declared by their prices, `volery.core.tariff.Billing`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import TYPE_CHECKING

import msgspec

from volery.core.model import Address, TagConstraint, Tags, Time
from volery.core.shares import Share

if TYPE_CHECKING:
    from volery.core.component import Component


class CrashRecovery(msgspec.Struct, frozen=True):
    """Components that may crash are rebuilt, and others are informed; see docs/decisions/0010.

    Args:
        rebuild: (address, incarnation) -> a component that takes the place of one that has crashed, its volatile
            state gone and its stream that of (seed, address, incarnation).
        detector_pairs: addresses that receive PeerLost and PeerBack of each other.
        detection_us: within this time both of them receive these.
        standins: entries that take over each other's jobs, in the order in which they do. The driver watches them and
            decides by `volery.core.assignment`; nothing where jobs of an entry that is gone wait for it.
    """

    rebuild: Callable[[Address, int], Component]
    detector_pairs: tuple[tuple[Address, Address], ...] = ()
    detection_us: Time = 0
    standins: tuple[Address, ...] = ()


class Draining(msgspec.Struct, frozen=True):
    """Nodes can be drained; `owners_of` a node are the components that receive its `Drain`."""

    owners_of: Callable[[Address], tuple[Address, ...]]


class DueShares(msgspec.Struct, frozen=True):
    """Users are due shares of the cluster.

    Args:
        guaranteed: by name, the dominant share below which no user ever loses a running task to another; nothing where
            tasks are never preempted.
        under: weights that differ from those of the beginning, by name -> the share of each, in the order of the tree.
            InputError: a name that is missing, or not unique. None: weights cannot change.
        weight_subscribers: the components that receive `Reweigh`.
    """

    guaranteed: Mapping[str, Fraction] = {}
    under: Callable[[Mapping[str, int]], tuple[Share, ...]] | None = None
    weight_subscribers: tuple[Address, ...] = ()


class Resumption(msgspec.Struct, frozen=True):
    """The next attempt of a task goes on from work of the one before (in the lab alone); otherwise it starts from zero.

    Args:
        preempted: a preempted task goes on where it was.
        checkpoint_us: an attempt that was ended, or lost with its machine, goes on from its last whole period; 0: none.
    """

    preempted: bool = False
    checkpoint_us: Time = 0


class Overcommitment(msgspec.Struct, frozen=True):
    """The requests of the tasks on a machine may add up to `factor` times what it offers (in the lab alone).

    The design gives away what tasks have reserved and do not use; amounts alone, no slots.
    """

    factor: int


class TagPlacement(msgspec.Struct, frozen=True):
    """The design heeds tag constraints (`volery.core.tags`); the lab gives tasks with tags to no other.

    Args:
        refuses: why it cannot heed a constraint of tasks with these tags, and the remedy; "": it can. None: it can all.
    """

    refuses: Callable[[TagConstraint, Tags], str] | None = None


class Replication(msgspec.Struct, frozen=True):
    """Up to `attempts_max` attempts of a task run at once, and the first to finish counts (in the lab alone)."""

    attempts_max: int
