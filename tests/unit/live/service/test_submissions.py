"""Jobs are stored together; submissions go out in order, few in one turn; again, no task is skipped or runs twice."""

from __future__ import annotations

import asyncio
import random
import re
import sqlite3
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

import pytest
from tests.unit.effects import RecordingPort

from volery.core.assignment import Owner
from volery.core.component import Component, Deployment
from volery.core.errors import InputError
from volery.core.events import Cancel, JobDone, MoreTasks, Submit
from volery.core.model import Address, Message, Task
from volery.live.config.constraints import Fleet
from volery.live.config.machine import Machine
from volery.live.jobs import job_from_table, submission
from volery.live.messages import TaskReport, identity_of
from volery.live.service import submissions
from volery.live.service.job_service import job_service
from volery.live.service.store import JobStore
from volery.live.service.submissions import (
    TASKS_PER_TURN,
    WAITING_MAX,
    ConflictError,
    NewJob,
    Submission,
    SubmitThrottle,
    insert_all,
    planned_jobs,
)
from volery.live.status import Receipt
from volery.roles.submission import JobLedger

LIMIT_S = 10


def job(number: int, task_count: int) -> Iterator[Message]:
    tasks = (Task(place, number) for place in range(task_count))
    return submission(number, tasks, task_count, "ada", TASKS_PER_TURN)


def numbers(messages: list[Message]) -> list[int]:
    return [
        one.job.id if isinstance(one, Submit) else one.job for one in messages if isinstance(one, Submit | MoreTasks)
    ]


class Turns:
    """Collects what is handed over, turn by turn."""

    def __init__(self) -> None:
        self.turns: list[list[Message]] = [[]]
        self.feed = SubmitThrottle(self._send)

    def _send(self, _: Address, message: Message) -> None:
        self.turns[-1].append(message)

    @property
    def sent(self) -> list[Message]:
        return [message for turn in self.turns for message in turn]

    async def until(self, messages: int) -> None:
        async with asyncio.timeout(LIMIT_S):
            while len(self.sent) < messages:
                self.turns.append([])
                await asyncio.sleep(0)


def test_much_is_spread_over_turns_and_little_is_sent_at_once() -> None:
    async def scenario() -> None:
        it = Turns()
        it.feed.enqueue(0, "gm/0", job(0, TASKS_PER_TURN // 4))
        assert numbers(it.sent) == [0]
        for number in range(1, 10):
            it.feed.enqueue(number, "gm/0", job(number, TASKS_PER_TURN // 4))
        it.feed.enqueue(10, "gm/0", job(10, 3 * TASKS_PER_TURN))
        await it.until(13)
        assert numbers(it.sent) == [*range(11), 10, 10]
        assert [one.first for one in it.sent if isinstance(one, MoreTasks)] == [TASKS_PER_TURN, 2 * TASKS_PER_TURN]
        assert max(len(turn) for turn in it.turns) == 4

    asyncio.run(scenario())


def test_a_small_job_is_sent_while_a_large_one_is_on_its_way() -> None:
    async def scenario() -> None:
        it = Turns()
        it.feed.enqueue(0, "gm/0", job(0, 100 * TASKS_PER_TURN))
        it.feed.enqueue(1, "gm/0", job(1, 1))
        await it.until(4)
        assert 1 in numbers(it.sent)[:4]

    asyncio.run(scenario())


def test_nothing_more_is_sent_of_a_job_that_was_dropped() -> None:
    async def scenario() -> None:
        it = Turns()
        it.feed.enqueue(0, "gm/0", job(0, 100 * TASKS_PER_TURN))
        await it.until(2)
        it.feed.drop(0)
        it.feed.enqueue(1, "gm/0", job(1, 3 * TASKS_PER_TURN))
        await it.until(5)
        assert numbers(it.sent) == [0, 0, 1, 1, 1]

    asyncio.run(scenario())


def test_whoever_submits_many_waits_for_room_and_not_for_a_large_job() -> None:
    async def scenario() -> None:
        it = Turns()
        it.feed.enqueue(0, "gm/0", job(0, 1000 * TASKS_PER_TURN))
        for number in range(1, 3 * WAITING_MAX):
            it.feed.enqueue(number, "gm/0", job(number, TASKS_PER_TURN))
        assert len(it.sent) == 1
        async with asyncio.timeout(LIMIT_S):
            await it.feed.room()
        assert len({*numbers(it.sent)}) > WAITING_MAX
        assert len(it.sent) < 10 * WAITING_MAX

    asyncio.run(scenario())


def test_whoever_waits_for_room_goes_on_when_all_that_waits_is_cancelled() -> None:
    async def scenario() -> None:
        it = Turns()
        for number in range(2 * WAITING_MAX):
            it.feed.enqueue(number, "gm/0", job(number, 2 * TASKS_PER_TURN))
        waiting = asyncio.ensure_future(it.feed.room())
        await asyncio.sleep(0)
        for number in range(2 * WAITING_MAX):
            it.feed.drop(number)
        async with asyncio.timeout(LIMIT_S):
            await waiting

    asyncio.run(scenario())


FLEET = Fleet([Machine("x86_64", "linux", "6.1", 4, 1024, {})], [1])
FIRST = 1_000
SUBMITTER = "submitter"
LARGE_BYTES = 200_000


class Scheduler:
    """A ledger, and the tasks that it has brought: some wait, some have ended."""

    def __init__(self) -> None:
        self.port = RecordingPort("gm/0")
        self.ledger = JobLedger(self.port.send)
        self.received: Counter[int] = Counter()
        self.waiting: list[int] = []

    def take(self, messages: Sequence[Message]) -> None:
        for message in messages:
            if isinstance(message, Submit):
                self._note(self.ledger.admit(message, SUBMITTER, 0))
            else:
                assert isinstance(message, MoreTasks)
                self._note(self.ledger.more(message))

    def _note(self, tasks: Sequence[Task]) -> None:
        numbers = [task.id - FIRST for task in tasks]
        self.received.update(numbers)
        self.waiting += numbers

    def end(self, count: int) -> list[int]:
        """The places of tasks that end now."""
        ended, self.waiting = self.waiting[:count], self.waiting[count:]
        for _ in ended:
            self.ledger.finished(0)
        return ended

    def is_told_done(self) -> bool:
        return any(effect.message == JobDone(0) for effect in self.port.sent())


def described(tasks: int, drawn: random.Random) -> Submission:
    large = [drawn.random() < 0.02 for _ in range(tasks)]
    listed = [{"stdin": "x" * (LARGE_BYTES if is_large else place % 7)} for place, is_large in enumerate(large)]
    description = job_from_table({"command": "cat", "tasks": listed}, "job")
    return Submission(0, FIRST, description, FLEET, tasks)


def again(sent: Submission, ended: set[int], begun: Sequence[int]) -> Submission:
    """What the desk submits after a restart."""
    carried = dict.fromkeys(begun, (1, 0))
    return sent._replace(
        tasks_left=sent.tasks_left - len(ended), ended=frozenset(ended), attempts=carried, is_repeated=True
    )


@pytest.mark.parametrize("seed", range(40))
def test_a_job_whose_submitter_restarts_again_and_again_has_each_task_received_once(seed: int) -> None:
    drawn = random.Random(seed)
    tasks = drawn.choice([1, 7, TASKS_PER_TURN, TASKS_PER_TURN + 1, 3 * TASKS_PER_TURN + 17])
    first, scheduler, ended = described(tasks, drawn), Scheduler(), set[int]()
    submitted = first
    for _ in range(drawn.randrange(1, 4)):
        messages = list(submitted.messages(0))
        scheduler.take(messages[: drawn.randrange(1, len(messages) + 1)])
        ended.update(scheduler.end(drawn.randrange(tasks + 1)))
        if len(ended) == tasks:
            break
        submitted = again(first, ended, scheduler.waiting[:5])
    scheduler.take(list(submitted.messages(0)))
    scheduler.end(tasks)
    assert scheduler.received == Counter(range(tasks))
    assert scheduler.is_told_done()


@pytest.mark.parametrize("seed", range(20))
def test_tasks_that_end_elsewhere_before_their_scheduler_receives_them_keep_no_job_open(seed: int) -> None:
    """They ran when another scheduler had the job."""
    drawn = random.Random(seed)
    tasks = 3 * TASKS_PER_TURN + 17
    first, scheduler = described(tasks, drawn), Scheduler()
    messages = list(first.messages(1))
    scheduler.take(messages[: drawn.randrange(1, len(messages) - 1)])
    elsewhere = [place for place in range(tasks) if not scheduler.received[place] and drawn.random() < drawn.random()]
    if not seed:
        elsewhere = [place for place in range(tasks) if not scheduler.received[place]]
    ended = {*elsewhere, *scheduler.end(drawn.randrange(1, len(scheduler.waiting)))}
    scheduler.take(list(again(first, ended, ()).messages(1)))
    scheduler.end(tasks)
    assert scheduler.received == Counter({*range(tasks)} - {*elsewhere})
    assert scheduler.is_told_done()


def test_a_job_that_was_received_whole_is_not_sent_twice_when_it_is_submitted_again() -> None:
    sent = again(described(7, random.Random(1)), set(), ())
    (only,) = sent.messages(0)
    assert isinstance(only, Submit)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[JobStore]:
    opened = JobStore(tmp_path / "jobs.sqlite")
    yield opened
    opened.close()


def planned(*tables: dict[str, object]) -> list[NewJob]:
    jobs = [job_from_table({"command": "true", "user": "ann", **table}, "job") for table in tables]
    places = [f"jobs[{at}]" for at in range(len(jobs))]
    return asyncio.run(planned_jobs(jobs, places, 5, 100, FLEET))


def admitted(store: JobStore, jobs: Sequence[NewJob]) -> tuple[list[Receipt], list[tuple[int, str]]]:
    assigned: list[tuple[int, str]] = []
    store.begin(durable=False)
    try:
        return insert_all(store, jobs, 7, lambda number, user: assigned.append((number, user))), assigned
    finally:
        store.commit()


def test_jobs_and_tasks_are_numbered_one_after_the_other() -> None:
    jobs = planned({"tasks": 3}, {}, {"tasks": [{"count": 2}, {"command": "false"}]})
    assert [(job.number, job.first, job.tasks) for job in jobs] == [(5, 100, 3), (6, 103, 1), (7, 104, 3)]


def test_a_key_that_is_used_again_for_the_same_job_gives_its_receipt(store: JobStore) -> None:
    receipts, assigned = admitted(store, planned({"key": "k", "tasks": 2}, {"key": "k", "tasks": 2}))
    assert [(one.id, one.tasks, one.known) for one in receipts] == [(5, 2, False), (5, 2, True)]
    assert assigned == [(5, "ann")]
    later, assigned = admitted(store, planned({"key": "k", "tasks": 2}))
    assert (later[0].id, later[0].known, assigned) == (5, True, [])


@pytest.mark.parametrize("earlier", [True, False])
def test_a_key_of_another_job_is_refused_and_nothing_is_written(store: JobStore, earlier: bool) -> None:
    if earlier:
        admitted(store, planned({"key": "k"}))
    before = store.next_numbers()
    first: list[dict[str, object]] = [] if earlier else [{"key": "k"}]
    jobs = planned(*first, {}, {"key": "k", "tasks": 2})
    with pytest.raises(ConflictError) as caught:
        admitted(store, jobs)
    assert caught.value.place == f"jobs[{len(jobs) - 1}].key"
    assert store.next_numbers() == before


def test_a_task_that_no_machine_can_run_is_a_warning_and_too_many_an_error(
    store: JobStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    needs = {"constraints": ["cores >= 8"], "tasks": 3}
    (receipt,), _ = admitted(store, planned(needs))
    assert receipt.warnings == ("task 0 will never run: no machine has cores >= 8; there is 4",)
    assert [task.state for task in store.tasks(5, 0, 9)] == ["unsatisfiable"] * 3
    monkeypatch.setattr(submissions, "IMPOSSIBLE_MAX", 2)
    with pytest.raises(InputError, match="no machine can run 3 of its tasks"):
        planned(needs)


@pytest.mark.parametrize("table", ["tasks", "descriptions", "assignments"])
def test_an_open_job_of_which_a_part_is_damaged_fails_with_the_place_and_its_scheduler_is_told(
    tmp_path: Path, table: str
) -> None:
    store = JobStore(tmp_path / "jobs.sqlite")
    first, second = planned({"tasks": 2}, {"command": "false"})
    admitted(store, [first, second])
    store.begin(durable=False)
    store.take_in([TaskReport(first.first, identity_of(first.number, first.first), 0, "node/0", "running", 9)], 9)
    store.assigned.note([first.number], Owner("gm/0", 1), "by hand")
    store.commit()
    store.close()
    with closing(sqlite3.connect(tmp_path / "jobs.sqlite", isolation_level=None)) as sql:
        assert (
            sql.execute(
                f"UPDATE {table} SET checksum = 1 WHERE rowid = 1"
                if table == "descriptions"
                else f"UPDATE {table} SET checksum = 1"
            ).rowcount
            == 1
        )

    sent = list[Message]()

    async def restarted() -> None:
        again = JobStore(tmp_path / "jobs.sqlite")
        deployment = Deployment({"gm/0": Component()}, {"node/0": 0}, lambda job: "gm/0")
        service = job_service(again, FLEET, deployment, lambda to, message: sent.append(message))
        await service.open()
        async with asyncio.timeout(LIMIT_S):
            while not {Cancel, Submit} <= {type(message) for message in sent}:
                await asyncio.sleep(0.01)
        damaged, whole = again.job(first.number), again.job(second.number)
        assert damaged is not None
        assert whole is not None
        assert (damaged.state, whole.state) == ("failed", "pending")
        assert re.search(rf"the row of table {table} .*is damaged", damaged.reason)
        await service.close()

    asyncio.run(restarted())
    assert [message.job for message in sent if isinstance(message, Cancel)] == [identity_of(first.number, first.first)]
    (submitted,) = (message for message in sent if isinstance(message, Submit))
    assert submitted.job.id == identity_of(second.number, second.first)
