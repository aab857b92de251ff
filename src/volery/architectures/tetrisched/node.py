"""A machine of TetriSched, and who tells it what to run."""

from __future__ import annotations

from volery.core.component import sent_to
from volery.core.model import Address
from volery.policies import nodes
from volery.policies.nodes import Completed

SCHEDULER: Address = "scheduler/0"


class Node(nodes.Node):
    """One worker machine, told and heard by the scheduler."""

    __slots__ = ()
    sends = sent_to("scheduler", Completed)
