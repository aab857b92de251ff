"""The entry of every job, and the moves of jobs from an entry that does not answer (decision 0041)."""

from __future__ import annotations

from volery.core.assignment import GRACE, Assignments, Owner
from volery.core.events import Moved, Reassignment
from volery.core.model import Address, JobId

A, B, C = ENTRIES = (Address("gm/0"), Address("gm/1"), Address("gm/2"))
JOBS = [(JobId(number), "ann") for number in range(6)]


def entry_for(job: JobId, user: str) -> Address:
    return ENTRIES[job % 3]


def made(*moves: Reassignment) -> Assignments:
    return Assignments(entry_for, ENTRIES, 1_000, moves)


def test_without_standins_no_job_ever_moves() -> None:
    alone = Assignments(entry_for)
    alone.lost(A)
    assert not alone.is_moving
    assert alone.next_move(A) is None
    assert alone.grace_us == 0


def test_jobs_of_a_lost_entry_go_to_the_next_in_turn_that_answers() -> None:
    entries = made()
    assert entries.is_moving
    assert entries.grace_us == GRACE * 1_000
    assert entries.next_move(B) is None, "it answers"
    entries.lost(B)
    entries.lost(C)
    move = entries.next_move(B)
    assert move == Reassignment(1, B, A), "the next in turn is lost, too"
    assert entries.make(move, JOBS) == [1, 4]
    assert entries.owner(JobId(1), "ann") == Owner(A, 1)
    assert entries.owner(JobId(2), "ann") == Owner(C), "jobs of others stay where they are"


def test_nobody_takes_over_where_no_entry_answers() -> None:
    entries = made()
    for entry in ENTRIES:
        entries.lost(entry)
    assert entries.next_move(A) is None
    assert entries.is_lost(A)


def test_a_job_that_was_moved_moves_again_with_its_heir() -> None:
    entries = made()
    entries.lost(A)
    first = entries.next_move(A)
    assert first is not None
    entries.make(first, JOBS)
    entries.lost(B)
    second = entries.next_move(B)
    assert second == Reassignment(2, B, C)
    assert entries.make(second, JOBS) == [0, 1, 3, 4], "those of B, and those that B had from A"
    assert entries.owner(JobId(0), "ann") == Owner(C, 2)


def test_new_jobs_avoid_an_entry_that_is_relieved_until_it_is_back() -> None:
    entries = made()
    entries.lost(A)
    assert entries.assign(JobId(6), "ann") == Owner(A), "its jobs have not been moved yet"
    move = entries.next_move(A)
    assert move is not None
    entries.make(move, JOBS)
    assert entries.assign(JobId(9), "ann") == Owner(B)
    entries.back(A)
    assert entries.assign(JobId(12), "ann") == Owner(A)
    assert entries.owner(JobId(9), "ann") == Owner(B), "what it was relieved of stays with the heir"


def test_an_entry_learns_of_all_moves_if_jobs_were_moved_from_or_to_it() -> None:
    move = Reassignment(1, A, B)
    entries = made(move)
    assert entries.greeting(A) == entries.greeting(B) == (Moved((move,)),)
    assert entries.greeting(C) == ()


def test_epochs_go_on_after_a_restart_and_ended_jobs_are_forgotten() -> None:
    entries = made(Reassignment(7, A, B))
    entries.restore(JobId(0), Owner(B, 7))
    entries.restore(JobId(3), Owner(B, 7))
    assert entries.remembered_count == 2
    entries.keep([JobId(3), JobId(5)])
    assert entries.remembered_count == 1
    assert entries.owner(JobId(0), "ann") == Owner(A)
    entries.lost(C)
    assert entries.next_move(C) == Reassignment(8, C, A)
