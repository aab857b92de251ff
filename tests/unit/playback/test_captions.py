"""What a recording says is read from what happens: the first of every kind, by whom, to whom, about which tasks."""

from __future__ import annotations

from string import Formatter
from typing import Final

import pytest

from volery import architectures
from volery.core.events import Counted, JobDone, Submit
from volery.core.model import Job, Message, Task, TaskId
from volery.core.reasons import Decision, Reason, Rejection
from volery.playback.captions import Captions, in_words


class Ask(Message, frozen=True):
    """Clerk > office: keep {room} for these tasks."""

    tasks: tuple[TaskId, ...]


def where(task: TaskId) -> tuple[int, int]:
    return task // 10, task % 10


def said(declared: dict[str, str], *messages: Message) -> list[tuple[int, str]]:
    captions = Captions(declared, where)
    for now, message in enumerate(messages):
        captions.sent(now, "clerk/1", "office/2", message)
    return captions.moments


def test_a_message_speaks_for_itself_and_once() -> None:
    assert said({}, Ask((12,)), Ask((13,)), JobDone(4)) == [
        (0, "clerk/1 > office/2: keep (room) for these tasks (task 2 of job 1)."),
        (2, "clerk/1 reports to the submitter that job 4 is done."),
    ]


def test_a_design_says_it_in_its_own_words_and_leaves_out_what_it_does_not_name() -> None:
    assert said({"Ask": "{receiver} hears of {tasks} ({count})."}, Ask((12, 13, 27))) == [
        (0, "office/2 hears of 3 tasks of 2 jobs (3).")
    ]
    assert said({"Other": "nothing"}, Ask((12,))) == []


def test_names_of_users_are_shortened() -> None:
    submit = Submit(Job(7, 3, (Task(70, 7),), user="<b>" + "x" * 10_000))
    ((_, words),) = said({}, submit)
    assert words.startswith("Job 7 of <b>xxx")
    assert len(words) < 150


def test_what_waits_is_told_with_what_was_passed_over() -> None:
    captions = Captions({"borrowed": "{sender} borrows."}, where)
    passed = (Rejection("internal", Reason.BUSY, 6), Rejection("external", Reason.CONSTRAINT, 1_200))
    captions.observed(5, "gm/0", Decision(41, 4, "queued", rejected=passed))
    captions.observed(6, "gm/0", Decision(42, 4, "queued", rejected=passed))
    captions.observed(7, "gm/0", Counted("borrowed"))
    passed_over = "6 own taken, 1,200 of others that do not suit it"
    assert captions.moments == [
        (5, f"gm/0 finds no free machine for task 1 of job 4: it waits. Passed over: {passed_over}."),
        (7, "gm/0 borrows."),
    ]


def test_tasks_in_words() -> None:
    assert in_words([]) == "no task"
    assert in_words([(3, 1)]) == "task 1 of job 3"
    assert in_words([(3, 1), (3, 2)]) == "2 tasks of job 3"


KNOWN: Final = {"sender", "receiver", "tasks", "count", "job", "user", "tasks_of_job"}


@pytest.mark.parametrize("name", sorted(architectures.names()))
def test_what_designs_declare_can_be_said(name: str) -> None:
    entry = architectures.lookup(name)
    spoken = {message.__name__ for message in entry.messages} | {"Submit", "external_placements", "inconsistencies"}
    for what, words in entry.captions().items():
        assert what in spoken, f"nobody says {what}"
        assert {field for _, field, _, _ in Formatter().parse(words) if field is not None} <= KNOWN
