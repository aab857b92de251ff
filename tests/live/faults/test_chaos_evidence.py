"""What is made of the lines that tasks write under chaos: attempts, as the kernel's locks say."""

from __future__ import annotations

from tests.live.chaos.evidence import attempts_of, read_told

from volery.faults.judge import AttemptRecord, excesses, overlaps

TASKS = {(9, 0): 0, (9, 1): 1}


def lines(*told: str) -> str:
    return "\n".join(told)


def test_an_attempt_that_was_killed_ran_until_another_got_what_it_held() -> None:
    text = lines(
        "began 9 0 16 3 100 task-0,node-3-slot-0",
        "began 9 1 16 3 250 task-1,node-3-slot-0",
        "ended 9 1 16 3 300 task-1,node-3-slot-0",
        "began 9 0 17 4 400 task-0,node-4-slot-0",
        "ended 9 0 17 4 500 task-0,node-4-slot-0",
        "began 9 0",
    )
    attempts = attempts_of(read_told(text), TASKS)
    assert attempts == {
        0: [AttemptRecord(100, 250, 3, 16, False), AttemptRecord(400, 500, 4, 17, True)],
        1: [AttemptRecord(250, 300, 3, 16, True)],
    }
    assert not [*overlaps(attempts), *excesses(attempts, ((1,),) * 5, ("tasks",), lambda _: (1,))]


def test_one_that_was_refused_ran_beside_whoever_held_its_lock() -> None:
    text = lines(
        "began 9 0 16 3 100 task-0,node-3-slot-0",
        "refused 9 1 16 3 200 task-1",
        "ended 9 0 16 3 300 task-0,node-3-slot-0",
        "refused 9 0 17 4 250 task-0",
    )
    attempts = attempts_of(read_told(text), TASKS)
    (twice,) = overlaps(attempts)
    assert twice.problem == "task 0 ran on machine 3 until 300 us and from 250 us on 4"
    (full,) = excesses(attempts, ((1,),) * 5, ("tasks",), lambda _: (1,))
    assert full.problem == "machine 3 runs 2 tasks at 200 us"


def test_one_of_which_nothing_more_was_heard_ran_to_the_last_line() -> None:
    assert attempts_of(read_told("began 9 0 0 3 100 task-0\nbegan 9 1 0 4 150 task-1"), TASKS) == {
        0: [AttemptRecord(100, 151, 3, 0, False)],
        1: [AttemptRecord(150, 151, 4, 0, False)],
    }
