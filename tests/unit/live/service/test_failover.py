"""Nothing that depends on a move of jobs is sent before the move is committed, and moves are written in order."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Sequence
from typing import Any

from volery.core.events import Cancel, Moved, PeerBack, PeerLost, Reassignment
from volery.core.model import Address, JobId, Message
from volery.live.service.batches import UnwrittenError
from volery.live.service.checksums import add_triggers
from volery.live.service.failover import KEPT_MIN, Failover
from volery.live.service.ledgers import TABLES, AssignmentLedger

ENTRIES = ("gm/0", "gm/1", "gm/2")
FIRST, SECOND = Reassignment(1, "gm/0", "gm/1"), Reassignment(2, "gm/1", "gm/2")


class Bench:
    """A failover whose writes are committed when the test says so. Job n is usually at entry n % 3."""

    def __init__(self) -> None:
        self.sql = sqlite3.connect(":memory:", isolation_level=None)
        for table in (*TABLES, "CREATE TABLE jobs (id INTEGER PRIMARY KEY, user TEXT, ended_us INTEGER)"):
            self.sql.execute(table)
        self.sql.execute("CREATE INDEX jobs_open ON jobs (user) WHERE ended_us IS NULL")
        add_triggers(self.sql, ("moves", "assignments"))
        self.sql.executemany("INSERT INTO jobs VALUES (?, '', NULL)", [(job,) for job in range(3)])
        self.book = AssignmentLedger(self.sql, self.sql)
        self.writes: list[tuple[Callable[[], Any], asyncio.Future[Any]]] = []
        self.sent: list[tuple[Address, Message]] = []
        self.again: list[Sequence[JobId]] = []
        self.failover = Failover(
            lambda job, user: ENTRIES[job % 3],
            ENTRIES,
            0,
            self.book,
            self._written,
            self.order,
            self._submit_again,
        )

    async def _written(self, write: Callable[[], Any]) -> Any:
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.writes.append((write, future))
        return await future

    def order(self, to: Address, message: Message) -> None:
        self.sent.append((to, message))

    async def _submit_again(self, jobs: Sequence[JobId]) -> None:
        self.again.append(jobs)

    async def until(self, condition: Callable[[], object]) -> None:
        async with asyncio.timeout(30):
            while not condition():
                await asyncio.sleep(0)

    def commit(self) -> None:
        write, future = self.writes.pop(0)
        future.set_result(write())

    def fail(self) -> None:
        self.writes.pop(0)[1].set_exception(UnwrittenError("the disk is full"))


def test_an_entry_that_answers_again_while_a_move_is_written_is_sent_nothing_before_the_commit() -> None:
    async def scenario() -> None:
        bench = Bench()
        bench.failover.on_peer(PeerLost("gm/0"))
        await bench.until(lambda: bench.writes)
        bench.failover.on_peer(PeerBack("gm/0"))
        bench.failover.greet(["gm/1"])
        bench.failover.call_when_settled(lambda: bench.order("gm/1", Cancel(0)))
        bench.failover.call_when_settled(lambda: bench.order("gm/0", Cancel(3)))
        waiting = asyncio.create_task(bench.failover.settled())
        for _ in range(100):
            await asyncio.sleep(0)
        assert not bench.sent, "a program that is killed now would give the epoch to another move"
        assert not waiting.done()
        bench.commit()
        await bench.until(lambda: bench.again)
        await waiting
        told = Moved((FIRST,))
        assert bench.sent[:4] == [("gm/0", told), ("gm/1", told), ("gm/1", Cancel(0)), ("gm/0", Cancel(3))]
        assert bench.again == [[0]]
        await bench.failover.close()

    asyncio.run(scenario())


def test_a_job_that_was_moved_twice_is_found_at_its_last_entry_though_the_first_write_had_failed() -> None:
    async def scenario() -> None:
        bench = Bench()
        bench.failover.on_peer(PeerLost("gm/0"))
        await bench.until(lambda: bench.writes)
        bench.failover.on_peer(PeerLost("gm/1"))
        await bench.until(lambda: bench.failover.entry(0, "") == "gm/2")
        bench.fail()
        while len(bench.again) < 2:
            await bench.until(lambda: bench.writes or len(bench.again) == 2)
            if bench.writes:
                assert not bench.sent
                bench.commit()
        assert bench.book.moves() == [FIRST, SECOND]
        assert {job: tuple(owner) for job, owner in bench.book.owners()} == {0: ("gm/2", 2), 1: ("gm/2", 2)}
        await bench.failover.close()

    asyncio.run(scenario())


def test_a_job_at_a_scheduler_that_the_federation_has_no_more_is_at_its_usual_one() -> None:
    async def scenario() -> None:
        bench = Bench()
        bench.book.add(Reassignment(1, "gm/0", "gm/9"), [0], "", 0)
        again = Failover(
            lambda job, user: ENTRIES[job % 3],
            ENTRIES,
            0,
            bench.book,
            bench._written,
            bench.order,
            bench._submit_again,
        )
        assert again.entry(0, "") == "gm/0"

    asyncio.run(scenario())


def test_a_job_whose_own_write_has_failed_leaves_no_assignment_to_the_next_job_of_its_number() -> None:
    async def scenario() -> None:
        bench = Bench()
        bench.failover.on_peer(PeerLost("gm/0"))
        await bench.until(lambda: bench.writes)
        bench.sql.execute("DELETE FROM jobs WHERE id = 0")  # as when its batch is rolled back
        bench.commit()
        await bench.until(lambda: bench.again)
        bench.sql.execute("INSERT INTO jobs VALUES (0, '', NULL)")
        assert not bench.book.owners()
        await bench.failover.close()

    asyncio.run(scenario())


def test_what_is_remembered_of_jobs_at_another_scheduler_does_not_grow_with_jobs_that_have_ended() -> None:
    async def scenario() -> None:
        bench = Bench()
        bench.failover.on_peer(PeerLost("gm/0"))
        await bench.until(lambda: bench.writes)
        bench.commit()
        await bench.until(lambda: bench.again)
        for job in range(3, 9 * KEPT_MIN, 3):  # one scheduler is gone for good
            bench.sql.execute("INSERT INTO jobs VALUES (?, '', NULL)", (job,))
            bench.failover.assign(job, "")
            assert bench.failover.entry(job, "") == "gm/1"
            bench.sql.execute("UPDATE jobs SET ended_us = 1 WHERE id = ?", (job - 3,))
        assert bench.failover._assignments.remembered_count <= KEPT_MIN + 1
        assert bench.failover.entry(job, "") == "gm/1"
        await bench.failover.close()

    asyncio.run(scenario())


def test_a_scheduler_whose_jobs_were_moved_is_relieved_at_once_if_it_is_lost_to_the_next_start_too() -> None:
    """It is not given its grace again, nor any new job meanwhile; once it has answered, it is trusted as before."""

    async def scenario() -> None:
        bench = Bench()
        bench.book.add(FIRST, [], "", 0)
        hour_us = 3_600_000_000
        again = Failover(
            lambda job, user: ENTRIES[job % 3],
            ENTRIES,
            hour_us,
            bench.book,
            bench._written,
            bench.order,
            bench._submit_again,
        )
        again.on_peer(PeerLost("gm/2"))
        again.on_peer(PeerLost("gm/0"))
        again.on_peer(PeerLost("gm/0"))
        await bench.until(lambda: bench.writes)
        assert [again.choice(job, "") for job in (9, 10, 11)] == ["gm/1", "gm/1", "gm/2"]
        bench.commit()
        await bench.until(lambda: bench.again)
        assert bench.book.moves() == [FIRST, Reassignment(2, "gm/0", "gm/1")], "one move, though it was lost twice"
        again.greet(["gm/0"])
        again.on_peer(PeerLost("gm/0"))
        for _ in range(100):
            await asyncio.sleep(0)
        assert again.choice(9, "") == "gm/0", "it has its grace again"
        await again.close()

    asyncio.run(scenario())
