"""The scheduler's side of the submitter's protocol."""

from __future__ import annotations

from tests.unit.effects import RecordingPort, Sent

from volery.core.component import Component
from volery.core.events import Cancel, JobAccepted, JobDone, JobRejected, MoreTasks, Submit
from volery.core.model import SUBMITTER, Address, Job, Message, Task, Time
from volery.roles.submission import RETRY_AFTER_US, Forwarder, JobLedger, Workflow

WHO = "submitter"


def job(number: int, tasks: int, first_chunk: int | None = None) -> Submit:
    made = tuple(Task(10 * number + k, number) for k in range(tasks))
    return Submit(Job(number, tasks, made[:first_chunk]))


def ledger(queue_max: int = 0) -> tuple[JobLedger, RecordingPort]:
    port = RecordingPort("gm/0")
    return JobLedger(port.send, queue_max), port


def test_a_job_is_accepted_and_done_after_its_last_task() -> None:
    jobs, port = ledger()
    assert jobs.admit(job(1, 2), WHO, 0) == job(1, 2).job.tasks
    assert port.drain() == [Sent(WHO, JobAccepted(1))]
    jobs.finished(1)
    assert port.drain() == []
    assert len(jobs) == 1
    jobs.finished(1)
    assert port.drain() == [Sent(WHO, JobDone(1))]
    assert len(jobs) == 0


def test_a_job_without_tasks_is_answered_at_once() -> None:
    jobs, port = ledger()
    assert jobs.admit(job(1, 0), WHO, 0) == ()
    assert port.drain() == [Sent(WHO, JobAccepted(1)), Sent(WHO, JobDone(1))]


def test_a_job_whose_tasks_fit_nowhere_is_done_and_says_how_many() -> None:
    jobs, port = ledger()
    jobs.admit(job(1, 3), WHO, 0)
    port.drain()
    jobs.unsatisfiable(1)
    jobs.unsatisfiable(1)
    jobs.finished(1)
    assert port.drain() == [Sent(WHO, JobDone(1, 2))]


def test_submitting_again_is_answered_again_and_schedules_nothing() -> None:
    jobs, port = ledger()
    jobs.admit(job(1, 1), WHO, 0)
    assert jobs.admit(job(1, 1), WHO, 0) == ()
    assert port.drain() == [Sent(WHO, JobAccepted(1))] * 2
    jobs.finished(1)
    port.drain()
    assert jobs.admit(job(1, 1), WHO, 0) == ()
    assert port.drain() == [Sent(WHO, JobAccepted(1)), Sent(WHO, JobDone(1))]


def test_a_finished_job_keeps_its_count_of_unsatisfiable_tasks() -> None:
    jobs, port = ledger()
    jobs.admit(job(1, 1), WHO, 0)
    jobs.unsatisfiable(1)
    port.drain()
    jobs.admit(job(1, 1), WHO, 0)
    assert port.drain()[-1] == Sent(WHO, JobDone(1, 1))


def test_a_full_queue_rejects_and_remembers_nothing() -> None:
    jobs, port = ledger(queue_max=10)
    assert jobs.admit(job(1, 4), WHO, 7) == ()
    assert port.drain() == [Sent(WHO, JobRejected(1, "the queue is full", RETRY_AFTER_US))]
    assert jobs.admit(job(1, 4), WHO, 6) == job(1, 4).job.tasks


def test_chunks_count_once_and_in_order() -> None:
    jobs, port = ledger()
    whole = job(1, 5)
    assert jobs.admit(job(1, 5, first_chunk=2), WHO, 0) == whole.job.tasks[:2]
    chunk, last = MoreTasks(1, 2, whole.job.tasks[2:4]), MoreTasks(1, 4, whole.job.tasks[4:])
    assert jobs.more(last) == (), "a chunk out of order waits to be sent again"
    assert jobs.more(chunk) == chunk.tasks
    assert jobs.more(chunk) == (), "a repeated chunk"
    assert jobs.more(last) == last.tasks
    for _ in range(5):
        jobs.finished(1)
    assert port.drain()[-1] == Sent(WHO, JobDone(1))


def test_chunks_of_an_unknown_or_finished_job_bring_nothing() -> None:
    jobs, _ = ledger()
    assert jobs.more(MoreTasks(7, 2, (Task(1, 7),))) == ()
    jobs.admit(job(1, 1), WHO, 0)
    jobs.finished(1)
    assert jobs.more(MoreTasks(1, 1, (Task(1, 1),))) == ()


def test_an_idle_scheduler_takes_a_job_larger_than_its_queue() -> None:
    """Refusing it would refuse it for ever."""
    jobs, port = ledger(queue_max=10)
    assert len(jobs.admit(job(1, 11), WHO, 0)) == 11
    assert port.drain() == [Sent(WHO, JobAccepted(1))]
    assert jobs.admit(job(2, 11), WHO, 1) == ()
    assert isinstance(port.drain()[0], Sent)
    assert len(jobs) == 1, "while tasks wait it is refused"


def test_a_cancelled_job_is_done_when_its_owner_has_counted_its_tasks() -> None:
    jobs, port = ledger()
    jobs.admit(job(1, 3), WHO, 0)
    assert jobs.cancel(Cancel(1), WHO)
    assert jobs.cancelled == {1}
    assert jobs.cancel(Cancel(1), WHO), "a repeated request is carried out again: a message may have been lost"
    port.drain()
    jobs.finished(1, 3)
    assert port.drain() == [Sent(WHO, JobDone(1))]
    assert not jobs.cancelled


def test_chunks_of_a_cancelled_job_that_are_still_to_come_never_run() -> None:
    jobs, port = ledger()
    submit = job(1, 5, first_chunk=2)
    jobs.admit(submit, WHO, 0)
    for _ in range(2):
        assert jobs.cancel(Cancel(1), WHO)
    assert jobs.more(MoreTasks(1, 2, (Task(12, 1), Task(13, 1), Task(14, 1)))) == ()
    port.drain()
    jobs.finished(1, 2)
    assert port.drain() == [Sent(WHO, JobDone(1))]
    assert jobs.more(MoreTasks(1, 2, (Task(12, 1),))) == ()


def test_a_job_that_is_cancelled_before_it_is_known_never_runs() -> None:
    jobs, port = ledger()
    assert not jobs.cancel(Cancel(1), WHO)
    assert port.drain() == [Sent(WHO, JobDone(1))]
    assert jobs.admit(job(1, 2), WHO, 0) == ()
    assert port.drain() == [Sent(WHO, JobAccepted(1)), Sent(WHO, JobDone(1))]


def tasks(*estimates_us: int) -> list[Task]:
    """Tasks 0, 1, 2 ... of one job."""
    return [Task(number, 1, 0, estimate_us) for number, estimate_us in enumerate(estimates_us)]


def ids(found: list[Task]) -> list[int]:
    return [task.id for task in found]


def test_a_task_is_ready_after_the_last_of_its_parents() -> None:
    workflow = Workflow()
    assert ids(workflow.add(tasks(1, 1, 1), [(), (), (0, 1)], set())) == [0, 1]
    assert workflow.blocked == 1
    assert ids(workflow.finished(0)) == []
    assert [(task.id, missing) for task, missing in workflow.ahead(1)] == [(2, 1)]
    assert ids(workflow.finished(1)) == [2]
    assert workflow.finished(1) == [], "an end counts once"
    assert (workflow.blocked, workflow.ahead(1)) == (0, [])


def test_parents_of_an_earlier_chunk_that_have_finished_hold_nothing_back() -> None:
    workflow = Workflow()
    workflow.add(tasks(1), (), set())
    workflow.finished(0)
    assert ids(workflow.add([Task(1, 1)], [(0,)], set())) == [1]


def test_whatever_is_below_a_task_that_no_machine_can_run_never_starts() -> None:
    workflow = Workflow()
    assert ids(workflow.add(tasks(1, 1, 1, 1), [(), (0,), (1,), ()], {0})) == [3]
    assert (workflow.never, workflow.blocked) == ({0, 1, 2}, 0)


def test_the_rank_of_a_task_is_the_longest_chain_below_it() -> None:
    workflow = Workflow()
    workflow.add(tasks(5, 10, 2, 1), [(), (0,), (0,), (1, 2)], set())
    assert [workflow.rank_us(number) for number in range(4)] == [16, 11, 3, 1]
    workflow.add([Task(4, 1, 0, 100)], [(2,)], set())
    assert workflow.rank_us(0) == 107, "a further chunk makes chains longer"


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
