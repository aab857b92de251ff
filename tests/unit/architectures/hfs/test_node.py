"""A machine of the Hadoop Fair Scheduler alone: ends are reported at once, or in the next heartbeat."""

from __future__ import annotations

from tests.unit.architectures.parts import Alone
from tests.unit.effects import TimerSet

from volery.architectures.hfs.tracker import Heartbeat
from volery.core.events import TaskFinished, TimerFired
from volery.core.model import SECOND, Cluster, Task
from volery.roles.node import Completed, Launch

NODE, TRACKER = "node/0", "jobtracker/0"


def test_out_of_band_heartbeats_report_an_end_at_once() -> None:
    alone = Alone("hfs", NODE, Cluster((0,), (2,)))
    alone.hear(Launch(1, Task(5, 7)), TRACKER)
    assert alone.hear(TaskFinished(Task(5, 7), 0), NODE) == [(TRACKER, Heartbeat((Completed(5),)))]


def test_a_heartbeat_reports_all_that_has_ended_since_the_last_one() -> None:
    alone = Alone("hfs", NODE, Cluster((0,), (2,)), out_of_band=False, heartbeat_s=3.0)
    alone.hear(Launch(1, Task(5, 7)), TRACKER)
    alone.hear(Launch(2, Task(6, 7), 1), TRACKER)
    assert alone.hear(TaskFinished(Task(5, 7), 0), NODE, 10) == [TimerSet("heartbeat", 3 * SECOND)]
    assert alone.hear(TaskFinished(Task(6, 7), 1, "killed"), NODE, 20) == []
    both = Heartbeat((Completed(5), Completed(6, 1, True)))
    assert alone.hear(TimerFired("heartbeat"), NODE, 3 * SECOND) == [(TRACKER, both)]
    later = alone.hear(TaskFinished(Task(5, 7), 0), NODE, 3 * SECOND + 1)
    assert later == [TimerSet("heartbeat", 6 * SECOND)], "what was reported is not reported again"
