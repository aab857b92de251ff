"""The forwarder of jobs between the submitter and schedulers."""

from __future__ import annotations

from tests.unit.effects import RecordingPort, Sent

from volery.core.component import Component
from volery.core.events import Cancel, JobAccepted, JobDone, MoreTasks, Submit
from volery.core.model import SUBMITTER, Address, Job, Message, Task, Time
from volery.roles.forwarder import Forwarder


class Even(Forwarder):
    """Sends jobs of even numbers to one scheduler, and the others to another."""

    def on_submit(self, message: Submit, source: Address, now: Time) -> None:
        if not self._answer_done(message.job.id):
            self._scheduler_of[message.job.id] = f"scheduler/{message.job.id % 2}"
            self._forward(message.job.id, message)

    receives = {**Forwarder.receives, Submit: on_submit}  # noqa: RUF012 - the base class reads the table once


def submit(job: int) -> Submit:
    return Submit(Job(job, 1, (Task(10 * job, job),)))


def heard(component: Component, port: RecordingPort, message: Message, source: Address = SUBMITTER) -> list[object]:
    component.handle(message, source, 0)
    return list(port.drain())


def test_messages_of_a_job_go_to_its_scheduler_until_it_is_done() -> None:
    one = Even()
    port = RecordingPort.under(one, "front/0")
    chunk = MoreTasks(3, 1, (Task(31, 3),))
    assert heard(one, port, submit(3)) == [Sent("scheduler/1", submit(3))]
    assert heard(one, port, chunk) == [Sent("scheduler/1", chunk)]
    assert heard(one, port, Cancel(3)) == [Sent("scheduler/1", Cancel(3))]
    assert heard(one, port, JobAccepted(3), "scheduler/1") == [Sent(SUBMITTER, JobAccepted(3))]
    assert heard(one, port, JobDone(3, 1), "scheduler/1") == [Sent(SUBMITTER, JobDone(3, 1))]
    assert heard(one, port, JobDone(3, 1), "scheduler/1") == [], "an answer that is repeated"
    assert heard(one, port, chunk) == [], "a chunk of a job that is done"


def test_a_job_that_is_done_is_answered_again_without_its_scheduler() -> None:
    one = Even()
    port = RecordingPort.under(one, "front/0")
    heard(one, port, submit(2))
    heard(one, port, JobDone(2, 1), "scheduler/0")
    assert heard(one, port, submit(2)) == [Sent(SUBMITTER, JobAccepted(2)), Sent(SUBMITTER, JobDone(2, 1))]
    assert heard(one, port, Cancel(2)) == [Sent(SUBMITTER, JobDone(2, 1))]


def test_an_unknown_job_that_is_cancelled_never_runs() -> None:
    one = Even()
    port = RecordingPort.under(one, "front/0")
    assert heard(one, port, Cancel(4)) == [Sent(SUBMITTER, JobDone(4))]
    assert heard(one, port, submit(4)) == [Sent(SUBMITTER, JobAccepted(4)), Sent(SUBMITTER, JobDone(4))]
