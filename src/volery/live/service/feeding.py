"""What the desk wants sent, a bounded number of tasks per turn of its host, in order.

A turn runs to its end before anything else does. A job of a million tasks, or a hundred thousand jobs that are
submitted again after a restart, must not make one turn of it: whoever asks for something meanwhile would wait.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from typing import Final

from volery.core.events import Event, MoreTasks, Submit
from volery.core.model import Address, Message

TASKS_PER_TURN: Final = 500
"""A scheduler decides about so many, with its reasons, in about 20 ms."""


class Outgoing(Message, frozen=True):
    """What the desk wants sent, handed to it by its host, so that it is sent in a turn; it leaves no host."""

    to: Address
    messages: tuple[Message, ...]


class Feed:
    """Hands messages to the host.

    Args:
        post: hands an event to the desk in the host's next turn.
    """

    def __init__(self, post: Callable[[Event], None]) -> None:
        self._post = post
        self._waiting: deque[tuple[Address, Message]] = deque()
        self._room = TASKS_PER_TURN
        self._scheduled = False
        self._empty = asyncio.Event()
        self._empty.set()

    def send(self, to: Address, messages: Iterable[Message]) -> None:
        """Send in the next turn, or as soon as what was to be sent before leaves room."""
        self._waiting.extend([(to, message) for message in messages])
        self._hand_over()

    async def empty(self) -> None:
        """Wait until nothing waits."""
        await self._empty.wait()

    def _hand_over(self) -> None:
        while self._waiting and self._room > 0:
            to, message = self._waiting.popleft()
            self._room -= _weight(message)
            self._post(Outgoing(to, (message,)))
        if self._waiting:
            self._empty.clear()
        if not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._go_on)

    def _go_on(self) -> None:
        self._scheduled = False
        self._room = TASKS_PER_TURN
        if self._waiting:
            self._hand_over()
        else:
            self._empty.set()


def _weight(message: Message) -> int:
    if isinstance(message, Submit):
        return 1 + len(message.job.tasks)
    return 1 + len(message.tasks) if isinstance(message, MoreTasks) else 1
