"""The front, which separates batch jobs from service jobs."""

from __future__ import annotations

from tests.unit.architectures.parts import Alone, submit

from volery.core.events import Cancel, JobAccepted, JobDone
from volery.core.model import Cluster, Job, Task

FRONT = "front/0"


def test_the_front_sends_each_type_to_its_schedulers_by_number_and_answers_for_what_is_done() -> None:
    front = Alone("omega", FRONT, Cluster.uniform(2), service="user:web", batch_schedulers=2)
    batch, service = submit(3, 0), type(submit(0))(Job(4, 1, (Task(400, 4),), user="web"))
    assert front.hear(batch) == [("scheduler/1", batch)]
    assert front.hear(service) == [("scheduler/2", service)]
    assert front.hear(Cancel(4)) == [("scheduler/2", Cancel(4))]
    assert front.hear(JobDone(3, 1), "scheduler/1") == [("submitter", JobDone(3, 1))]
    assert front.hear(JobDone(3, 1), "scheduler/1") == [], "repeated"
    assert front.hear(batch) == [("submitter", JobAccepted(3)), ("submitter", JobDone(3, 1))]
    assert front.hear(Cancel(9)) == [("submitter", JobDone(9))]
