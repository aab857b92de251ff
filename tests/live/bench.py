"""A node agent on a bench: what it has told both audiences, and what its processes have written."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

from volery.core.model import Task
from volery.live.command import Call, Command, encode_payload
from volery.live.config.limits import NO_RULES, NodeRules
from volery.live.messages import TaskReport
from volery.live.node.agent import NodeAgent
from volery.live.node.descendants import status_of
from volery.live.node.spawn import Accounts

LIMIT_S = 30


class Bench:
    """An executor, and what it has told both audiences."""

    def __init__(
        self, folder: Path, workers: int = 0, accounts: Accounts | None = None, rules: NodeRules = NO_RULES
    ) -> None:
        self.reports: list[TaskReport] = []
        self.outcomes: dict[int, str] = {}
        self._changed = asyncio.Event()
        self.executor = NodeAgent(folder, report=self._heard, workers=workers, accounts=accounts, rules=rules)
        self._started = 0

    def _heard(self, report: TaskReport) -> None:
        self.reports.append(report)
        self._changed.set()

    def _ended(self, task: Task, attempt: int, outcome: str) -> None:
        assert task.id not in self.outcomes
        self.outcomes[task.id] = outcome
        self._changed.set()

    def start(self, command: Command | Call) -> int:
        number = self._started
        self._started += 1
        self.executor.start("node/7", Task(number, 3, payload=encode_payload(command)), 0, self._ended)
        return number

    async def until(self, holds: Callable[[], object]) -> None:
        async with asyncio.timeout(LIMIT_S):
            while not holds():
                self._changed.clear()
                await self._changed.wait()

    async def until_polled(self, holds: Callable[[], object]) -> None:
        """Wait for something of which no report tells."""
        async with asyncio.timeout(LIMIT_S):
            while not holds():
                await asyncio.sleep(0.005)

    async def run(self, command: Command | Call) -> TaskReport:
        number = self.start(command)
        await self.until(lambda: number in self.outcomes)
        last = [report for report in self.reports if report.task == number][-1]
        assert last.state == self.outcomes[number]
        return last


def bench(
    folder: Path,
    scenario: Callable[[Bench], Awaitable[None]],
    workers: int = 0,
    accounts: Accounts | None = None,
    rules: NodeRules = NO_RULES,
) -> None:
    async def play() -> None:
        played = Bench(folder, workers, accounts, rules)
        try:
            await scenario(played)
        finally:
            await played.executor.close()

    asyncio.run(play())


def lines_of(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


async def written(path: Path, line_count: int = 1) -> list[str]:
    """The lines of a file that a process is about to write."""
    async with asyncio.timeout(LIMIT_S):
        while len(lines_of(path)) < line_count:
            await asyncio.sleep(0.005)
    return lines_of(path)


async def gone(pid: int) -> None:
    async with asyncio.timeout(LIMIT_S):
        while (status := status_of(pid)) and status.lives:
            await asyncio.sleep(0.005)


def is_gone(pid: int) -> bool:
    status = status_of(pid)
    return status is None or not status.lives
