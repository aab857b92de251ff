"""What a scheduler sees of the cluster, asked when somebody looks at a task that waits; nobody pays for it else."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from volery.core.events import Look, Seen
from volery.core.model import Address, Amounts, Message

WAIT_S: Final = 0.25
"""A scheduler that is away, or busier than this, is not waited for."""


class Sight:
    """Questions to schedulers that have not been answered.

    Args:
        send: hands a message to a component.
    """

    def __init__(self, send: Callable[[Address, Message], None]) -> None:
        self._send = send
        self._number = 0
        self._open: dict[int, asyncio.Future[int]] = {}

    async def machines(self, scheduler: Address, constraints: int, request: Amounts) -> int | None:
        """How many machines have room for a task in a scheduler's view; None: it has not answered in time."""
        self._number += 1
        number, answer = self._number, asyncio.get_running_loop().create_future()
        self._open[number] = answer
        self._send(scheduler, Look(number, constraints, request))
        try:
            async with asyncio.timeout(WAIT_S):
                return int(await answer)
        except TimeoutError:
            return None
        finally:
            del self._open[number]

    def seen(self, told: Seen) -> None:
        """An answer; it may come too late."""
        answer = self._open.get(told.number)
        if answer is not None and not answer.done():
            answer.set_result(told.machines)
