"""The plain node: each launch once, and its end told to the master."""

from __future__ import annotations

from tests.unit.effects import Killed, Launched, RecordingPort, Sent

from volery.core.events import TaskFinished
from volery.core.model import Task
from volery.roles.node import Completed, Kill, Launch, Node

TASK = Task(7, 0)


def test_a_repeated_or_overtaken_launch_is_ignored_and_an_end_is_told() -> None:
    node = Node("master/0")
    port = RecordingPort.under(node, "node/0")
    for message in (Launch(2, TASK), Launch(2, TASK), Launch(1, Task(8, 0)), Kill(7)):
        node.handle(message, "master/0", 5)
    node.handle(TaskFinished(TASK, 0, "killed"), "node/0", 6)
    assert port.drain() == [Launched(TASK, 0), Killed(7, 0), Sent("master/0", Completed(7, killed=True))]
