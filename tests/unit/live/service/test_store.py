"""The store of jobs: what was committed is there after a restart, and changes are told once and in order."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from volery.core.errors import InputError
from volery.core.events import JobAccepted, JobDone, JobRejected, Preemption
from volery.live.jobs import JobDescription, TaskDescription, merged
from volery.live.messages import AttemptState, AttemptUsage, PreemptionReport, TaskReport
from volery.live.service import rows
from volery.live.service.descriptions import encoded_at_once
from volery.live.service.rows import ORDERS, JobOrder, JobQuery, UserCounters, UserLoad, reading
from volery.live.service.store import JobStore, News
from volery.live.status import JobStatus, TaskUsage

FIRST = 100
"""Number of the first task of job 0."""


class Committing(JobStore):
    """Commits every write at once."""

    @contextmanager
    def batch(self) -> Iterator[None]:
        self.begin(durable=False)
        yield
        self.commit()

    def insert(self, *arguments: Any) -> None:
        with self.batch():
            super().insert(*arguments)

    def take_in(self, *arguments: Any) -> list[int]:
        with self.batch():
            return super().take_in(*arguments)

    def give_up_waiting(self, *arguments: Any) -> None:
        with self.batch():
            super().give_up_waiting(*arguments)

    def cancel(self, number: int) -> bool:
        with self.batch():
            return super().cancel(number)

    def fail(self, *arguments: Any) -> None:
        with self.batch():
            super().fail(*arguments)


@pytest.fixture
def store(tmp_path: Path) -> JobStore:
    return Committing(tmp_path / "jobs.sqlite")


def insert(store: JobStore, task_count: int = 2, number: int = 0, first: int = FIRST, **words: str) -> None:
    description = JobDescription(command="true", tasks=task_count, **words)  # type: ignore[arg-type]  # all are text
    store.insert(number, first, description, task_count, [], 0)


def report(place: int, state: AttemptState, at_us: int = 0, attempt: int = 0, **words: object) -> TaskReport:
    return TaskReport(FIRST + place, 0, attempt, "node/1", state, at_us, **words)  # type: ignore[arg-type]  # of each kind


def description(store: JobStore, number: int) -> JobDescription | None:
    return asyncio.run(store.descriptions.whole(number))


def job(store: JobStore, number: int = 0) -> JobStatus:
    found = store.job(number)
    assert found is not None
    return found


def test_a_job_runs_and_is_done(store: JobStore) -> None:
    insert(store, name="sweep", user="ada")
    assert job(store).state == "pending"
    store.take_in([JobAccepted(0), report(0, "running", 10, folder="/f")], 0)
    assert (job(store).state, job(store).running, job(store).started_us) == ("running", 1, 10)
    store.take_in([report(0, "finished", 20, exit_code=0, folder="/f"), report(1, "running", 15)], 0)
    store.take_in([report(1, "finished", 30)], 0)
    assert job(store).state == "running"
    assert store.take_in([JobDone(0)], 99) == []
    done = job(store)
    assert (done.state, done.finished, done.running, done.ended_us, done.reason) == ("done", 2, 0, 99, "")
    assert (done.name, done.user, done.tasks, done.submitted_us) == ("sweep", "ada", 2, 0)
    first, second = store.tasks(0, 0, 10)
    assert (first.state, first.started_us, first.ended_us, first.exit_code) == ("finished", 10, 20, 0)
    assert (first.folder, first.node, second.index) == ("/f", "node/1", 1)


def test_a_task_that_was_preempted_before_a_restart_runs_after_it_although_its_scheduler_counts_anew(
    tmp_path: Path,
) -> None:
    store = Committing(tmp_path / "jobs.sqlite")
    insert(store, 1)
    store.take_in([report(0, "running"), report(0, "killed"), report(0, "running", 5, attempt=1)], 0)
    assert store.tasks(0, 0, 1)[0].attempt == 1
    store.close()
    store = Committing(tmp_path / "jobs.sqlite")
    assert store.begun(0) == {0: (2, 1)}
    store.take_in([report(0, "running", 9, attempt=0, counted=2, folder="/2")], 0)
    (task,) = store.tasks(0, 0, 1)
    assert (task.state, task.attempt, task.started_us, task.folder) == ("running", 2, 9, "/2")
    assert store.begun(0) == {0: (3, 0)}
    store.take_in([report(0, "finished", 12, attempt=0, counted=2), JobDone(0)], 13)
    assert (job(store).state, job(store).running) == ("done", 0)
    assert store.begun(0) == {}


def test_people_see_attempts_of_a_scheduler_with_several_incarnations_from_0_on(store: JobStore) -> None:
    insert(store, 1)
    store.take_in([report(0, "running", 3, attempt=144, counted=0)], 0)
    assert store.tasks(0, 0, 1)[0].attempt == 0
    assert list(store.allocations_us(9)) == [3]
    fact = Preemption(5, FIRST, 144, 7)
    with store.batch():  # type: ignore[attr-defined]  # it commits
        store.shares.note(PreemptionReport("lm/0", 50, fact))
        store.shares.note(PreemptionReport("lm/0", 50, fact))
    (told,) = store.shares.preemptions(None, None, None, 9)
    assert (told.job, told.index, told.attempt) == (0, 0, 0)
    store.take_in([report(0, "killed", 5, attempt=144, counted=0), report(0, "running", 7, attempt=145, counted=1)], 0)
    assert store.tasks(0, 0, 1)[0].attempt == 1
    with store.batch():  # type: ignore[attr-defined]  # likewise
        store.shares.note(PreemptionReport("lm/0", 60, Preemption(6, FIRST, 144, 7)))  # its news has been late
        # Of the next incarnation of its scheduler, before anything was reported of the attempt.
        store.shares.note(PreemptionReport("lm/0", 70, Preemption(6, FIRST, 160, 7)))
    assert [told.attempt for told in store.shares.preemptions(None, None, None, 9)] == [2, 0, 0]


def test_a_failed_task_fails_the_job_and_says_why(store: JobStore) -> None:
    insert(store)
    store.take_in([report(0, "running"), report(0, "failed", reason="exit code 3", exit_code=3)], 0)
    store.take_in([report(1, "finished"), JobDone(0)], 5)
    assert (job(store).state, job(store).reason) == ("failed", "1 of 2 tasks failed; the first: exit code 3")


def test_a_cancelled_job_ends_when_nothing_runs(store: JobStore) -> None:
    insert(store, 3)
    store.take_in([report(0, "running"), report(1, "running")], 0)
    store.cancel(0)
    assert job(store).reason == "cancelled on request"
    assert store.take_in([report(0, "killed", reason="killed on request"), JobDone(0)], 5) == [0]
    assert not job(store).ended
    store.take_in([report(1, "killed")], 6)
    assert (job(store).state, job(store).killed, job(store).ended_us) == ("cancelled", 2, 6)
    assert [task.state for task in store.tasks(0, 0, 9)] == ["killed", "killed", "cancelled"]
    store.cancel(0)
    assert job(store).ended_us == 6


def test_an_answer_may_overtake_reports_but_not_for_ever(store: JobStore) -> None:
    insert(store)
    assert store.take_in([report(0, "running"), JobDone(0)], 5) == [0]
    assert job(store).state == "running"
    store.give_up_waiting(0, 9)
    assert (job(store).state, job(store).reason) == ("failed", "the ends of 2 tasks were not reported")
    assert [task.state for task in store.tasks(0, 0, 9)] == ["unknown", "unknown"]
    store.take_in([report(0, "finished")], 10)
    assert job(store).finished == 0


def test_tasks_that_fit_no_machine_are_known_at_once(store: JobStore) -> None:
    store.insert(0, FIRST, JobDescription(command="true", tasks=2), 2, [(1, "no machine has cores > 8")], 0)
    assert [task.state for task in store.tasks(0, 0, 9)] == ["pending", "unsatisfiable"]
    store.take_in([report(0, "running"), report(0, "finished"), JobDone(0, 1)], 5)
    assert (job(store).state, job(store).reason) == ("failed", "no machine has cores > 8")


def test_a_refused_job_says_so_until_it_is_taken(store: JobStore) -> None:
    insert(store)
    store.take_in([JobRejected(0, "the queue is full", 10)], 0)
    assert job(store).reason == "refused for now: the queue is full"
    store.take_in([JobAccepted(0)], 0)
    assert job(store).reason == ""


def test_late_and_repeated_reports_change_nothing(store: JobStore) -> None:
    insert(store, 1)
    news = [report(0, "running"), report(0, "killed"), report(0, "running", attempt=1), report(0, "running")]
    store.take_in([*news, report(0, "finished", attempt=1), report(0, "finished", attempt=1), report(0, "failed")], 0)
    assert (job(store).finished, job(store).failed, job(store).killed, job(store).running) == (1, 0, 0, 0)
    (task,) = store.tasks(0, 0, 9)
    assert (task.state, task.attempt) == ("finished", 1)
    store.take_in([TaskReport(0, 77, 0, "node/0", "running", 0)], 0)


def test_the_first_success_is_final_and_what_was_killed_runs_again(store: JobStore) -> None:
    insert(store, 2)
    store.take_in([report(0, "running"), report(0, "killed"), report(0, "running"), report(1, "finished")], 0)
    assert [(task.state, task.attempt) for task in store.tasks(0, 0, 9)] == [("pending", 0), ("finished", 0)]
    assert store.take_in([JobDone(0)], 1) == [0]
    news = [report(1, state, attempt=1) for state in ("running", "finished", "failed")]
    store.take_in([*news, report(0, "finished", attempt=16)], 2)
    assert [(task.state, task.attempt) for task in store.tasks(0, 0, 9)] == [("finished", 16), ("finished", 0)]
    assert (job(store).state, job(store).finished) == ("done", 2)


def test_a_batch_that_is_rolled_back_never_was(tmp_path: Path) -> None:
    store = JobStore(tmp_path / "jobs.sqlite")
    store.begin(durable=True)
    insert(store, key="k")
    store.commit()
    store.begin(durable=True)
    insert(store, number=1)
    store.take_in([report(0, "running")], 0)
    store.roll_back()
    store.begin(durable=True)
    store.take_in([report(0, "running"), report(0, "finished")], 0)
    store.commit()
    assert (store.job(1), job(store).running, job(store).finished) == (None, 0, 1)
    assert store.changes(0, 9)[-1].revision == store.revision
    assert store.describes(0, encoded_at_once(JobDescription(command="true", tasks=2, key="k")).digest)
    assert not store.describes(0, encoded_at_once(JobDescription(command="false", tasks=2, key="k")).digest)
    store.close()


def test_a_restart_keeps_everything(tmp_path: Path, store: JobStore) -> None:
    insert(store, 3, key="k")
    insert(store, 1, number=1, first=FIRST + 3, name="other")
    store.take_in([report(1, "running"), report(1, "finished", result=b"r"), report(0, "running")], 0)
    store.cancel(1)
    before, revision = store.changes(0, 99), store.revision
    with pytest.raises(InputError, match="another federation uses"):
        JobStore(tmp_path / "jobs.sqlite")
    store.close()
    store = Committing(tmp_path / "jobs.sqlite")
    assert store.changes(0, 99) == before
    assert store.revision == revision
    assert store.next_numbers() == (2, FIRST + 4)
    assert [(number, store.cancelling(number)) for number in store.open_ids()] == [(0, False), (1, True)]
    assert description(store, 0) == JobDescription(command="true", tasks=3, key="k")
    assert description(store, 2) is None
    assert store.ended_places(0) == {1}
    assert store.result(0, 1) == b"r"
    assert store.result(0, 2) == b""
    assert store.job_with_key("", "k") == (0, 3)
    assert store.job_with_key("ada", "k") is None
    store.fail(0, "the fleet has changed", 9)
    assert job(store).state == "failed"


def test_a_store_of_another_version_is_left_alone(tmp_path: Path, store: JobStore) -> None:
    store._sql.execute("UPDATE formats SET format = 99")
    store._sql.execute("PRAGMA user_version = 99")
    store.close()
    with pytest.raises(InputError, match="another version"):
        JobStore(tmp_path / "jobs.sqlite")
    with pytest.raises(InputError, match="cannot be opened"):
        JobStore(Path("/dev/null/jobs.sqlite"))


def test_what_attempts_have_used_is_told_of_the_last_one(store: JobStore, tmp_path: Path) -> None:
    insert(store)
    first = AttemptUsage(1_500_000, 64 << 20, True, "cpu and memory per task")
    store.take_in(
        [report(0, "failed", 5, usage=first), report(1, "running", 6), report(1, "killed", 7, usage=first)], 0
    )
    found = store.tasks(0, 0, 2)
    told = TaskUsage(cpu_us=1_500_000, memory_peak_bytes=64 << 20, out_of_memory=True, held="cpu and memory per task")
    assert [task.usage for task in found] == [told, told]
    store.take_in([report(1, "running", 8, attempt=1)], 0)
    assert [task.usage for task in store.tasks(0, 0, 2)] == [told, None], "it is of an earlier attempt"
    store.take_in([report(1, "finished", 9, attempt=1, usage=AttemptUsage(held="x"))], 0)
    store.close()
    again = Committing(tmp_path / "jobs.sqlite")
    assert [task.usage for task in again.tasks(0, 0, 2)] == [told, TaskUsage(held="x")]


def test_a_search_in_pieces_finds_what_one_query_finds(store: JobStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "SLICE", 3)
    monkeypatch.setattr(rows, "READ", 2)
    for number in range(17):
        insert(store, number=number, user=f"user{number * 7 % 3}", name="ab"[number % 2])
        store.take_in([JobDone(number)] if number % 5 == 0 else [], number)
        if number % 5 == 0:
            store.give_up_waiting(number, number)
    queries = (
        JobQuery(),
        JobQuery("pending"),
        JobQuery(user="user1"),
        JobQuery("failed", "user0"),
        JobQuery(reason="ends of"),
        JobQuery(before=9),
        JobQuery("pending", before=9),
        JobQuery(since_us=8),
        JobQuery("running"),
    )
    slices = ((0, 5), (0, 4), (4, 3), (0, 50), (30, 2))
    asked = itertools.product(queries, ORDERS, (False, True), slices)

    async def main() -> None:
        for query, by, falling, (skip, limit) in asked:
            order = JobOrder(by, falling, skip)
            told = await store.search(query, limit, order)
            assert [job.id for job in told] == [job.id for job in store.jobs(query, limit, order)], (query, order)

    assert len(store.jobs(JobQuery("failed"), 50)) == 4
    asyncio.run(main())


def test_a_search_leaves_room_for_what_else_there_is_to_do(store: JobStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "SLICE", 2)
    for number in range(8):
        insert(store, number=number)

    async def main() -> int:
        turns, searching = 0, asyncio.ensure_future(store.search(JobQuery("running"), 5))
        while not searching.done():
            await asyncio.sleep(0)
            turns += 1
        return turns

    assert asyncio.run(main()) >= 4


def test_lists_are_filtered_and_paged(store: JobStore) -> None:
    for number in range(5):
        insert(store, number=number, user="ada" if number % 2 else "bob")
    store.take_in([JobDone(3)], 0)
    store.give_up_waiting(3, 0)
    assert [job.id for job in store.jobs(JobQuery(), 2)] == [4, 3]
    assert [job.id for job in store.jobs(JobQuery(before=3), 9)] == [2, 1, 0]
    assert [job.id for job in store.jobs(JobQuery("pending", "ada"), 9)] == [1]
    assert [task.index for task in store.tasks(0, 1, 9)] == [1]
    assert store.tasks(9, 0, 9) == []
    assert store.tasks(0, 2, 1) == []


steps = st.lists(
    st.tuples(st.integers(0, 2), st.sampled_from(("running", "finished", "failed", "killed"))), max_size=12
)


@given(steps, st.integers(1, 4))
def test_whoever_follows_changes_ends_up_with_the_truth(moves: list[tuple[int, AttemptState]], limit: int) -> None:
    """Read in pages of any size while things go on; the last state of everything arrives."""
    with TemporaryDirectory() as folder:
        store = Committing(Path(folder) / "jobs.sqlite")
        follow(store, moves, limit)
        store.close()


def follow(store: JobStore, moves: list[tuple[int, AttemptState]], limit: int) -> None:
    store.insert(0, FIRST, JobDescription(command="true", tasks=3), 3, [], 0)
    seen: dict[int, object] = {}
    after = 0
    for move in itertools.chain(moves, [None] * 12):
        if move is not None:
            store.take_in([report(*move)], 0)
        for status in store.changes(after, limit):
            assert status.revision > after
            after = status.revision
            seen[-1 if isinstance(status, JobStatus) else status.index] = status
    assert seen.pop(-1) == store.job(0)
    assert seen == {task.index: task for task in store.tasks(0, 0, 9) if task.revision}
    counted = job(store)
    states = [task.state for task in store.tasks(0, 0, 9)]
    assert [states.count(name) for name in ("running", "finished", "failed", "killed")] == [
        counted.running,
        counted.finished,
        counted.failed,
        counted.killed,
    ]


def test_what_is_not_committed_is_not_told(tmp_path: Path) -> None:
    store = JobStore(tmp_path / "jobs.sqlite")
    store.begin(durable=True)
    insert(store, key="k")
    store.take_in([report(0, "running")], 0)
    assert (store.job(0), store.changes(0, 9), store.revision) == (None, [], 0)
    assert store.job_with_key("", "k") == (0, 2)
    store.commit()
    assert job(store).running == 1
    assert store.changes(0, 9)[-1].revision == store.revision
    store.begin(durable=False)
    store.take_in([report(0, "finished")], 0)
    store.close()
    store = JobStore(tmp_path / "jobs.sqlite")
    assert job(store).running == 1
    store.close()


def test_many_reports_of_one_batch_are_one_change(tmp_path: Path) -> None:
    store = JobStore(tmp_path / "jobs.sqlite")
    store.begin(durable=True)
    insert(store, 1)
    failed = report(0, "failed", 20, reason="exit code 1")
    store.take_in([JobAccepted(0), report(0, "running", 10), failed, JobDone(0)], 30)
    store.commit()
    (task,), ended = store.tasks(0, 0, 9), job(store)
    assert (task.state, task.started_us, task.ended_us) == ("failed", 10, 20)
    assert (ended.state, ended.reason) == ("failed", "1 of 1 tasks failed; the first: exit code 1")
    assert len(store.changes(0, 9)) == 2
    store.close()


def counted_anew(store: JobStore) -> list[UserLoad]:
    return sorted(UserCounters(store._read).loads())


def test_loads_are_what_counting_all_jobs_gives_after_every_commit(store: JobStore, tmp_path: Path) -> None:
    seen = []
    last: list[News] = [report(1, "failed", attempt=1), report(2, "finished"), JobDone(0)]
    insert(store, 3, user="ada")
    store.insert(1, FIRST + 3, JobDescription(command="true", user="bob", tasks=2), 2, [(1, "too large")], 0)
    for news in (
        [report(0, "running"), report(1, "running")],
        [report(0, "finished"), report(1, "killed")],
        [report(1, "running", attempt=1), report(2, "running")],
        last,
    ):
        seen.append(store.loads())
        assert seen[-1] == counted_anew(store)
        store.take_in(news, 0)
    assert seen[0] == [("ada", 1, 0, 3, 0), ("bob", 1, 0, 1, 0)]
    assert seen[2] == [("ada", 0, 1, 2, 0), ("bob", 1, 0, 1, 0)]
    assert store.loads() == counted_anew(store) == store.loads("bob")
    store.cancel(1)
    store.take_in([JobDone(1)], 0)
    assert store.loads() == counted_anew(store) == []


def test_what_is_rolled_back_is_not_counted(tmp_path: Path) -> None:
    store = JobStore(tmp_path / "jobs.sqlite")
    store.begin(durable=True)
    insert(store, user="ada")
    store.commit()
    store.begin(durable=True)
    insert(store, number=1, user="bob")
    store.take_in([report(0, "running"), JobRejected(0, "the queue is full", 1)], 0)
    store.roll_back()
    assert store.loads() == [("ada", 1, 0, 2, 0)]
    store.begin(durable=False)
    store.take_in([JobRejected(0, "the queue is full", 1)], 0)
    store.commit()
    assert job(store).reason == "refused for now: the queue is full"
    store.close()
    store = JobStore(tmp_path / "jobs.sqlite")
    store.begin(durable=False)
    store.take_in([JobAccepted(0)], 0)
    store.roll_back()  # and is heard again, because it was not written
    store.begin(durable=False)
    store.take_in([JobAccepted(0), report(0, "running")], 0)
    store.commit()
    assert (job(store).reason, store.loads()) == ("", [("ada", 0, 1, 1, 1)])


def test_after_a_whole_checkpoint_the_log_is_empty(tmp_path: Path) -> None:
    store = Committing(tmp_path / "jobs.sqlite")
    log = tmp_path / "jobs.sqlite-wal"
    for number in range(50):
        insert(store, number=number)
    assert log.stat().st_size > 100_000
    assert store.checkpoint(empties_file=False) > 50
    assert store.checkpoint(empties_file=True) == 0
    assert log.stat().st_size == 0
    for number in range(50, 75):
        insert(store, number=number)
    assert store.checkpoint(empties_file=False) < 50 * 10
    store.close()
    assert len(JobStore(tmp_path / "jobs.sqlite").jobs(JobQuery(), 99)) == 75


def test_a_log_that_somebody_reads_is_left_and_emptied_later(tmp_path: Path) -> None:
    store = Committing(tmp_path / "jobs.sqlite")
    insert(store)
    reader = reading(tmp_path / "jobs.sqlite")
    reader.execute("BEGIN")
    reader.execute("SELECT * FROM jobs").fetchall()
    insert(store, number=1)
    assert store.checkpoint(empties_file=True) > 0
    reader.close()
    assert store.checkpoint(empties_file=True) == 0


def test_reports_never_rewrite_what_a_job_carries(tmp_path: Path) -> None:
    store = Committing(tmp_path / "jobs.sqlite")
    described = JobDescription(tasks=tuple([TaskDescription(command="cat", stdin=f"{n}" * 10_000) for n in range(50)]))
    store.insert(0, FIRST, described, 50, [], 1_000)
    store.checkpoint(empties_file=True)
    for place in range(50):
        store.take_in([report(place, "running"), report(place, "finished")], 0)
    assert (tmp_path / "jobs.sqlite-wal").stat().st_size < 50 * 40_000, "ten pages a batch at most, of 4 kB each"
    assert (store.first_task(0), description(store, 0)) == (FIRST, described)


def test_equal_tasks_and_equal_jobs_are_kept_once(tmp_path: Path) -> None:
    store = Committing(tmp_path / "jobs.sqlite")
    many = merged(JobDescription(command="true", tasks=(TaskDescription(),) * 100_000))
    store.insert(0, FIRST, many, 100_000, [], 1_000)
    store.insert(1, FIRST + 100_000, many, 100_000, [], 1_000)
    store.checkpoint(empties_file=True)
    assert (tmp_path / "jobs.sqlite").stat().st_size < 200_000
    assert store.describes(1, encoded_at_once(many).digest)
    assert store._first_value("SELECT count(*) FROM descriptions") == 1
    assert description(store, 1) == many
    assert many.tasks == (TaskDescription(count=100_000),)
