"""Numbers of attempts for people, over restarts of schedulers and of whole federations; and their folders."""

from __future__ import annotations

from pathlib import Path

import pytest

from volery.core.model import Task
from volery.live.command import Call, Command, encode_payload
from volery.live.node.context import AttemptFolders, attempt_number


def number(attempt: int, attempts: int = 0, launched: int = -1, by_incarnation: bool = True) -> int:
    payload = encode_payload(Command(("true",), attempts=attempts, launched=launched))
    assert attempt_number(payload, attempt, by_incarnation) == attempt_number(
        encode_payload(Call(b"", attempts=attempts, launched=launched)), attempt, by_incarnation
    )
    return attempt_number(payload, attempt, by_incarnation)


@pytest.mark.parametrize(
    ("attempt", "attempts", "launched", "seen"),
    [
        (144, 0, -1, 0),  # of a Global Master in its 9th incarnation: people see the first attempt
        (145, 0, -1, 1),  # its node was lost
        (160, 2, 145, 2),  # the Global Master has begun anew, and so has the task
        (161, 2, 145, 3),
        (146, 2, 145, 2),  # the next incarnation adopted attempt 145, and lost it
        (147, 2, 145, 3),
        (32, 3, 145, 3),  # another Global Master, of fewer incarnations
        (0, 1, 0, 1),  # a design that counts from 0 after each restart
        (1, 1, 0, 2),
    ],
)
def test_people_see_0_1_2_whatever_the_scheduler_counts(attempt: int, attempts: int, launched: int, seen: int) -> None:
    assert number(attempt, attempts, launched) == seen


def test_a_scheduler_without_incarnations_may_preempt_a_task_often() -> None:
    assert [number(attempt, by_incarnation=False) for attempt in (0, 15, 16, 40)] == [0, 15, 16, 40]
    assert number(0, attempts=41, launched=40, by_incarnation=False) == 41


def test_no_attempt_finds_what_another_has_left(tmp_path: Path) -> None:
    folders = AttemptFolders(tmp_path)
    assert folders.make(Task(5, 3), 0) == (str(tmp_path / "3" / "5.0"), 0)
    (tmp_path / "3" / "5.0" / "out.txt").write_text("partial")
    assert folders.make(Task(5, 3), 0) == (str(tmp_path / "3" / "5.1"), 1)
    assert not [*(tmp_path / "3" / "5.1").iterdir()]
    assert folders.make(Task(5, 3), 4) == (str(tmp_path / "3" / "5.4"), 4)
    assert folders.make(Task(5, 3), 1) == (str(tmp_path / "3" / "5.2"), 2)
