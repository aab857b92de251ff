"""A change is read and encoded once, reaches those who follow its job, and costs nothing where nobody does."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable, Iterable
from contextlib import aclosing
from functools import partial
from pathlib import Path

import pytest

from volery.core.assignment import Owner
from volery.core.events import JobDone
from volery.live.jobs import JobDescription
from volery.live.messages import AttemptState, TaskReport
from volery.live.service import events
from volery.live.service.batches import BatchWriter
from volery.live.service.events import EventFeed, Follower, StatusChange
from volery.live.service.store import JobStore
from volery.live.status import JobStatus, TaskStatus

LIMIT_S = 120
TASKS = 100
"""Of each job, whose first task has the number of the job times this."""


class Bench:
    """A store whose commits are published."""

    def __init__(self, folder: Path) -> None:
        self.store = JobStore(folder / "jobs.sqlite")
        self.writer = BatchWriter(self.store, lambda to, message: None, self._on_commit, 60.0)
        self.feed = EventFeed(self.store, self.writer)

    def _on_commit(self) -> None:
        self.feed.on_commit()

    async def submit(self, *jobs: int, user: str = "") -> None:
        for job in jobs:
            description = JobDescription(command="true", tasks=TASKS, user=user)
            await self.writer.written(partial(self.store.insert, job, job * TASKS, description, TASKS, [], 0))

    async def report(self, job: int, places: Iterable[int], state: AttemptState = "running") -> None:
        for place in places:
            self.writer.note(TaskReport(job * TASKS + place, job, 0, "node/0", state, 1))
        await self.writer.written(lambda: None)


def play(folder: Path, scenario: Callable[[Bench], Awaitable[None]]) -> None:
    async def run() -> None:
        it = Bench(folder)
        it.writer.open()
        it.feed.open()
        try:
            async with asyncio.timeout(LIMIT_S):
                await scenario(it)
        finally:
            it.writer.refuse()
            await it.feed.close()
            await it.writer.close()

    asyncio.run(run())


async def received(
    follower: Follower, last: int, job: int, sent: list[bytes] | None = None
) -> list[JobStatus | TaskStatus]:
    """All that a follower receives until a task of a job has changed."""
    found: list[JobStatus | TaskStatus] = []
    async with aclosing(follower.batches(LIMIT_S)) as batches:
        async for batch in batches:
            for change in batch.changes:
                found.append(change.status)
                if sent is not None:
                    sent.append(change.event)
            if any(isinstance(one, TaskStatus) and (one.job, one.index) == (job, last) for one in found):
                return found
    raise AssertionError("the feed has ended")


async def until_joined(it: Bench, count: int) -> None:
    while len(it.feed._by_name) < count:
        await asyncio.sleep(0)
    for _ in range(3):  # and have read what there was
        await asyncio.sleep(0)


def test_a_hundred_followers_of_everything_have_each_event_encoded_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoded: list[int] = []
    encode = events._encode

    def noted(status: JobStatus | TaskStatus) -> bytes:
        encoded.append(status.revision)
        return encode(status)

    monkeypatch.setattr(events, "_encode", noted)

    async def scenario(it: Bench) -> None:
        await it.submit(0)
        sent: list[list[bytes]] = [[] for _ in range(100)]
        after = it.store.revision
        reading = [asyncio.ensure_future(received(it.feed.follow(after), 59, 0, lines)) for lines in sent]
        await until_joined(it, 100)
        for place in range(60):
            await it.report(0, [place])
        found = await asyncio.gather(*reading)
        places = [[one.index for one in some if isinstance(one, TaskStatus)] for some in found]
        assert places == [list(range(60))] * 100, "each of them is sent everything, in order"
        assert all(lines == sent[0] for lines in sent)
        assert len(encoded) == len(set(encoded)) == len(sent[0])

    play(tmp_path, scenario)


def test_no_status_is_made_of_rows_that_nobody_follows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    revisions: list[int] = []

    async def scenario(it: Bench) -> None:
        await it.submit(*range(20))
        followers = [it.feed.follow(it.store.revision, (job,)) for job in range(1, 20)]
        reading = [asyncio.ensure_future(received(one, 5, 1 + at)) for at, one in enumerate(followers)]
        await until_joined(it, 19)
        hand_over = it.feed._hand_over

        def noted(change: StatusChange, job: int, user: str) -> None:
            revisions.append(change.status.revision)
            hand_over(change, job, user)

        monkeypatch.setattr(it.feed, "_hand_over", noted)
        for place in range(50):
            await it.report(0, [place])
        assert not revisions, "of job 0 nobody wants anything"
        await it.report(7, [5])
        assert {(one.job, one.index) for one in await reading[6] if isinstance(one, TaskStatus)} == {(7, 5)}
        assert revisions
        assert not any(one.done() for at, one in enumerate(reading) if at != 6)
        for one in reading:
            one.cancel()
        await asyncio.gather(*reading, return_exceptions=True)
        assert not it.feed._of_job, "whoever is gone leaves nothing behind"
        assert not it.feed._by_name

    play(tmp_path, scenario)


def test_followers_are_told_what_the_store_has(tmp_path: Path) -> None:
    async def scenario(it: Bench) -> None:
        reading = asyncio.ensure_future(received(it.feed.follow(0), 9, 1))
        await until_joined(it, 1)
        await it.submit(0, 1, user="ada")
        owner = Owner("gm/1", 3)
        await it.writer.written(lambda: it.store.assigned.note([0], owner, "at gm/1, because gm/0 is away"))
        await it.report(0, [0, 1, 2])
        it.writer.note(TaskReport(0, 0, 0, "node/0", "finished", 2, 0, "", "folder", b"result"))
        it.writer.note(TaskReport(1, 0, 0, "node/0", "failed", 2, 3, "exit status 3"))
        it.writer.note(JobDone(0))
        await it.writer.written(lambda: None)
        await it.writer.written(lambda: it.store.give_up_waiting(0, 9))
        await it.writer.written(lambda: it.store.cancel(1))
        await it.report(1, [9])
        told = {key_of(status): status for status in await reading}
        stored = {key_of(status): status for status in it.store.changes(0, 1_000)}
        assert told == stored
        assert {status.state for status in stored.values()} >= {"finished", "failed", "unknown", "running"}
        assert it.store.changes(0, 1_000)[-1].state == "running", "of the job that is cancelled"
        assert any(isinstance(status, JobStatus) and status.moved for status in told.values())

    play(tmp_path, scenario)


def key_of(status: JobStatus | TaskStatus) -> tuple[int, int]:
    return (status.id, -1) if isinstance(status, JobStatus) else (status.job, status.index)


@pytest.mark.parametrize("jobs", [None, (0, 1)], ids=["of everything", "of two jobs"])
@pytest.mark.parametrize("near", [0, events.NEAR], ids=["far behind", "near"])
def test_a_follower_that_does_not_keep_up_has_a_bounded_queue_and_loses_no_event(
    jobs: tuple[int, ...] | None, near: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "QUEUE_MAX", 5)
    monkeypatch.setattr(events, "CHANGES_MAX", 7)
    monkeypatch.setattr(events, "PLACES", 8)
    monkeypatch.setattr(events, "NEAR", near)

    async def scenario(it: Bench) -> None:
        await it.submit(0, 1, 2)
        follower = it.feed.follow(it.store.revision, jobs)
        found: list[JobStatus | TaskStatus] = []
        async with aclosing(follower.batches(0.001)) as batches:
            await anext(batches)
            for place in range(40):
                await it.report(place % 2, [place])
                assert len(follower._queue) <= 5
            async for batch in batches:
                found += [change.status for change in batch.changes]
                if not batch.changes:
                    break
        revisions = [one.revision for one in found]
        assert revisions == sorted(set(revisions)), "in order, each once"
        tasks = {(one.job, one.index): one.state for one in found if isinstance(one, TaskStatus)}
        assert tasks == {(place % 2, place): "running" for place in range(40)}
        assert found[-1] == it.store.job(1)

    play(tmp_path, scenario)


def test_a_job_is_added_to_a_stream_from_its_beginning_on(tmp_path: Path) -> None:
    async def scenario(it: Bench) -> None:
        follower = it.feed.follow(it.store.revision, ())
        reading = asyncio.ensure_future(received(follower, 1, 0))
        await until_joined(it, 1)
        await it.submit(0, 1)
        await it.report(0, [0])
        assert not it.feed.add("another", 0, None)
        assert not it.feed.add(follower.name, 0, "olga"), "of whoever may see less"
        assert it.feed.add(follower.name, 0, None)
        await it.report(1, [1])
        await it.report(0, [1])
        found = await reading
        assert {one.index for one in found if isinstance(one, TaskStatus)} == {0, 1}
        assert {events.job_of(one) for one in found} == {0}

    play(tmp_path, scenario)


def test_a_job_that_has_ended_is_followed_no_longer(tmp_path: Path) -> None:
    async def scenario(it: Bench) -> None:
        await it.submit(0)
        follower = it.feed.follow(it.store.revision, (0,))
        async with aclosing(follower.batches(LIMIT_S)) as batches:
            reading = asyncio.ensure_future(anext(batches))
            await until_joined(it, 1)
            await it.writer.written(lambda: it.store.fail(0, "gone", 1))
            (change,) = (await reading).changes
            assert isinstance(change.status, JobStatus)
            assert change.status.ended
            assert (follower.jobs, it.feed._of_job) == (set(), {})

    play(tmp_path, scenario)


def test_whoever_may_see_one_user_is_sent_nothing_of_others(tmp_path: Path) -> None:
    async def scenario(it: Bench) -> None:
        await it.submit(0, user="olga")
        await it.submit(1, user="paul")
        reading = [asyncio.ensure_future(received(it.feed.follow(after, user="paul"), 3, 1)) for after in (0, 999)]
        await until_joined(it, 2)
        await it.report(0, [3])
        await it.report(1, [3])
        for found in await asyncio.gather(*reading):
            assert {events.job_of(one) for one in found} == {1}

    play(tmp_path, scenario)


@pytest.mark.parametrize("error", [sqlite3.OperationalError("disk I/O error"), RuntimeError("a fault of the program")])
def test_a_feed_that_fails_sends_followers_away_and_the_next_ones_are_served(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    async def scenario(it: Bench) -> None:
        await it.submit(0)
        after = it.store.revision
        reading = asyncio.ensure_future(received(it.feed.follow(after), 1, 0))
        await until_joined(it, 1)

        def unreadable(*_: object) -> None:
            raise error

        with monkeypatch.context() as patched:
            patched.setattr(it.feed, "_hand_over", unreadable)
            await it.report(0, [0])
            with pytest.raises(AssertionError, match="the feed has ended"):
                await reading
        reading = asyncio.ensure_future(received(it.feed.follow(after), 1, 0))
        await until_joined(it, 1)
        await it.report(0, [1])
        assert {one.index for one in await reading if isinstance(one, TaskStatus)} == {0, 1}

    play(tmp_path, scenario)
