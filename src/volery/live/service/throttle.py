"""Throttle of submissions: a bounded number of tasks goes to schedulers per turn of the job service's host.

A turn runs to its end before anything else does. A job of a million tasks, or a hundred thousand jobs that are
submitted again after a restart, must not make one turn of it: other requests would wait meanwhile. Jobs
that wait take turns, so that a small job is not behind a large one, and a job that is cancelled leaves at once. The
messages of a job are made as they are sent, so that a job that waits takes no memory for its tasks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Final

from volery.core.events import Event, MoreTasks, Submit
from volery.core.model import Address, JobId, Message

TASKS_PER_TURN: Final = 500
"""A scheduler decides about so many, with its reasons, in about 20 ms."""
WAITING_MAX: Final = 16
"""With more jobs than this on their way, further submissions wait."""


class Outgoing(Message, frozen=True):
    """Messages that the job service sends in its next turn; they stay on its host."""

    to: Address
    messages: tuple[Message, ...]


class SubmitThrottle:
    """Hands messages of submissions to the host.

    Args:
        post: hands an event to the job service in the host's next turn.
    """

    def __init__(self, post: Callable[[Event], None]) -> None:
        self._post = post
        self._waiting: dict[JobId, tuple[Address, Iterator[Message]]] = {}
        self._room = TASKS_PER_TURN
        self._timer: asyncio.Handle | None = None
        self._handed_s = 0.0
        self._changed = asyncio.Event()

    def submit(self, job: JobId, to: Address, messages: Iterator[Message]) -> None:
        """Send the messages of a job in the next turn, or as soon as there is room; they replace what waits of it."""
        self._waiting[job] = to, messages
        self._hand_over()

    def drop(self, job: JobId) -> None:
        self._waiting.pop(job, None)
        self._changed.set()  # with nothing left to hand over, nothing else would wake those that wait for room

    async def room(self) -> None:
        """Wait until few jobs are on their way."""
        while len(self._waiting) > WAITING_MAX:
            self._changed.clear()
            await self._changed.wait()

    def _hand_over(self) -> None:
        waiting = self._waiting
        while waiting and self._room > 0:
            job = next(iter(waiting))
            to, messages = waiting.pop(job)
            message = next(messages, None)
            if message is not None:
                waiting[job] = to, messages
                self._room -= _weight(message)
                self._post(Outgoing(to, (message,)))
        self._changed.set()
        if self._timer is None:
            loop = asyncio.get_running_loop()
            self._handed_s = loop.time()
            self._timer = loop.call_soon(self._handled)

    def _handled(self) -> None:
        """The turn is over. While more waits, others get as much time as it took: tasks are started, for example."""
        loop = asyncio.get_running_loop()
        took_s = loop.time() - self._handed_s
        self._timer = loop.call_later(took_s, self._go_on) if self._waiting else loop.call_soon(self._go_on)

    def _go_on(self) -> None:
        self._timer = None
        self._room = TASKS_PER_TURN
        if self._waiting:
            self._hand_over()


def _weight(message: Message) -> int:
    if isinstance(message, Submit):
        return 1 + len(message.job.tasks)
    return 1 + len(message.tasks) if isinstance(message, MoreTasks) else 1
