"""Capabilities of a deployment: what a design offers its driver beyond components that schedule.

A deployment has at most one of each class (`Deployment.capability`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import TYPE_CHECKING

import msgspec

from volery.core.model import Address, Cluster, Job, Task, Time

if TYPE_CHECKING:
    from volery.core.component import Component


class CrashRecovery(msgspec.Struct, frozen=True):
    """Components that may crash are rebuilt, and others are informed; see docs/decisions/0010.

    Args:
        rebuild: (Address, incarnation) -> a component that takes the place of one that has crashed, its volatile
            state gone and its stream that of (seed, address, incarnation).
        detector_pairs: Addresses that receive PeerLost and PeerBack of each other.
        detection_us: Time within which both of them receive these.
        standins: Entries that take over each other's jobs, in the order in which they do. The driver watches them and
            decides by `volery.core.assignment`; nothing where jobs of an entry that is gone wait for it.
        takes_back: True if a task is placed again of which an attempt has the outcome "unstarted".
    """

    rebuild: Callable[[Address, int], Component]
    detector_pairs: tuple[tuple[Address, Address], ...] = ()
    detection_us: Time = 0
    standins: tuple[Address, ...] = ()
    takes_back: bool = False


class Refusals(msgspec.Struct, frozen=True):
    """Tasks that may run on no machine though one suits: a part of the machines is reserved, or a share is limited.

    They are reported as unsatisfiable, and the tasks that wait for them are never sent.

    Args:
        refuses: (Job, one of its tasks) -> True if it is such a task.
    """

    refuses: Callable[[Job, Task], bool]


class Draining(msgspec.Struct, frozen=True):
    """Nodes can be drained; `owners_of` a node are the components that receive its `Drain`."""

    owners_of: Callable[[Address], tuple[Address, ...]]


class Share(msgspec.Struct, frozen=True):
    """The share of a cluster that is due to a user or an organisation.

    Args:
        name: Name of a user, or of an organisation that shares its part among its members.
        within: Organisations that it is part of, the outermost first.
        weight: Weight against its siblings.
        due: Part of the whole cluster.
        members: Count of its members; 0: it is a user.
    """

    name: str
    within: tuple[str, ...]
    weight: int
    due: Fraction
    members: int = 0


class DueShares(msgspec.Struct, frozen=True):
    """Users are due shares of the cluster.

    Args:
        guaranteed: Name -> dominant share below which no user ever loses a running task to another; nothing where
            tasks are never preempted.
        under: Weights that differ from those of the beginning, by name -> the share of each, in the order of the tree.
            InputError: a name that is missing, or not unique. None: weights cannot change.
        weight_subscribers: Components that receive `Reweigh`.
    """

    guaranteed: Mapping[str, Fraction] = {}
    under: Callable[[Mapping[str, int]], tuple[Share, ...]] | None = None
    weight_subscribers: tuple[Address, ...] = ()


class Resumption(msgspec.Struct, frozen=True):
    """The next attempt of a task goes on from work of the one before (in the lab alone); otherwise it starts from zero.

    Args:
        preempted: True if a preempted task goes on where it was.
        checkpoint_us: Period of checkpoints: a lost or ended attempt goes on from its last whole period; 0: none.
    """

    preempted: bool = False
    checkpoint_us: Time = 0


class Overcommitment(msgspec.Struct, frozen=True):
    """The requests of the tasks on a machine may add up to `factor` times what it offers (in the lab alone).

    The design gives away what tasks have reserved and do not use; amounts alone, no slots.
    """

    factor: int


class TagPlacement(msgspec.Struct, frozen=True):
    """The design heeds tag constraints (`volery.core.tags`); the lab gives tasks with tags to no other."""


class Replication(msgspec.Struct, frozen=True):
    """Up to `attempts_max` attempts of a task run at once, and the first to finish counts (in the lab alone)."""

    attempts_max: int


class ClusterParts(msgspec.Struct, frozen=True, eq=False):
    """Parts into which a design divides the cluster; a gang runs in one of them."""

    clusters: tuple[Cluster, ...]


class GangPlacement(msgspec.Struct, frozen=True):
    """The design starts gangs whole (`volery.core.gangs`); others hold and wait.

    Args:
        shapes: True if it places gangs in their shapes; False: it takes no gang that has one.
        unlike_members: True if members may need different things; False: each is taken to need what any of them does.
        parts: (Job, without its tasks) -> the parts of the cluster of which one has to hold it whole; None: the
            machines of a gang may be any of the cluster.
        remedy: Advice where no part holds a gang: how to get larger ones.
        racks: True if it places gangs in one rack that prefer or require that; False: it takes none that requires it.
    """

    shapes: bool = True
    unlike_members: bool = True
    parts: Callable[[Job], ClusterParts] | None = None
    remedy: str = ""
    racks: bool = False
