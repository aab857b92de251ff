"""The desk: jobs in words go in, and what becomes of them comes out."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from pathlib import Path

import msgspec
import pytest
from tests.live.bench import LIMIT_S, written
from tests.live.loopback import MACHINES, Loopback, loopback

from volery.core.errors import InputError
from volery.core.events import Cancel, JobAccepted, JobDone, MoreTasks, PeerLost, Submit, TimerFired
from volery.core.model import SUBMITTER, Address, Message
from volery.live.jobs import JobDescription, job_from_table
from volery.live.messages import PeerReport, TaskReport
from volery.live.service.batches import UnwrittenError
from volery.live.service.descriptions import DescriptionReader
from volery.live.service.rows import JobQuery
from volery.live.service.store import JobStore
from volery.live.service.submissions import TASKS_PER_TURN, ConflictError, JobSubmissions, SubmitThrottle
from volery.live.status import JobStatus


def play(
    folder: Path, scenario: Callable[[Loopback], Awaitable[None]], rejections: int = 0, standins: Sequence[Address] = ()
) -> None:
    async def run() -> None:
        async with asyncio.timeout(30), loopback(folder, rejections, standins=standins) as it:
            await scenario(it)

    asyncio.run(run())


async def submit(it: Loopback, **table: object) -> int:
    return (await it.service.submit(job_from_table(table, "job"))).id


async def ended(it: Loopback, number: int) -> JobStatus:
    async with aclosing(it.service.queries.feed.follow(0, (number,)).batches(LIMIT_S)) as batches:
        async for batch in batches:
            for status in (change.status for change in batch.changes):
                if isinstance(status, JobStatus) and status.ended:
                    return status
    raise AssertionError("the feed has ended before the job")


async def changed(it: Loopback) -> None:
    """Wait for the next commit."""
    await it.service.writer.committed.wait()


def test_a_job_runs_to_its_end(tmp_path: Path) -> None:
    async def scenario(it: Loopback) -> None:
        number = await submit(it, name="x", command="echo $VOLERY_INDEX", tasks=3)
        job = await ended(it, number)
        assert (job.state, job.finished, job.name) == ("done", 3, "x")
        tasks = it.service.queries.tasks(number, 0, 10)
        assert [(Path(task.folder) / "stdout").read_text() for task in tasks] == ["0\n", "1\n", "2\n"]
        assert all(node.running == 0 for node in it.service.queries.nodes())

    play(tmp_path, scenario)


def test_an_attempt_whose_host_has_died_does_not_count_as_running_once_another_runs(tmp_path: Path) -> None:
    async def scenario(it: Loopback) -> None:
        for at_us, (attempt, node) in enumerate([(16, "node/0"), (32, "node/1")]):
            it.post(TaskReport(900, 9, attempt, node, "running", at_us))
        await asyncio.sleep(0.05)
        assert [node.running for node in it.service.queries.nodes()] == [0, 1]
        it.post(TaskReport(900, 9, 32, "node/1", "finished", 5))
        await asyncio.sleep(0.05)
        assert [node.running for node in it.service.queries.nodes()] == [0, 0]

    play(tmp_path, scenario)


def test_nodes_are_lost_as_long_as_somebody_hears_nothing_of_them(tmp_path: Path) -> None:
    async def scenario(it: Loopback) -> None:
        for by, lost in (("lm/0", True), ("lm/0/standby", True), ("lm/0", False)):
            it.post(PeerReport(by, "node/1", lost))
        it.post(PeerReport("gm/0", "lm/0", True))
        await asyncio.sleep(0.05)
        assert [node.lost for node in it.service.queries.nodes()] == [False, True]
        it.post(PeerReport("lm/0/standby", "node/1", False))
        await asyncio.sleep(0.05)
        assert not any(node.lost for node in it.service.queries.nodes())

    play(tmp_path, scenario)


def test_a_node_is_not_lost_for_ever_because_its_local_master_began_anew_after_it_had_reported_it_lost(
    tmp_path: Path,
) -> None:
    async def scenario(it: Loopback) -> None:
        it.post(PeerReport("lm/0", "node/1", True))
        it.post(PeerReport("lm/1", "node/0", True))
        while len(it.service.queries.lost()) < 2:
            await asyncio.sleep(0)
        await it.service.resubmit(["lm/0"])
        assert it.service.queries.lost() == {"node/0"}

    play(tmp_path, scenario)


def test_a_late_acceptance_of_another_scheduler_does_not_keep_a_job_from_the_one_that_has_it_now(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    committing, disk = threading.Event(), threading.Event()

    async def scenario(it: Loopback) -> None:
        assert await submit(it, command="true") == 0
        it.service.component.handle(PeerLost("gm/0"), SUBMITTER, 0)
        while it.sent_to != ["gm/0", "gm/1"]:
            await asyncio.sleep(0)
        commit = it.store.commit

        def slow() -> None:
            committing.set()
            disk.wait(LIMIT_S)
            commit()

        monkeypatch.setattr(it.store, "commit", slow)
        it.service.component.handle(PeerLost("gm/2"), SUBMITTER, 0)  # a second move, which is not on the disk yet
        while not committing.is_set():
            await asyncio.sleep(0)
        it.service.component.handle(TimerFired(it.identity(0)), SUBMITTER, 0)
        it.service.component.handle(JobAccepted(it.identity(0)), "gm/0", 0)
        disk.set()
        while it.sent_to != ["gm/0", "gm/1", "gm/1"]:
            await asyncio.sleep(0)

    play(tmp_path, scenario, standins=("gm/0", "gm/1", "gm/2"))


def test_a_job_with_failures_and_tasks_that_fit_nowhere(tmp_path: Path) -> None:
    async def scenario(it: Loopback) -> None:
        tasks = [{"command": "exit 3"}, {"command": "true"}, {"command": "true", "constraints": ["cores > 8"]}]
        receipt = await it.service.submit(job_from_table({"tasks": tasks}, "job"))
        assert receipt.warnings == ("task 2 will never run: no machine has cores > 8; there are 4, 8",)
        job = await ended(it, receipt.id)
        assert (job.state, job.finished, job.failed, job.unsatisfiable) == ("failed", 1, 1, 1)
        assert job.reason == "1 of 3 tasks failed; the first: exit code 3"
        nowhere = await ended(it, await submit(it, command="true", constraints=["cores > 8"]))
        assert (nowhere.state, nowhere.reason) == ("failed", "no machine has cores > 8; there are 4, 8")

    play(tmp_path, scenario)


def test_constraints_that_mean_nothing_are_refused_and_use_no_number(tmp_path: Path) -> None:
    async def scenario(it: Loopback) -> None:
        with pytest.raises(InputError, match="unknown attribute 'core'"):
            await submit(it, command="true", constraints=["core >= 1"])
        assert await submit(it, command="true") == 0
        assert it.service.queries.jobs(JobQuery(), 9) != []

    play(tmp_path, scenario)


def test_a_cancelled_job_is_killed(tmp_path: Path) -> None:
    async def scenario(it: Loopback) -> None:
        number = await submit(it, command="echo begun; sleep 60")
        await written(tmp_path / "tasks" / str(number) / "0.0" / "stdout")
        assert [node.running for node in it.service.queries.nodes()] == [1, 0]
        await it.service.cancel(number)
        job = await ended(it, number)
        assert (job.state, job.killed) == ("cancelled", 1)
        again = await it.service.cancel(number)
        assert again is not None
        assert again.revision == job.revision
        assert await it.service.cancel(99) is None

    play(tmp_path, scenario)


def test_a_refused_job_is_submitted_again(tmp_path: Path) -> None:
    async def scenario(it: Loopback) -> None:
        number = await submit(it, command="true")
        assert (await ended(it, number)).state == "done"
        assert it.submitted == [number] * 3

    play(tmp_path, scenario, rejections=2)


def test_a_job_with_a_known_key_is_not_submitted_again(tmp_path: Path) -> None:
    async def scenario(it: Loopback) -> None:
        first = await it.service.submit(job_from_table({"command": "true", "key": "k"}, "job"))
        again = await it.service.submit(job_from_table({"command": "true", "key": "k"}, "job"))
        assert (first.known, again.known, again.id) == (False, True, first.id)
        await ended(it, first.id)
        assert it.submitted == [first.id]

    play(tmp_path, scenario)


def test_after_a_restart_only_what_had_not_ended_runs_again(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    script = f"echo $VOLERY_INDEX >> {runs}; test $VOLERY_INDEX = 0 || test -e {tmp_path}/go || exec sleep 60"

    async def interrupted(it: Loopback) -> None:
        number = await submit(it, command=script, tasks=2)
        cancelled = await submit(it, command="sleep 60")
        await it.service.cancel(cancelled)
        await written(runs, 2)
        while (it.service.queries.tasks(number, 0, 1))[0].state != "finished":
            await changed(it)

    async def resumed(it: Loopback) -> None:
        job = await ended(it, 0)
        assert (job.state, job.finished) == ("done", 2)
        assert sorted((runs).read_text().split()) == ["0", "1", "1"]
        assert (await ended(it, 1)).state == "cancelled"
        assert await submit(it, command="true") == 2

    play(tmp_path, interrupted)
    (tmp_path / "go").touch()
    play(tmp_path, resumed)


def test_what_is_another_hosts_is_submitted_once_that_is_heard_of_and_what_has_ended_by_then_is_not(
    tmp_path: Path,
) -> None:
    async def interrupted(it: Loopback) -> None:
        for _ in range(2):
            await submit(it, command="sleep 60")

    async def scenario() -> None:
        async with loopback(tmp_path, elsewhere=("gm/0", "gm/1")) as it:
            it.post(it.end(0, "finished", 5))  # an end that a node host has kept
            while it.service.queries.tasks(0, 0, 1)[0].state != "finished":
                await changed(it)
            assert it.submitted == []
            await it.service.resubmit(("gm/0",))
            assert (await ended(it, 0)).state == "done"
            assert it.submitted == []
            await it.service.resubmit(("gm/1",))
            while not it.submitted:
                await asyncio.sleep(0.01)
            assert it.submitted == [1]

    play(tmp_path, interrupted)
    asyncio.run(asyncio.wait_for(scenario(), LIMIT_S))


def test_a_host_without_schedulers_that_begins_anew_has_no_description_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(it: Loopback) -> None:
        it.silent = True
        await it.service.submit_many(described(*[{"command": "true", "stdin": "x" * 10_000}] * 3))
        monkeypatch.setattr(DescriptionReader, "whole", None)
        await it.service.resubmit(["lm/0"])
        monkeypatch.undo()

    play(tmp_path, scenario)


def test_a_job_that_has_ended_while_it_waited_to_be_submitted_again_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(it: Loopback) -> None:
        it.silent = True
        number = await submit(it, command="true")
        while it.submitted != [number]:
            await asyncio.sleep(0)

        async def busy(_: SubmitThrottle) -> None:
            it.post(it.end(number, "running", 1))
            it.post(it.end(number, "finished", 2))
            it.post(JobDone(it.identity(number)))
            await ended(it, number)

        monkeypatch.setattr(SubmitThrottle, "room", busy)
        monkeypatch.setattr(JobSubmissions, "_submit_again", None)
        await it.service.resubmit([f"gm/{number}"])

    play(tmp_path, scenario)


def test_a_job_that_a_changed_fleet_cannot_read_fails_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def before(it: Loopback) -> None:
        await submit(it, command="sleep 60", constraints=['label.zone == "a"'])

    async def after(it: Loopback) -> None:
        job = await ended(it, 0)
        assert job.state == "failed"
        assert "not submitted again: job.constraints[0]: unknown attribute 'label.zone'" in job.reason

    play(tmp_path, before)
    unlabelled = [msgspec.structs.replace(machine, labels={}) for machine in MACHINES]
    monkeypatch.setattr("tests.live.loopback.MACHINES", unlabelled)
    play(tmp_path, after)


def test_a_key_means_one_job_and_no_other(tmp_path: Path) -> None:
    async def scenario(it: Loopback) -> None:
        first = await it.service.submit(job_from_table({"command": "true", "key": "k"}, "job"))
        again = await it.service.submit(job_from_table({"command": "true", "key": "k"}, "job"))
        assert (again.id, again.known, first.known) == (first.id, True, False)
        with pytest.raises(ConflictError, match="the key of job 0"):
            await it.service.submit(job_from_table({"command": "false", "key": "k"}, "job"))

    play(tmp_path, scenario)


def test_submissions_share_commits_and_a_full_disk_takes_none_and_loses_nothing(tmp_path: Path) -> None:
    async def scenario(it: Loopback) -> None:
        commits = 0
        commit = it.store.commit

        def counting() -> None:
            nonlocal commits
            commits += 1
            commit()

        it.store.commit = counting  # type: ignore[method-assign]  # it counts
        await asyncio.gather(*(submit(it, command="sleep 0.2") for _ in range(50)))
        assert commits < 10
        pages = it.store._sql.execute("PRAGMA page_count").fetchone()[0]
        it.store._sql.execute(f"PRAGMA max_page_count = {pages}")
        with pytest.raises(UnwrittenError, match="full"):
            await submit(it, command="true", stdin="x" * 100_000)
        assert it.service.queries.job(50) is None
        it.store._sql.execute("PRAGMA max_page_count = 1000000")
        assert (await ended(it, await submit(it, command="true"))).state == "done"
        assert [(await ended(it, number)).state for number in range(50)] == ["done"] * 50

    play(tmp_path, scenario)


def described(*tables: Mapping[str, object]) -> list[JobDescription]:
    return [job_from_table(table, "job") for table in tables]


def test_a_job_whose_reports_never_come_ends_although_the_disk_was_full_when_it_was_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    give_up, tried = JobStore.give_up_waiting, list[int]()

    def full(store: JobStore, number: int, now_us: int, monotonic_us: int) -> None:
        tried.append(number)
        if len(tried) == 1:
            raise sqlite3.OperationalError("database or disk is full")
        give_up(store, number, now_us, monotonic_us)

    async def scenario(it: Loopback) -> None:
        it.silent = True
        it.service.writer.reports_late_s = 0.001
        number = await submit(it, command="true")
        it.post(JobDone(it.identity(number)))
        job = await ended(it, number)
        assert (job.state, job.reason) == ("failed", "the ends of 1 tasks were not reported")
        assert tried == [number] * 2

    monkeypatch.setattr(JobStore, "give_up_waiting", full)
    play(tmp_path, scenario)


def test_several_jobs_are_taken_together_or_not_at_all(tmp_path: Path) -> None:
    async def scenario(it: Loopback) -> None:
        one, other = {"command": "true", "key": "k"}, {"command": "false", "key": "k"}
        many = await it.service.submit_many(described({"command": "true", "tasks": 2}, one, one))
        assert [(receipt.id, receipt.tasks, receipt.known) for receipt in many] == [
            (0, 2, False),
            (1, 1, False),
            (1, 1, True),
        ]
        assert [(await ended(it, number)).state for number in (0, 1)] == ["done"] * 2
        for wrong, place in ((other, "jobs[1].key"), ({"command": "true", "constraints": ["core > 1"]}, "jobs[1]")):
            with pytest.raises(InputError, match=r"job 1|core") as caught:
                await it.service.submit_many(described({"command": "true"}, wrong))
            assert caught.value.place.startswith(place)
        assert len(it.service.queries.jobs(JobQuery(), 9)) == 2
        (known,) = await it.service.submit_many(described(one))
        assert (known.id, known.known) == (1, True)
        with pytest.raises(ConflictError, match=r"the key of jobs\[0\]"):
            await it.service.submit_many(
                described({"command": "true", "key": "new"}, {"command": "false", "key": "new"})
            )
        assert it.submitted == [0, 1]

    play(tmp_path, scenario)


def test_nothing_more_of_a_hundred_thousand_tasks_is_sent_once_their_job_is_cancelled(tmp_path: Path) -> None:
    async def scenario(it: Loopback) -> None:
        it.silent = True
        sent: list[Message] = []
        it.send = lambda to, message: sent.append(message)  # type: ignore[method-assign] # it only listens
        number = await submit(it, command="true", tasks=[{} for _ in range(100_000)])
        while len(sent) < 3:
            await asyncio.sleep(0)
        await it.service.cancel(number)
        written = len(sent)
        other = await submit(it, command="true", tasks=3 * TASKS_PER_TURN)
        while not (
            isinstance(sent[-1], MoreTasks)
            and sent[-1].job == it.identity(other)
            and sent[-1].first == 2 * TASKS_PER_TURN
        ):
            await asyncio.sleep(0)
        (order,) = [at for at, message in enumerate(sent) if isinstance(message, Cancel)]
        assert order <= written + 1, "the order passes all but what has been handed over"
        assert [type(message) for message in sent[order + 1 :]] == [Submit, MoreTasks, MoreTasks], "of the other job"
        begun = [message.job.id for message in sent if isinstance(message, Submit)]
        assert begun == [it.identity(number), it.identity(other)]

    play(tmp_path, scenario)


def test_a_job_that_is_cancelled_while_a_restart_submits_again_is_not_submitted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def before(it: Loopback) -> None:
        it.silent = True
        await it.service.submit_many(described(*[{"command": "true"}] * 3))

    async def after(it: Loopback) -> None:
        it.silent = True
        await it.service.cancel(2)
        await it.service.cancel(await submit(it, command="true"))
        monkeypatch.undo()
        last = await submit(it, command="true")
        while last not in it.submitted:
            await asyncio.sleep(0)
        assert it.submitted == [0, 1, last]

    play(tmp_path, before)
    monkeypatch.setattr(SubmitThrottle, "_hand_over", lambda _: None)  # it is busy
    play(tmp_path, after)


def test_what_is_submitted_while_a_restart_submits_again_comes_after_it(tmp_path: Path) -> None:
    large = 3 * TASKS_PER_TURN

    async def before(it: Loopback) -> None:
        it.silent = True
        await it.service.submit_many(described(*[{"command": "true", "tasks": large}] * 3))

    async def after(it: Loopback) -> None:
        it.silent = True
        assert it.submitted == []
        assert await submit(it, command="true") == 3
        assert await submit(it, command="true") == 4
        while len(it.submitted) < 5:
            await asyncio.sleep(0)
        assert it.submitted == [0, 1, 2, 3, 4]
        assert await submit(it, command="true") == 5

    play(tmp_path, before)
    play(tmp_path, after)
