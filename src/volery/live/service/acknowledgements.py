"""Ends of tasks that the store has taken in: they are acknowledged to nodes once the disk has them.

A commit without a promise to a user does not wait for the disk (see `store`). A node's host acknowledged so early would
forget what the API's machine loses with its power, and the task would run again although its end was reported. So
the log of the database is brought to the disk a few times a second, beside the commits, and only then are ends
acknowledged; a commit that waits for the disk brings along what was committed before it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from volery.core.model import Address, TaskId

PAUSE_S: Final = 0.25
"""Between two syncs; nobody but the memory of nodes' hosts waits for them."""

Ends = dict[Address, list[tuple[TaskId, int]]]
"""Per agent, attempts (task, number) that have ended."""

log = logging.getLogger(__name__)


class Acknowledgements:
    """Ends of attempts from their reports to their acknowledgements.

    Args:
        sync: brings what is committed to the disk; called in a thread.
        tell: acknowledges ends to the agents that have reported them.
    """

    def __init__(self, sync: Callable[[], None], tell: Callable[[Ends], None]) -> None:
        self._sync = sync
        self._tell = tell
        self._heard: Ends = {}
        self._committed: Ends = {}
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="sync")
        self._timer: asyncio.TimerHandle | None = None
        self._syncing: asyncio.Task[None] | None = None
        self._closed = False

    def heard(self, agent: Address, end: tuple[TaskId, int]) -> None:
        """Add an end that an agent has reported to the next batch."""
        self._heard.setdefault(agent, []).append(end)

    def batch(self) -> Ends:
        """The ends that the batch which begins now takes in."""
        heard, self._heard = self._heard, {}
        return heard

    def failed(self, batch: Ends) -> None:
        """Put the ends of a batch that was not written into the next one."""
        _add(self._heard, batch)

    def committed(self, batch: Ends, durable: bool) -> None:
        """Note that a batch is committed; if `durable`, the disk has it and all before it."""
        _add(self._committed, batch)
        if not self._committed:
            return
        if durable:
            self._acknowledge()
        elif self._timer is None and self._syncing is None:
            self._soon()

    def _soon(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(PAUSE_S, self._begin)

    def _begin(self) -> None:
        self._timer = None
        if self._committed and not self._closed:
            self._syncing = asyncio.get_running_loop().create_task(self._bring())

    async def _bring(self) -> None:
        bringing, self._committed = self._committed, {}
        try:
            await asyncio.get_running_loop().run_in_executor(self._thread, self._sync)
        except OSError as error:
            log.error("the log of the store could not be brought to the disk, and is tried again: %s", error)
            _add(bringing, self._committed)
            self._committed = bringing
        else:
            self._tell(bringing)
        self._syncing = None
        if self._committed and not self._closed:
            self._soon()

    def _acknowledge(self) -> None:
        committed, self._committed = self._committed, {}
        self._tell(committed)

    async def close(self) -> None:
        """Acknowledge nothing more; an agent reports its ends to the next incarnation again."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        if self._syncing is not None:
            await asyncio.wait((self._syncing,))
        self._thread.shutdown()


def _add(to: Ends, more: Ends) -> None:
    for agent, ends in more.items():
        to.setdefault(agent, []).extend(ends)
