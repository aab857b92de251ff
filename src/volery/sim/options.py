"""Options of a run, and its progress."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from volery.core.costs import Frames, HostCosts
from volery.core.errors import InputError
from volery.core.model import Time
from volery.sim.faults import FaultPlan
from volery.sim.network import MessageFaultRates
from volery.sim.orders import Drained, Reweighed


class Enough(Exception):  # noqa: N818 - nothing is wrong
    """Raised by a receiver of progress: the run ends there, and its records hold what has happened so far."""


class Progress(msgspec.Struct, frozen=True):
    """The progress of a run."""

    now_us: Time
    jobs_done: int
    tasks_finished: int


class Options(msgspec.Struct, frozen=True):
    """Options of a run; none of the first three changes what a correct design does on a reliable network.

    What is not asked for costs a run nothing: `volery.sim.kernel` makes an extension of what is.

    Args:
        check: Call `check()` of every component after each of its events (tests).
        copy_messages: Copy every message through the codec; the digest must not change.
        tie_shuffle: Seed that shuffles what arrives in the same instant (each link stays FIFO): shows how much of a
            result is ties.
        costs: Role -> processing cost per message in microseconds; such a role is a server with a FIFO of its own.
        faults: Faults of messages between components, during the whole run.
        plan: Faults of messages, partitions, crashes; excludes costs and hosts.
        hosts: Name -> roles that share one processor, and what it costs them; see `volery.core.costs`.
        frames: Frames between these hosts; None: the network, message by message.
        graphs: True if the design takes workflows whole, see `Architecture.graphs`.
        drains: Machines that are taken out of use.
        reweighs: Changes of users' shares.
    """

    check: bool = False
    copy_messages: bool = False
    tie_shuffle: int | None = None
    costs: Mapping[str, Time] = {}
    faults: MessageFaultRates = MessageFaultRates()
    plan: FaultPlan | None = None
    hosts: Mapping[str, HostCosts] = {}
    frames: Frames | None = None
    graphs: bool = False
    drains: tuple[Drained, ...] = ()
    reweighs: tuple[Reweighed, ...] = ()

    def __post_init__(self) -> None:
        """Refuse combinations that no run has."""
        if self.plan is not None and (self.costs or self.hosts):
            raise InputError("faults", "a plan of faults goes with neither costs nor hosts; leave them out")
