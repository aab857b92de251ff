"""Answers of a Local Master to requests that it has carried out (arXiv 2103.08413, sections IV-A and V-D).

By default only what is refused is answered. As printed each answer to a launch carries the state of the cluster, so a
Global Master sees what the others have taken there since the last heartbeat. An update is such an answer: it names the
last request that it contains.
"""

from __future__ import annotations

from volery.architectures.megha.allocations import Allocations, GmSyncState
from volery.architectures.megha.config import MeghaConfig
from volery.architectures.megha.hosts import ClusterHost
from volery.architectures.megha.messages import TasksEnded


class LaunchAnswers:
    """Answers to launches.

    Args:
        host: The Local Master.
        allocations: What is free in its cluster.
    """

    def __init__(self, host: ClusterHost, allocations: Allocations, config: MeghaConfig) -> None:
        self._host = host
        self._allocations = allocations
        self._has_state = config.answers == "all"

        # A Global Master that waits needs an answer without news, too; and a whole state is sent whatever is in it.
        is_awaited = config.launch == "synchronous"
        self._update = allocations.delta if is_awaited or config.updates == "snapshots" else allocations.news

    def launched(self, gm: GmSyncState) -> None:
        """Answer a request of a GM whose tasks were launched."""
        if not self._has_state:
            ended, gm.ended = tuple(gm.ended), []
            self._host.send(gm.address, TasksEnded(ended, gm.request))
            return

        self._allocations.consider()
        update = self._update(gm)
        if update is not None:
            self._host.send(gm.address, update)
