"""A node agent with nothing but a process executor: starts one command, says so, and waits to be killed.

python agent.py FOLDER PROGRAM [ARGUMENT ...]
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from volery.core.model import Task
from volery.live.command import Command, encode_payload
from volery.live.messages import TaskReport
from volery.live.node.agent import NodeAgent


async def run(folder: Path, argv: tuple[str, ...]) -> None:
    def tell(report: TaskReport) -> None:
        sys.stdout.write(f"{report.state}\n")
        sys.stdout.flush()

    executor = NodeAgent(folder, report=tell)
    task = Task(0, 0, payload=encode_payload(Command(argv)))
    executor.start("node/0", task, 0, lambda task, attempt, outcome: None)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(run(Path(sys.argv[1]), tuple(sys.argv[2:])))
